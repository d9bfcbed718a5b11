//! Pruning of chains (Umbra MVCC §3.4, Steam): unlinks each change whose before-image no transaction
//! sees, although an older reader needs the changes below it. For each begin stamp in use, a chain
//! keeps at most one change. Changes that are recent or not durable are not pruned.
//!
//! The before-image of a change committed at `c` is the value committed at `p`, the stamp of the
//! next older change. Exactly the begin stamps after `p` and up to `c` see it. If none is in use:
//!
//! - A reader above `c` stops at an older change, and has the same value.
//! - A reader up to `p` passes to the next older change, and takes its before-image.
//! - A writer or a validation that began before `c` also began up to `p`. It finds the oldest change
//!   after its begin stamp, which is kept, because that transaction sees its before-image.
//!
//! A pruned change is durable, so a reader that does not learn its LSN depends on nothing.
//! In contrast to tables in memory, nothing is freed before it is unlinked. So pruning needs no
//! exclusion of workers that act on a horizon, and a listed begin stamp that has ended is harmless.

use super::chain::Chain;
use super::change::ChainChange;
use crate::log::Lsn;
use crate::version::BeginStamps;

impl Chain<'_> {
    /// Unlinks and marks the changes committed before `durable` whose before-images no transaction
    /// sees, now or later. Their transactions retire them. Returns the number of changes visited.
    pub(super) fn prune(self, stamps: &BeginStamps, durable: Lsn) -> usize {
        let mut latched = self.latch();
        let (mut newer, mut next) = (None::<ChainChange<'_>>, latched.newest);
        let mut visited = 0;
        while let Some(change) = next {
            // SAFETY: linked, and only the holder of the latch, which is this task, unlinks it.
            let change = unsafe { change.get() };
            next = change.next();
            visited += 1;
            // SAFETY: linked below a linked change, and only the holder of the latch unlinks it.
            let older = next.map(|older| unsafe { older.get() }.stamp());
            // The older commit may not be stamped yet. A cut below is older than all begin stamps.
            let older = older.and_then(|stamp| stamp.lsn()).unwrap_or(Lsn::ZERO);
            let is_unneeded = change
                .stamp()
                .lsn()
                .is_some_and(|lsn| lsn < durable && stamps.is_unseen(older, lsn));
            if !is_unneeded {
                newer = Some(change);
                continue;
            }
            change.mark_pruned();
            match newer {
                Some(newer) => newer.set_next(next),
                None => latched.newest = next,
            }
        }
        visited
    }
}
