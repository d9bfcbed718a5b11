//! Recent commits to paged tables (Umbra MVCC §3.3, §3.4): certification searches them, and their
//! changes are collected once no snapshot needs them, or pruned (`prune_changes`).
//!
//! Reads of paged tables are certified against the keys that commits between the begin stamp and
//! the commit LSN have written. Records are not read again, because their pages may not be
//! resident.
//!
//! Invariants: each worker has a list in LSN order, and appends to it before it draws the commit
//! LSN. So a transaction that has drawn a later LSN finds the entry there. A transaction that fails
//! certification removes its entry first. Listed changes are not retired. If a change was pruned, a
//! transaction that certifies against it finds an earlier one of the same record.

use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, Range};

use smallvec::{SmallVec, smallvec};

use super::context::ActiveTransaction;
use super::examined_queue::{ExaminedEntry, ExaminedQueue};
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
use crate::types::checksum;
use crate::version::{Stamp, Verdict};

/// Minimum number of changes collected per turn before the rest waits for the next one.
const CHANGES_PER_TURN: usize = 512;
/// Maximum number of changes in an entry. A larger commit has several entries, so that housekeeping
/// never delays transactions for long.
const CHANGES_PER_ENTRY: usize = 256;

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

    /// Hash of the record's table and key.
    pub(super) fn hash(&self) -> u32 {
        self.hash
    }
}

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

/// Changes of a commit, in entries of a bounded number of changes. No entry is empty.
pub(super) type ChangesToList = SmallVec<[CommitEntry; 1]>;

/// The commits of one worker, and changes created for bulk operations.
#[derive(Debug, Default)]
pub(super) struct RecentCommits {
    pub(super) commits: Mutex<ListedCommits>,
    of_bulk: Mutex<VecDeque<RecentChange>>,
}

pub(super) type CommitEntry = Box<[RecentChange]>;

impl ExaminedEntry for CommitEntry {
    fn items(&self) -> usize {
        self.len()
    }
}

/// Commits in LSN order. Each entry has changes of one commit, and is not empty. The pruner keeps
/// changes that are needed.
///
/// Invariant: only the owning worker removes entries.
#[derive(Debug, Default)]
pub(super) struct ListedCommits(ExaminedQueue<CommitEntry>);

impl ListedCommits {
    /// Lists the changes of a commit.
    fn push(&mut self, entries: ChangesToList) {
        entries.into_iter().for_each(|entry| self.0.push(entry));
    }

    /// Undoes the last `push`, of this many changes.
    fn pop(&mut self, changes: usize) -> usize {
        let entries = changes.div_ceil(CHANGES_PER_ENTRY);
        (0..entries).for_each(|_| self.0.pop_newest());
        entries
    }

    /// Takes the oldest entry, if it was committed before `horizon`.
    fn pop_due(&mut self, horizon: Lsn) -> Option<CommitEntry> {
        self.0.pop_oldest_if(|entry| committed(entry).is_some_and(|lsn| lsn < horizon))
    }

    /// Number of changes that the pruner has not examined.
    pub(super) fn unexamined(&self) -> usize {
        self.0.unexamined_items()
    }

    /// Copies the oldest unexamined changes committed before `limit`: entries until there are
    /// `most` changes. Returns them and the number of entries.
    pub(super) fn unexamined_before(&self, limit: Lsn, most: usize) -> (Vec<RecentChange>, usize) {
        let (mut changes, mut entries) = (Vec::new(), 0);
        let is_due = |entry: &CommitEntry| committed(entry).is_some_and(|lsn| lsn < limit);
        for entry in self.0.unexamined() {
            if changes.len() >= most || !is_due(entry) {
                break;
            }
            changes.extend_from_slice(entry);
            entries += 1;
        }
        (changes, entries)
    }

    /// Marks the oldest unexamined entries as examined: keeps their changes, except pruned ones,
    /// which it passes to `pruned`. Returns the number of entries removed.
    pub(super) fn examine(
        &mut self,
        entries: usize,
        mut pruned: impl FnMut(RecentChange),
    ) -> usize {
        let mut gone = 0;
        for _ in 0..entries {
            let entry = self.0.examine_if(|_| true).expect("only this worker removes entries");
            let mut kept = entry.into_vec();
            kept.retain(|one| {
                // SAFETY: listed, so not retired.
                let is_pruned = unsafe { one.change.is_pruned() };
                if is_pruned {
                    pruned(*one);
                }
                !is_pruned
            });
            if kept.is_empty() {
                gone += 1;
            } else {
                self.0.keep(kept.into_boxed_slice());
            }
        }
        self.0.examine_again_if_due();
        gone
    }

    /// All entries, newest first.
    fn newest_first(&self) -> impl Iterator<Item = &CommitEntry> {
        self.0.newest_first()
    }
}

/// The LSN of a listed commit, once the changes of the entry are stamped: the first one is stamped
/// last.
fn committed(entry: &[RecentChange]) -> Option<Lsn> {
    // SAFETY: listed, so not retired.
    unsafe { entry[0].change.get() }.stamp().lsn()
}

impl RecentCommits {
    /// Lists a change that was created for the effect of a bulk operation on a record. It is
    /// collected like the others. Bulk operations are not certified by their changes.
    pub(super) fn add_of_bulk(&self, table: RecordsRef, change: ChangeRef) {
        self.of_bulk.lock().push_back(RecentChange::uncertified(table, change));
    }

    /// Frees changes that were not collected.
    ///
    /// # Safety
    /// No transaction is active or will begin; everything retired is freed.
    pub(super) unsafe fn free_leftovers(&mut self, memory: &MemoryCounters) {
        let listed = self.commits.get_mut().0.take_all().flatten();
        for one in self.of_bulk.get_mut().drain(..).chain(listed) {
            // SAFETY: listed, so committed, and collected only here.
            unsafe { one.change.collect_at_end(memory) };
        }
    }
}

impl ActiveTransaction {
    /// Returns the transaction's changes to paged tables, in entries of the list of recent commits.
    pub(super) async fn changes_to_list(&self) -> ChangesToList {
        let mut entries = ChangesToList::new();
        let count = self.writes().borrow().paged.len();
        for first in (0..count).step_by(CHANGES_PER_ENTRY) {
            if first > 0 {
                Self::end_step().await;
            }
            entries.push(self.entry_of(first..count.min(first + CHANGES_PER_ENTRY)));
        }
        entries
    }

    /// Returns the same for a transaction with so few changes that they need one entry.
    pub(super) fn changes_at_once(&self) -> ChangesToList {
        let count = self.writes().borrow().paged.len();
        assert!(count <= CHANGES_PER_ENTRY, "they fit into one entry");
        if count == 0 { ChangesToList::new() } else { smallvec![self.entry_of(0..count)] }
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
    pub(super) fn list_changes(&self, entries: ChangesToList) {
        if !entries.is_empty() {
            let worker = self.worker();
            worker.commits_waiting.set(worker.commits_waiting.get() + entries.len());
            worker.engine().recent[worker.number()].commits.lock().push(entries);
        }
    }

    /// Undoes `list_changes` for a transaction that does not commit.
    pub(super) fn unlist_changes(&self) {
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

impl WorkerTransactions {
    /// Collects the changes of commits before `horizon`: cuts them off their chains, and removes
    /// chains that become empty from their pages. Returns whether more are due.
    pub(super) fn collect_changes(&self, horizon: Lsn) -> bool {
        let engine = self.engine();
        let mut left = Vec::<(RecordsRef, LeftChain)>::new();
        let mut collect = |one: RecentChange| {
            self.discard_before(&one);
            // SAFETY: committed before the horizon, and off this worker's list, from which it is
            // collected once.
            left.push((one.table, unsafe { one.change.collect(horizon, &engine.memory) }));
        };
        let mut more = true;
        let mut collected = 0;
        while collected < CHANGES_PER_TURN {
            let due = engine.recent[self.number()].commits.lock().pop_due(horizon);
            let Some(entry) = due else {
                more = false;
                break;
            };
            self.commits_waiting.set(self.commits_waiting.get() - 1);
            collected += entry.len();
            entry.into_iter().for_each(&mut collect);
        }
        for _ in 0..CHANGES_PER_TURN {
            let is_due =
                |one: &mut RecentChange| committed(&[*one]).is_some_and(|lsn| lsn < horizon);
            let due = engine.recent[self.number()].of_bulk.lock().pop_front_if(is_due);
            let Some(one) = due else { break };
            self.commits_waiting.set(self.commits_waiting.get() - 1);
            collect(one);
        }
        self.release_chains(left);
        more
    }

    /// Collects pruned changes, which are off this worker's list.
    pub(super) fn collect_pruned(&self, pruned: Vec<RecentChange>) {
        let memory = &self.engine().memory;
        let left = pruned.into_iter().map(|one| {
            self.discard_before(&one);
            // SAFETY: pruned, made by one of this worker's transactions, and off its list, from
            // which it is collected once.
            (one.table, unsafe { one.change.collect_pruned(memory) })
        });
        self.release_chains(left.collect());
    }

    /// Releases the chains of collected changes, and removes the empty ones from their pages.
    fn release_chains(&self, left: Vec<(RecordsRef, LeftChain)>) {
        for (table, chain) in left {
            if let Some(key) = chain.key_if_empty() {
                // SAFETY: tables live as long as the engine.
                let paged = unsafe { table.get() }.paged().expect("changes are of paged tables");
                if let Some(what) = paged.prune(key) {
                    self.enqueue_leaf_cleanup(table, key, what);
                }
            }
            // SAFETY: the chain belongs to this engine.
            unsafe { chain.release(&self.engine().memory) };
        }
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
