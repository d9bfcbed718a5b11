//! Keeping the tables within their memory: each worker, at its turns, evicts what is not of use.

use super::worker::Worker;
use crate::reclaim;
use crate::rid::CATALOG;
use crate::version::VersionRef;

/// Entries looked at in one turn, at most.
const ENTRIES_PER_TURN: u64 = 16 << 10;
/// Entries looked at between two looks at what is due.
const STRIDE: u64 = 1024;

impl Worker {
    /// Takes over versions that gave way to their addresses, to free them when no operation holds them
    /// any more: what transactions were handed of them is theirs.
    ///
    /// # Safety
    /// Nothing leads to them any more, and they are handed over once.
    pub(crate) unsafe fn retire_evicted(&self, versions: Vec<VersionRef>) {
        if versions.is_empty() {
            return;
        }
        self.counters().evicted.add(versions.len() as u64);
        // SAFETY: freed below at the earliest.
        let bytes = versions.iter().map(|version| unsafe { version.get() }.memory_bytes()).sum();
        let engine = self.engine();
        engine.note_evicted(bytes);
        let (memory, budget) = (engine.memory.clone(), engine.budget().cloned());
        reclaim::retire_with(move || {
            for version in versions {
                // SAFETY: nothing led to it when it was retired, and the grace period is over.
                unsafe { version.free(&memory) };
            }
            budget.into_iter().for_each(|budget| budget.note_freed(bytes));
        });
    }

    /// Evicts versions if the database uses more memory than it may.
    pub(super) fn evict(&self) {
        let engine = self.engine();
        let mut excess = engine.excess_memory();
        self.memory_is_short.set(excess > 0);
        if excess == 0 {
            return;
        }
        // Otherwise another worker prunes; there is another turn.
        let Some(acting) = engine.horizon.act(self.number(), engine.log.tail()) else { return };
        let durable = engine.log.durable();
        // Once round is enough: what has its second chance now is looked at in another turn.
        let (all, mut looked_at) = (engine.entries(), 0);
        while excess > 0 && looked_at < all.min(ENTRIES_PER_TURN) {
            let Some((table, count)) = engine.next_stride(STRIDE) else { break };
            looked_at += count;
            // The catalog is small and always of use.
            if table.id == CATALOG {
                continue;
            }
            let mut evicted = Vec::new();
            let freed = table.evict(count, &acting, durable, |version| evicted.push(version));
            // SAFETY: replaced just now, by this worker alone.
            unsafe { self.retire_evicted(evicted) };
            excess = excess.saturating_sub(freed);
        }
    }
}
