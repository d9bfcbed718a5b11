//! Division of the memory budget between pages and versions of records, the two kinds of evictable
//! memory.
//!
//! Unused memory is free for both: pages take what is free. When nothing is free, each has a share.
//! Missing memory moves the share: a frame that pages requested but did not get raises the pages'
//! share by one frame. A record that was read from the log again lowers it by the record's bytes.
//! So the shares settle where as many bytes of pages are missed as of records, although a page may
//! be read for only one of its records. Pages beyond their share are evicted as soon as anything
//! else needs memory. Versions beyond theirs are evicted as any excess over the budget
//! (`evict.rs`), because pages leave less for them.
//!
//! No thread is dedicated to this. Each worker checks during its turns, after enough has changed;
//! during recovery, the threads that replay the log check. If pages cannot be written, such as on a
//! full disk, they stay resident, and eviction is retried only at intervals.

use std::cell::Cell;
use std::time::Instant;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of frames whose memory is returned per turn.
pub(in crate::transaction) const MAX_SHRINK_FRAMES: usize = 64;
/// Divisor: the fraction of the room by which the share moves per check, at most.
const SHARE_STEP_DIVISOR: u64 = 8;

/// The share of pages in the memory budget.
#[derive(Debug)]
pub(in crate::transaction) struct PageShare {
    /// Bytes that pages may use even if versions need more.
    target: AtomicU64,
    /// Bytes of records read from the log again since the last check.
    brought_back: AtomicU64,
}

/// Current use of memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) struct MemoryUse {
    /// The budget less everything except the allocator and pages.
    pub(in crate::transaction) room: u64,
    /// Part of the room that is kept free, because workers measure their allocations only at
    /// intervals.
    pub(in crate::transaction) slack: u64,
    /// The allocator's bytes in use, and those of them that can be evicted.
    pub(in crate::transaction) in_use: u64,
    pub(in crate::transaction) versions: u64,
    /// Bytes of the room that each KiB in use takes, including memory kept free for it
    /// ([`Budget::cost`]).
    ///
    /// [`Budget::cost`]: super::budget::Budget::cost
    pub(in crate::transaction) cost: u64,
    /// Bytes that pages use, and bytes of frames requested without success since the last check.
    pub(in crate::transaction) pages: u64,
    pub(in crate::transaction) wanted: u64,
}

/// A worker's view of the pages' share.
#[derive(Debug, Default)]
pub(in crate::transaction) struct PageWatch {
    /// Bytes that it had allocated at the last check.
    pub(in crate::transaction) allocated: Cell<i64>,
    /// True if guests may have allocated memory since then.
    pub(in crate::transaction) others_allocated: Cell<bool>,
    /// Set if frames exceeded their limit at that check.
    pub(in crate::transaction) shrinking: Cell<bool>,
    pub(in crate::transaction) rest: Cell<Option<EvictionPause>>,
}

/// A pause after pages above their limit could not be evicted.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) struct EvictionPause {
    /// When to retry, unless more of the operations that block eviction end before.
    pub(in crate::transaction) until: Instant,
    pub(in crate::transaction) ended: u64,
}

impl PageShare {
    pub(in crate::transaction) fn new(target: u64) -> Self {
        Self { target: AtomicU64::new(target), brought_back: AtomicU64::new(0) }
    }

    /// Bytes that pages may use even if versions need more.
    pub(super) fn target(&self) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        self.target.load(Ordering::Relaxed)
    }

    pub(in crate::transaction) fn note_loaded(&self, bytes: u64) {
        // Relaxed: a statistic, ordered with nothing.
        self.brought_back.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that pages may use now.
    pub(in crate::transaction) fn limit(&self, used: &MemoryUse) -> u64 {
        let MemoryUse { room, slack, in_use, versions, cost, pages, wanted } = *used;
        let cost = |bytes: u64| bytes / 1024 * cost;
        let kept = in_use.saturating_sub(versions);
        let most = room.saturating_sub(cost(kept)).saturating_sub(slack);
        let least = most.min(room / 16);
        // The free part also shows when versions need more than they have.
        let free = room.saturating_sub(cost(in_use)).saturating_sub(slack);
        // Records that were read again while there was enough room indicate no shortage. Relaxed,
        // here and below: statistics.
        let brought_back = self.brought_back.swap(0, Ordering::Relaxed);
        let brought_back = if free < pages + slack { brought_back } else { 0 };
        let step = room / SHARE_STEP_DIVISOR;
        let (wanted, brought_back) = (wanted.min(step), cost(brought_back).min(step));
        // Of two concurrent checks one change may be lost; the next misses correct that.
        let target = (self.target() + wanted).saturating_sub(brought_back).clamp(least, most);
        self.target.store(target, Ordering::Relaxed);
        free.max(target)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const ROOM: u64 = 100 * MIB;

    fn cost(bytes: u64) -> u64 {
        bytes / 1024 * 1300
    }

    fn used(in_use: u64, versions: u64, wanted: u64) -> MemoryUse {
        let (slack, cost, pages) = (ROOM / 16, cost(1024), ROOM / 2);
        MemoryUse { room: ROOM, slack, in_use, versions, cost, pages, wanted }
    }

    #[test]
    fn pages_take_what_is_free_and_keep_their_share() {
        let share = PageShare::new(ROOM / 2);
        let free = |in_use| ROOM - cost(in_use) - ROOM / 16;
        assert_eq!(share.limit(&used(0, 0, 0)), free(0));
        assert_eq!(share.limit(&used(10 * MIB, 10 * MIB, 0)), free(10 * MIB));
        // Versions request all of it.
        assert_eq!(share.limit(&used(70 * MIB, 70 * MIB, 0)), ROOM / 2);
        // Memory that cannot be evicted.
        let left = ROOM - cost(70 * MIB) - ROOM / 16;
        assert_eq!(share.limit(&used(70 * MIB, 0, 0)), left);
        assert_eq!(share.limit(&used(2 * ROOM, 0, 0)), 0);
    }

    #[test]
    fn a_side_short_of_memory_takes_from_the_other_share() {
        let share = PageShare::new(ROOM / 2);
        let full = |wanted| used(80 * MIB, 80 * MIB, wanted);
        assert_eq!(share.limit(&full(3 * MIB)), ROOM / 2 + 3 * MIB);
        assert_eq!(share.limit(&full(0)), ROOM / 2 + 3 * MIB, "counted once");
        share.note_loaded(5 * MIB);
        assert!(share.limit(&used(0, 0, 0)) > ROOM / 2, "there was room for it");
        assert_eq!(share.limit(&full(0)), ROOM / 2 + 3 * MIB);
        share.note_loaded(5 * MIB);
        assert_eq!(share.limit(&full(0)), ROOM / 2 + 3 * MIB - cost(5 * MIB));
    }

    #[test]
    fn the_share_moves_step_by_step_and_leaves_something_to_both() {
        let share = PageShare::new(ROOM / 2);
        let full = |wanted| used(80 * MIB, 80 * MIB, wanted);
        for step in 1..4 {
            share.note_loaded(1 << 50);
            assert_eq!(share.limit(&full(0)), ROOM / 2 - step * (ROOM / SHARE_STEP_DIVISOR));
        }
        share.note_loaded(ROOM);
        assert_eq!(share.limit(&full(0)), ROOM / 16, "pages keep a minimum");
        assert_eq!(share.limit(&full(1 << 60)), ROOM / 16 + ROOM / SHARE_STEP_DIVISOR);
        (0..8).for_each(|_| _ = share.limit(&full(1 << 60)));
        assert_eq!(share.limit(&full(0)), ROOM - ROOM / 16, "and so do versions");
    }
}
