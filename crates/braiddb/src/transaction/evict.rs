//! Keeping the tables within their memory: each worker, at its turns, evicts what is not of use.

use super::garbage::Garbage;
use super::worker::Worker;
use crate::rid::CATALOG;
use crate::version::VersionRef;

/// Entries looked at in one turn, at most.
const ENTRIES_PER_TURN: u64 = 16 << 10;
/// Entries looked at between two looks at what is due.
const STRIDE: u64 = 1024;

impl Worker {
    /// Takes a version that gave way to its address, to free it when the transactions that are
    /// active now are over.
    pub(crate) fn evicted(&self, version: VersionRef) {
        let engine = self.engine();
        // SAFETY: the caller's alone to free, later.
        engine.note_evicted(VersionRef::bytes(unsafe { version.get() }.payload_bytes()));
        self.garbage.borrow_mut().push(engine.log.tail(), Garbage::Evicted { version });
    }

    /// Evicts versions if the database uses more memory than it may.
    pub(super) fn evict(&self) {
        let engine = self.engine();
        let mut excess = engine.excess_memory();
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
            let mut garbage = self.garbage.borrow_mut();
            let freed = table.evict(count, &acting, durable, |version| {
                self.counters().evicted.add(1);
                garbage.push(engine.log.tail(), Garbage::Evicted { version });
            });
            engine.note_evicted(freed);
            excess = excess.saturating_sub(freed);
        }
        // Those that begin from here on cannot hold what was evicted; where nobody writes, time
        // has to be told to pass for that to show.
        let newest = self.garbage.borrow().newest();
        if newest == Some(engine.log.tail()) && engine.much_is_evicted() {
            engine.log.pass_time(self.number());
        }
    }
}
