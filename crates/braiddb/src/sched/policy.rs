//! Scheduling policies of a worker: the four of MosaicDB §4, behind one decision.

/// The scheduling policy of a worker's transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Policy {
    /// One transaction at a time, from start to end.
    #[cfg(feature = "experiment")]
    Sequential,
    /// One batch at a time: no transaction is admitted before the whole batch has ended (MosaicDB
    /// §4.2).
    #[cfg(feature = "experiment")]
    Batch,
    /// A fixed number of slots; when a transaction ends, the next one takes its slot (MosaicDB
    /// §4.3).
    #[cfg(feature = "experiment")]
    Pipeline,
    /// A short queue of transactions that use memory, and a long queue of transactions that wait
    /// (MosaicDB §4.3, Algorithm 1).
    #[default]
    DualQueue,
}

/// The number of transactions that a worker interleaves to hide cache misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Width {
    /// The worker determines the best number while it runs.
    #[default]
    Auto,
    /// Always this number.
    Fixed(usize),
}

/// Maximum number of long tasks that do not delay the start of new jobs, for the policy that starts
/// jobs immediately.
const MAX_LONG_ENTRIES: usize = 256;

/// The lengths of a worker's queues, without tasks that wait for foreign futures.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLoad {
    pub(super) hot: usize,
    pub(super) cold: usize,
    pub(super) staged: usize,
    /// Hot and staged tasks that have run for long.
    pub(super) long: usize,
}

impl Policy {
    /// Returns whether a new task may start.
    #[inline(always)]
    pub(super) fn admits(self, load: QueueLoad, width: usize, cold_width: usize) -> bool {
        #[cfg(feature = "experiment")]
        let running = load.hot + load.cold + load.staged;
        match self {
            #[cfg(feature = "experiment")]
            Policy::Sequential => running == 0,
            #[cfg(feature = "experiment")]
            Policy::Batch | Policy::Pipeline => running < width,
            Policy::DualQueue => load.hot + load.staged < width && load.cold < cold_width,
        }
    }

    /// Returns whether a new task may take the place of a hot one that ended, which `load` still
    /// counts.
    #[inline(always)]
    pub(super) fn refills(self, load: QueueLoad, width: usize, cold_width: usize) -> bool {
        // The last of a batch ends it.
        #[cfg(feature = "experiment")]
        if self == Policy::Batch {
            return false;
        }
        self.admits(QueueLoad { hot: load.hot - 1, ..load }, width, cold_width)
    }

    /// Returns whether a job from another thread may start although [`Policy::admits`] returns
    /// false. The job must not wait for the end of long tasks, which may take seconds. This applies
    /// to one policy; the others define which tasks wait.
    pub(super) fn admits_beside_long(
        self,
        load: QueueLoad,
        width: usize,
        cold_width: usize,
    ) -> bool {
        let short = (load.hot + load.staged).saturating_sub(load.long.min(MAX_LONG_ENTRIES));
        self == Policy::DualQueue && short < width && load.cold < cold_width
    }

    /// Is true while a new task may start in the current batch.
    #[cfg(feature = "experiment")]
    pub(super) fn admits_to_batch(self, batch_open: bool) -> bool {
        self != Policy::Batch || batch_open
    }

    /// Returns whether a resumed task may join the hot queue.
    pub(super) fn resumes_waiting(self, load: QueueLoad, width: usize) -> bool {
        match self {
            #[cfg(feature = "experiment")]
            Policy::Sequential | Policy::Batch | Policy::Pipeline => true,
            // Like new jobs, resumed tasks do not wait for the end of long tasks.
            Policy::DualQueue => load.hot.saturating_sub(load.long.min(MAX_LONG_ENTRIES)) < width,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn load(hot: usize, cold: usize) -> QueueLoad {
        QueueLoad { hot, cold, staged: 0, long: 0 }
    }

    #[test]
    fn policies_differ_in_what_waiting_tasks_hold_back() {
        // Eight places, one taken by a task that waits for storage.
        assert!(!Policy::Sequential.admits(load(0, 1), 8, 64));
        assert!(Policy::Pipeline.admits(load(6, 1), 8, 64));
        assert!(!Policy::Pipeline.admits(load(7, 1), 8, 64));
        assert!(Policy::DualQueue.admits(load(7, 1), 8, 64));
        assert!(!Policy::DualQueue.admits(load(8, 1), 8, 64));
        assert!(!Policy::DualQueue.admits(load(1, 64), 8, 64));
        assert!(Policy::Batch.admits(load(3, 1), 8, 64));
        assert!(Policy::Batch.admits_to_batch(true) && !Policy::Batch.admits_to_batch(false));
        assert!(
            Policy::Sequential.refills(load(1, 0), 1, 64)
                && !Policy::Batch.refills(load(1, 0), 8, 64)
        );
        assert!(Policy::DualQueue.refills(load(8, 1), 8, 64));
        assert!(!Policy::DualQueue.refills(load(9, 1), 8, 64));
        assert!(Policy::DualQueue.admits_to_batch(false));
    }

    #[test]
    fn jobs_do_not_wait_for_long_tasks() {
        let beside = |hot, long| QueueLoad { long, ..load(hot, 0) };
        assert!(!Policy::DualQueue.admits(beside(8, 8), 8, 64));
        assert!(Policy::DualQueue.admits_beside_long(beside(8, 8), 8, 64));
        assert!(Policy::DualQueue.admits_beside_long(beside(15, 8), 8, 64));
        assert!(!Policy::DualQueue.admits_beside_long(beside(16, 8), 8, 64));
        assert!(!Policy::DualQueue.admits_beside_long(beside(1000, 1000), 8, 64));
        assert!(!Policy::Sequential.admits_beside_long(beside(1, 1), 1, 64));
        assert!(Policy::DualQueue.resumes_waiting(beside(8, 8), 8));
        assert!(!Policy::DualQueue.resumes_waiting(beside(16, 8), 8));
    }
}
