//! Certification of reads of paged tables against recent commits, and the entries that a commit
//! lists for it (`recent_commits.rs`).

use std::ops::{Bound, ControlFlow, Range};

use smallvec::{SmallVec, smallvec};

use crate::log::Lsn;
use crate::page::PagedTable;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::rid::TableId;
use crate::sched;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::memory::recent_commits::{
    CHANGES_PER_ENTRY, ChangesToList, CommitEntry, RecentChange,
};
use crate::transaction::sets::read_set::NamedKeys;
use crate::types::checksum;
use crate::version::{Stamp, Verdict};

/// The hash of a record of a paged table.
fn hash_of(table: TableId, key: &[u8]) -> u32 {
    checksum::append(table.0, &[], [key])
}

/// Bloom-style filter of the records that a transaction has read, with one bit per hash.
struct ReadFilter {
    bits: SmallVec<[u64; 32]>,
    /// Set if ranges were read, so that any record may be in the set.
    has_ranges: bool,
}

impl ReadFilter {
    const BITS_PER_READ: usize = 64;

    /// Creates a filter for this many reads.
    fn new(reads: usize) -> Self {
        let bits = (reads.max(1) * Self::BITS_PER_READ).next_power_of_two();
        Self { bits: SmallVec::from_elem(0, bits / u64::BITS as usize), has_ranges: false }
    }

    fn place(&self, hash: u32) -> (usize, u64) {
        let bit = hash as usize % (self.bits.len() * u64::BITS as usize);
        (bit / u64::BITS as usize, 1 << (bit % u64::BITS as usize))
    }

    fn add(&mut self, table: TableId, low: Bound<&[u8]>, high: Bound<&[u8]>) {
        match (low, high) {
            (Bound::Included(low), Bound::Included(high)) if low == high => {
                let (word, bit) = self.place(hash_of(table, low));
                self.bits[word] |= bit;
            }
            _ => self.has_ranges = true,
        }
    }

    /// Returns whether a record with this hash may have been read.
    fn may_have(&self, hash: u32) -> bool {
        let (word, bit) = self.place(hash);
        self.has_ranges || self.bits[word] & bit != 0
    }
}

impl ActiveTransaction {
    /// Returns the transaction's changes to paged tables, in entries of the list of recent commits.
    pub(in crate::transaction) async fn changes_to_list(&self) -> ChangesToList {
        let mut entries = ChangesToList::new();
        let count = self.writes().borrow().paged.len();
        for first in (0..count).step_by(CHANGES_PER_ENTRY) {
            if first > 0 {
                sched::count_steps(CHANGES_PER_ENTRY as u32).await;
            }
            entries.push(self.entry_of(first..count.min(first + CHANGES_PER_ENTRY)));
        }
        entries
    }

    /// Returns the same for a transaction with a few changes, which need one entry.
    pub(in crate::transaction) fn changes_at_once(&self) -> ChangesToList {
        let count = self.writes().borrow().paged.len();
        assert!(count <= CHANGES_PER_ENTRY, "they fit into one entry");
        smallvec![self.entry_of(0..count)]
    }

    /// Returns an entry of some of the transaction's writes to paged tables.
    fn entry_of(&self, writes: Range<usize>) -> CommitEntry {
        let set = self.writes().borrow();
        let each = set.paged[writes].iter().map(|write| {
            // SAFETY: the change is not retired before it is collected, off the list.
            let (of, key) = unsafe { write.change.record() };
            RecentChange { table: write.table, change: write.change, hash: hash_of(of, key) }
        });
        each.collect()
    }

    /// Lists the transaction's changes to paged tables; must precede the draw of its commit LSN.
    pub(in crate::transaction) fn list_changes(&self, entries: ChangesToList) {
        let worker = self.worker();
        worker.commits_waiting.set(worker.commits_waiting.get() + entries.len());
        worker.engine().recent[worker.number()].commits.lock().push(entries);
    }

    /// Undoes `list_changes` for a transaction that does not commit.
    pub(in crate::transaction) fn unlist_changes(&self) {
        let changes = self.writes().borrow().paged.len();
        if changes == 0 {
            return;
        }
        let worker = self.worker();
        let entries = worker.engine().recent[worker.number()].commits.lock().pop(changes);
        worker.commits_waiting.set(worker.commits_waiting.get() - entries);
    }

    /// Checks, without suspension, whether other transactions committed a write to the keys read
    /// from paged tables between the begin stamp and `until`.
    pub(in crate::transaction) fn certify_paged(&self, until: Lsn) -> Result<(), NamedKeys> {
        if !self.reads().reads_pages() {
            return Ok(());
        }
        let reads = self.reads();
        let mut filter = ReadFilter::new(reads.ranges());
        for number in 0..reads.ranges() {
            self.with_paged_range(number, |table, _, low, high| filter.add(table, low, high));
        }
        let operation = reclaim::enter();
        let written = self.written_since(until, &filter, &operation);
        let is_written = |table: TableId, low: Bound<&[u8]>, high: Bound<&[u8]>| {
            let first = written.partition_point(|&(of, key)| {
                of < table
                    || of == table
                        && match low {
                            Bound::Unbounded => false,
                            Bound::Included(low) => key < low,
                            Bound::Excluded(low) => key <= low,
                        }
            });
            written.get(first).is_some_and(|&(of, key)| {
                of == table
                    && match high {
                        Bound::Unbounded => true,
                        Bound::Included(high) => key <= high,
                        Bound::Excluded(high) => key < high,
                    }
            })
        };
        for number in 0..reads.ranges() {
            let changed = self.with_paged_range(number, |table, paged, low, high| {
                is_written(table, low, high) || self.is_written_by_bulk(paged, until)
            });
            if changed == Some(true) {
                return Err(reads.name_range(number));
            }
        }
        Ok(())
    }

    /// Passes a range that was read to `look`, if it needs certification and is in a paged table.
    fn with_paged_range<T>(
        &self,
        number: usize,
        look: impl FnOnce(TableId, &PagedTable, Bound<&[u8]>, Bound<&[u8]>) -> T,
    ) -> Option<T> {
        let shown = self.reads().with_range(number, |table, low, high| {
            let table = table.paged()?;
            Some(look(table.id, table.pages(), low, high))
        });
        shown.flatten()
    }

    /// Returns whether a bulk operation on a table, which lists no keys, was committed at or after
    /// the begin stamp and before `until`. At most one is not visible to all snapshots: the table
    /// has its stamp.
    fn is_written_by_bulk(&self, paged: &PagedTable, until: Lsn) -> bool {
        if is_planted(Bug::BulkNotCertified) {
            return false;
        }
        let epochs = &paged.bulk().epochs;
        // An operation that every snapshot sees was committed before.
        let stamp = || epochs.newest().map_or(Stamp::committed(Lsn::ZERO), |(_, stamp)| stamp);
        if stamp() == Stamp::ABORTED {
            return false;
        }
        matches!(self.view().verdict(stamp, until), Verdict::Between | Verdict::Untold)
    }

    /// Collects, sorted, the records that other transactions committed to paged tables at or after
    /// the begin stamp and before `until`, and that this one may have read. Undecided commits count
    /// as committed.
    fn written_since<'o>(
        &self,
        until: Lsn,
        filter: &ReadFilter,
        _operation: &'o reclaim::OperationGuard,
    ) -> Vec<(TableId, &'o [u8])> {
        let (view, mut written) = (self.view(), Vec::new());
        for worker in &self.engine().recent {
            let commits = worker.commits.lock();
            let mut each = |changes: &[RecentChange]| {
                // SAFETY: listed, so not retired.
                let first = unsafe { changes[0].change.get() };
                if first.stamp().name() == Some(self.name()) {
                    return ControlFlow::Continue(());
                }
                match view.verdict(|| first.stamp(), until) {
                    Verdict::Before => return ControlFlow::Break(()),
                    Verdict::After => {}
                    Verdict::Between | Verdict::Untold => {
                        let may_be_read = changes.iter().filter(|one| filter.may_have(one.hash));
                        // SAFETY: listed, so not retired before the guard began.
                        written.extend(may_be_read.map(|one| unsafe { one.change.record() }));
                    }
                }
                ControlFlow::Continue(())
            };
            _ = commits.newest_first().try_for_each(|changes| each(changes));
        }
        written.sort_unstable();
        written
    }
}
