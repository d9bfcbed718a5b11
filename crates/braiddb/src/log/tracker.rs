//! Finding the contiguous prefix of filled blocks (ELEDA §3.3): blocks are reserved in order and
//! filled in any order, and only what has no hole before it may go to disk.

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicU64, Ordering};

/// Keeps track of holes. A filler (a worker, or the flush leader) has one block in flight at a
/// time.
pub(super) trait Tracker: Send + Sync {
    /// A filler is about to reserve a block that will not start before `bound`. What happens here
    /// happens before the `AcqRel` addition that reserves.
    fn begin(&self, filler: usize, bound: u64);

    /// The filler's block is filled.
    fn end(&self, filler: usize);

    /// Up to where every block is filled, not past `tail`, which was loaded (Acquire) before. A
    /// lower bound, which may be below an earlier answer: both are true.
    fn prefix(&self, tail: u64) -> u64;
}

/// A mark without a block in flight.
const IDLE: u64 = u64::MAX;

/// One word per filler: a position its block in flight does not start before.
#[derive(Debug)]
pub(super) struct InFlightMarks(Box<[CachePadded<AtomicU64>]>);

impl InFlightMarks {
    pub(super) fn new(fillers: usize) -> Self {
        Self((0..fillers).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect())
    }
}

impl Tracker for InFlightMarks {
    #[inline]
    fn begin(&self, filler: usize, bound: u64) {
        let mark = &self.0[filler];
        // Relaxed: this thread's own word.
        assert_eq!(mark.load(Ordering::Relaxed), IDLE, "one block in flight per filler");
        // Release pairs with the Acquire in `prefix`: one that sees this mark instead of an
        // earlier block's end must see that block's bytes. That whoever sees the reservation sees
        // the mark is due to the addition to the tail, which releases this store.
        mark.store(bound, Ordering::Release);
    }

    #[inline]
    fn end(&self, filler: usize) {
        // Release pairs with the Acquire in `prefix`: the block's bytes are seen by whoever no
        // longer sees the mark.
        self.0[filler].store(IDLE, Ordering::Release);
    }

    fn prefix(&self, tail: u64) -> u64 {
        // A block before `tail` was reserved by an addition that the load of `tail` acquired, so
        // its mark is seen here, or its end with its bytes.
        let marks = self.0.iter().map(|mark| mark.load(Ordering::Acquire));
        marks.fold(tail, u64::min)
    }
}
