//! Trace of a worker's recent activity: polls of slots with the reason for their end, turns of
//! housekeeping, and sleep.
//!
//! A worker first records slices of its time locally and publishes them at each turn. A poll
//! therefore takes no lock and shares no cache line. Only the latest published slices are kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::wait_cause::WaitCause;
use crate::sync::{Mutex, clock};

/// Maximum number of slices that a worker records before it publishes them, even without a turn.
const MAX_SLICES: usize = 1024;

/// The activity of a worker in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SliceActivity {
    /// Polled the task in a slot, until it suspended or ended.
    Poll { slot: u32, end: PollEnd },
    /// Dropped the waiting task in a slot.
    Drop { slot: u32 },
    /// Took a turn of housekeeping.
    Turn,
    /// Slept in the kernel until a message or a completion.
    Sleep,
}

/// The reason for the end of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollEnd {
    Suspended(WaitCause),
    Over,
}

/// A slice of a worker's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeSlice {
    /// Start and end, in nanoseconds since the workers were started.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) doing: SliceActivity,
}

/// The latest slices of one worker, which any thread may read.
#[derive(Debug)]
pub(crate) struct WorkerTrace {
    /// The time when the workers were started.
    origin: Instant,
    /// Maximum number of slices kept.
    capacity: usize,
    latest: Mutex<VecDeque<TimeSlice>>,
}

impl WorkerTrace {
    /// Keeps up to `capacity` slices, with times relative to `origin`.
    pub(super) fn new(origin: Instant, capacity: usize) -> Self {
        Self { origin, capacity, latest: Mutex::default() }
    }

    /// Returns the latest published slices, the earliest first.
    pub(crate) fn latest(&self) -> Vec<TimeSlice> {
        self.latest.lock().iter().copied().collect()
    }

    /// Adds all of `noted`, in place of the earliest slices.
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
    /// Slices that are not published yet.
    noted: Vec<TimeSlice>,
    trace: Arc<WorkerTrace>,
}

impl TraceWriter {
    pub(super) fn new(trace: Arc<WorkerTrace>) -> Self {
        Self { noted: Vec::new(), trace }
    }

    /// Records that the worker did this from `begin` to now.
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

    /// Publishes the recorded slices.
    pub(super) fn hand_on(&mut self) {
        self.trace.keep(&mut self.noted);
    }
}

/// The slices before an engine failure are the most useful ones.
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
        // `Tuning::trace` documents this size.
        assert_eq!(size_of::<TimeSlice>(), 24);
    }
}
