//! Recent commits to paged tables (Umbra MVCC §3.3, §3.4): certification searches them, and their
//! changes are collected once no snapshot needs them.
//!
//! Reads of paged tables are certified against the keys that commits between the begin stamp and
//! the commit LSN have written. Records are not read again, because their pages may not be
//! resident.
//!
//! Invariants: each worker has a list in LSN order, and appends to it before it draws the commit
//! LSN. So a transaction that has drawn a later LSN finds the entry there. A transaction that fails
//! certification removes its entry first. Listed changes are not retired.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow};

use smallvec::SmallVec;

use super::context::ActiveTransaction;
use super::read_set::NamedKeys;
use super::worker::WorkerTransactions;
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::page::{ChangeRef, LeftChain, PagedTable, SlotValue};
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::record::RecordsRef;
use crate::rid::TableId;
use crate::sync::Mutex;
use crate::version::{Stamp, Verdict};

/// Maximum number of commits collected per turn.
const COMMITS_PER_TURN: usize = 512;

/// A change that a transaction committed, or is about to.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecentChange {
    pub(super) table: RecordsRef,
    pub(super) change: ChangeRef,
    /// Hash of the record's table and key; it rules out most changes that a transaction has not
    /// read.
    hash: u32,
}

impl RecentChange {
    /// A change that no transaction is certified against.
    pub(super) fn uncertified(table: RecordsRef, change: ChangeRef) -> Self {
        Self { table, change, hash: 0 }
    }
}

/// The hash of a record of a paged table.
fn hash_of(table: TableId, key: &[u8]) -> u32 {
    crc32c::crc32c_append(table.0, key)
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

/// The commits of one worker, each with its changes (never empty); and changes created for bulk
/// operations.
#[derive(Debug, Default)]
pub(super) struct RecentCommits(
    Mutex<VecDeque<Box<[RecentChange]>>>,
    Mutex<VecDeque<RecentChange>>,
);

impl RecentCommits {
    /// Lists a change that was created for the effect of a bulk operation on a record. It is
    /// collected like the others. Bulk operations are not certified by their changes.
    pub(super) fn add_of_bulk(&self, table: RecordsRef, change: ChangeRef) {
        self.1.lock().push_back(RecentChange::uncertified(table, change));
    }

    /// Frees changes that were not collected.
    ///
    /// # Safety
    /// No transaction is active or will begin; everything retired is freed.
    pub(super) unsafe fn free_leftovers(&mut self, memory: &MemoryCounters) {
        for one in self.1.get_mut().drain(..) {
            // SAFETY: listed, so committed, and collected only here.
            unsafe { one.change.collect_at_end(memory) };
        }
        for commit in self.0.get_mut().drain(..) {
            for one in commit {
                // SAFETY: listed, so committed, and collected only here.
                unsafe { one.change.collect_at_end(memory) };
            }
        }
    }
}

impl ActiveTransaction {
    /// Lists the transaction's changes to paged tables; must precede the draw of its commit LSN.
    pub(super) fn list_changes(&self) {
        let writes = self.writes().borrow();
        if writes.paged.is_empty() {
            return;
        }
        let each = writes.paged.iter().map(|write| {
            // SAFETY: the change is not retired before it is collected, off the list.
            let (of, key) = unsafe { write.change.record() };
            RecentChange { table: write.table, change: write.change, hash: hash_of(of, key) }
        });
        let changes: Box<[_]> = each.collect();
        let worker = self.worker();
        worker.engine().recent[worker.number()].0.lock().push_back(changes);
        worker.commits_waiting.set(worker.commits_waiting.get() + 1);
    }

    /// Undoes `list_changes` for a transaction that does not commit.
    pub(super) fn unlist_changes(&self) {
        if self.writes().borrow().paged.is_empty() {
            return;
        }
        let worker = self.worker();
        let listed = worker.engine().recent[worker.number()].0.lock().pop_back();
        assert!(listed.is_some(), "listed without a suspension since");
        worker.commits_waiting.set(worker.commits_waiting.get() - 1);
    }

    /// Checks, without suspension, whether other transactions committed a write to the keys read
    /// from paged tables between the begin stamp and `until`.
    pub(super) fn certify_paged(&self, until: Lsn) -> Result<(), NamedKeys> {
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
            // SAFETY: tables live as long as the engine, which `self` holds, or belong to the
            // transaction.
            let table = unsafe { table.get() };
            table.paged().map(|paged| look(table.id, paged, low, high))
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
            let commits = worker.0.lock();
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
            _ = commits.iter().rev().try_for_each(|changes| each(changes));
        }
        written.sort_unstable();
        written
    }
}

impl WorkerTransactions {
    /// Collects the changes of commits before `horizon`: cuts them off their chains, and removes
    /// chains that become empty from their pages. Returns whether more are due.
    pub(super) fn collect_changes(&self, horizon: Lsn) -> bool {
        let engine = self.engine();
        let mut left = Vec::<(RecordsRef, LeftChain)>::new();
        let mut more = true;
        for _ in 0..COMMITS_PER_TURN {
            // SAFETY: listed, so not retired.
            let is_due = |commit: &mut Box<[RecentChange]>| unsafe {
                commit[0].change.get().stamp().lsn().is_some_and(|lsn| lsn < horizon)
            };
            let due = engine.recent[self.number()].0.lock().pop_front_if(is_due);
            let Some(commit) = due else {
                more = false;
                break;
            };
            self.commits_waiting.set(self.commits_waiting.get() - 1);
            for one in commit {
                self.discard_before(&one);
                // SAFETY: committed before the horizon by one of this worker's transactions, and
                // off the list, from which it is collected once.
                left.push((one.table, unsafe { one.change.collect(horizon, &engine.memory) }));
            }
        }
        loop {
            // SAFETY: listed, so not retired.
            let is_due = |one: &mut RecentChange| unsafe {
                one.change.get().stamp().lsn().is_some_and(|lsn| lsn < horizon)
            };
            let due = engine.recent[self.number()].1.lock().pop_front_if(is_due);
            let Some(one) = due else { break };
            self.commits_waiting.set(self.commits_waiting.get() - 1);
            self.discard_before(&one);
            // SAFETY: its stamp is before the horizon, and it is off this worker's list, from which
            // it is collected once.
            left.push((one.table, unsafe { one.change.collect(horizon, &engine.memory) }));
        }
        for (table, chain) in left {
            if let Some(key) = chain.key_if_empty() {
                // SAFETY: tables live as long as the engine.
                let paged = unsafe { table.get() }.paged().expect("changes are of paged tables");
                if let Some(what) = paged.prune(key) {
                    self.enqueue_leaf_cleanup(table, key, what);
                }
            }
            // SAFETY: the chain belongs to this engine.
            unsafe { chain.release(&engine.memory) };
        }
        more
    }

    /// Discards the value before a change, if it is a large value.
    fn discard_before(&self, one: &RecentChange) {
        // SAFETY: not retired before the caller collects it.
        let before = unsafe { one.change.get() }.before();
        if let Some(large) = before.and_then(SlotValue::large) {
            // SAFETY: tables live as long as the engine.
            let paged = unsafe { one.table.get() }.paged().expect("changes are of paged tables");
            self.discard(paged.large().expect("the table stores large values").clone(), large);
        }
    }
}
