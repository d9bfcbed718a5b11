//! Batches of a scan of a table in memory: the visible records of some entries of a leaf.

use std::ptr::NonNull;

use super::read_ahead::{ReadSpan, RecordToRead, SpanRead, read_spans};
use super::ready_records::ReadyRecords;
use super::scan::{BATCH_BYTES, RecordScan};
use super::scan_bounds::{Direction, ScanBounds, as_bytes};
use crate::index::{Cursor, LeafEntry};
use crate::log::ColdRecord;
use crate::reclaim::{self, OperationGuard};
use crate::record::{ColdVersion, MemoryRecords, NotReady, SeenVersion};
use crate::sched::{self, WaitCause};
use crate::transaction::context::error::OperationError;
use crate::types::KeyBuffer;
use crate::version::View;

/// Number of records that are read from the log at a time.
const READS: usize = 32;

/// The first entries of a leaf, taken up to the bytes of a batch.
#[derive(Debug, Default)]
struct ScanBatch {
    /// The visible records. The records listed in `in_log` have no value yet.
    ready: ReadyRecords,
    /// Records that must be read from the log, by their numbers in `ready`.
    in_log: Vec<RecordToRead>,
    /// The first key of a record that was superseded since the transaction began, and the number of
    /// ready records before it.
    doomed: Option<(usize, KeyBuffer)>,
    /// The last entry; `None` if these are all entries that the cursor met.
    last: Option<KeyBuffer>,
}

/// Result of the look at an entry.
enum EntryFound<'o> {
    /// No visible record.
    Nothing,
    /// The value, and whether the transaction wrote it: a later write of the transaction then frees
    /// the version.
    Value(&'o [u8], bool),
    InLog(ColdVersion),
    /// Its commit is being decided: the batch ends before it.
    Undecided,
}

impl<'tx> RecordScan<'tx> {
    /// Does what `read_batch` does, for a table in memory.
    pub(super) async fn read_memory_batch(
        &mut self,
        table: &'tx MemoryRecords,
    ) -> Result<bool, OperationError> {
        let Some(mut batch) = self.look(table).await else { return Ok(false) };
        self.may_read_now = batch.in_log.is_empty();
        if !batch.in_log.is_empty() {
            self.read_log(table, &mut batch).await?;
        }
        self.end_batch(table, batch);
        Ok(true)
    }

    /// Does what `read_memory_batch` does, if nothing must be waited for; `false` if it must be
    /// called.
    pub(super) fn read_memory_batch_now(&mut self, table: &'tx MemoryRecords) -> bool {
        let operation = reclaim::enter();
        let mut entries = self.entries();
        let most = self.batch;
        let found = self.cursor(table).peek_now(&operation, &mut entries, most);
        if table.is_cold() {
            entries.iter().for_each(|entry| table.prefetch_entry(entry.rid()));
            entries.iter().for_each(|entry| table.prefetch_newest(entry.rid(), &operation));
        }
        let batch = found.then(|| self.take(table, &entries, true, &operation)).flatten();
        self.keep_entries(entries);
        let Some(batch) = batch else { return false };
        self.may_read_now = batch.in_log.is_empty();
        if self.may_read_now {
            self.end_batch(table, batch);
            if self.visits() {
                self.keep_guard(operation);
            }
        }
        self.may_read_now
    }

    /// The cursor, which the first batch makes.
    fn cursor(&mut self, table: &'tx MemoryRecords) -> &mut Cursor<'tx> {
        self.cursor.get_or_insert_with(|| {
            let ScanBounds { low, high } = &self.bounds;
            let reverse = self.direction == Direction::Reverse;
            table.index().cursor(as_bytes(low), as_bytes(high), reverse)
        })
    }

    /// Moves past the entries of a batch, and makes its records the ready ones.
    fn end_batch(&mut self, table: &'tx MemoryRecords, batch: ScanBatch) {
        let cursor = self.cursor(table);
        match &batch.last {
            Some(last) => cursor.pass_to(last),
            None => cursor.pass_all(),
        }
        if self.doomed.is_none() {
            self.doomed = batch.doomed.map(|(_, key)| key);
        }
        self.ready = batch.ready;
        if self.unexpired_only {
            let keys_only = self.keys_only;
            self.ready.replace_values(|value| {
                // SAFETY: just read; the value stays until the next batch is read or the
                // transaction ends.
                let value = self.transaction.unexpired(table, unsafe { value.as_ref() })?;
                Some(NonNull::from(if keys_only { &[] } else { value }))
            });
        }
        self.copied_bytes = self.copies.copied_bytes();
        self.choose_batch();
    }

    /// Takes the next entries and their resident values, up to the requested count and the bytes of
    /// a batch; `None` at the end of the range.
    async fn look(&mut self, table: &'tx MemoryRecords) -> Option<ScanBatch> {
        let operation = reclaim::enter();
        let (mut entries, most) = (self.entries(), self.batch);
        if !self.cursor(table).peek(&operation, &mut entries, most).await {
            return None;
        }
        sched::count_steps(self.memory_steps(entries.len())).await;
        table.prefetch(entries.iter().map(LeafEntry::rid)).await;
        let mut batch = loop {
            if let Some(batch) = self.take(table, &entries, false, &operation) {
                break batch;
            }
            // The first record's commit is being decided.
            sched::yield_now(WaitCause::Undecided).await;
        };
        self.keep_entries(entries);
        if self.visits() && batch.in_log.is_empty() {
            self.keep_guard(operation);
        } else if self.visits() {
            // The guard ends before records are read from the log.
            batch.ready.replace_values(|value| {
                // SAFETY: found under the guard.
                let value = unsafe { value.as_ref() };
                Some(NonNull::from(self.copies.keep(table.memory(), value)))
            });
        }
        Some(batch)
    }

    /// Takes resident values until a commit is being decided or the batch is full, or until a record
    /// is not resident, if `resident_only`; `None` if no entry could be taken.
    fn take<'o>(
        &mut self,
        table: &'o MemoryRecords,
        entries: &[LeafEntry<'o>],
        resident_only: bool,
        operation: &'o OperationGuard,
    ) -> Option<ScanBatch> {
        let transaction = self.transaction;
        let mut batch =
            ScanBatch { ready: std::mem::take(&mut self.ready), ..ScanBatch::default() };
        batch.ready.clear();
        batch.ready.reserve(self.batch);
        let view = transaction.view();
        let keys_only = self.keys_only && !self.unexpired_only;
        let lends = keys_only || self.visits() || table.keeps_versions();
        let most = usize::try_from(self.expected.max(1)).unwrap_or(usize::MAX);
        let mut newest_values = table.newest_values(view, operation);
        let (mut depends_on, mut taken, mut bytes) = (transaction.depends_on(), 0, 0);
        loop {
            let rest = &entries[taken..];
            // In a visit, values that are found after a record from the log are copied later.
            if lends && (batch.in_log.is_empty() || !self.visits()) {
                let rest = &rest[..rest.len().min(most - batch.ready.len())];
                let lent = match keys_only {
                    false => batch.ready.lend::<false>(rest, &newest_values, &mut depends_on),
                    true => batch.ready.lend::<true>(rest, &newest_values, &mut depends_on),
                };
                (taken, bytes) = (taken + lent.records, bytes + lent.bytes);
            }
            let Some(entry) = entries.get(taken) else { break };
            if batch.ready.len() == most || resident_only && !batch.in_log.is_empty() {
                break;
            }
            let found = match newest_values.get(entry.rid()) {
                Some((value, lsn)) => {
                    depends_on = depends_on.max(lsn);
                    EntryFound::Value(value, false)
                }
                None => self.take_other(table, entry, &mut batch, view, operation),
            };
            let is_in_log = matches!(found, EntryFound::InLog(_));
            if is_in_log && resident_only && !batch.ready.is_empty() {
                break;
            }
            if !self.add(table, entry, found, (&mut batch, &mut bytes)) {
                break;
            }
            taken += 1;
        }
        transaction.note_lsn(depends_on);
        if taken == 0 {
            self.ready = batch.ready;
            return None;
        }
        batch.last = (taken < entries.len()).then(|| entries[taken - 1].key());
        // Noted with an entry that was not taken.
        batch.doomed.take_if(|(_, key)| {
            batch.last.as_ref().is_some_and(|last| match self.direction {
                Direction::Forward => *key > *last,
                Direction::Reverse => *key < *last,
            })
        });
        Some(batch)
    }

    /// Adds the value of an entry to a batch, or its copy if the value is not lent; `false` if the
    /// batch ends before it.
    fn add(
        &self,
        table: &MemoryRecords,
        entry: &LeafEntry<'_>,
        found: EntryFound<'_>,
        (batch, bytes): (&mut ScanBatch, &mut usize),
    ) -> bool {
        let number = batch.ready.len();
        let (mut value, is_own, cold) = match found {
            EntryFound::Nothing => return true,
            EntryFound::Undecided => return false,
            EntryFound::Value(value, is_own) => (value, is_own, None),
            EntryFound::InLog(cold) => (&[][..], false, Some(cold)),
        };
        if self.keys_only && !self.unexpired_only {
            value = &[];
        }
        *bytes += value.len() + cold.map_or(0, |cold| cold.address.read_bytes());
        if *bytes > BATCH_BYTES && number > 0 {
            return false;
        }
        let stays = self.visits() || (table.keeps_versions() && !is_own);
        if !stays && !value.is_empty() {
            value = self.copies.keep(table.memory(), value);
        }
        if let Some(cold) = cold {
            batch.in_log.push(RecordToRead { number, rid: entry.rid(), cold });
        }
        batch.ready.push_entry(entry, NonNull::from(value));
        true
    }

    /// Takes an entry whose newest version is not simply the visible one.
    #[inline(never)]
    fn take_other<'o>(
        &self,
        table: &MemoryRecords,
        entry: &LeafEntry<'o>,
        batch: &mut ScanBatch,
        view: View<'o>,
        operation: &'o OperationGuard,
    ) -> EntryFound<'o> {
        let found = table.find_now(entry.rid(), view, operation);
        let doomed = match found {
            Ok(seen) => self.transaction.is_superseded(table, entry.rid(), seen, operation),
            Err(_) => self.transaction.is_overwritten(table, entry.rid(), operation),
        };
        if doomed && batch.doomed.is_none() {
            batch.doomed = Some((batch.ready.len(), entry.key()));
        }
        match found {
            Ok(seen) => match self.transaction.note(seen) {
                Some(value) => EntryFound::Value(value, seen.is_some_and(SeenVersion::is_own)),
                None => EntryFound::Nothing,
            },
            Err(NotReady::InLog(cold)) if self.keys_only && !self.unexpired_only => {
                self.transaction.note_lsn(cold.lsn());
                EntryFound::Value(&[], false)
            }
            Err(NotReady::InLog(cold)) => EntryFound::InLog(cold),
            Err(NotReady::Undecided) => EntryFound::Undecided,
        }
    }

    /// Reads values from the log concurrently, and neighbors in one piece. A record that cannot be
    /// read ends the batch before it; the next batch starts with it. No operation guard is held
    /// during the reads.
    ///
    /// # Errors
    /// The error of the batch's first record.
    async fn read_log(
        &mut self,
        table: &'tx MemoryRecords,
        batch: &mut ScanBatch,
    ) -> Result<(), OperationError> {
        let mut wanted = std::mem::take(&mut batch.in_log);
        wanted.retain(|one| match self.ahead.find(table, one) {
            Some(value) => {
                self.receive(table, one, value, batch);
                false
            }
            None => true,
        });
        if wanted.is_empty() {
            return Ok(());
        }
        let segment_bytes = table.log_segment_bytes();
        let mut read_spans = read_spans(&wanted, segment_bytes);
        self.ahead.widen(&mut read_spans, self.direction, self.expected, segment_bytes);
        for some in read_spans.chunks(READS) {
            let bytes = some.iter().map(ReadSpan::bytes).sum();
            let _permit = match self.transaction.admit_bytes(bytes).await {
                Ok(permit) => permit,
                Err(error) => return batch.end_before(some[0].wanted[0].number, error),
            };
            let pieces = self.transaction.read_pieces(table, some).await;
            for (stretch, piece) in some.iter().zip(pieces) {
                if let Err((number, error)) = self.take_piece(table, stretch, piece, batch).await {
                    return batch.end_before(number, error);
                }
            }
        }
        Ok(())
    }

    /// Takes the values of a span's records from the piece that was read.
    ///
    /// # Errors
    /// The number and error of the first record that cannot be read.
    async fn take_piece(
        &mut self,
        table: &'tx MemoryRecords,
        stretch: &ReadSpan<'_>,
        piece: SpanRead,
        batch: &mut ScanBatch,
    ) -> Result<(), (usize, OperationError)> {
        let span = match piece {
            SpanRead::Span(span) => Some(span),
            SpanRead::Unread => None,
            SpanRead::Record(read) => {
                let one = &stretch.wanted[0];
                self.keep_record(table, one, read.map_err(|error| (one.number, error))?, batch);
                self.ahead.keep(table.memory(), None);
                return Ok(());
            }
        };
        for one in stretch.wanted {
            let found = span.as_ref().and_then(|span| table.value_in(span, one.rid, one.cold));
            if let Some(value) = found {
                self.receive(table, one, value, batch);
            } else {
                let read = self.transaction.fetch_admitted(table, one.rid, one.cold).await;
                self.keep_record(table, one, read.map_err(|error| (one.number, error))?, batch);
            }
        }
        self.ahead.keep(table.memory(), span);
        Ok(())
    }

    /// Keeps the value of a record that was found in a piece of the log.
    fn receive(
        &self,
        table: &MemoryRecords,
        one: &RecordToRead,
        value: &[u8],
        batch: &mut ScanBatch,
    ) {
        if !self.leaves_cold {
            self.transaction.cache_record(table, one.rid, one.cold, value);
        }
        self.transaction.note_lsn(one.cold.lsn());
        let value = self.copies.keep(table.memory(), value);
        batch.ready.set_value(one.number, NonNull::from(value));
    }

    /// Keeps the value of a record that was read separately.
    fn keep_record(
        &self,
        table: &MemoryRecords,
        one: &RecordToRead,
        record: ColdRecord,
        batch: &mut ScanBatch,
    ) {
        self.transaction.note_lsn(one.cold.lsn());
        let value = self.copies.keep_record(table.memory(), record);
        batch.ready.set_value(one.number, NonNull::from(value));
    }
}

impl ScanBatch {
    /// Ends the batch before the ready record with a number, which cannot be read.
    ///
    /// # Errors
    /// `error`, if no record is left.
    fn end_before(&mut self, number: usize, error: OperationError) -> Result<(), OperationError> {
        self.ready.truncate(number);
        self.doomed.take_if(|(before, _)| *before >= number);
        self.last = self.ready.last_key();
        if self.last.is_none() { Err(error) } else { Ok(()) }
    }
}
