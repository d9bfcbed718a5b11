//! Scans: the records of a range of keys, as the transaction sees them.
//!
//! A scan takes a leaf's entries at a time and brings the cache lines of all their records near
//! before it reads the first. Writes that the transaction itself makes while a scan is under way
//! may or may not be met by it; those made before are.
//!
//! Invariant: the cursor stands behind the last record that is ready, and moves together with what
//! becomes ready, without a suspension between. So a call that is dropped, or fails, loses nothing:
//! the next one reads again what was under way.

use std::ops::Bound;

use super::context::Transaction;
use super::error::OperationError;
use crate::index::{Cursor, LeafEntry};
use crate::reclaim;
use crate::record::{Copies, Far, Located, Seen, Table, TableRef};
use crate::sched;
use crate::types::KeyBuffer;

/// Entries taken at a time, at most: a leaf's.
const BATCH: usize = 64;
/// Records that are read from the log at a time.
const FAR_AT_A_TIME: usize = 32;
/// Bytes of records that are read from the log for one batch, unless a single one is larger.
const FAR_BYTES: usize = 1 << 20;
/// Records of a batch that are as much work as one step of a task.
const RECORDS_PER_STEP: usize = 4;

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
    transaction: &'tx Transaction,
    table: TableRef,
    bounds: Bounds,
    direction: Direction,
    /// Records that will be asked for, at most.
    expected: u64,
    /// Entries to be taken next.
    batch: usize,
    cursor: Option<Cursor<'tx>>,
    /// Records read and not yet passed, the next one last.
    ready: Vec<(KeyBuffer, Seen<'tx>)>,
    /// Those of `ready` that were read from the log for this scan alone.
    copies: Copies,
}

/// What the first entries of a batch lead to, in the order of the scan.
#[derive(Debug, Default)]
struct Batch<'tx> {
    seen: Vec<Option<Seen<'tx>>>,
    /// Places in `seen` of those that take reading the log, or waiting.
    far: Vec<usize>,
}

impl Transaction {
    /// A scan of the records between two bounds.
    pub(crate) fn scan(&self, table: &Table, bounds: Bounds) -> Scan<'_> {
        assert!(self.engine().owns(table), "the caller checked the table");
        Scan {
            transaction: self,
            table: TableRef::new(table),
            bounds,
            direction: Direction::Forward,
            expected: u64::MAX,
            batch: BATCH,
            cursor: None,
            ready: Vec::new(),
            copies: Copies::default(),
        }
    }
}

impl<'tx> Scan<'tx> {
    /// Sets the direction; before the first record only.
    pub(crate) fn set_direction(&mut self, direction: Direction) {
        assert!(self.cursor.is_none(), "a scan does not turn round");
        self.direction = direction;
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
        while self.ready.is_empty() {
            if !self.read_batch().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The key and the value of the record that is ready.
    pub(crate) fn current(&self) -> Option<(&KeyBuffer, &[u8])> {
        self.ready.last().map(|(key, seen)| (key, ready_value(seen)))
    }

    /// Passes the record that is ready.
    pub(crate) fn pass(&mut self) {
        self.ready.pop().expect("only a record that is ready is passed");
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
        self.transaction.copies().take_over(&self.copies);
        Ok(self.ready.pop().map(|(key, seen)| (key, ready_value(&seen))))
    }

    /// Reads the next batch of records; `false` at the end of the range.
    pub(super) async fn read_batch(&mut self) -> Result<bool, OperationError> {
        assert!(self.ready.is_empty(), "a batch is passed before the next one is read");
        let operation = reclaim::enter();
        // SAFETY: the engine owns the table and outlives the transaction.
        let table: &'tx Table = unsafe { self.table.get() };
        // SAFETY: nothing is ready, so nothing leads to what was read before.
        unsafe { self.copies.free(table.memory()) };
        let cursor = self.cursor.get_or_insert_with(|| {
            let Bounds { low, high } = &self.bounds;
            let reverse = self.direction == Direction::Reverse;
            table.index.cursor(as_bytes(low), as_bytes(high), reverse)
        });
        let mut entries = Vec::with_capacity(self.batch);
        if !cursor.peek(&operation, &mut entries, self.batch).await {
            return Ok(false);
        }
        sched::count_steps(1 + (entries.len() / RECORDS_PER_STEP) as u32).await;
        table.bring_near(entries.iter().map(|entry| entry.rid)).await;
        let mut batch = self.look(table, &entries);
        self.read_far(table, &entries, &mut batch).await?;
        // From here on nothing suspends.
        let passed = batch.seen.len();
        for (entry, seen) in entries.iter().zip(batch.seen).rev() {
            if self.transaction.note(seen).is_some() {
                let mut key = KeyBuffer::new();
                entry.copy_key(key.inner_mut());
                self.ready.extend(seen.map(|seen| (key, seen)));
            }
        }
        self.cursor.as_mut().expect("made above").pass(&entries, passed);
        if self.ready.is_empty() {
            // Among deleted records, a few at a time would take a descent for each few.
            self.batch = (2 * self.batch).min(BATCH);
        }
        Ok(true)
    }

    /// What is near of the records of a batch, up to as many as are asked for, and to as many bytes
    /// as are read from the log at once. The caller holds the guard under which it met the entries.
    fn look(&self, table: &'tx Table, entries: &[LeafEntry<'_>]) -> Batch<'tx> {
        let view = self.transaction.view();
        let (mut batch, mut live, mut far_bytes) = (Batch::default(), 0, 0);
        for entry in entries {
            if live == self.expected.max(1) {
                break;
            }
            // SAFETY: the caller's guard covers the call, and the transaction is active for `'tx`.
            let seen = match unsafe { table.read_near(entry.rid, view) } {
                Ok(seen) => seen,
                Err(Far) => {
                    // SAFETY: as above.
                    let located = unsafe { table.locate(entry.rid, view) };
                    if let Ok(Some(Located::At(address))) = located {
                        far_bytes += address.read_bytes();
                    }
                    if far_bytes > FAR_BYTES && !batch.far.is_empty() {
                        break;
                    }
                    batch.far.push(batch.seen.len());
                    live += 1;
                    None
                }
            };
            live += u64::from(seen.is_some_and(|seen| seen.value().is_some()));
            batch.seen.push(seen);
        }
        batch
    }

    /// Reads what is far, side by side: a scan reads ahead. A record that cannot be read ends the
    /// batch before it; the next one starts with it.
    ///
    /// # Errors
    /// What keeps the first record of the batch from being read.
    async fn read_far(
        &self,
        table: &'tx Table,
        entries: &[LeafEntry<'_>],
        batch: &mut Batch<'tx>,
    ) -> Result<(), OperationError> {
        let Some(&first) = batch.far.first() else { return Ok(()) };
        if let Err(error) = self.transaction.may_read() {
            return batch.end_before(first, error);
        }
        let (view, copies) = (self.transaction.view(), &self.copies);
        for places in std::mem::take(&mut batch.far).chunks(FAR_AT_A_TIME) {
            let rids = places.iter().map(|&place| entries[place].rid);
            // SAFETY: the caller's guard covers the call, the transaction is active for `'tx`, and
            // the copies are kept until what is ready was passed.
            let reads = rids.map(|rid| unsafe { table.read(rid, view, copies) });
            for (&place, read) in places.iter().zip(sched::Interleaved::new(reads).await) {
                match read {
                    Ok(seen) => batch.seen[place] = seen,
                    Err(error) => return batch.end_before(place, OperationError::Storage(error)),
                }
            }
        }
        Ok(())
    }
}

impl Batch<'_> {
    /// Ends the batch before the record at `place`, which cannot be read.
    ///
    /// # Errors
    /// `error`, if nothing is left then.
    fn end_before(&mut self, place: usize, error: OperationError) -> Result<(), OperationError> {
        self.seen.truncate(place);
        if self.seen.is_empty() { Err(error) } else { Ok(()) }
    }
}

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        // SAFETY: what is ready goes with the scan, and what was lent of it borrowed the scan.
        unsafe { self.copies.free(&self.transaction.engine().memory) };
    }
}

fn ready_value<'tx>(seen: &Seen<'tx>) -> &'tx [u8] {
    seen.value().expect("deleted records are never ready")
}

/// A bound on a buffer, as a bound on its bytes.
fn as_bytes(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}
