//! Schedule of sweeps: when the next one is due, and whether one is running.

use std::time::{Duration, Instant};

use crate::record::Records;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::statistic::AtomicU64;
use crate::sync::{self, clock};

/// Divisor: a sweep begins after an eighth of the records' lifetime.
const LIFETIME_DIVISOR: u64 = 8;
/// Shortest and longest interval between sweeps in milliseconds.
const MIN_INTERVAL_MS: u64 = 1000;
const MAX_INTERVAL_MS: u64 = 3_600_000;
const NOT_SCHEDULED: u64 = u64::MAX;

/// The schedule of sweeps.
#[derive(Debug)]
pub(crate) struct Sweeps {
    begin: Instant,
    /// Milliseconds after `begin` at which the next sweep is due; [`NOT_SCHEDULED`] if no table has a
    /// lifetime, or a sweep is running.
    due: AtomicU64,
    in_progress: AtomicBool,
}

impl Default for Sweeps {
    fn default() -> Self {
        let (due, in_progress) = (AtomicU64::new(NOT_SCHEDULED), AtomicBool::new(false));
        Self { begin: clock::now(), due, in_progress }
    }
}

impl Sweeps {
    /// Schedules sweeps of a table with a lifetime. The caller, or the thread to which it later
    /// sends a job, is a worker, which checks before it sleeps.
    pub(crate) fn expect(&self, table: &Records) {
        self.end_of(table);
        self.expect_next(table);
    }

    /// Schedules a table whose next sweep time is set.
    pub(in crate::transaction) fn expect_next(&self, table: &Records) {
        // A simulation must not depend on time, unless the schedule controls time.
        if cfg!(braid_simulation) && !sync::takes_part() {
            return;
        }
        // Relaxed: it suffices that this worker sees it.
        self.due.fetch_min(table.next_sweep(), Ordering::Relaxed);
    }

    /// Notes that a sweep of a table ended, or was not needed, and sets the time of the next one.
    pub(in crate::transaction) fn end_of(&self, table: &Records) {
        table.set_next_sweep(self.now().saturating_add(interval(table.lifetime_ms())));
    }

    /// Milliseconds after `begin`.
    pub(in crate::transaction) fn now(&self) -> u64 {
        clock::now().saturating_duration_since(self.begin).as_millis() as u64
    }

    /// When the next sweep is due, if one is scheduled.
    #[inline(always)]
    pub(in crate::transaction) fn due_at(&self) -> Option<Instant> {
        // Relaxed: see `expect`.
        match self.due.load(Ordering::Relaxed) {
            NOT_SCHEDULED => None,
            due => self.begin.checked_add(Duration::from_millis(due)),
        }
    }

    /// Takes the sweep that is due; `false` if another worker has taken it.
    pub(in crate::transaction) fn take(&self) -> bool {
        // Relaxed: only one worker takes it, and nothing else depends on it.
        self.due.swap(NOT_SCHEDULED, Ordering::Relaxed) != NOT_SCHEDULED
    }

    pub(in crate::transaction) fn begin(&self) -> Option<RunningSweep<'_>> {
        // Acquire pairs with the Release at the end of the previous sweep.
        let taken = self.in_progress.swap(true, Ordering::Acquire);
        // Created only if taken here, because its drop releases the flag.
        (!taken).then(|| RunningSweep(self))
    }
}

/// A running sweep; dropping it ends it.
pub(in crate::transaction) struct RunningSweep<'s>(&'s Sweeps);

impl Drop for RunningSweep<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `begin`.
        self.0.in_progress.store(false, Ordering::Release);
    }
}

/// Interval between sweeps of a table, in milliseconds.
fn interval(lifetime_ms: u64) -> u64 {
    (lifetime_ms / LIFETIME_DIVISOR).clamp(MIN_INTERVAL_MS, MAX_INTERVAL_MS)
}
