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

use smallvec::SmallVec;

use super::examined_queue::{ExaminedEntry, ExaminedQueue};
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::page::ChangeRef;
use crate::record::{PagedRecords, RecordsRef};
use crate::sync::Mutex;

/// Maximum number of changes in an entry. A larger commit has several entries, so that housekeeping
/// never delays transactions for long.
pub(in crate::transaction) const CHANGES_PER_ENTRY: usize = 256;

/// A change that a transaction committed, or is about to.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) struct RecentChange {
    pub(in crate::transaction) table: RecordsRef<PagedRecords>,
    pub(in crate::transaction) change: ChangeRef,
    /// Hash of the record's table and key; it rules out most changes that a transaction has not
    /// read.
    pub(in crate::transaction) hash: u32,
}

impl RecentChange {
    /// A change that no transaction is certified against.
    pub(in crate::transaction) fn uncertified(
        table: RecordsRef<PagedRecords>,
        change: ChangeRef,
    ) -> Self {
        Self { table, change, hash: 0 }
    }
}

/// Changes of a commit, in entries of a bounded number of changes. No entry is empty.
pub(in crate::transaction) type ChangesToList = SmallVec<[CommitEntry; 1]>;

/// The commits of one worker, and changes created for bulk operations.
#[derive(Debug, Default)]
pub(in crate::transaction) struct RecentCommits {
    pub(in crate::transaction) commits: Mutex<ListedCommits>,
    pub(in crate::transaction) of_bulk: Mutex<VecDeque<RecentChange>>,
}

pub(in crate::transaction) type CommitEntry = Box<[RecentChange]>;

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
pub(in crate::transaction) struct ListedCommits(ExaminedQueue<CommitEntry>);

impl ListedCommits {
    /// Lists the changes of a commit.
    pub(in crate::transaction) fn push(&mut self, entries: ChangesToList) {
        entries.into_iter().for_each(|entry| self.0.push(entry));
    }

    /// Undoes the last `push`, of this many changes.
    pub(in crate::transaction) fn pop(&mut self, changes: usize) -> usize {
        let entries = changes.div_ceil(CHANGES_PER_ENTRY);
        (0..entries).for_each(|_| self.0.pop_newest());
        entries
    }

    /// Takes the oldest entry, if it was committed before `horizon`.
    pub(in crate::transaction) fn pop_due(&mut self, horizon: Lsn) -> Option<CommitEntry> {
        self.0.pop_oldest_if(|entry| committed(entry).is_some_and(|lsn| lsn < horizon))
    }

    /// Returns whether no listed change was committed at `lsn` or before, if all transactions that
    /// began before have ended.
    pub(in crate::transaction) fn has_none_until(&self, lsn: Lsn) -> bool {
        let is_later = |entry: &CommitEntry| committed(entry).is_none_or(|at| at > lsn);
        self.0.oldest().is_none_or(is_later)
    }

    /// Number of changes that the pruner has not examined.
    pub(in crate::transaction) fn unexamined(&self) -> usize {
        self.0.unexamined_items()
    }

    /// Copies the oldest unexamined changes committed before `limit`: entries until there are
    /// `most` changes. Returns them and the number of entries.
    pub(in crate::transaction) fn unexamined_before(
        &self,
        limit: Lsn,
        most: usize,
    ) -> (Vec<RecentChange>, usize) {
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
    pub(in crate::transaction) fn examine(
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
    pub(in crate::transaction) fn newest_first(&self) -> impl Iterator<Item = &CommitEntry> {
        self.0.newest_first()
    }
}

/// The LSN of a listed commit, once the changes of the entry are stamped: the first one is stamped
/// last.
pub(in crate::transaction) fn committed(entry: &[RecentChange]) -> Option<Lsn> {
    // SAFETY: listed, so not retired.
    unsafe { entry[0].change.get() }.stamp().lsn()
}

impl RecentCommits {
    /// Lists a change that was created for the effect of a bulk operation on a record. It is
    /// collected like the others. Bulk operations are not certified by their changes.
    pub(in crate::transaction) fn add_of_bulk(&self, table: &PagedRecords, change: ChangeRef) {
        table.count_listed();
        self.of_bulk.lock().push_back(RecentChange::uncertified(RecordsRef::new(table), change));
    }

    /// Frees changes that were not collected.
    ///
    /// # Safety
    /// No transaction is active or will begin; everything retired is freed.
    pub(in crate::transaction) unsafe fn free_leftovers(&mut self, memory: &MemoryCounters) {
        let listed = self.commits.get_mut().0.take_all().flatten();
        for one in self.of_bulk.get_mut().drain(..).chain(listed) {
            // SAFETY: listed, so committed, and collected only here.
            unsafe { one.change.collect_at_end(memory) };
        }
    }
}
