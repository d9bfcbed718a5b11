//! How much of the memory budget may be in use.
//!
//! Versions, nodes and keys are blocks of an allocator, which takes more from the operating system
//! than is in use: what was freed among what is in use is not always of use to the thread that
//! allocates next. How much more depends on how work shifts between workers, so it is watched. What
//! eviction aims at goes down by as much as the allocator comes to take beyond its room, and up
//! again, slowly, while it takes less. What it took already is not given back by evicting more, so
//! that does not count twice.

use crossbeam_utils::CachePadded;

use super::page_share::PageShare;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes evicted between two looks at the allocator, at least.
const LOOK_BYTES: u64 = 1 << 20;

/// The state of a database's memory budget.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: u64,
    /// What is left of them beside the log's ring.
    records: u64,
    /// Bytes of versions that were evicted, but are not freed yet.
    on_the_way_out: CachePadded<AtomicU64>,
    /// By how much less than the room may be in use: of the room, a sixteenth to a half.
    less: AtomicU64,
    /// What the allocator had taken at the last look.
    taken: AtomicU64,
    /// Bytes evicted since the last look.
    evicted: CachePadded<AtomicU64>,
    /// Whether more was in use than may be when a worker last looked; read often, changed seldom.
    short: CachePadded<AtomicBool>,
    /// What of them pages may take.
    pages: CachePadded<PageShare>,
}

impl Budget {
    pub(super) fn new(bytes: u64, ring_bytes: u64) -> Self {
        let [on_the_way_out, evicted] = Default::default();
        let [less, taken] = Default::default();
        let short = CachePadded::default();
        let records = bytes.saturating_sub(ring_bytes);
        let pages = CachePadded::new(PageShare::new(records / 2));
        Self { bytes, records, on_the_way_out, less, taken, evicted, short, pages }
    }

    pub(super) fn pages(&self) -> &PageShare {
        &self.pages
    }

    /// The whole budget.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is left beside the log's ring.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// The largest value that stays in memory when it was read from the log.
    pub(super) fn largest_cached(&self) -> u64 {
        self.records / 16
    }

    /// Bytes that are read from the log at a time, by all workers together.
    pub(super) fn most_read_bytes(&self) -> u64 {
        self.records / 8
    }

    /// The allocator's room: the budget, less what takes memory `beside` it, and a sixth for
    /// what is not counted: write sets and slots of open transactions, queues, buffers of transfers.
    fn room(&self, beside: u64) -> u64 {
        self.bytes.saturating_sub(beside) / 6 * 5
    }

    /// What eviction aims at, of this room.
    fn aim(&self, room: u64) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        room - self.less.load(Ordering::Relaxed).clamp(room / 16, room / 2)
    }

    /// Bytes of the budget for each KiB in use, with what is kept free beside it.
    pub(super) fn cost(&self, beside: u64) -> u64 {
        let left = self.bytes.saturating_sub(beside).max(1 << 10);
        left.saturating_mul(1024) / self.aim(self.room(beside)).max(left / 4)
    }

    /// Bytes in use above those that eviction aims at.
    pub(super) fn excess(&self, in_use: u64, beside: u64) -> u64 {
        // Relaxed, here and below: statistics, ordered with nothing.
        let room = self.room(beside);
        let aim = self.aim(room);
        in_use.saturating_sub(self.on_the_way_out.load(Ordering::Relaxed)).saturating_sub(aim)
    }

    pub(super) fn is_short(&self) -> bool {
        // Relaxed: where it matters, ordered by the fences that `Worker::evict` names.
        self.short.load(Ordering::Relaxed)
    }

    pub(super) fn note_short(&self, short: bool) {
        // Relaxed: as above.
        self.short.store(short, Ordering::Relaxed);
    }

    /// Counts versions that were evicted; whether [`Self::look`] is due.
    pub(super) fn note_evicted(&self, bytes: u64) -> bool {
        // Relaxed, here and below: statistics; the exchange makes one of those that reach the bound look.
        self.on_the_way_out.fetch_add(bytes, Ordering::Relaxed);
        let evicted = self.evicted.fetch_add(bytes, Ordering::Relaxed) + bytes;
        evicted >= LOOK_BYTES.max(self.bytes / 256)
            && self.evicted.swap(0, Ordering::Relaxed) >= evicted
    }

    /// Looks at what the allocator has `taken`.
    pub(super) fn look(&self, beside: u64, taken: u64) {
        let room = self.room(beside);
        // Relaxed, here and below: statistics; of two looks at once one may be lost, which the next makes up for.
        let before = self.taken.swap(taken, Ordering::Relaxed);
        let less = self.less.load(Ordering::Relaxed);
        let less = if taken > room {
            less + taken.saturating_sub(before.max(room))
        } else {
            less.saturating_sub((room - taken) / 64)
        };
        // Relaxed: as above.
        self.less.store(less.clamp(room / 16, room / 2), Ordering::Relaxed);
    }

    /// Counts evicted versions that were freed.
    pub(super) fn note_freed(&self, bytes: u64) {
        // Relaxed: a statistic.
        self.on_the_way_out.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What may be in use beside nothing else.
    fn aim(budget: &Budget) -> u64 {
        let all = 1 << 40;
        all - budget.excess(all, 0)
    }

    #[test]
    fn what_the_allocator_takes_beyond_its_room_is_given_up_once() {
        let budget = Budget::new(1024 * MIB, 64 * MIB);
        let (room, at_first) = (budget.room(0), aim(&budget));
        assert!(at_first < room && at_first > room / 8 * 7);
        budget.look(0, room + room / 8);
        assert_eq!(aim(&budget), room - room / 8);
        budget.look(0, room + room / 8);
        budget.look(0, room + room / 9);
        assert_eq!(aim(&budget), room - room / 8);
        budget.look(0, room * 2);
        assert_eq!(aim(&budget), room - room / 2, "not less than half of it");
        for _ in 0..10_000 {
            budget.look(0, room - 20 * MIB);
        }
        assert_eq!(aim(&budget), at_first);
    }

    #[test]
    fn what_is_on_its_way_out_is_not_evicted_again() {
        let budget = Budget::new(1024 * MIB, 64 * MIB);
        let (in_use, beside) = (2048 * MIB, 512 * MIB);
        let excess = budget.excess(in_use, beside);
        assert!(budget.note_evicted(excess), "that is much");
        assert_eq!(budget.excess(in_use, beside), 0);
        budget.note_freed(excess);
        assert_eq!(budget.excess(in_use - excess, beside), 0);
    }
}
