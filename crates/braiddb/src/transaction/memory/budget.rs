//! The memory budget: the target that eviction keeps memory below.
//!
//! Versions, nodes and keys are blocks of an allocator. The allocator takes more from the operating
//! system than is in use, because free blocks between used ones do not always fit the next
//! allocation. This overhead depends on how work moves between workers, so it is measured. When the
//! allocator exceeds its limit, the eviction target decreases by the excess. While the allocator
//! stays below its limit, the target slowly rises again. More eviction cannot return memory that
//! the allocator already took, so the same excess is not counted twice.

use crossbeam_utils::CachePadded;

use super::page_share::PageShare;
use crate::memory::{MemoryCounters, MemoryKind};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Minimum number of bytes evicted between two measurements of the allocator.
const MIN_BYTES_PER_CHECK: u64 = 1 << 20;

/// The state of a database's memory budget.
#[derive(Debug)]
pub(in crate::transaction) struct Budget {
    bytes: u64,
    /// The bytes that remain after the log's ring is subtracted.
    records: u64,
    /// Bytes of versions that were evicted but not freed yet.
    on_the_way_out: CachePadded<AtomicU64>,
    /// Bytes by which the eviction target is below the allocator's limit: a sixteenth to a half of
    /// it.
    less: AtomicU64,
    /// The allocator's footprint at the last measurement.
    taken: AtomicU64,
    /// Bytes evicted since the last measurement.
    evicted: CachePadded<AtomicU64>,
    /// Set if memory in use exceeded the target when a worker last checked; read often, written
    /// rarely.
    short: CachePadded<AtomicBool>,
    /// Bytes of large writes that wait for room. They count as memory in use.
    waiting: CachePadded<Mutex<u64>>,
    /// The share of the budget that pages may use.
    pages: CachePadded<PageShare>,
}

impl Budget {
    pub(in crate::transaction) fn new(bytes: u64, ring_bytes: u64) -> Self {
        let [on_the_way_out, evicted] = Default::default();
        let [less, taken] = Default::default();
        let short = CachePadded::default();
        let records = bytes.saturating_sub(ring_bytes);
        let pages = CachePadded::new(PageShare::new(records / 2));
        let waiting = CachePadded::default();
        Self { bytes, records, on_the_way_out, less, taken, evicted, short, waiting, pages }
    }

    pub(in crate::transaction) fn pages(&self) -> &PageShare {
        &self.pages
    }

    /// The whole budget.
    pub(in crate::transaction) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget after the log's ring is subtracted.
    pub(in crate::transaction) fn records(&self) -> u64 {
        self.records
    }

    /// Size of the largest value that stays in memory after it was read from the log.
    pub(in crate::transaction) fn largest_cached(&self) -> u64 {
        self.records / 16
    }

    /// Maximum number of bytes that all workers together read from the log at a time.
    pub(in crate::transaction) fn max_read_bytes(&self) -> u64 {
        self.records / 8
    }

    /// The allocator's limit: five sixths of the budget, after subtracting other memory. The last
    /// sixth is for uncounted memory: write sets and slots of open transactions, queues and
    /// transfer buffers.
    fn room(&self, beside: u64) -> u64 {
        self.bytes.saturating_sub(beside) / 6 * 5
    }

    /// The eviction target for this limit.
    fn aim(&self, room: u64) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        room - self.less.load(Ordering::Relaxed).clamp(room / 16, room / 2)
    }

    /// Bytes of the budget that each KiB in use costs, including the memory kept free for it.
    pub(in crate::transaction) fn cost(&self, beside: u64) -> u64 {
        let left = self.bytes.saturating_sub(beside).max(1 << 10);
        left.saturating_mul(1024) / self.aim(self.room(beside)).max(left / 4)
    }

    /// Bytes in use above the eviction target.
    pub(in crate::transaction) fn excess(&self, in_use: u64, beside: u64) -> u64 {
        // Relaxed, here and below: statistics, ordered with nothing.
        let room = self.room(beside);
        let aim = self.aim(room);
        in_use.saturating_sub(self.on_the_way_out.load(Ordering::Relaxed)).saturating_sub(aim)
    }

    /// Counts a large write that waits for room, after it was counted as memory in use.
    pub(in crate::transaction) fn add_waiting(&self, bytes: u64) {
        *self.waiting.lock() += bytes;
    }

    /// Subtracts a large write that no longer waits.
    pub(in crate::transaction) fn remove_waiting(&self, bytes: u64) {
        *self.waiting.lock() -= bytes;
    }

    /// Removes a waiting large write if memory has room for it, or if `alone` and little can be
    /// evicted; returns whether it did. Other waiting writes need no memory yet. Evicted versions
    /// need it until they are freed.
    pub(in crate::transaction) fn grant(
        &self,
        bytes: u64,
        memory: &MemoryCounters,
        beside: u64,
        alone: bool,
    ) -> bool {
        let sum = |kinds: &[MemoryKind]| kinds.iter().map(|kind| memory.bytes(*kind)).sum::<u64>();
        let lasting = sum(&[MemoryKind::Node, MemoryKind::Key]);
        let room = self.aim(self.room(beside)).saturating_sub(lasting);
        let mut waiting = self.waiting.lock();
        let used = memory.in_use().saturating_sub(lasting + *waiting);
        let is_granted = used + bytes <= room || room == 0 || alone && used <= room / 4;
        if is_granted {
            *waiting -= bytes;
        }
        is_granted
    }

    pub(in crate::transaction) fn is_short(&self) -> bool {
        // Relaxed: where it matters, ordered by the fences that `Worker::evict` names.
        self.short.load(Ordering::Relaxed)
    }

    pub(in crate::transaction) fn note_short(&self, short: bool) {
        // Relaxed: as above.
        self.short.store(short, Ordering::Relaxed);
    }

    /// Counts evicted versions; returns whether [`Self::look`] is due.
    pub(in crate::transaction) fn note_evicted(&self, bytes: u64) -> bool {
        // Relaxed, here and below: statistics. Of the workers that reach the bound, the exchange
        // selects one.
        self.on_the_way_out.fetch_add(bytes, Ordering::Relaxed);
        let evicted = self.evicted.fetch_add(bytes, Ordering::Relaxed) + bytes;
        evicted >= MIN_BYTES_PER_CHECK.max(self.bytes / 256)
            && self.evicted.swap(0, Ordering::Relaxed) >= evicted
    }

    /// Adjusts the target to the allocator's footprint, `taken`.
    pub(in crate::transaction) fn look(&self, beside: u64, taken: u64) {
        let room = self.room(beside);
        // Relaxed, here and below: statistics. Of two concurrent measurements one may be lost; the
        // next one corrects that.
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

    /// Counts evicted versions that have been freed.
    pub(in crate::transaction) fn note_freed(&self, bytes: u64) {
        // Relaxed: a statistic.
        self.on_the_way_out.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The eviction target with nothing else in memory.
    fn aim(budget: &Budget) -> u64 {
        let all = 1 << 40;
        all - budget.excess(all, 0)
    }

    #[test]
    fn allocator_overhead_is_evicted_once() {
        let budget = Budget::new(1024 * MIB, 64 * MIB);
        let (room, at_first) = (budget.room(0), aim(&budget));
        assert!(at_first < room && at_first > room / 8 * 7);
        budget.look(0, room + room / 8);
        assert_eq!(aim(&budget), room - room / 8);
        budget.look(0, room + room / 8);
        budget.look(0, room + room / 9);
        assert_eq!(aim(&budget), room - room / 8);
        budget.look(0, room * 2);
        assert_eq!(aim(&budget), room - room / 2, "at least half of it remains");
        for _ in 0..10_000 {
            budget.look(0, room - 20 * MIB);
        }
        assert_eq!(aim(&budget), at_first);
    }

    #[test]
    fn versions_in_eviction_are_not_counted_again() {
        let budget = Budget::new(1024 * MIB, 64 * MIB);
        let (in_use, beside) = (2048 * MIB, 512 * MIB);
        let excess = budget.excess(in_use, beside);
        assert!(budget.note_evicted(excess), "that is much");
        assert_eq!(budget.excess(in_use, beside), 0);
        budget.note_freed(excess);
        assert_eq!(budget.excess(in_use - excess, beside), 0);
    }
}
