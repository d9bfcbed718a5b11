//! Reading through a secondary index: its entries in order, and the records that they lead to.
//!
//! Both are seen in the same snapshot, and were written together: so an entry that is seen leads to a
//! record that is seen and has the key. Only the transaction's own writes, made between the two, can
//! change that; then what gives the keys is asked again.
//!
//! Invariant: entries that were found and not handed out are in `pending` or `ready`. So a call that is
//! dropped, or fails, loses nothing.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use super::abort::Moment;
use super::context::Transaction;
use super::error::{IndexError, OperationError};
use super::index_keys::keys_of_value;
use super::progress::Progress;
use super::scan::{Bounds, Direction, Scan};
use super::value_view::Found;
use crate::record::{Records, Secondary};
use crate::sched::{Interleaved, Panic, contain};
use crate::types::KeyBuffer;

/// Records that are read side by side.
const BATCH: u64 = 32;

/// A scan of an index.
#[derive(Debug)]
pub(crate) struct IndexScan<'tx> {
    transaction: &'tx Transaction,
    table: Arc<Records>,
    index: Arc<Secondary>,
    bounds: Bounds,
    direction: Direction,
    /// Whether records are read too.
    reads_records: bool,
    progress: Progress,
    /// Made when the first record is asked for, and anew when what was read ahead was taken back.
    entries: Option<Scan<'tx>>,
    /// Entries whose records are not read yet, in order.
    pending: Vec<FoundEntry>,
    ready: VecDeque<Hit>,
    /// When the first of them was found.
    found_at: Moment,
}

/// An entry of the index that was read, and whose record is not yet.
#[derive(Debug)]
struct FoundEntry {
    part: KeyBuffer,
    primary: KeyBuffer,
}

/// An entry, and the record that it leads to.
#[derive(Debug)]
pub(crate) struct Hit {
    /// The index's key, encoded as a part of a tuple.
    pub(crate) part: KeyBuffer,
    /// The record's key.
    pub(crate) primary: KeyBuffer,
    /// Its value; empty if records are not read.
    pub(crate) value: Vec<u8>,
}

impl Transaction {
    /// Checks that the transaction may read an index.
    ///
    /// # Errors
    /// `IndexNotFound`; `Conflict` if the index was not built yet when the transaction began: a later
    /// attempt may.
    pub(crate) fn check_usable(
        &self,
        table: &Records,
        index: &Secondary,
    ) -> Result<(), OperationError> {
        if index.is_dropped() {
            let (table, index) = (table.name().to_string(), index.name().to_owned());
            return Err(IndexError::NotFound { table, index }.into());
        }
        if index.is_usable_at(self.begin()) { Ok(()) } else { Err(self.conflict()) }
    }

    /// A scan of the entries of an index between two bounds, which the transaction may read.
    pub(crate) fn scan_index(
        &self,
        table: &Arc<Records>,
        index: &Arc<Secondary>,
        bounds: Bounds,
    ) -> IndexScan<'_> {
        IndexScan {
            transaction: self,
            table: table.clone(),
            index: index.clone(),
            bounds,
            direction: Direction::Forward,
            reads_records: true,
            progress: Progress::new(),
            entries: None,
            pending: Vec::new(),
            ready: VecDeque::new(),
            found_at: self.moment(),
        }
    }

    /// The record that has a key of a unique index, with its own key.
    ///
    /// # Errors
    /// As for `get`, twice; what the index's keys are got with.
    pub(crate) async fn get_by_index(
        &self,
        table: &Records,
        index: &Secondary,
        part: &[u8],
    ) -> Result<Option<(KeyBuffer, Found<'_>)>, OperationError> {
        assert!(index.is_unique(), "a key leads to one record");
        loop {
            let before = self.moment();
            let Some(entry) = self.get(index.entries(), part).await? else { return Ok(None) };
            let mut primary = KeyBuffer::new();
            primary.extend_from_slice(entry.bytes());
            drop(entry);
            let found = self.get(table, &primary).await?;
            // Only the transaction's own writes come between.
            if self.moment() == before {
                return Ok(found.map(|found| (primary, found)));
            }
        }
    }
}

/// The index's key at the start of an entry's, and the rest: for an index that is attached.
///
/// # Errors
/// `Panicked`, `Decode`: the type of the keys is the user's.
pub(super) fn split_entry<'e>(
    index: &Secondary,
    entry: &'e [u8],
) -> Result<(&'e [u8], &'e [u8]), OperationError> {
    let code = index.code().expect("attached before anybody has a handle to it");
    let part_bytes = contain(|| (code.split)(entry))
        .map_err(|Panic { message }| OperationError::Panicked(message.into()))??;
    Ok(entry.split_at(part_bytes))
}

impl<'tx> IndexScan<'tx> {
    /// Sets the direction; before the first record only.
    pub(crate) fn set_direction(&mut self, direction: Direction) {
        if self.entries.is_some() {
            return self.progress.refuse();
        }
        self.direction = direction;
    }

    /// At most `count` more records are given by [`IndexScan::next`].
    pub(crate) fn limit(&mut self, count: u64) {
        self.progress.limit(count);
    }

    /// How many more are given at most.
    pub(crate) fn left(&self) -> u64 {
        self.progress.left()
    }

    /// The entry that is loaded was given: it is passed when the next one is asked for.
    pub(crate) fn give(&self) {
        self.progress.give();
    }

    /// Passes the entry that was given, and loads the next one, as [`IndexScan::load`]; `false` also when as
    /// many were given as may be. The caller then gives it ([`IndexScan::give`]), or it stays the next.
    ///
    /// # Errors
    /// As [`IndexScan::load`].
    pub(crate) async fn next(&mut self) -> Result<bool, OperationError> {
        if self.progress.passes() {
            self.pass();
        }
        if self.progress.left() == 0 {
            return self.progress.over();
        }
        self.load().await
    }

    /// Reads no records, only entries.
    pub(crate) fn set_keys_only(&mut self) {
        // Whether one has expired, only the record says.
        self.reads_records = self.table.expires();
    }

    /// Makes [`IndexScan::current`] the next entry; `false` at the end of the range. Dropping the future, or
    /// an error, loses nothing.
    ///
    /// # Errors
    /// As for a scan, and for `get`.
    async fn load(&mut self) -> Result<bool, OperationError> {
        loop {
            self.forget_taken_back();
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
    }

    /// The entry that was loaded, and its record.
    pub(crate) fn current(&self) -> Option<&Hit> {
        self.ready.front()
    }

    /// Goes behind the entry that was loaded.
    fn pass(&mut self) {
        let Some(hit) = self.ready.pop_front() else { return };
        // Should the scan begin anew, then behind it.
        let entry = Bound::Excluded(self.index.entry_key(&hit.part, &hit.primary));
        match self.direction {
            Direction::Forward => self.bounds.low = entry,
            Direction::Reverse => self.bounds.high = entry,
        }
    }

    /// Begins anew behind what was handed out, if the transaction was rolled back to a savepoint since:
    /// what it took back may be among what was read ahead, and what that had hidden is not.
    fn forget_taken_back(&mut self) {
        if self.found_at.rollbacks != self.transaction.moment().rollbacks {
            self.found_at = self.transaction.moment();
            self.pending.clear();
            self.ready.clear();
            self.entries = None;
        }
    }

    /// Finds the next entries; none at the end of the range.
    async fn find_entries(&mut self) -> Result<(), OperationError> {
        self.found_at = self.transaction.moment();
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
        // From here on nothing suspends.
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
            // Copied one by one, so that none waits for memory that the others hold.
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
        // From here on nothing suspends.
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
            hits.push_back(Hit { part, primary, value });
        }
        self.pending.clear();
        self.ready = hits;
        Ok(())
    }
}
