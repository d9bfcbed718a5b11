//! Garbage collection at a worker's turns: frees superseded versions, changes of paged tables,
//! deleted records and dropped tables that no transaction needs any more.

use crate::log::Lsn;
use crate::page::{LeftChain, SlotValue};
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::record::{IndirectionEntry, MemoryRecords, PagedRecords, RecordsRef};
use crate::rid::Rid;
use crate::transaction::context::fault::PanicPoint;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::memory::garbage::Garbage;
use crate::transaction::memory::recent_commits::{RecentChange, committed};
use crate::version::VersionRef;

/// Maximum number of items freed per turn, so that housekeeping never delays transactions for long.
const ITEMS_PER_TURN: usize = 4096;
/// Minimum number of changes collected per turn before the rest waits for the next one.
const CHANGES_PER_TURN: usize = 512;
/// Maximum number of dropped tables that a worker frees per turn.
const FREED_PER_TURN: usize = 16;

impl WorkerTransactions {
    /// Frees what is due; returns whether more is.
    pub(in crate::transaction) fn collect_garbage(&self) -> bool {
        if self.garbage_waits() == 0 {
            return false;
        }
        let engine = self.engine();
        // Otherwise another worker prunes; the garbage waits for the next turn.
        let Some(acting) = engine.horizon.act(self.number(), engine.log.tail()) else {
            return false;
        };
        engine.planted_panic.panic_if_planted(PanicPoint::Collect);
        let oldest_begin =
            if is_planted(Bug::FreedAheadOfHorizon) { engine.log.tail() } else { acting.oldest() };
        let durable =
            if is_planted(Bug::ReclaimedBeforeDurable) { Lsn::MAX } else { engine.log.durable() };
        let more =
            self.commits_waiting.get() > 0 && self.collect_changes(oldest_begin.min(durable));
        let mut left = ITEMS_PER_TURN;
        while left > 0 {
            // Most items are superseded versions in a row.
            let until = (oldest_begin, durable);
            let freed = self.garbage.borrow_mut().pop_superseded(until, left, |version| {
                // SAFETY: every transaction that is active or will be began after the version was
                // superseded, and none follows the link to it; it is listed once.
                unsafe { version.free(&engine.memory) };
            });
            self.counters().versions_freed.add(freed as u64);
            left -= freed;
            let Some((lsn, item)) = self.garbage.borrow_mut().pop(oldest_begin, durable) else {
                return more;
            };
            left = left.saturating_sub(1);
            match item {
                Garbage::Superseded { version, .. } => {
                    // SAFETY: no transaction that began before `lsn` is active or will be, later
                    // ones never follow the link to it, and it is listed once.
                    unsafe { version.free(&engine.memory) };
                    self.counters().versions_freed.add(1);
                }
                Garbage::Deleted { table, rid, tombstone } => {
                    // SAFETY: a table lives at least as long as its deletions are listed, and until
                    // this thread's next turn.
                    let table = unsafe { table.get() };
                    self.reclaim_record(table, rid, tombstone, lsn);
                    table.uncount_listed();
                }
            }
        }
        true
    }

    /// Number of items that still wait.
    pub(super) fn garbage_waits(&self) -> usize {
        self.garbage.borrow().len() + self.commits_waiting.get()
    }

    /// Reclaims a deleted record, unless it was written again.
    fn reclaim_record(&self, table: &MemoryRecords, rid: Rid, tombstone: VersionRef, lsn: Lsn) {
        let operation = reclaim::enter();
        #[cfg(feature = "experiment")]
        table.note_reclaimed(lsn);
        // The word alone could reference a later version at the same address. Only a head that is a
        // tombstone no newer than the listed one is that deletion.
        if table.array().load(rid) != IndirectionEntry::Version(tombstone) {
            return;
        }
        // SAFETY: the head of its chain, loaded under the guard above and this worker's published
        // begin stamp, which is not later than any commit from here on.
        let head = unsafe { tombstone.get() };
        let same = head.is_tombstone() && head.stamp().lsn().is_some_and(|stamp| stamp <= lsn);
        if !same
            || !table.array().replace(
                rid,
                IndirectionEntry::Version(tombstone),
                IndirectionEntry::Dead,
            )
        {
            return;
        }
        table.index().remove(head.payload(), rid, &operation);
        table.retire_rid(rid);
        // SAFETY: unlinked by the replacement, which succeeds for only one list.
        unsafe { table.retire_version(tombstone) };
        self.counters().records_reclaimed.add(1);
    }

    /// Frees dropped tables that nothing uses.
    pub(super) fn free_dropped_tables(&self) {
        let engine = self.engine();
        if !engine.tables.has_dropped() {
            return;
        }
        let oldest = engine.horizon.oldest(engine.log.tail());
        for _ in 0..FREED_PER_TURN {
            let is_collected =
                |until| engine.recent.iter().all(|one| one.commits.lock().has_none_until(until));
            let Some(dropped) = engine.tables.take_unused(oldest, is_collected) else { break };
            let tables = engine.tables.clone();
            reclaim::retire_with(move || tables.free(dropped));
        }
    }

    /// Collects the changes of commits before `horizon`: cuts them off their chains, and removes
    /// chains that become empty from their pages. Returns whether more are due.
    pub(super) fn collect_changes(&self, horizon: Lsn) -> bool {
        let engine = self.engine();
        let mut left = Vec::<(RecordsRef<PagedRecords>, LeftChain)>::new();
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
            // SAFETY: listed until now, and counted, so its table exists until the end of this turn.
            unsafe { one.table.get() }.uncount_listed();
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
    fn release_chains(&self, left: Vec<(RecordsRef<PagedRecords>, LeftChain)>) {
        for (table, chain) in left {
            if let Some(key) = chain.key_if_empty() {
                // SAFETY: its changes were listed until this turn, so the table exists until the end
                // of the turn.
                let table = unsafe { table.get() };
                if let Some(what) = table.pages().prune(key) {
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
            // SAFETY: the change was listed until this turn, so its table exists until the end of the
            // turn.
            self.discard_of(unsafe { one.table.get() }, large);
        }
    }
}
