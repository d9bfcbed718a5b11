//! How the memory budget is shared between pages and what else can leave memory: versions of records.
//!
//! What neither needs is anybody's: pages take what is free. When nothing is, each has a share. Whoever
//! lacks memory takes from the other's: a frame that a page wanted when there was none raises the pages' share by
//! itself, a record that had to be read from the log again lowers it by its bytes. So shares come to rest where as many bytes of pages
//! are missed as of records; a page that is missed is read for one record of it, perhaps. Pages beyond their share give way as soon as anything else needs memory; versions beyond theirs are evicted as whatever
//! is over the budget (`evict.rs`), as pages leave less to them.
//!
//! There is no thread for it: each worker looks in its turns, when enough has changed; while a database is recovered, those who
//! replay the log look. Where pages cannot be written, as on a full disk, they stay, and it is tried again now and then only.

use std::cell::Cell;
use std::time::Instant;

use super::evict::{Eviction, SLOW_DELAY};
use super::worker::WorkerTransactions;
use crate::page::Shrunk;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::clock;

/// Frames wanted by all, and bytes allocated or freed by a worker, after which it looks again.
const LOOK_WANTED: u64 = 8;
const LOOK_BYTES: u64 = 64 << 10;
/// Frames whose memory is given back in one turn, at most.
pub(super) const SHRINK: usize = 64;
/// By which part of the room the share moves at one look, at most.
const STEP: u64 = 8;

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
    /// Bytes that pages take, and of frames that were wanted in vain since it was last looked at.
    pub(super) pages: u64,
    pub(super) wanted: u64,
}

/// What a worker has seen of the pages' share.
#[derive(Debug, Default)]
pub(super) struct PageWatch {
    /// Bytes that it had allocated when it last looked.
    allocated: Cell<i64>,
    /// Whether frames had more memory than they may then.
    shrinking: Cell<bool>,
    rest: Cell<Option<Rest>>,
}

/// Nothing could be done about pages that have more memory than they may.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// When it is tried again, unless more has ended by then of what may let pages leave.
    until: Instant,
    ended: u64,
}

impl PageShare {
    pub(super) fn new(target: u64) -> Self {
        Self { target: AtomicU64::new(target), brought_back: AtomicU64::new(0) }
    }

    /// Bytes that pages may take though others want more.
    pub(super) fn target(&self) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        self.target.load(Ordering::Relaxed)
    }

    pub(super) fn note_brought_back(&self, bytes: u64) {
        // Relaxed: a statistic, ordered with nothing.
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
        // What was read again while there was room enough is nobody's loss. Relaxed, here and below: statistics.
        let brought_back = self.brought_back.swap(0, Ordering::Relaxed);
        let brought_back = if free < pages + slack { brought_back } else { 0 };
        let step = room / STEP;
        let (wanted, brought_back) = (wanted.min(step), cost(brought_back).min(step));
        // Two workers may look at once: then one's change is lost, which the next misses make up for.
        let target = (self.target() + wanted).saturating_sub(brought_back).clamp(least, most);
        self.target.store(target, Ordering::Relaxed);
        free.max(target)
    }
}

impl WorkerTransactions {
    /// Sees to it that pages take as much memory as they may.
    pub(super) fn share_with_pages(&self) -> Eviction {
        let (engine, watch) = (self.engine(), &self.pages);
        let Some(pages) = engine.shared_pages() else { return Eviction::default() };
        let allocated = engine.memory.of_this_thread();
        let moved = allocated.abs_diff(watch.allocated.get());
        let changed =
            pages.wanted() >= LOOK_WANTED || moved >= LOOK_BYTES || engine.memory_is_short();
        if !changed && !watch.shrinking.get() {
            return Eviction::default();
        }
        watch.allocated.set(allocated);
        engine.share_with_pages(pages);
        watch.shrinking.set(pages.has_surplus());
        if !watch.shrinking.get() {
            return Eviction::default();
        }
        let ended = pages.ended();
        if let Some(rest) = watch.rest.get().filter(|rest| rest.ended == ended)
            && clock::now() < rest.until
        {
            return Eviction { at_once: false, at: Some(rest.until) };
        }
        watch.rest.set(None);
        // A database that is closed waits for what is begun.
        match pages.shrink(SHRINK, !engine.checkpoints.stopping()) {
            Shrunk::Enough => {
                watch.shrinking.set(false);
                Eviction::default()
            }
            Shrunk::Some => Eviction { at_once: true, at: None },
            Shrunk::Nothing => {
                let until = clock::now() + SLOW_DELAY;
                // What happens in a simulation must not depend on time.
                watch.rest.set((!cfg!(braid_simulation)).then_some(Rest { until, ended }));
                Eviction { at_once: false, at: Some(until) }
            }
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
        share.note_brought_back(5 * MIB);
        assert!(share.limit(&used(0, 0, 0)) > ROOM / 2, "there was room for it");
        assert_eq!(share.limit(&full(0)), ROOM / 2 + 3 * MIB);
        share.note_brought_back(5 * MIB);
        assert_eq!(share.limit(&full(0)), ROOM / 2 + 3 * MIB - cost(5 * MIB));
    }

    #[test]
    fn the_share_moves_step_by_step_and_leaves_something_to_both() {
        let share = PageShare::new(ROOM / 2);
        let full = |wanted| used(80 * MIB, 80 * MIB, wanted);
        for step in 1..4 {
            share.note_brought_back(1 << 50);
            assert_eq!(share.limit(&full(0)), ROOM / 2 - step * (ROOM / STEP));
        }
        share.note_brought_back(ROOM);
        assert_eq!(share.limit(&full(0)), ROOM / 16, "something is left to pages");
        assert_eq!(share.limit(&full(1 << 60)), ROOM / 16 + ROOM / STEP);
        (0..8).for_each(|_| _ = share.limit(&full(1 << 60)));
        assert_eq!(share.limit(&full(0)), ROOM - ROOM / 16, "and to others");
    }
}
