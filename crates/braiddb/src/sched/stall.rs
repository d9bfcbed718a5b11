//! Measurement of stalls: the time that a worker only ran transactions. A blocked thread shows up
//! here.

use std::time::{Duration, Instant};

use super::counters::SchedulerCounters;

/// A stall of this length is logged. Normal ones take a few hundred microseconds.
const MIN_STALL: Duration = Duration::from_millis(500);

/// The time from one turn of housekeeping to the next, excluding sleep.
#[derive(Debug)]
pub(super) struct StallTimer {
    began: Instant,
    /// True if a long stall was logged.
    told: bool,
}

impl StallTimer {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, told: false }
    }

    /// Starts the measurement when the worker wakes up.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began = now;
    }

    /// Ends the measurement when a turn begins, and records its length.
    pub(super) fn end(&mut self, now: Instant, counters: &SchedulerCounters) {
        let stretch = now.saturating_duration_since(std::mem::replace(&mut self.began, now));
        let nanos = u64::try_from(stretch.as_nanos()).unwrap_or(u64::MAX);
        if nanos <= counters.longest_stretch.get() {
            return;
        }
        counters.longest_stretch.set(nanos);
        if stretch >= MIN_STALL && !std::mem::replace(&mut self.told, true) {
            tracing::warn!(
                ?stretch,
                "a worker stalled: a closure blocks its thread and every transaction that waits \
                 for it, or the machine did not schedule it; logged once"
            );
        }
    }
}
