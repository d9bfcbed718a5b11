//! What a worker did lately, moment by moment: which slot it polled and why that poll ended, its turns at housekeeping,
//! its sleep.
//!
//! A worker notes slices of its time for itself and hands them on at each turn, so that tracing takes no lock and shares no
//! cache line at a poll. Of those handed on the latest are kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::local::WaitCause;
use crate::sync::{Mutex, clock};

/// Slices that a worker notes before it hands them on, though it has no turn.
const MAX_SLICES: usize = 1024;

/// What a worker did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceActivity {
    /// Polled the task in a slot, until it suspended or was over.
    Poll { slot: u32, end: PollEnd },
    /// Dropped the task in a slot, which waited.
    Drop { slot: u32 },
    /// A turn at housekeeping.
    Turn,
    /// Slept in the kernel, until something came or completed.
    Sleep,
}

/// Why a poll ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollEnd {
    Suspended(WaitCause),
    Over,
}

/// A slice of a worker's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeSlice {
    /// When it began and ended, in nanoseconds since the workers were started.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) doing: SliceActivity,
}

/// The latest slices of one worker, which anybody may read.
#[derive(Debug)]
pub(crate) struct WorkerTrace {
    /// When the workers were started.
    origin: Instant,
    /// How many are kept.
    capacity: usize,
    latest: Mutex<VecDeque<TimeSlice>>,
}

impl WorkerTrace {
    /// Keeps so many of the slices that are noted from `origin` on.
    pub(super) fn new(origin: Instant, capacity: usize) -> Self {
        Self { origin, capacity, latest: Mutex::default() }
    }

    /// The slices that were handed on lately, the earliest first.
    pub(crate) fn latest(&self) -> Vec<TimeSlice> {
        self.latest.lock().iter().copied().collect()
    }

    /// Takes all of `noted`, in place of the earliest.
    fn keep(&self, noted: &mut Vec<TimeSlice>) {
        let mut latest = self.latest.lock();
        let superfluous = (latest.len() + noted.len()).saturating_sub(self.capacity);
        let of_latest = superfluous.min(latest.len());
        latest.drain(..of_latest);
        latest.extend(noted.drain(..).skip(superfluous - of_latest));
    }
}

/// A worker's own end of its trace.
#[derive(Debug)]
pub(super) struct TraceWriter {
    /// Not handed on yet.
    noted: Vec<TimeSlice>,
    trace: Arc<WorkerTrace>,
}

impl TraceWriter {
    pub(super) fn new(trace: Arc<WorkerTrace>) -> Self {
        Self { noted: Vec::new(), trace }
    }

    /// From `begin` to now the worker did this.
    #[cold]
    pub(super) fn note(&mut self, begin: Instant, doing: SliceActivity) {
        let nanos = |moment: Instant| {
            let since = moment.saturating_duration_since(self.trace.origin);
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        };
        let (begin, end) = (nanos(begin), nanos(clock::now()));
        self.noted.push(TimeSlice { begin, end, doing });
        if self.noted.len() >= MAX_SLICES {
            self.hand_on();
        }
    }

    /// Lets others see what was noted.
    pub(super) fn hand_on(&mut self) {
        self.trace.keep(&mut self.noted);
    }
}

/// What was noted when the engine failed is what is asked for most.
impl Drop for TraceWriter {
    fn drop(&mut self) {
        self.hand_on();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slice(begin: u64) -> TimeSlice {
        TimeSlice { begin, end: begin + 1, doing: SliceActivity::Turn }
    }

    #[test]
    fn the_latest_slices_are_kept_in_order() {
        let trace = WorkerTrace::new(Instant::now(), 4);
        let mut expected = Vec::new();
        for noted in [0..2, 2..3, 3..3, 3..5, 5..11, 11..12] {
            expected.extend(noted.clone().map(slice));
            let mut noted: Vec<_> = noted.map(slice).collect();
            trace.keep(&mut noted);
            assert!(noted.is_empty());
            let from = expected.len().saturating_sub(4);
            assert_eq!(trace.latest(), expected[from..]);
        }
    }

    #[test]
    fn a_slice_is_as_long_as_is_said_of_it() {
        // `Tuning::trace` tells users.
        assert_eq!(size_of::<TimeSlice>(), 24);
    }
}
