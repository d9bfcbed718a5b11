//! The hopping index (ELEDA §3.2): the number of filled bytes in each range of 2^H bytes of log.
//!
//! Invariant: an entry only grows. It serves the ranges `i`, `i + n`, `i + 2n`…, and counts all
//! their bytes, so a range is full when its entry has reached the sum up to it. The ring is shorter
//! than `n - 1` ranges, so nothing is counted for the next range of an entry before the leader has
//! passed the previous one.
//!
//! The paper resets entries to 0; here they keep counting. Only fillers then write them (as its
//! table 2 requires), and no thread needs to know when a late count has arrived.

use std::ops::Range;

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct HoppingIndex {
    entries: Box<[CachePadded<AtomicU64>]>,
    exponent: u32,
}

impl HoppingIndex {
    pub(super) fn new(ring_bytes: u64, exponent: u32) -> Self {
        let entries = ring_bytes.div_ceil(1 << exponent) + 2;
        let entries = (0..entries).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { entries, exponent }
    }

    /// Returns the range of a position.
    pub(super) fn range(&self, lsn: u64) -> u64 {
        lsn >> self.exponent
    }

    /// Returns the start of a range.
    pub(super) fn boundary(&self, range: u64) -> u64 {
        range << self.exponent
    }

    fn entry(&self, range: u64) -> &AtomicU64 {
        &self.entries[(range % self.entries.len() as u64) as usize]
    }

    /// Returns the bytes of the earlier ranges that share the range's entry.
    fn before(&self, range: u64) -> u64 {
        self.boundary(range / self.entries.len() as u64)
    }

    /// Counts everything before `lsn` as filled.
    pub(super) fn start(&self, lsn: u64) {
        let first = self.range(lsn);
        for range in first..first + self.entries.len() as u64 {
            // Relaxed: the threads that will read it are started later.
            self.entry(range).store(self.before(range), Ordering::Relaxed);
        }
        self.entry(first).fetch_add(lsn - self.boundary(first), Ordering::Relaxed);
    }

    /// Counts a block that is filled and listed.
    pub(super) fn add(&self, block: Range<u64>) {
        let mut at = block.start;
        while at < block.end {
            let range = self.range(at);
            let end = block.end.min(self.boundary(range + 1));
            // Release pairs with the Acquire in `is_full`; later additions to the entry extend the
            // release sequence.
            self.entry(range).fetch_add(end - at, Ordering::Release);
            at = end;
        }
    }

    /// Returns whether a range has no hole.
    pub(super) fn is_full(&self, range: u64) -> bool {
        let full = self.before(range) + (1 << self.exponent);
        // Acquire pairs with the Release in `add`, of every addition included in the sum: the
        // blocks are listed, and their bytes are seen.
        let filled = self.entry(range).load(Ordering::Acquire);
        assert!(filled <= full, "more bytes are filled than the range has");
        filled == full
    }
}
