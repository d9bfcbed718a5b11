//! How the memory budget is shared between pages and what else can leave memory: versions of records.
//!
//! What neither needs is anybody's: pages take what is free. When nothing is, each has a share. Whoever
//! lacks memory takes from the other's: a frame that a page wanted when there was none raises the pages' share by
//! itself, a record that had to be read from the log again lowers it. So shares come to rest where both read as much
//! again. Pages beyond their share give way as soon as anything else needs memory; versions beyond theirs are evicted as whatever
//! is over the budget (`evict.rs`), as pages leave less to them.
//!
//! There is no thread for it: each worker looks in its turns, when enough has changed.

use std::cell::Cell;

use super::evict::Eviction;
use super::worker::WorkerTransactions;
use crate::page::PageSpace;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Frames wanted, and bytes allocated or freed by a worker, after which it looks again.
const LOOK_WANTED: u64 = 8;
const LOOK_BYTES: u64 = 64 << 10;
/// Frames whose memory is given back in one turn, at most.
const SHRINK: usize = 64;

/// The share of pages in the memory budget.
#[derive(Debug)]
pub(super) struct PageShare {
    /// Bytes that they may take though others want more.
    target: AtomicU64,
    /// Bytes of records that were read from the log again since it was last looked at.
    brought_back: AtomicU64,
}

/// How memory is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// What the budget leaves beside what is not the allocator's or pages'.
    pub(super) room: u64,
    /// What of that is kept free, as workers look after what they allocate now and then only.
    pub(super) slack: u64,
    /// Bytes in use of the allocator's, and those of them that can be evicted.
    pub(super) in_use: u64,
    pub(super) versions: u64,
    /// What of the room each KiB in use takes, with what is kept free beside it ([`Budget::cost`]), in bytes.
    ///
    /// [`Budget::cost`]: super::budget::Budget::cost
    pub(super) cost: u64,
    /// Bytes that pages take, and of frames that were wanted in vain.
    pub(super) pages: u64,
    pub(super) wanted: u64,
}

/// What a worker has seen of the pages' share.
#[derive(Debug, Default)]
pub(super) struct PageWatch {
    /// Frames that were wanted so far, and bytes that this worker had allocated, when it last looked.
    wanted: Cell<u64>,
    allocated: Cell<i64>,
    /// Whether frames had more memory than they may then.
    shrinking: Cell<bool>,
}

impl PageShare {
    pub(super) fn new(target: u64) -> Self {
        Self { target: AtomicU64::new(target), brought_back: AtomicU64::new(0) }
    }

    /// Bytes that pages may take though others want more.
    pub(super) fn target(&self) -> u64 {
        // Relaxed, as all here: statistics, ordered with nothing.
        self.target.load(Ordering::Relaxed)
    }

    pub(super) fn note_brought_back(&self, bytes: u64) {
        self.brought_back.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that pages may take now.
    pub(super) fn limit(&self, used: &Use) -> u64 {
        let Use { room, slack, in_use, versions, cost, pages, wanted } = *used;
        let cost = |bytes: u64| bytes / 1024 * cost;
        let kept = in_use.saturating_sub(versions);
        let most = room.saturating_sub(cost(kept)).saturating_sub(slack);
        let least = most.min(room / 16);
        // By what is left it shows, too, when others want more than they have.
        let free = room.saturating_sub(cost(in_use)).saturating_sub(slack);
        // What was read again while there was room enough is nobody's loss.
        let brought_back = self.brought_back.swap(0, Ordering::Relaxed);
        let brought_back = if free < pages + slack { brought_back } else { 0 };
        // Two workers may look at once: then one's change is lost, which the next misses make up for.
        let target = (self.target() + wanted).saturating_sub(cost(brought_back)).clamp(least, most);
        self.target.store(target, Ordering::Relaxed);
        free.max(target)
    }
}

impl WorkerTransactions {
    /// Sees to it that pages take as much memory as they may.
    pub(super) fn share_with_pages(&self) -> Eviction {
        let (engine, watch) = (self.engine(), &self.pages);
        let Some(pages) = engine.shared_pages() else { return Eviction::default() };
        let (wanted, allocated) = (pages.wanted(), engine.memory.of_this_thread());
        let lacked = wanted.saturating_sub(watch.wanted.get());
        let moved = allocated.abs_diff(watch.allocated.get());
        let changed = lacked >= LOOK_WANTED || moved >= LOOK_BYTES || engine.memory_is_short();
        if !changed && !watch.shrinking.get() {
            return Eviction::default();
        }
        watch.wanted.set(wanted);
        watch.allocated.set(allocated);
        // What other workers' tasks lacked they see as well.
        let lacked = lacked / engine.workers() as u64;
        engine.share_with_pages(pages, lacked * PageSpace::frame_bytes(pages.page_bytes()));
        let given_back = pages.shrink(SHRINK);
        watch.shrinking.set(pages.has_surplus());
        match (watch.shrinking.get(), given_back) {
            (false, _) => Eviction::default(),
            (true, 0) => Eviction::later(),
            (true, _) => Eviction { at_once: true, at: None },
        }
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

    fn used(in_use: u64, versions: u64, wanted: u64) -> Use {
        let (slack, cost, pages) = (ROOM / 16, cost(1024), ROOM / 2);
        Use { room: ROOM, slack, in_use, versions, cost, pages, wanted }
    }

    #[test]
    fn pages_take_what_is_free_and_keep_their_share() {
        let share = PageShare::new(ROOM / 2);
        let free = |in_use| ROOM - cost(in_use) - ROOM / 16;
        assert_eq!(share.limit(&used(0, 0, 0)), free(0));
        assert_eq!(share.limit(&used(10 * MIB, 10 * MIB, 0)), free(10 * MIB));
        // Others want all of it.
        assert_eq!(share.limit(&used(70 * MIB, 70 * MIB, 0)), ROOM / 2);
        // They cannot leave memory.
        let left = ROOM - cost(70 * MIB) - ROOM / 16;
        assert_eq!(share.limit(&used(70 * MIB, 0, 0)), left);
        assert_eq!(share.limit(&used(2 * ROOM, 0, 0)), 0);
    }

    #[test]
    fn who_lacks_memory_takes_from_the_others_share() {
        let share = PageShare::new(ROOM / 2);
        let full = |wanted| used(80 * MIB, 80 * MIB, wanted);
        assert_eq!(share.limit(&full(3 * MIB)), ROOM / 2 + 3 * MIB);
        assert_eq!(share.limit(&full(0)), ROOM / 2 + 3 * MIB, "counted once");
        share.note_brought_back(10 * MIB);
        assert!(share.limit(&used(0, 0, 0)) > ROOM / 2, "there was room for it");
        assert_eq!(share.limit(&full(0)), ROOM / 2 + 3 * MIB);
        share.note_brought_back(10 * MIB);
        assert_eq!(share.limit(&full(0)), ROOM / 2 + 3 * MIB - cost(10 * MIB));
        share.note_brought_back(ROOM);
        assert_eq!(share.limit(&full(0)), ROOM / 16, "something is left to pages");
        assert_eq!(share.limit(&full(2 * ROOM)), ROOM - ROOM / 16, "and to others");
    }
}
