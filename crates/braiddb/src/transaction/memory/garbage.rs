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
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::record::{MemoryRecords, RecordsRef};
use crate::rid::Rid;
use crate::sched;
use crate::version::VersionRef;

/// Prefetch distance in items. A version has usually left the processor's caches before it is
/// freed.
const PREFETCH_AHEAD: usize = 12;

/// An item that is freed once the horizon passes the LSN under which it is listed.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) enum Garbage {
    /// A version with a newer committed version in front of it.
    Superseded { table: RecordsRef<MemoryRecords>, rid: Rid, version: VersionRef },
    /// A record whose newest version is this tombstone.
    Deleted { table: RecordsRef<MemoryRecords>, rid: Rid, tombstone: VersionRef },
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
/// many writes may follow items of later commits, which then delay them, and items of guests.
#[derive(Debug, Default)]
pub(in crate::transaction) struct GarbageList {
    /// Superseded versions. The pruner keeps those that an old reader needs.
    superseded: ExaminedQueue<ListedGarbage>,
    /// Deleted records, sorted likewise. They also wait for the log: a transaction that finds no
    /// index entry of a record relies on its deletion being durable.
    deleted: VecDeque<ListedGarbage>,
}

impl GarbageList {
    pub(in crate::transaction) fn push(&mut self, lsn: Lsn, garbage: Garbage) {
        match garbage {
            Garbage::Deleted { table, .. } => {
                // SAFETY: the caller's transaction has written the table and not ended.
                unsafe { table.get() }.count_listed();
                self.deleted.push_back((lsn, garbage));
            }
            Garbage::Superseded { .. } => self.superseded.push((lsn, garbage)),
        }
    }

    /// Takes over another list. Its items may delay later ones, which are earlier in the log.
    pub(in crate::transaction) fn append(&mut self, other: &mut Self) {
        self.deleted.append(&mut other.deleted);
        other.superseded.take_all().for_each(|item| self.superseded.push(item));
    }

    pub(in crate::transaction) fn len(&self) -> usize {
        self.superseded.len() + self.deleted.len()
    }

    pub(in crate::transaction) fn pop(
        &mut self,
        oldest_begin: Lsn,
        durable: Lsn,
    ) -> Option<ListedGarbage> {
        let is_due = |item: &mut ListedGarbage| item.0 < oldest_begin.min(durable);
        if let Some(item) = self.deleted.pop_front_if(is_due) {
            return Some(item);
        }
        self.superseded.pop_oldest_if(|item| item.0 < oldest_begin)
    }

    /// Removes superseded versions that are due and stored together, at most `most`, and passes each
    /// to `free`. Returns their number; if it is zero, `pop` may return some. Deletions precede them,
    /// because drops of tables wait for deletions.
    pub(in crate::transaction) fn pop_superseded(
        &mut self,
        (oldest_begin, durable): (Lsn, Lsn),
        most: usize,
        mut free: impl FnMut(VersionRef),
    ) -> usize {
        if self.deleted.front().is_some_and(|item| item.0 < oldest_begin.min(durable)) {
            return 0;
        }
        let is_due = |item: &ListedGarbage| item.0 < oldest_begin;
        self.superseded.pop_run((most, PREFETCH_AHEAD), is_due, |(_, item), ahead| {
            if let Some((_, Garbage::Superseded { version, .. })) = ahead {
                sched::prefetch(version.pointer());
            }
            if let Garbage::Superseded { version, .. } = item {
                free(*version);
            }
        })
    }

    /// Superseded versions, for the pruner.
    pub(in crate::transaction) fn superseded(&mut self) -> &mut ExaminedQueue<ListedGarbage> {
        &mut self.superseded
    }
}

impl GarbageList {
    /// Frees everything after every worker has stopped.
    ///
    /// # Safety
    /// No transaction is active or will begin.
    pub(in crate::transaction) unsafe fn free_leftovers(&mut self, memory: &MemoryCounters) {
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
