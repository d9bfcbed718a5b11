//! How long a worker did nothing but run transactions: what blocks its thread shows there.

use std::time::{Duration, Instant};

use super::counters::SchedulerCounters;

/// So long a stretch is worth telling. Usual ones are a few hundred microseconds.
const MIN_STALL: Duration = Duration::from_millis(500);

/// The time from one turn of housekeeping to the next, sleep left out.
#[derive(Debug)]
pub(super) struct StallTimer {
    began: Instant,
    /// Whether a long one was told.
    told: bool,
}

impl StallTimer {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, told: false }
    }

    /// The worker wakes up.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began = now;
    }

    /// A turn begins: takes down how long it was since the last one.
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
                "a worker did nothing but run transactions for so long: a closure blocks its thread, and all \
                 that wait for this worker with it, or the machine had no time for it; told once"
            );
        }
    }
}
