//! Scans: the records of a range of keys, as the transaction sees them.
//!
//! A scan takes a leaf's entries at a time and brings the cache lines of all their records near
//! before it reads the first. Writes that the transaction itself makes while a scan is under way
//! may or may not be met by it; those made before are.

use std::ops::Bound;

use super::context::Transaction;
use super::error::OperationError;
use crate::index::{Cursor, Entry};
use crate::reclaim;
use crate::record::{Far, Seen, Table, TableRef};
use crate::sched;
use crate::types::KeyBuffer;

/// Entries taken at a time, at most: a leaf's.
const BATCH: usize = 64;
/// Records that are read from the log at a time.
const FAR_AT_A_TIME: usize = 32;

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
    /// Records that will probably be asked for.
    expected: u64,
    cursor: Option<Cursor<'tx>>,
    entries: Vec<Entry>,
    /// Records read and not yet given out, the next one last.
    ready: Vec<(Entry, &'tx [u8])>,
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
            cursor: None,
            entries: Vec::new(),
            ready: Vec::new(),
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
    }

    /// The next record's key and value.
    ///
    /// # Errors
    /// The log's, if a value is there and cannot be read; `Overloaded`.
    pub(crate) async fn next(&mut self) -> Result<Option<(KeyBuffer, &'tx [u8])>, OperationError> {
        while self.ready.is_empty() {
            if !self.read_batch().await? {
                return Ok(None);
            }
        }
        let Some((entry, value)) = self.ready.pop() else { return Ok(None) };
        self.expected = self.expected.saturating_sub(1);
        let mut key = KeyBuffer::new();
        // SAFETY: the transaction is active and sees the entry's record.
        unsafe { entry.copy_key(key.inner_mut()) };
        Ok(Some((key, value)))
    }

    /// Reads the next batch of records; `false` at the end of the range.
    async fn read_batch(&mut self) -> Result<bool, OperationError> {
        let _operation = reclaim::enter();
        // SAFETY: the engine owns the table and outlives the transaction.
        let table: &'tx Table = unsafe { self.table.get() };
        let cursor = self.cursor.get_or_insert_with(|| {
            let Bounds { low, high } = &self.bounds;
            let reverse = self.direction == Direction::Reverse;
            table.index.cursor(as_bytes(low), as_bytes(high), reverse)
        });
        let most = self.expected.clamp(1, BATCH as u64) as usize;
        if !cursor.next_batch(&mut self.entries, most).await {
            return Ok(false);
        }
        table.bring_near(self.entries.iter().map(|entry| entry.rid)).await;
        let (view, copies) = (self.transaction.view(), self.transaction.copies());
        let mut near: Vec<Option<Seen<'tx>>> = Vec::with_capacity(self.entries.len());
        let mut far = Vec::new();
        for entry in self.entries.iter().rev() {
            // SAFETY: the guard above covers the call, and the transaction is active for `'tx`.
            match unsafe { table.read_near(entry.rid, view) } {
                Ok(seen) => near.push(seen),
                Err(Far) => {
                    far.push((near.len(), entry.rid));
                    near.push(None);
                }
            }
        }
        if !far.is_empty() {
            self.transaction.may_read()?;
        }
        // What is far is read side by side: a scan reads ahead.
        for some in far.chunks(FAR_AT_A_TIME) {
            // SAFETY: as above.
            let reads = some.iter().map(|(_, rid)| unsafe { table.read(*rid, view, copies) });
            let seen = sched::Interleaved::new(reads).await;
            for ((place, _), seen) in some.iter().zip(seen) {
                near[*place] = seen.map_err(OperationError::Storage)?;
            }
        }
        for (entry, seen) in self.entries.iter().rev().zip(near) {
            if let Some(seen) = seen {
                self.transaction.note(&seen);
                self.ready.push((*entry, seen.version.payload()));
            }
        }
        Ok(true)
    }
}

/// A bound on a buffer, as a bound on its bytes.
fn as_bytes(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}
