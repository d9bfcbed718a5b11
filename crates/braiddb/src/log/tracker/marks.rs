//! In-flight marks: every filler publishes a lower bound of its one block in flight; the lowest
//! bound limits the prefix.

use std::ops::Range;

use crossbeam_utils::CachePadded;

use super::Tracker;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A mark without a block in flight.
const IDLE: u64 = u64::MAX;

/// One word per filler: a lower bound for the start of its block in flight.
#[derive(Debug)]
pub(in crate::log) struct InFlightMarks(Box<[CachePadded<AtomicU64>]>);

impl InFlightMarks {
    pub(in crate::log) fn new(fillers: usize) -> Self {
        Self((0..fillers).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect())
    }
}

impl Tracker for InFlightMarks {
    #[inline]
    fn begin(&self, filler: usize, bound: u64) {
        let mark = &self.0[filler];
        // Relaxed: this thread's own word.
        assert_eq!(mark.load(Ordering::Relaxed), IDLE, "one block in flight per filler");
        // Release pairs with the Acquire in `prefix`: a thread that sees this mark instead of an
        // earlier block's end must see that block's bytes. A thread that sees the reservation also
        // sees the mark, because the addition to the tail releases this store.
        mark.store(bound, Ordering::Release);
    }

    #[inline]
    fn end(&self, filler: usize, _: Range<u64>, _: u64) {
        // Release pairs with the Acquire in `prefix`: the block's bytes are seen by a thread that
        // no longer sees the mark.
        self.0[filler].store(IDLE, Ordering::Release);
    }

    fn prefix(&self, tail: u64) -> u64 {
        // Acquire pairs with the Release in `begin` and `end`. A block before `tail` was reserved
        // by an addition that the load of `tail` acquired. This load therefore sees its mark, or
        // its end, or a later mark, with its bytes.
        let marks = self.0.iter().map(|mark| mark.load(Ordering::Acquire));
        marks.fold(tail, u64::min)
    }
}
