//! Statistics of one worker: only the owner counts, any thread may read.

use super::wait_cause::WaitCause;
use crate::sync::statistic::{AtomicU64, Ordering};

/// A statistic of one worker. An increment is a load and a store instead of an atomic
/// read-modify-write, because only the owner writes.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounter(AtomicU64);

impl WorkerCounter {
    /// Adds to the counter. Called only by the owning worker.
    pub(crate) fn add(&self, count: u64) {
        self.set(self.get() + count);
    }

    /// Sets the counter. Called only by the owning worker.
    pub(crate) fn set(&self, value: u64) {
        // Relaxed: a statistic, ordered with nothing.
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters and queue lengths of a worker's scheduler.
#[derive(Debug, Default)]
pub(crate) struct SchedulerCounters {
    pub(crate) tasks_finished: WorkerCounter,
    /// Panics in destructors of users' values that changed no result.
    pub(crate) destructor_panics: WorkerCounter,
    pub(crate) suspensions: [WorkerCounter; WaitCause::COUNT],
    pub(crate) sleeps: WorkerCounter,
    /// Jobs taken over from blocked workers.
    pub(crate) taken_over: WorkerCounter,
    /// Longest time between two turns of housekeeping, excluding sleep, in nanoseconds.
    pub(crate) longest_stretch: WorkerCounter,
    /// As `longest_stretch`, in processor time of the thread; 0 unless the worker is traced.
    pub(crate) longest_cpu_stretch: WorkerCounter,
    /// Tasks in the hot queue.
    pub(crate) hot: WorkerCounter,
    /// Tasks waiting for storage or the log.
    pub(crate) cold: WorkerCounter,
    /// Tasks waiting for foreign futures.
    pub(crate) foreign: WorkerCounter,
    /// Tasks resumed and waiting for room in the hot queue.
    pub(crate) parked: WorkerCounter,
    /// Current capacity of the hot queue.
    pub(crate) width: WorkerCounter,
}
