//! Garbage collection of superseded versions and deleted records (Umbra MVCC §3.4, Steam).
//!
//! A version superseded at LSN c, or a record deleted at c, is needed only by transactions with a
//! begin stamp not later than c. Later transactions stop at the newer version. So the transaction
//! that superseded it lists it exactly once, under c. Once the oldest begin stamp in use is later
//! than c, a superseded version is freed without being unlinked, because the link to it is never
//! followed again. A deleted record is reclaimed at the same point, but not before its deletion is
//! durable: until then readers must find the tombstone, to wait for it.

use std::collections::VecDeque;

use super::examined_queue::{ExaminedEntry, ExaminedQueue};
use super::fault::PanicPoint;
use super::worker::WorkerTransactions;
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::record::{IndirectionEntry, Records, RecordsRef};
use crate::rid::Rid;
use crate::sched;
use crate::version::VersionRef;

/// Maximum number of items freed per turn, so that housekeeping never delays transactions for long.
const ITEMS_PER_TURN: usize = 4096;

/// Prefetch distance in items. A version has usually left the processor's caches before it is
/// freed.
const PREFETCH_AHEAD: usize = 12;

/// An item that is freed once the horizon passes the LSN under which it is listed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Garbage {
    /// A version with a newer committed version in front of it.
    Superseded { table: RecordsRef, rid: Rid, version: VersionRef },
    /// A record whose newest version is this tombstone.
    Deleted { table: RecordsRef, rid: Rid, tombstone: VersionRef },
}

/// An item, and the LSN under which it is listed.
type ListedGarbage = (Lsn, Garbage);

impl ExaminedEntry for ListedGarbage {
    fn items(&self) -> usize {
        1
    }
}

/// A worker's garbage.
///
/// `superseded` is sorted by LSN, because a worker's commits are. Only the items of a commit with
/// many writes may follow items of later commits, which then delay them.
#[derive(Debug, Default)]
pub(super) struct GarbageList {
    /// Superseded versions. The pruner keeps those that an old reader needs.
    superseded: ExaminedQueue<ListedGarbage>,
    /// Deleted records, sorted likewise. They also wait for the log: a transaction that finds no
    /// index entry of a record relies on its deletion being durable.
    deleted: VecDeque<ListedGarbage>,
}

impl GarbageList {
    pub(super) fn push(&mut self, lsn: Lsn, garbage: Garbage) {
        match garbage {
            Garbage::Deleted { table, .. } => {
                // SAFETY: the caller's transaction has written the table and not ended.
                unsafe { table.get() }.count_listed_deletion();
                self.deleted.push_back((lsn, garbage));
            }
            Garbage::Superseded { .. } => self.superseded.push((lsn, garbage)),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.superseded.len() + self.deleted.len()
    }

    fn pop(&mut self, oldest_begin: Lsn, durable: Lsn) -> Option<ListedGarbage> {
        let deletions_until = oldest_begin.min(durable);
        if let Some(item) = self.deleted.pop_front_if(|item| item.0 < deletions_until) {
            return Some(item);
        }
        self.superseded.pop_oldest_if(|item| item.0 < oldest_begin)
    }

    /// Prefetches the version that is the `ahead`-th to be freed.
    fn prefetch(&self, ahead: usize) {
        if let Some((_, Garbage::Superseded { version, .. })) = self.superseded.get(ahead) {
            sched::prefetch(version.pointer());
        }
    }

    /// Superseded versions, for the pruner.
    pub(super) fn superseded(&mut self) -> &mut ExaminedQueue<ListedGarbage> {
        &mut self.superseded
    }
}

impl WorkerTransactions {
    /// Frees what is due; returns whether more is.
    pub(super) fn collect_garbage(&self) -> bool {
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
        for _ in 0..ITEMS_PER_TURN {
            let Some((lsn, item)) = self.garbage.borrow_mut().pop(oldest_begin, durable) else {
                return more;
            };
            self.garbage.borrow().prefetch(PREFETCH_AHEAD);
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
                    table.uncount_listed_deletion();
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
    fn reclaim_record(&self, table: &Records, rid: Rid, tombstone: VersionRef, lsn: Lsn) {
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
        table.index.remove(head.payload(), rid, &operation);
        table.retire_rid(rid);
        // SAFETY: unlinked by the replacement, which succeeds for only one list.
        unsafe { table.retire_version(tombstone) };
        self.counters().records_reclaimed.add(1);
    }
}

impl GarbageList {
    /// Frees everything after every worker has stopped.
    ///
    /// # Safety
    /// No transaction is active or will begin.
    pub(super) unsafe fn free_leftovers(&mut self, memory: &MemoryCounters) {
        // Tombstones are their records' newest versions and are freed with their tables.
        self.deleted.clear();
        for (_, item) in self.superseded.take_all() {
            match item {
                Garbage::Superseded { version, .. } => {
                    // SAFETY: listed once, and no transaction reads any more (the caller's
                    // contract).
                    unsafe { version.free(memory) };
                }
                Garbage::Deleted { .. } => unreachable!("deleted records have a list of their own"),
            }
        }
    }
}
