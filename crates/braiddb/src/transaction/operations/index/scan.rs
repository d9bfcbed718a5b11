//! Index scans: the entries of a secondary index in order, and the records that they reference.
//!
//! Entry and record are seen in the same snapshot and were written together. So every visible entry
//! references a visible record that has the key. Only the transaction's own writes between the two
//! reads can change that; then the record's keys are computed again.
//!
//! Invariant: entries that were found but not returned are in `pending` or `ready`. So a dropped or
//! failed call loses nothing.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use super::keys::keys_of_value;
use crate::record::{Records, Secondary};
use crate::sched::{Interleaved, Panic, compiled_here, contain};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::{IndexError, OperationError};
use crate::transaction::operations::progress::ScanProgress;
use crate::transaction::operations::scan::RecordScan;
use crate::transaction::operations::scan_bounds::{Direction, ScanBounds};
use crate::transaction::operations::value_view::FoundValue;
use crate::transaction::sets::savepoints::WriteMoment;
use crate::types::KeyBuffer;

/// Number of records that are read concurrently.
const BATCH: u64 = 32;

/// A scan of an index.
#[derive(Debug)]
pub(crate) struct IndexRecordScan<'tx> {
    transaction: &'tx ActiveTransaction,
    table: Arc<Records>,
    index: Arc<Secondary>,
    bounds: ScanBounds,
    direction: Direction,
    /// False if only entries are read.
    reads_records: bool,
    progress: ScanProgress,
    /// Created when the first record is requested, and again after a rollback undid what was read
    /// ahead.
    entries: Option<RecordScan<'tx>>,
    /// Entries whose records are not read yet, in order.
    pending: Vec<FoundEntry>,
    ready: VecDeque<IndexHit>,
    /// The transaction's state when the oldest of them, and of those that `entries` has read ahead,
    /// was read.
    found_at: WriteMoment,
}

/// An index entry whose record is not read yet.
#[derive(Debug)]
struct FoundEntry {
    part: KeyBuffer,
    primary: KeyBuffer,
}

/// An entry and the record that it references.
#[derive(Debug)]
pub(crate) struct IndexHit {
    /// The index key, encoded as a part of a tuple.
    pub(crate) part: KeyBuffer,
    /// The record's key.
    pub(crate) primary: KeyBuffer,
    /// Its value; empty if records are not read.
    pub(crate) value: Vec<u8>,
}

impl ActiveTransaction {
    /// Checks that the transaction may read an index.
    ///
    /// # Errors
    /// `IndexError::NotFound`; `Conflict` if the index was not complete when the transaction began: a
    /// later attempt may succeed.
    pub(crate) fn check_usable(
        &self,
        table: &Records,
        index: &Secondary,
    ) -> Result<(), OperationError> {
        if index.is_dropped() {
            let (table, index) = (table.name().to_string(), index.name().to_owned());
            return Err(IndexError::NotFound { table, index }.into());
        }
        match index.is_usable_at(self.begin()) {
            true => Ok(()),
            false => Err(self.conflict_with_index(table)),
        }
    }

    /// Creates a scan of the entries of an index between two bounds. The caller must have checked
    /// that the transaction may read it.
    pub(crate) fn scan_index(
        &self,
        table: &Arc<Records>,
        index: &Arc<Secondary>,
        bounds: ScanBounds,
    ) -> IndexRecordScan<'_> {
        IndexRecordScan {
            transaction: self,
            table: table.clone(),
            index: index.clone(),
            bounds,
            direction: Direction::Forward,
            reads_records: true,
            progress: ScanProgress::new(),
            entries: None,
            pending: Vec::new(),
            ready: VecDeque::new(),
            found_at: self.moment(),
        }
    }

    /// Returns the record that has a key of a unique index, with its own key.
    ///
    /// # Errors
    /// Those of `get`, twice; those of the key function.
    pub(crate) async fn get_by_index(
        &self,
        table: &Records,
        index: &Secondary,
        part: &[u8],
    ) -> Result<Option<(KeyBuffer, FoundValue<'_>)>, OperationError> {
        assert!(index.is_unique(), "a key leads to one record");
        loop {
            let before = self.moment();
            let Some(entry) = self.get(index.entries(), part).await? else { return Ok(None) };
            let mut primary = KeyBuffer::new();
            primary.extend_from_slice(entry.bytes());
            drop(entry);
            let found = self.get(table, &primary).await?;
            // Only the transaction's own writes can come between.
            if self.moment() == before {
                return Ok(found.map(|found| (primary, found)));
            }
        }
    }
}

/// Splits an entry's key into the index key and the rest; the index must be attached.
///
/// # Errors
/// `Panicked`, `Decode`: the key type is the user's.
pub(super) fn split_entry<'e>(
    index: &Secondary,
    entry: &'e [u8],
) -> Result<(&'e [u8], &'e [u8]), OperationError> {
    let code = index.code().expect("attached before anybody has a handle to it");
    let part_bytes = contain(|| (code.split)(entry))
        .map_err(|Panic { message }| OperationError::Panicked(message.into()))??;
    Ok(entry.split_at(part_bytes))
}

impl<'tx> IndexRecordScan<'tx> {
    /// Sets the direction; only before the first record.
    pub(crate) fn set_direction(&mut self, direction: Direction) {
        if self.entries.is_some() {
            return self.progress.refuse();
        }
        self.direction = direction;
    }

    /// Limits [`IndexRecordScan::next`] to `count` more records.
    pub(crate) fn limit(&mut self, count: u64) {
        self.progress.limit(count);
    }

    /// Number of records that may still be returned.
    pub(crate) fn left(&self) -> u64 {
        self.progress.left()
    }

    /// Marks the loaded entry as returned; the next call moves past it.
    pub(crate) fn give(&self) {
        self.progress.give();
    }

    /// Moves past the returned entry and loads the next, like [`IndexRecordScan::load`]; also `false`
    /// once the limit is reached. The caller then returns the entry ([`IndexRecordScan::give`]), or it
    /// stays the next one.
    ///
    /// # Errors
    /// Those of [`IndexRecordScan::load`].
    pub(crate) async fn next(&mut self) -> Result<bool, OperationError> {
        if self.progress.passes() {
            self.pass();
        }
        if self.progress.left() == 0 {
            return self.progress.over();
        }
        self.load().await
    }

    /// Reads only entries, no records.
    pub(crate) fn set_keys_only(&mut self) {
        // Only the record shows whether it has expired.
        self.reads_records = self.table.expires();
    }

    /// Makes [`IndexRecordScan::current`] the next entry; `false` at the end of the range. A dropped
    /// future or an error loses nothing.
    ///
    /// # Errors
    /// Those of a scan and of `get`.
    fn load(&mut self) -> impl Future<Output = Result<bool, OperationError>> {
        compiled_here(async move {
            loop {
                self.forget_rolled_back();
                if !self.ready.is_empty() {
                    return Ok(true);
                }
                if self.pending.is_empty() {
                    self.find_entries().await?;
                }
                if self.pending.is_empty() {
                    return Ok(false);
                }
                self.read().await?;
            }
        })
    }

    /// The loaded entry and its record.
    pub(crate) fn current(&self) -> Option<&IndexHit> {
        self.ready.front()
    }

    /// Moves past the loaded entry.
    fn pass(&mut self) {
        let Some(hit) = self.ready.pop_front() else { return };
        // If the scan restarts, it starts after this entry.
        let entry = Bound::Excluded(self.index.entry_key(&hit.part, &hit.primary));
        match self.direction {
            Direction::Forward => self.bounds.low = entry,
            Direction::Reverse => self.bounds.high = entry,
        }
    }

    /// Restarts after the last returned entry, if the transaction was rolled back to a savepoint
    /// since. Entries read ahead may include undone writes, and miss records that those had hidden.
    fn forget_rolled_back(&mut self) {
        if self.found_at.rollbacks != self.transaction.moment().rollbacks {
            self.found_at = self.transaction.moment();
            self.pending.clear();
            self.ready.clear();
            self.entries = None;
        }
    }

    /// Finds the next entries; none at the end of the range.
    async fn find_entries(&mut self) -> Result<(), OperationError> {
        // Entries that were read ahead were read at the moment that was noted then.
        if !self.entries.as_ref().is_some_and(RecordScan::is_ready) {
            self.found_at = self.transaction.moment();
        }
        let entries = self.entries.get_or_insert_with(|| {
            let mut entries = self.transaction.scan(self.index.entries(), self.bounds.clone());
            entries.set_direction(self.direction);
            entries.expect_records(self.progress.left());
            if !self.index.is_unique() {
                entries.set_keys_only();
            }
            entries
        });
        if !entries.load().await? {
            return Ok(());
        }
        let most = self.progress.left().clamp(1, BATCH) as usize;
        // Nothing suspends from here on.
        while self.pending.len() < most && entries.is_ready() {
            let (entry, value) = entries.current().expect("ready");
            let (part, rest) = split_entry(&self.index, entry)?;
            let mut found = FoundEntry { part: KeyBuffer::new(), primary: KeyBuffer::new() };
            found.part.extend_from_slice(part);
            found.primary.extend_from_slice(if self.index.is_unique() { value } else { rest });
            self.pending.push(found);
            entries.pass();
        }
        Ok(())
    }

    /// Reads the records of the entries that were found.
    async fn read(&mut self) -> Result<(), OperationError> {
        let (transaction, table) = (self.transaction, &*self.table);
        let mut values = Vec::with_capacity(self.pending.len());
        if self.reads_records {
            // Copied one by one, so that no read waits for memory that the others hold.
            let reads = self.pending.iter().map(|entry| async {
                let record = transaction.get(table, &entry.primary).await?;
                Ok::<_, OperationError>(record.map(|record| record.bytes().to_vec()))
            });
            for value in Interleaved::new(reads).await {
                values.push(value?);
            }
        } else {
            values.resize_with(self.pending.len(), || Some(Vec::new()));
        }
        // Nothing suspends from here on.
        let now = transaction.moment();
        if now.rollbacks != self.found_at.rollbacks {
            return Ok(());
        }
        let changed = now != self.found_at;
        let mut hits = VecDeque::with_capacity(self.pending.len());
        for (found, value) in self.pending.iter().zip(values) {
            let Some(value) = value else { continue };
            if changed
                && self.reads_records
                && keys_of_value(table, &self.index, &value)?.binary_search(&found.part).is_err()
            {
                continue;
            }
            let (part, primary) = (found.part.clone(), found.primary.clone());
            hits.push_back(IndexHit { part, primary, value });
        }
        self.pending.clear();
        self.ready = hits;
        Ok(())
    }
}
