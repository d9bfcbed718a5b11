//! Measurement of stalls: the time that a worker only ran transactions. A blocked thread shows up
//! here.

use std::time::{Duration, Instant};

use super::counters::SchedulerCounters;
use crate::sync::thread_time;

/// A stall of this length is logged. Normal ones take a few hundred microseconds.
const MIN_STALL: Duration = Duration::from_millis(500);

/// The time from one turn of housekeeping to the next, excluding sleep.
#[derive(Debug)]
pub(super) struct StallTimer {
    began: Instant,
    /// The thread's processor time at that moment, if it is measured.
    cpu_began: Option<Duration>,
    /// True if a long stall was logged.
    told: bool,
}

impl StallTimer {
    /// Creates the timer. It measures the thread's processor time only if `measures_cpu`, because
    /// that takes a system call per turn.
    pub(super) fn new(now: Instant, measures_cpu: bool) -> Self {
        Self { began: now, cpu_began: measures_cpu.then(thread_time), told: false }
    }

    /// Starts the measurement when the worker wakes up.
    pub(super) fn begin(&mut self, now: Instant) {
        self.began = now;
        self.cpu_began = self.cpu_began.map(|_| thread_time());
    }

    /// Ends the measurement when a turn begins, and records its length.
    pub(super) fn end(&mut self, now: Instant, counters: &SchedulerCounters) {
        let stretch = now.saturating_duration_since(std::mem::replace(&mut self.began, now));
        let nanos = nanoseconds(stretch);
        if let Some(began) = self.cpu_began {
            let cpu = thread_time();
            self.cpu_began = Some(cpu);
            let longest = &counters.longest_cpu_stretch;
            longest.set(longest.get().max(nanoseconds(cpu.saturating_sub(began))));
        }
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

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
