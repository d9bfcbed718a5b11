//! Scans: the visible records in a range of keys.
//!
//! A scan takes a leaf's entries at a time and prefetches the cache lines of all their records
//! before it reads the first. Writes that the transaction makes during a scan may or may not be
//! returned by it; earlier ones are.
//!
//! Invariant: the cursor stands after the last ready record. Both move without suspension in
//! between. So a dropped or failed call loses nothing: the next one reads the same records.

use std::ops::Bound;
use std::ptr::NonNull;

use super::context::ActiveTransaction;
use super::error::OperationError;
use super::fault::PanicPoint;
use super::progress::ScanProgress;
use super::read_ahead::{ReadAhead, ReadSpan, RecordToRead, SpanRead, read_spans};
use super::read_set::RangeNumber;
use super::ready_records::ReadyRecords;
use crate::index::{Cursor, LeafEntry};
use crate::log::ColdRecord;
use crate::page::PagedCursor;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::record::{ColdVersion, Copies, NotReady, Records, RecordsRef, SeenVersion};
use crate::sched::{self, WaitCause};
use crate::sync::thread;
use crate::types::KeyBuffer;
use crate::version::View;

/// Maximum number of entries taken at a time: one leaf.
pub(super) const BATCH: usize = 64;
/// Number of records that are read from the log at a time.
const READS: usize = 32;
/// Maximum bytes of values in one batch, unless a single value is larger.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Number of records in a batch that count as one step of a task.
pub(super) const RECORDS_PER_STEP: usize = 4;

/// The key bounds of a scan.
#[derive(Clone, Debug)]
pub(crate) struct ScanBounds {
    pub(crate) low: Bound<KeyBuffer>,
    pub(crate) high: Bound<KeyBuffer>,
}

/// The direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Reverse,
}

/// A scan in progress.
#[derive(Debug)]
pub(crate) struct RecordScan<'tx> {
    pub(super) transaction: &'tx ActiveTransaction,
    table: RecordsRef,
    pub(super) bounds: ScanBounds,
    pub(super) direction: Direction,
    /// If set, values are not read from the log, unless needed to decide expiry, and are returned
    /// empty.
    pub(super) keys_only: bool,
    /// If set, expired records are omitted and values are returned without their expiry; else
    /// values are returned in their stored form.
    pub(super) unexpired_only: bool,
    /// If set, records read from the log are not made resident.
    leaves_cold: bool,
    progress: ScanProgress,
    /// Maximum number of records that will be requested.
    expected: u64,
    /// Number of entries to take next.
    pub(super) batch: usize,
    cursor: Option<Cursor<'tx>>,
    /// The cursor for a paged table.
    pub(super) page_cursor: Option<PagedCursor<'tx>>,
    /// Number of leaves to read ahead at the next wait for a leaf.
    pub(super) leaves_ahead: usize,
    /// Records that are read but not passed. Their values are in `copies`, or in versions that stay
    /// allocated until the transaction ends.
    pub(super) ready: ReadyRecords,
    pub(super) copies: Copies,
    ahead: ReadAhead,
    /// The range in the transaction's read set, as wide as the scan may become: a scan that is
    /// never dropped is certified as a whole.
    noted: Option<RangeNumber>,
    /// The last key of an earlier batch that was passed.
    passed: Option<KeyBuffer>,
    /// The first key of a record that was superseded since the transaction began, until the
    /// transaction is notified.
    pub(super) doomed: Option<KeyBuffer>,
    /// Set at the end of the range.
    ended: bool,
    /// Number of the transaction's rollbacks at the last read.
    rollbacks: u64,
}

/// The first entries of a leaf, taken up to the bytes of a batch.
#[derive(Debug, Default)]
struct ScanBatch {
    /// The visible records. Those in `in_log` have no value yet.
    ready: ReadyRecords,
    /// Records that must be read from the log, by their numbers in `ready`.
    in_log: Vec<RecordToRead>,
    /// The first key of a record that was superseded since the transaction began, and the number of
    /// ready records before it.
    doomed: Option<(usize, KeyBuffer)>,
    /// The last entry; `None` if these are all entries that the cursor met.
    last: Option<KeyBuffer>,
}

/// What an entry contributes to a batch.
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

impl ActiveTransaction {
    /// Creates a scan of the records between two bounds, in their stored form.
    pub(crate) fn scan(&self, table: &Records, bounds: ScanBounds) -> RecordScan<'_> {
        assert!(self.engine().owns(table), "the caller checked the table");
        RecordScan {
            transaction: self,
            table: RecordsRef::new(table),
            bounds,
            direction: Direction::Forward,
            keys_only: false,
            unexpired_only: false,
            leaves_cold: false,
            progress: ScanProgress::new(),
            expected: u64::MAX,
            batch: BATCH,
            cursor: None,
            page_cursor: None,
            leaves_ahead: 0,
            ready: ReadyRecords::default(),
            copies: Copies::default(),
            ahead: ReadAhead::default(),
            noted: None,
            passed: None,
            doomed: None,
            ended: false,
            rollbacks: self.savepoints().rollbacks(),
        }
    }
}

impl<'tx> RecordScan<'tx> {
    /// Sets the direction; only before the first record.
    pub(crate) fn set_direction(&mut self, direction: Direction) {
        if !self.has_not_begun() {
            return self.progress.refuse();
        }
        self.direction = direction;
    }

    /// Returns every value that is not ready yet as empty.
    pub(crate) fn set_keys_only(&mut self) {
        self.keys_only = true;
    }

    /// Omits expired records, and returns values without their expiry; only before the first
    /// record.
    pub(crate) fn leave_out_expired(&mut self) {
        assert!(self.has_not_begun(), "set before the first record");
        // SAFETY: the engine owns the table and outlives the transaction.
        self.unexpired_only = unsafe { self.table.get() }.expires();
    }

    /// Does not make records read from the log resident; only before the first record.
    pub(crate) fn set_leaves_cold(&mut self) {
        assert!(self.has_not_begun(), "set before the first record");
        self.leaves_cold = true;
    }

    /// The value that the scan returns for a stored one, if any.
    pub(super) fn given<'v>(&self, table: &Records, stored: &'v [u8]) -> Option<&'v [u8]> {
        if self.unexpired_only { self.transaction.unexpired(table, stored) } else { Some(stored) }
    }

    fn has_not_begun(&self) -> bool {
        self.cursor.is_none() && self.page_cursor.is_none()
    }

    /// Returns whether a record is ready.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Limits [`RecordScan::next`] to `count` more records.
    pub(crate) fn limit(&mut self, count: u64) {
        self.progress.limit(count);
        // A returned record is not passed yet.
        self.expect_records(count.saturating_add(u64::from(self.progress.has_given())));
    }

    /// Number of records that may still be returned.
    pub(crate) fn left(&self) -> u64 {
        self.progress.left()
    }

    /// Moves past the returned record and loads the next, like [`RecordScan::load`]; also `false` once
    /// the limit is reached. The caller then returns the record ([`RecordScan::give`]), or it stays the
    /// next one.
    ///
    /// # Errors
    /// Those of [`RecordScan::load`].
    pub(crate) async fn next(&mut self) -> Result<bool, OperationError> {
        if self.progress.passes() {
            self.pass();
        }
        if self.progress.left() == 0 {
            return self.progress.over();
        }
        self.load().await
    }

    /// Moves past the returned record, as `next` does. Returns whether the next one is ready; if not,
    /// `next` must be called.
    #[inline(always)]
    pub(crate) fn next_now(&mut self) -> bool {
        if self.progress.passes() {
            self.pass();
        }
        self.progress.left() > 0
            && !self.ready.is_empty()
            && self.doomed.is_none()
            && self.rollbacks == self.transaction.savepoints().rollbacks()
    }

    /// Marks the ready record as returned; the next call moves past it.
    pub(crate) fn give(&self) {
        self.progress.give();
    }

    /// Sets the maximum number of records that will be requested, which limits read-ahead.
    pub(crate) fn expect_records(&mut self, count: u64) {
        self.expected = count;
        self.batch = count.clamp(1, BATCH as u64) as usize;
    }

    /// Reads until a record is ready; `false` at the end of the range. A dropped future or an error
    /// loses no record: the next call continues from there.
    ///
    /// # Errors
    /// The log's error if the next value exists and cannot be read; `Overloaded`.
    pub(crate) async fn load(&mut self) -> Result<bool, OperationError> {
        self.forget_rolled_back();
        while self.ready.is_empty() {
            if !self.read_batch().await? {
                self.ended = true;
                break;
            }
        }
        if self.doomed.is_some() {
            self.note_doomed()?;
        }
        Ok(!self.ended)
    }

    /// Notifies the transaction of a superseded record, once the scan has returned it.
    #[cold]
    fn note_doomed(&mut self) -> Result<(), OperationError> {
        let beyond =
            self.doomed.as_deref().zip(self.ready.first()).is_some_and(|(doomed, (key, _))| {
                match self.direction {
                    Direction::Forward => doomed > key,
                    Direction::Reverse => doomed < key,
                }
            });
        if beyond {
            return Ok(());
        }
        let key = self.doomed.take().expect("the caller looked");
        // SAFETY: the engine owns the table and outlives the transaction.
        self.transaction.note_doomed_read(unsafe { self.table.get() }, &key)
    }

    /// The key and the value of the ready record.
    #[inline(always)]
    pub(crate) fn current(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: the value stays until the next batch is read or the transaction ends, and `self`,
        // which borrows the transaction, is borrowed.
        self.ready.first().map(|(key, value)| (key, unsafe { value.as_ref() }))
    }

    /// Moves past the ready record.
    #[inline(always)]
    pub(crate) fn pass(&mut self) {
        self.ready.pass();
        self.expected = self.expected.saturating_sub(1);
    }

    /// The last key that was passed.
    fn last_passed(&self) -> Option<&[u8]> {
        self.ready.last_passed().or(self.passed.as_deref())
    }

    /// Removes all records that were read.
    fn clear_ready(&mut self) {
        if let Some(key) = self.ready.last_passed() {
            self.passed = Some(KeyBuffer::from_slice(key));
        }
        self.ready.clear();
    }

    /// Returns the first record of the scan. The transaction keeps its value until it ends.
    ///
    /// # Errors
    /// Those of [`RecordScan::load`].
    pub(crate) async fn into_first(
        mut self,
    ) -> Result<Option<(KeyBuffer, &'tx [u8])>, OperationError> {
        if !self.load().await? {
            return Ok(None);
        }
        self.transaction.copies().take_over(&mut self.copies);
        let first = self.ready.first();
        // SAFETY: the transaction, which is borrowed for `'tx`, keeps the value.
        let first =
            first.map(|(key, value)| (KeyBuffer::from_slice(key), unsafe { value.as_ref() }));
        self.ready.pass();
        // Records read beyond it are not returned.
        self.clear_ready();
        Ok(first)
    }

    /// Discards records that were read ahead if the transaction was rolled back since: they may
    /// include undone writes.
    #[inline(always)]
    fn forget_rolled_back(&mut self) {
        let rollbacks = self.transaction.savepoints().rollbacks();
        if self.rollbacks != rollbacks {
            self.rollbacks = rollbacks;
            self.forget_ready();
        }
    }

    /// Discards records that were read ahead; the scan continues after the last passed key.
    #[cold]
    fn forget_ready(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        self.clear_ready();
        self.doomed = None;
        match (&mut self.cursor, &self.passed) {
            (Some(cursor), Some(passed)) => cursor.pass_to(passed),
            (cursor, _) => *cursor = None,
        }
        match (&mut self.page_cursor, &self.passed) {
            (Some(cursor), Some(passed)) => cursor.pass_to(passed),
            (cursor, _) => *cursor = None,
        }
    }

    /// Reads the next batch of records; `false` at the end of the range.
    pub(super) async fn read_batch(&mut self) -> Result<bool, OperationError> {
        assert!(self.ready.is_empty(), "a batch is passed before the next one is read");
        self.clear_ready();
        self.transaction.engine().planted_panic.panic_if_planted(PanicPoint::Scan);
        // SAFETY: the engine owns the table and outlives the transaction.
        let table: &'tx Records = unsafe { self.table.get() };
        // No record is ready, so nothing references the previous values.
        self.copies.free(table.memory());
        if let Some(paged) = table.paged() {
            return self.read_paged_batch(table, paged).await;
        }
        let Some(mut batch) = self.look(table).await else { return Ok(false) };
        if !batch.in_log.is_empty() {
            self.read_log(table, &mut batch).await?;
        }
        // Nothing suspends from here on.
        let cursor = self.cursor.as_mut().expect("made for the first batch");
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
        self.choose_batch();
        Ok(true)
    }

    /// Chooses the number of entries of the next batch.
    pub(super) fn choose_batch(&mut self) {
        self.batch = if self.ready.is_empty() {
            // Small batches among deleted records would need a descent each.
            (2 * self.batch).min(BATCH)
        } else {
            let left = self.expected.saturating_sub(self.ready.len() as u64);
            left.clamp(1, BATCH as u64) as usize
        };
    }

    /// Adds the range to the read set, as wide as the scan may become.
    pub(super) fn note_range(&mut self) {
        if self.noted.is_none() && self.transaction.mode().notes() {
            let (low, high) = (as_bytes(&self.bounds.low), as_bytes(&self.bounds.high));
            let reads = self.transaction.reads();
            self.noted = Some(reads.note_range(self.table, low, high));
            // SAFETY: the engine owns the table and outlives the transaction.
            if unsafe { self.table.get() }.paged().is_some() {
                reads.note_pages();
            }
        }
    }

    /// Takes the next entries and their resident values, up to the requested count and the bytes of
    /// a batch; `None` at the end of the range.
    async fn look(&mut self, table: &'tx Records) -> Option<ScanBatch> {
        let operation = reclaim::enter();
        self.note_range();
        let cursor = self.cursor.get_or_insert_with(|| {
            let ScanBounds { low, high } = &self.bounds;
            let reverse = self.direction == Direction::Reverse;
            table.index.cursor(as_bytes(low), as_bytes(high), reverse)
        });
        let mut entries = Vec::with_capacity(self.batch);
        if !cursor.peek(&operation, &mut entries, self.batch).await {
            return None;
        }
        sched::count_steps(1 + (entries.len() / RECORDS_PER_STEP) as u32).await;
        table.prefetch(entries.iter().map(|entry| entry.rid)).await;
        loop {
            if let Some(batch) = self.take(table, &entries, &operation) {
                return Some(batch);
            }
            // The first record's commit is being decided.
            sched::yield_now(WaitCause::Undecided).await;
        }
    }

    /// Takes resident values until a commit is being decided or the batch is full; `None` if no
    /// entry could be taken.
    fn take<'o>(
        &mut self,
        table: &Records,
        entries: &[LeafEntry<'o>],
        operation: &'o OperationGuard,
    ) -> Option<ScanBatch> {
        let mut batch =
            ScanBatch { ready: std::mem::take(&mut self.ready), ..ScanBatch::default() };
        batch.ready.clear();
        batch.ready.reserve(entries.len());
        let view = self.transaction.view();
        let (most, keeps) = (self.expected.max(1), table.keeps_versions());
        let keys_only = self.keys_only && !self.unexpired_only;
        let (mut bytes, mut taken) = (0, 0);
        for entry in entries {
            let number = batch.ready.len();
            if number as u64 == most {
                break;
            }
            let (mut cold, mut stays) = (None, keeps);
            let mut value = match table.newest_value(entry.rid, view, operation) {
                Some((value, lsn)) => {
                    self.transaction.note_lsn(lsn);
                    value
                }
                None => match self.take_other(table, entry, &mut batch, view, operation) {
                    EntryFound::Value(value, is_own) => {
                        stays = keeps && !is_own;
                        value
                    }
                    EntryFound::InLog(in_log) => {
                        cold = Some(in_log);
                        &[]
                    }
                    EntryFound::Nothing => {
                        taken += 1;
                        continue;
                    }
                    EntryFound::Undecided => break,
                },
            };
            if keys_only {
                value = &[];
            }
            bytes += value.len();
            if let Some(cold) = &cold {
                bytes += cold.address.read_bytes();
            }
            if bytes > BATCH_BYTES && number > 0 {
                break;
            }
            if !stays && !value.is_empty() {
                value = self.copies.keep(table.memory(), value);
            }
            if let Some(cold) = cold {
                batch.in_log.push(RecordToRead { number, rid: entry.rid, cold });
            }
            batch.ready.push(|keys| entry.append_key(keys), NonNull::from(value));
            taken += 1;
        }
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

    /// Takes an entry whose newest version is not simply the visible one.
    #[inline(never)]
    fn take_other<'o>(
        &self,
        table: &Records,
        entry: &LeafEntry<'o>,
        batch: &mut ScanBatch,
        view: View<'o>,
        operation: &'o OperationGuard,
    ) -> EntryFound<'o> {
        let found = table.find_now(entry.rid, view, operation);
        let doomed = match found {
            Ok(seen) => self.transaction.is_superseded(table, entry.rid, seen, operation),
            Err(_) => self.transaction.is_overwritten(table, entry.rid, operation),
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
        table: &'tx Records,
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
        table: &'tx Records,
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
    fn receive(&self, table: &Records, one: &RecordToRead, value: &[u8], batch: &mut ScanBatch) {
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
        table: &Records,
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

impl Drop for RecordScan<'_> {
    fn drop(&mut self) {
        if let Some(noted) = self.noted
            && !self.ended
            && !thread::panicking()
        {
            // The caller may have seen the ready record, but not the ones after it.
            let current = self.ready.first().map(|(key, _)| key);
            let short = is_planted(Bug::RangeTrimmedShort);
            let reached = current.filter(|_| !short).or(self.last_passed());
            let reverse = self.direction == Direction::Reverse;
            self.transaction.reads().trim(noted, reached, reverse);
        }
        // Ready records are freed with the scan; values lent to the caller borrowed the scan.
        let memory = &self.transaction.engine().memory;
        self.copies.free(memory);
        self.ahead.keep(memory, None);
    }
}

/// Converts a bound on a buffer to a bound on its bytes.
pub(super) fn as_bytes(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}
