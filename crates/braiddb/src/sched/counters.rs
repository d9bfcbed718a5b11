//! Statistics of one writer: the worker that owns them counts, anyone may read.

use super::local::WaitCause;
use crate::sync::statistic::{AtomicU64, Ordering};

/// One statistic of one worker. An increment is a load and a store, not an atomic
/// read-modify-write, because only the owner writes.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounter(AtomicU64);

impl WorkerCounter {
    /// Adds; only the owning worker does.
    pub(crate) fn add(&self, count: u64) {
        self.set(self.get() + count);
    }

    /// Replaces; only the owning worker does.
    pub(crate) fn set(&self, value: u64) {
        // Relaxed: a statistic, ordered with nothing.
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        self.0.load(Ordering::Relaxed)
    }
}

/// What a worker's scheduler did, and how full its queues are.
#[derive(Debug, Default)]
pub(crate) struct SchedulerCounters {
    pub(crate) tasks_finished: WorkerCounter,
    /// Panics in destructors of users' values that changed nobody's outcome.
    pub(crate) destructor_panics: WorkerCounter,
    pub(crate) suspensions: [WorkerCounter; WaitCause::COUNT],
    pub(crate) sleeps: WorkerCounter,
    /// Jobs taken over from workers that did not come back from a task.
    pub(crate) taken_over: WorkerCounter,
    /// Longest time from one turn of housekeeping to the next, sleep left out, in nanoseconds.
    pub(crate) longest_stretch: WorkerCounter,
    /// Tasks in the hot queue.
    pub(crate) hot: WorkerCounter,
    /// Tasks waiting for storage or the log.
    pub(crate) cold: WorkerCounter,
    /// Tasks waiting for foreign futures.
    pub(crate) foreign: WorkerCounter,
    /// Tasks resumed and waiting for room in the hot queue.
    pub(crate) parked: WorkerCounter,
    /// Tasks the hot queue takes at the moment.
    pub(crate) width: WorkerCounter,
}
