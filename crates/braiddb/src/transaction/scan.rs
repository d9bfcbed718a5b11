//! Scans: the records of a range of keys, as the transaction sees them.
//!
//! A scan takes a leaf's entries at a time and prefetches the cache lines of all their records
//! before it reads the first. Writes that the transaction itself makes while a scan is under way
//! may or may not be met by it; those made before are.
//!
//! Invariant: the cursor stands behind the last record that is ready, and moves together with what
//! becomes ready, without a suspension between. So a call that is dropped, or fails, loses nothing:
//! the next one reads again what was under way.

use std::ops::Bound;
use std::ptr::NonNull;

use super::context::Transaction;
use super::error::OperationError;
use super::fault::PanicPoint;
use super::progress::Progress;
use super::read_ahead::{Piece, ReadAhead, Stretch, Wanted, stretches};
use super::read_set::RangeNumber;
use crate::index::{Cursor, LeafEntry};
use crate::log::ColdRecord;
use crate::page::PagedCursor;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::record::{Copies, NotReady, Records, RecordsRef};
use crate::sched::{self, Cause};
use crate::sync::thread;
use crate::types::KeyBuffer;

/// Entries taken at a time, at most: a leaf's.
pub(super) const BATCH: usize = 64;
/// Records that are read from the log at a time.
const READS: usize = 32;
/// Bytes of values in one batch, unless a single one is larger.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Records of a batch that are as much work as one step of a task.
pub(super) const RECORDS_PER_STEP: usize = 4;

/// Where a scan starts and ends, by key.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) low: Bound<KeyBuffer>,
    pub(crate) high: Bound<KeyBuffer>,
}

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Reverse,
}

/// A scan under way.
#[derive(Debug)]
pub(crate) struct Scan<'tx> {
    pub(super) transaction: &'tx Transaction,
    table: RecordsRef,
    pub(super) bounds: Bounds,
    pub(super) direction: Direction,
    /// Whether values are of no interest, and so are not read from the log, unless they say whether a record has
    /// expired: all are given as empty.
    pub(super) keys_only: bool,
    /// Whether records that have expired are left out, and values given as the user knows them; else all that is
    /// stored is given as it is.
    pub(super) unexpired_only: bool,
    /// Whether what is read from the log is not put back into memory for others.
    leaves_cold: bool,
    progress: Progress,
    /// Records that will be asked for, at most.
    expected: u64,
    /// Entries to be taken next.
    pub(super) batch: usize,
    cursor: Option<Cursor<'tx>>,
    /// The same, of a paged table.
    pub(super) page_cursor: Option<PagedCursor<'tx>>,
    /// Leaves that it reads at once when it next waits for one, beside that.
    pub(super) leaves_ahead: usize,
    /// Keys and values of records read and not yet passed, the next one last. The values are in
    /// `copies`, or in versions that stay until the transaction is over.
    pub(super) ready: Vec<(KeyBuffer, NonNull<[u8]>)>,
    pub(super) copies: Copies,
    ahead: ReadAhead,
    /// The range in the transaction's read set, as wide as the scan may still get: so a scan that is never
    /// dropped is certified whole.
    noted: Option<RangeNumber>,
    /// The last key that was passed.
    passed: Option<KeyBuffer>,
    /// The first key of which the scan met a record that others have changed since the transaction began,
    /// until the transaction is told of it.
    pub(super) stale: Option<KeyBuffer>,
    /// Whether the end of the range was met.
    ended: bool,
    /// How often the transaction had been rolled back when it last read.
    rollbacks: u64,
}

/// The first entries of a batch, in the order of the scan, and what they lead to.
#[derive(Debug, Default)]
struct ScanBatch {
    records: Vec<Record>,
    /// Those of `records` that are to be read from the log.
    in_log: Vec<Wanted>,
    /// The position of the first that others have changed since the transaction began.
    stale: Option<usize>,
    /// Whether these are all entries that the cursor met.
    whole: bool,
}

#[derive(Debug)]
struct Record {
    key: KeyBuffer,
    /// None if the transaction sees none, or does not have it yet.
    value: Option<NonNull<[u8]>>,
}

impl Transaction {
    /// A scan of the records between two bounds, as they are stored.
    pub(crate) fn scan(&self, table: &Records, bounds: Bounds) -> Scan<'_> {
        assert!(self.engine().owns(table), "the caller checked the table");
        Scan {
            transaction: self,
            table: RecordsRef::new(table),
            bounds,
            direction: Direction::Forward,
            keys_only: false,
            unexpired_only: false,
            leaves_cold: false,
            progress: Progress::new(),
            expected: u64::MAX,
            batch: BATCH,
            cursor: None,
            page_cursor: None,
            leaves_ahead: 0,
            ready: Vec::new(),
            copies: Copies::default(),
            ahead: ReadAhead::default(),
            noted: None,
            passed: None,
            stale: None,
            ended: false,
            rollbacks: self.savepoints().rollbacks(),
        }
    }
}

impl<'tx> Scan<'tx> {
    /// Sets the direction; before the first record only.
    pub(crate) fn set_direction(&mut self, direction: Direction) {
        if !self.has_not_begun() {
            return self.progress.refuse();
        }
        self.direction = direction;
    }

    /// Gives every value as empty that is not ready yet.
    pub(crate) fn set_keys_only(&mut self) {
        self.keys_only = true;
    }

    /// Leaves out records that have expired, and gives values as the user knows them; before the first record
    /// only.
    pub(crate) fn leave_out_expired(&mut self) {
        assert!(self.has_not_begun(), "a scan looks at what has expired from its start, or not");
        // SAFETY: the engine owns the table and outlives the transaction.
        self.unexpired_only = unsafe { self.table.get() }.expires();
    }

    /// Lets records that it reads from the log stay there; before the first record only.
    pub(crate) fn set_leaves_cold(&mut self) {
        assert!(self.has_not_begun(), "a scan keeps to what it was told");
        self.leaves_cold = true;
    }

    /// A stored value as the scan gives it, if it does.
    pub(super) fn given<'v>(&self, table: &Records, stored: &'v [u8]) -> Option<&'v [u8]> {
        if self.unexpired_only { self.transaction.unexpired(table, stored) } else { Some(stored) }
    }

    fn has_not_begun(&self) -> bool {
        self.cursor.is_none() && self.page_cursor.is_none()
    }

    /// Whether a record is ready.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// At most `count` more records are given by [`Scan::next`].
    pub(crate) fn limit(&mut self, count: u64) {
        self.progress.limit(count);
        // One that was given is not passed yet.
        self.expect_records(count.saturating_add(u64::from(self.progress.has_given())));
    }

    /// How many more are given at most.
    pub(crate) fn left(&self) -> u64 {
        self.progress.left()
    }

    /// Passes the record that was given, and loads the next one, as [`Scan::load`]; `false` also when as
    /// many were given as may be. The caller then gives it ([`Scan::give`]), or it stays the next.
    ///
    /// # Errors
    /// As [`Scan::load`].
    pub(crate) async fn next(&mut self) -> Result<bool, OperationError> {
        if self.progress.passes() {
            self.pass();
        }
        if self.progress.left() == 0 {
            return self.progress.over();
        }
        self.load().await
    }

    /// The record that is ready was given: it is passed when the next one is asked for.
    pub(crate) fn give(&self) {
        self.progress.give();
    }

    /// Says how many records will be asked for at most, so that not too many are read ahead.
    pub(crate) fn expect_records(&mut self, count: u64) {
        self.expected = count;
        self.batch = count.clamp(1, BATCH as u64) as usize;
    }

    /// Reads until a record is ready; `false` at the end of the range. Dropping the future, or an
    /// error, loses no record: the next call goes on where this one was.
    ///
    /// # Errors
    /// The log's, if the next value is there and cannot be read; `Overloaded`.
    pub(crate) async fn load(&mut self) -> Result<bool, OperationError> {
        self.forget_rolled_back();
        while self.ready.is_empty() {
            if !self.read_batch().await? {
                self.ended = true;
                break;
            }
        }
        if self.stale.is_some() {
            self.note_stale()?;
        }
        Ok(!self.ended)
    }

    /// Notes that the scan has returned a record which others have changed since, if it has come to it by now.
    #[cold]
    fn note_stale(&mut self) -> Result<(), OperationError> {
        let beyond =
            self.stale.as_ref().zip(self.ready.last()).is_some_and(|(stale, (key, _))| match self
                .direction
            {
                Direction::Forward => **stale > **key,
                Direction::Reverse => **stale < **key,
            });
        if beyond {
            return Ok(());
        }
        let key = self.stale.take().expect("the caller looked");
        // SAFETY: the engine owns the table and outlives the transaction.
        self.transaction.note_stale_read(unsafe { self.table.get() }, &key)
    }

    /// The key and the value of the record that is ready.
    pub(crate) fn current(&self) -> Option<(&KeyBuffer, &[u8])> {
        // SAFETY: the value stays until the next batch is read or the transaction is over, and `self`,
        // which borrows the transaction, is borrowed.
        self.ready.last().map(|(key, value)| (key, unsafe { value.as_ref() }))
    }

    /// Passes the record that is ready.
    pub(crate) fn pass(&mut self) {
        let (key, _) = self.ready.pop().expect("only a record that is ready is passed");
        self.passed = Some(key);
        self.expected = self.expected.saturating_sub(1);
    }

    /// The first record of the scan, whose value the transaction keeps until it is over.
    ///
    /// # Errors
    /// As [`Scan::load`].
    pub(crate) async fn into_first(
        mut self,
    ) -> Result<Option<(KeyBuffer, &'tx [u8])>, OperationError> {
        if !self.load().await? {
            return Ok(None);
        }
        self.transaction.copies().take_over(&mut self.copies);
        let first = self.ready.pop();
        self.passed = first.as_ref().map(|(key, _)| key.clone());
        // What was read beyond it is told to nobody.
        self.ready.clear();
        // SAFETY: the transaction, which is borrowed for `'tx`, keeps it.
        Ok(first.map(|(key, value)| (key, unsafe { value.as_ref() })))
    }

    /// Drops what was read ahead if the transaction was rolled back since: own writes may be among it.
    #[inline(always)]
    fn forget_rolled_back(&mut self) {
        let rollbacks = self.transaction.savepoints().rollbacks();
        if self.rollbacks != rollbacks {
            self.rollbacks = rollbacks;
            self.forget_ready();
        }
    }

    /// Drops what was read ahead: the scan goes on behind what was passed.
    #[cold]
    fn forget_ready(&mut self) {
        if self.ready.is_empty() {
            return;
        }
        self.ready.clear();
        self.stale = None;
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
        self.transaction.engine().planted_panic.panic_if_planted(PanicPoint::Scan);
        // SAFETY: the engine owns the table and outlives the transaction.
        let table: &'tx Records = unsafe { self.table.get() };
        // Nothing is ready, so nothing leads to what was read before.
        self.copies.free(table.memory());
        if let Some(paged) = table.paged() {
            return self.read_paged_batch(table, paged).await;
        }
        let Some(mut batch) = self.look(table).await else { return Ok(false) };
        if !batch.in_log.is_empty() {
            self.read_log(table, &mut batch).await?;
        }
        // From here on nothing suspends.
        let cursor = self.cursor.as_mut().expect("made for the first batch");
        match batch.records.last() {
            Some(_) if batch.whole => cursor.pass_all(),
            Some(last) => cursor.pass_to(&last.key),
            None => {}
        }
        let stale = batch.stale.and_then(|position| batch.records.get(position));
        self.stale = self.stale.take().or_else(|| stale.map(|record| record.key.clone()));
        let records = batch.records.len();
        let live = batch.records.into_iter().rev().filter_map(|record| {
            let mut value = record.value?;
            if self.unexpired_only {
                // SAFETY: just read; it stays until the next batch is, or the transaction is over.
                let stored = unsafe { value.as_ref() };
                value = NonNull::from(self.transaction.unexpired(table, stored)?);
                if self.keys_only {
                    value = NonNull::from(&[][..]);
                }
            }
            Some((record.key, value))
        });
        self.ready.reserve(records);
        self.ready.extend(live);
        if self.ready.is_empty() {
            // Among deleted records, a few at a time would take a descent for each few.
            self.batch = (2 * self.batch).min(BATCH);
        }
        Ok(true)
    }

    /// Notes the range as read, as wide as the scan may get.
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

    /// Meets the next entries and takes what is in memory of their records, up to as many as are asked
    /// for, and to as many bytes as a batch has; `None` at the end of the range.
    async fn look(&mut self, table: &'tx Records) -> Option<ScanBatch> {
        let operation = reclaim::enter();
        self.note_range();
        let cursor = self.cursor.get_or_insert_with(|| {
            let Bounds { low, high } = &self.bounds;
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
            let batch = self.take(table, &entries, &operation);
            if !batch.records.is_empty() {
                return Some(batch);
            }
            // The first is being decided.
            sched::yield_now(Cause::Undecided).await;
        }
    }

    /// Takes what is in memory of records, until one is being decided, or it is enough.
    fn take<'o>(
        &self,
        table: &Records,
        entries: &[LeafEntry<'o>],
        operation: &'o OperationGuard,
    ) -> ScanBatch {
        let (mut batch, mut live, mut bytes) = (ScanBatch::default(), 0, 0);
        batch.records.reserve(entries.len());
        let view = self.transaction.view();
        let keys_only = self.keys_only && !self.unexpired_only;
        for entry in entries {
            if live == self.expected.max(1) {
                break;
            }
            let found = table.find_now(entry.rid, view, operation);
            let stale = match found {
                Ok(seen) => self.transaction.is_stale(table, entry.rid, seen, operation),
                Err(_) => self.transaction.is_overwritten(table, entry.rid, operation),
            };
            let (value, cold) = match found {
                Ok(seen) => {
                    let value = self.transaction.note(seen);
                    (if keys_only { value.map(|_| &[][..]) } else { value }, None)
                }
                Err(NotReady::InLog(cold)) if keys_only => {
                    self.transaction.note_lsn(cold.lsn());
                    (Some(&[][..]), None)
                }
                Err(NotReady::InLog(cold)) => (None, Some(cold)),
                Err(NotReady::Undecided) => break,
            };
            bytes += value.map_or(0, <[u8]>::len);
            bytes += cold.map_or(0, |cold| cold.address.read_bytes());
            if bytes > BATCH_BYTES && live > 0 {
                break;
            }
            live += u64::from(value.is_some() || cold.is_some());
            if stale && batch.stale.is_none() {
                batch.stale = Some(batch.records.len());
            }
            let (number, rid) = (batch.records.len(), entry.rid);
            batch.in_log.extend(cold.map(|cold| Wanted { number, rid, cold }));
            let key = entry.key();
            let value = value.map(|value| match table.keeps_versions() {
                true => NonNull::from(value),
                false => NonNull::from(self.copies.keep(table.memory(), value)),
            });
            batch.records.push(Record { key, value });
        }
        batch.whole = batch.records.len() == entries.len();
        batch
    }

    /// Reads what is in the log, side by side, and neighbours in one piece. A record that cannot be read ends
    /// the batch before it; the next one starts with it. No operation guard is held meanwhile.
    ///
    /// # Errors
    /// What keeps the first record of the batch from being read.
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
        let mut stretches = stretches(&wanted, segment_bytes);
        self.ahead.widen(&mut stretches, self.direction, self.expected, segment_bytes);
        for some in stretches.chunks(READS) {
            let bytes = some.iter().map(Stretch::bytes).sum();
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

    /// Takes the values of a stretch's records from the piece that was read.
    ///
    /// # Errors
    /// Of the first record that cannot be read, and its number.
    async fn take_piece(
        &mut self,
        table: &'tx Records,
        stretch: &Stretch<'_>,
        piece: Piece,
        batch: &mut ScanBatch,
    ) -> Result<(), (usize, OperationError)> {
        let span = match piece {
            Piece::Span(span) => Some(span),
            Piece::Unread => None,
            Piece::Record(read) => {
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
    fn receive(&self, table: &Records, one: &Wanted, value: &[u8], batch: &mut ScanBatch) {
        if !self.leaves_cold {
            self.transaction.bring_back(table, one.rid, one.cold, value);
        }
        self.transaction.note_lsn(one.cold.lsn());
        let value = self.copies.keep(table.memory(), value);
        batch.records[one.number].value = Some(NonNull::from(value));
    }

    /// Keeps the value of a record that was read by itself.
    fn keep_record(
        &self,
        table: &Records,
        one: &Wanted,
        record: ColdRecord,
        batch: &mut ScanBatch,
    ) {
        self.transaction.note_lsn(one.cold.lsn());
        let value = self.copies.keep_record(table.memory(), record);
        batch.records[one.number].value = Some(NonNull::from(value));
    }
}

impl ScanBatch {
    /// Ends the batch before the record at `position`, which cannot be read.
    ///
    /// # Errors
    /// `error`, if nothing is left then.
    fn end_before(&mut self, position: usize, error: OperationError) -> Result<(), OperationError> {
        self.records.truncate(position);
        self.whole = false;
        if self.records.is_empty() { Err(error) } else { Ok(()) }
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        if let Some(noted) = self.noted
            && !self.ended
            && !thread::panicking()
        {
            // The next record that is ready may have been looked at, those behind it were not.
            let current = self.ready.last().map(|(key, _)| key);
            let short = is_planted(Bug::RangeTrimmedShort);
            let reached = current.filter(|_| !short).or(self.passed.as_ref());
            let reverse = self.direction == Direction::Reverse;
            self.transaction.reads().trim(noted, reached.map(|key| &**key), reverse);
        }
        // What is ready goes with the scan, and what was lent of it borrowed the scan.
        let memory = &self.transaction.engine().memory;
        self.copies.free(memory);
        self.ahead.keep(memory, None);
    }
}

/// A bound on a buffer, as a bound on its bytes.
pub(super) fn as_bytes(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}
