//! How a worker chooses what to run next: the four policies of MosaicDB §4, behind one decision.

/// How a worker schedules its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Policy {
    /// One transaction at a time, from its beginning to its end.
    #[cfg(feature = "experiment")]
    Sequential,
    /// A batch at a time: none is admitted before the whole batch has concluded (MosaicDB §4.2).
    #[cfg(feature = "experiment")]
    Batch,
    /// A fixed number of slots; a transaction that ends leaves its slot to the next (MosaicDB §4.3).
    #[cfg(feature = "experiment")]
    Pipeline,
    /// A short queue of transactions that use memory beside a long one of those that wait
    /// (MosaicDB §4.3, Algorithm 1).
    #[default]
    DualQueue,
}

/// How many transactions a worker interleaves to hide cache misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Width {
    /// As many as the worker finds best while it runs.
    #[default]
    Auto,
    /// Always this many.
    Fixed(usize),
}

/// Long tasks beside which jobs that come are begun at once, by the policy that does so.
const MAX_LONG_ENTRIES: usize = 256;

/// How full a worker's queues are; tasks that wait for foreign futures do not count.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueLoad {
    pub(super) hot: usize,
    pub(super) cold: usize,
    pub(super) staged: usize,
    /// Of the hot and the staged ones, those that have run for long.
    pub(super) long: usize,
}

impl Policy {
    /// Whether a new task may start.
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

    /// Whether a job from another thread may start where [`Policy::admits`] says that none may: it is
    /// not to wait for the end of long ones, which may take seconds. The other policies are defined
    /// by whom they let wait.
    pub(super) fn admits_beside_long(
        self,
        load: QueueLoad,
        width: usize,
        cold_width: usize,
    ) -> bool {
        let short = (load.hot + load.staged).saturating_sub(load.long.min(MAX_LONG_ENTRIES));
        self == Policy::DualQueue && short < width && load.cold < cold_width
    }

    /// Whether a new task may start in the current batch.
    #[cfg(feature = "experiment")]
    pub(super) fn admits_to_batch(self, batch_open: bool) -> bool {
        self != Policy::Batch || batch_open
    }

    /// Whether a resumed task may join the hot queue.
    pub(super) fn resumes_waiting(self, load: QueueLoad, width: usize) -> bool {
        match self {
            #[cfg(feature = "experiment")]
            Policy::Sequential | Policy::Batch | Policy::Pipeline => true,
            // As jobs, those that were resumed do not wait for the end of long ones.
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
