//! Scans: the visible records in a range of keys.
//!
//! A scan takes a leaf's entries at a time and prefetches the cache lines of all their records
//! before it reads the first. Writes that the transaction makes during a scan may or may not be
//! returned by it; earlier ones are.
//!
//! Invariant: the cursor stands after the last ready record, and moves together with the ready
//! records, without suspension in between. So a dropped or failed call loses nothing: the next one
//! reads the same records.

use std::cell::Cell;

use super::read_ahead::ReadAhead;
use super::ready_records::ReadyRecords;
use super::scan_bounds::{Direction, ScanBounds, as_bytes};
use crate::index::{Cursor, LeafEntry};
use crate::page::PagedCursor;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::record::{Copies, Records, RecordsRef, TableKind};
use crate::sched::{self, compiled_here};
use crate::sync::thread;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::sets::read_set::RangeNumber;
use crate::transaction::sets::savepoints::Savepoints;
use crate::transaction::sets::scan_lists::ScanLists;
use crate::types::KeyBuffer;

/// Maximum number of entries taken at a time: one leaf.
pub(in crate::transaction) const BATCH: usize = 64;
/// Maximum number of records taken from a page at a time.
const PAGED_BATCH: usize = 128;
/// Maximum bytes of values in one batch, unless a single value is larger.
pub(super) const BATCH_BYTES: usize = 1 << 20;
/// Number of records in a batch that count as one step of a task.
pub(in crate::transaction) const RECORDS_PER_STEP: usize = 4;
/// Bytes of copied values that count as one step.
const COPIED_BYTES_PER_STEP: usize = 8 << 10;
/// As `RECORDS_PER_STEP`, for records of one page, whose memory is contiguous.
const PAGED_RECORDS_PER_STEP: usize = 8;

/// A scan in progress.
#[derive(Debug)]
pub(crate) struct RecordScan<'tx> {
    pub(in crate::transaction) transaction: &'tx ActiveTransaction,
    table: RecordsRef,
    pub(in crate::transaction) bounds: ScanBounds,
    pub(in crate::transaction) direction: Direction,
    /// If set, values are not read from the log, unless needed to decide expiry, and are returned
    /// empty.
    pub(super) keys_only: bool,
    /// If set, expired records are omitted and values are returned without their expiry; else
    /// values are returned in their stored form.
    pub(super) unexpired_only: bool,
    /// If set, records read from the log are not made resident.
    pub(super) leaves_cold: bool,
    /// If set, all ready records are passed before the caller suspends. Their values are then lent
    /// under `guard` and not copied.
    visits: bool,
    guard: Option<OperationGuard>,
    /// Maximum number of records that may still be returned. This and `expected` include the passed
    /// ones of the ready records.
    left: u64,
    /// Set if a request came too late; then nothing is left.
    refused: bool,
    /// Maximum number of records that will be requested.
    pub(super) expected: u64,
    /// Bytes of values that the last batch of a table in memory copied.
    pub(super) copied_bytes: usize,
    /// Number of entries to take next.
    pub(in crate::transaction) batch: usize,
    pub(in crate::transaction) cursor: Option<Cursor<'tx>>,
    /// The memory of the list of entries that a batch takes.
    entries: Vec<LeafEntry<'static>>,
    /// False if batches are probably not read without waiting: the last batch needed records from the
    /// log, or a page that was not available or had records that not every transaction sees.
    pub(super) may_read_now: bool,
    /// The cursor for a paged table.
    pub(super) page_cursor: Option<PagedCursor<'tx>>,
    /// Number of leaves to read ahead at the next wait for a leaf.
    pub(super) leaves_ahead: usize,
    /// Records that are read but not passed. Their values are in `copies`, or in versions that stay
    /// allocated until the transaction ends or `guard` is dropped.
    pub(super) ready: ReadyRecords,
    /// Number of ready records that [`RecordScan::next_now`] may return.
    stop: usize,
    /// Set once a caller looked at a ready record that was not passed yet.
    looked: Cell<bool>,
    pub(in crate::transaction) copies: Copies,
    pub(in crate::transaction) ahead: ReadAhead,
    /// The range in the transaction's read set, as wide as the scan may become: a scan that is
    /// never dropped is certified as a whole.
    noted: Option<RangeNumber>,
    /// The last key of an earlier batch that was passed.
    passed: Option<KeyBuffer>,
    /// The first key of a record that was superseded since the transaction began, until the
    /// transaction is notified.
    pub(in crate::transaction) doomed: Option<KeyBuffer>,
    /// Set once the range must be certified as a whole: the caller knows that no record follows, or
    /// knows one that a rollback made the scan forget.
    ended: bool,
    /// Number of the transaction's rollbacks now, and at the last read.
    savepoints: &'tx Savepoints,
    rollbacks: u64,
}

impl ActiveTransaction {
    /// Creates a scan of the records between two bounds, in their stored form.
    pub(crate) fn scan(&self, table: &Records, bounds: ScanBounds) -> RecordScan<'_> {
        assert!(self.engine().owns(table), "the caller checked the table");
        let ScanLists { entries, records, long_keys } = self.context().scan_lists.take();
        RecordScan {
            transaction: self,
            table: RecordsRef::new(table),
            bounds,
            direction: Direction::Forward,
            keys_only: false,
            unexpired_only: false,
            leaves_cold: false,
            visits: false,
            guard: None,
            left: u64::MAX,
            refused: false,
            expected: u64::MAX,
            copied_bytes: 0,
            batch: BATCH,
            cursor: None,
            entries,
            may_read_now: true,
            page_cursor: None,
            leaves_ahead: 0,
            ready: ReadyRecords::with_memory(records, long_keys),
            stop: 0,
            looked: Cell::new(false),
            copies: Copies::default(),
            ahead: ReadAhead::default(),
            noted: None,
            passed: None,
            doomed: None,
            ended: false,
            savepoints: self.savepoints(),
            rollbacks: self.savepoints().rollbacks(),
        }
    }
}

impl<'tx> RecordScan<'tx> {
    /// Sets the direction; only before the first record.
    pub(crate) fn set_direction(&mut self, direction: Direction) {
        if self.has_not_begun() {
            self.direction = direction;
        } else {
            self.limit(0);
            self.refused = true;
        }
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

    /// Lends values that are not ready yet without copying them: the caller does not suspend between
    /// two of them.
    pub(crate) fn set_visits(&mut self) {
        self.visits = true;
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
        if !self.refused {
            self.left = count.saturating_add(self.ready.passed() as u64);
            self.expect_records(self.left);
            self.set_stop();
        }
    }

    /// Number of records that may still be returned.
    pub(crate) fn left(&self) -> u64 {
        self.left.saturating_sub(self.ready.passed() as u64)
    }

    /// Loads the next record, like [`RecordScan::load`]; also `false` once the limit is reached. The
    /// caller then takes the record ([`RecordScan::lend`]) and passes it ([`RecordScan::pass`]), or it
    /// stays the next one.
    ///
    /// # Errors
    /// Those of [`RecordScan::load`].
    pub(crate) async fn next(&mut self) -> Result<bool, OperationError> {
        match self.left() {
            0 if self.refused => Err(OperationError::ScanBegun),
            0 => Ok(false),
            _ => self.load().await,
        }
    }

    /// Returns whether the next record is ready; if not, `load_now` or `next` must be called.
    #[inline(always)]
    pub(crate) fn next_now(&self) -> bool {
        self.ready.passed() < self.stop && self.rollbacks == self.savepoints.rollbacks()
    }

    /// Does what `next` does, if nothing must be waited for. If it returns `false`, `next` must be
    /// called.
    #[inline(never)]
    pub(crate) fn load_now(&mut self) -> bool {
        if !self.ready.is_empty() || self.left() == 0 || !self.may_read_now {
            return false;
        }
        self.forget_rolled_back();
        while self.ready.is_empty() {
            if !self.read_batch_now() {
                return false;
            }
        }
        self.set_stop();
        self.stop > 0
    }

    /// Determines how many ready records may be returned without a further check.
    fn set_stop(&mut self) {
        let ready = if self.doomed.is_none() { self.ready.len() } else { 0 };
        self.stop = self.left.min(ready as u64) as usize;
    }

    /// Sets the maximum number of records that will be requested, which limits read-ahead.
    pub(crate) fn expect_records(&mut self, count: u64) {
        self.expected = count;
        let most = if count == u64::MAX { BATCH } else { self.max_batch() };
        self.batch = count.clamp(1, most as u64) as usize;
    }

    /// Maximum number of records that are taken at a time.
    fn max_batch(&self) -> usize {
        // SAFETY: the engine owns the table and outlives the transaction.
        if unsafe { self.table.get() }.paged().is_some() { PAGED_BATCH } else { BATCH }
    }

    /// Reads until a record is ready; `false` at the end of the range. A dropped future or an error
    /// loses no record: the next call continues from there.
    ///
    /// # Errors
    /// The log's error if the next value exists and cannot be read; `Overloaded`.
    pub(crate) fn load(&mut self) -> impl Future<Output = Result<bool, OperationError>> {
        compiled_here(async move {
            self.forget_rolled_back();
            while self.ready.is_empty() {
                let has_more = self.read_batch().await?;
                // Another operation may have rolled back while this one was suspended.
                if !self.forget_rolled_back() && !has_more {
                    self.ended = true;
                    break;
                }
            }
            if self.doomed.is_some() {
                self.note_doomed()?;
            }
            self.set_stop();
            Ok(!self.ready.is_empty())
        })
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
    pub(crate) fn current(&self) -> Option<(&[u8], &[u8])> {
        self.looked.set(true);
        self.lend()
    }

    /// The key and the value of the ready record, which the caller passes before it uses them.
    #[inline(always)]
    pub(crate) fn lend(&self) -> Option<(&[u8], &[u8])> {
        // SAFETY: `self`, which borrows the transaction, is borrowed. All that frees or moves the
        // copies, or drops the guard under which versions were found, takes it mutably or by value. A
        // version that was found otherwise stays until the transaction ends.
        self.ready.first().map(|(key, value)| (key, unsafe { value.as_ref() }))
    }

    /// The next record, which was loaded, and those that `next_now` may return after it, with their
    /// numbers. The caller passes each before it uses it.
    #[inline(always)]
    pub(crate) fn loaded(&self) -> impl Iterator<Item = (usize, &[u8], &[u8])> {
        let long_keys = self.ready.long_keys();
        let end = self.stop.max(self.ready.passed() + 1);
        let records = self.ready.numbered(end).map(move |(number, record)| {
            // SAFETY: `self` is borrowed. All that frees or moves the copies, or drops the guard under
            // which versions were found, takes it mutably or by value.
            (number, record.key(long_keys), unsafe { record.value.as_ref() })
        });
        records.take_while(|_| self.rollbacks == self.savepoints.rollbacks())
    }

    /// Moves past the loaded records with numbers up to this one.
    #[inline(always)]
    pub(crate) fn pass_through(&self, number: usize) {
        self.ready.pass_through(number);
    }

    /// Moves past the next record, which was loaded, and those that `next_now` may return after it;
    /// returns their number.
    pub(crate) fn pass_loaded(&self) -> usize {
        let (passed, end) = (self.ready.passed(), self.stop.max(self.ready.passed() + 1));
        self.ready.pass_through(end - 1);
        end - passed
    }

    /// Moves past the ready record.
    #[inline(always)]
    pub(crate) fn pass(&self) {
        self.ready.pass();
    }

    /// Removes all records that were read.
    fn clear_ready(&mut self) {
        if let Some(key) = self.ready.passed_before(1) {
            self.passed = Some(KeyBuffer::from_slice(key));
        }
        let passed = self.ready.passed() as u64;
        self.left = self.left.saturating_sub(passed);
        self.expected = self.expected.saturating_sub(passed);
        self.ready.clear();
        self.stop = 0;
        self.guard = None;
    }

    /// Returns the first record of the scan. The transaction keeps its value until it ends.
    ///
    /// # Errors
    /// Those of [`RecordScan::load`].
    pub(crate) async fn into_first(
        mut self: Box<Self>,
    ) -> Result<Option<(KeyBuffer, &'tx [u8])>, OperationError> {
        if !self.load().await? {
            return Ok(None);
        }
        let (key, value) = self.ready.first().expect("loaded");
        let key = KeyBuffer::from_slice(key);
        // SAFETY: in `self.copies`, or in a version that stays until the transaction ends.
        let bytes = unsafe { value.as_ref() };
        let value = if self.page_cursor.is_some() && !Copies::adopts(bytes.len()) {
            // Its buffer has the size of a page.
            // SAFETY: the engine owns the table and outlives the transaction.
            self.transaction.copies().keep(unsafe { self.table.get() }.memory(), bytes)
        } else {
            self.transaction.copies().take_over(&mut self.copies);
            // SAFETY: the transaction, which is borrowed for `'tx`, keeps the value.
            unsafe { value.as_ref() }
        };
        self.ready.pass();
        // Records read beyond it are not returned.
        self.clear_ready();
        Ok(Some((key, value)))
    }

    /// Discards records that were read ahead if the transaction was rolled back since: they may
    /// include undone writes. Returns whether it was.
    #[inline(always)]
    fn forget_rolled_back(&mut self) -> bool {
        let rollbacks = self.transaction.savepoints().rollbacks();
        let rolled_back = self.rollbacks != rollbacks;
        if rolled_back {
            self.rollbacks = rollbacks;
            self.forget_ready();
        }
        rolled_back
    }

    /// Discards records that were read ahead; the scan continues after the last passed key. Records
    /// that the undone writes had deleted may follow it.
    #[cold]
    fn forget_ready(&mut self) {
        // The caller knows a record that was not passed. Its range is not trimmed before it.
        self.ended |= self.looked.get() && self.is_ready();
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
    pub(in crate::transaction) async fn read_batch(&mut self) -> Result<bool, OperationError> {
        let table = self.begin_batch();
        match table.kind() {
            TableKind::Memory(table) => self.read_memory_batch(table).await,
            TableKind::Paged(table) => self.read_paged_batch(table).await,
        }
    }

    /// Does what `read_batch` does, if nothing must be waited for; `false` if it must be called.
    fn read_batch_now(&mut self) -> bool {
        let table = self.begin_batch();
        match table.kind() {
            TableKind::Memory(table) => {
                sched::may_take_steps(self.memory_steps(self.batch), || table.is_cold())
                    && self.read_memory_batch_now(table)
            }
            TableKind::Paged(table) => {
                sched::may_take_steps(self.paged_steps(), || table.pages().is_cold())
                    && self.read_paged_batch_now(table)
            }
        }
    }

    /// Number of steps of the next batch of so many entries of a table in memory, if it copies as
    /// many bytes as the last one.
    pub(super) fn memory_steps(&self, entries: usize) -> u32 {
        (1 + entries / RECORDS_PER_STEP + self.copied_bytes / COPIED_BYTES_PER_STEP) as u32
    }

    /// Number of steps of the next batch from a page.
    pub(super) fn paged_steps(&self) -> u32 {
        1 + (self.batch / PAGED_RECORDS_PER_STEP) as u32
    }

    /// Releases the passed records, and notes the range that the scan will read.
    fn begin_batch(&mut self) -> &'tx Records {
        assert!(self.ready.is_empty(), "a batch is passed before the next one is read");
        self.clear_ready();
        self.transaction.engine().planted_panic.panic_if_planted(PanicPoint::Scan);
        // SAFETY: the engine owns the table and outlives the transaction.
        let table: &'tx Records = unsafe { self.table.get() };
        // No record is ready, so nothing references the previous values.
        self.copies.free(table.memory());
        self.note_range(table);
        table
    }

    /// Returns an empty list for entries that are taken under a guard.
    pub(in crate::transaction) fn entries<'g>(&mut self) -> Vec<LeafEntry<'g>> {
        let mut entries = LeafEntry::reuse(std::mem::take(&mut self.entries));
        entries.reserve(self.batch);
        entries
    }

    /// Keeps the memory of a list of entries for the next batch.
    pub(super) fn keep_entries(&mut self, entries: Vec<LeafEntry<'_>>) {
        self.entries = LeafEntry::reuse(entries);
    }

    /// Returns whether values are lent under a guard.
    pub(super) fn visits(&self) -> bool {
        self.visits
    }

    /// Keeps the guard under which the values of the next ready records were found.
    pub(super) fn keep_guard(&mut self, operation: OperationGuard) {
        self.guard = Some(operation);
    }

    /// Chooses the number of entries of the next batch.
    pub(super) fn choose_batch(&mut self) {
        self.batch = if self.ready.is_empty() {
            // Small batches among deleted records would need a descent each.
            (2 * self.batch).min(self.max_batch())
        } else {
            let left = self.expected.saturating_sub(self.ready.len() as u64);
            left.clamp(1, self.max_batch() as u64) as usize
        };
    }

    /// Adds the range to the read set, as wide as the scan may become.
    fn note_range(&mut self, table: &Records) {
        if self.noted.is_none() && self.transaction.mode().notes() {
            let (low, high) = (as_bytes(&self.bounds.low), as_bytes(&self.bounds.high));
            let reads = self.transaction.reads();
            self.noted = Some(reads.note_range(table, low, high));
        }
    }
}

impl Drop for RecordScan<'_> {
    fn drop(&mut self) {
        if let Some(noted) = self.noted
            && !self.ended
            && !thread::panicking()
        {
            // The caller may have seen the ready record, but not the ones after it.
            let current = self.ready.first().filter(|_| self.looked.get()).map(|(key, _)| key);
            let before = if is_planted(Bug::RangeTrimmedShort) { 2 } else { 1 };
            let reached = current.or(self.ready.passed_before(before)).or(self.passed.as_deref());
            let reverse = self.direction == Direction::Reverse;
            self.transaction.reads().trim(noted, reached, reverse);
        }
        // Ready records are freed with the scan; values lent to the caller borrowed the scan.
        let memory = &self.transaction.engine().memory;
        self.copies.free(memory);
        self.ahead.keep(memory, None);
        let (records, long_keys) = std::mem::take(&mut self.ready).into_memory();
        let entries = std::mem::take(&mut self.entries);
        self.transaction.context().scan_lists.keep(ScanLists { entries, records, long_keys });
    }
}
