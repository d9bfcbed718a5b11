//! Points at which the engine's own tests let it panic, to see that it stops for all and tells everyone.
//! In any other build nothing of this is there.

#[cfg(test)]
use crate::sync::atomic::{AtomicU32, Ordering};

/// Where the engine may be made to panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum PanicPoint {
    /// In a read, below a closure.
    Read = 1,
    /// In a scan, below a closure.
    Scan,
    /// In a write, below a closure, with the write set borrowed.
    Write,
    /// In a read of a paged table, below a closure.
    PagedRead,
    /// In a write to a paged table, below a closure, with its page latched.
    PagedWrite,
    /// In a rollback to a savepoint, with the write set borrowed.
    Rollback,
    /// In a commit, when its place in the log is drawn and not filled.
    Commit,
    /// While a transaction is taken back.
    Abort,
    /// In a turn of housekeeping.
    Turn,
    /// While garbage is freed, which keeps other workers from pruning.
    Collect,
    /// When a write of the log completes.
    Complete,
    /// When a worker goes to sleep.
    Sleep,
    /// When a worker has no task left and is told to stop.
    Drain,
    /// In a checkpoint.
    Checkpoint,
    /// In a compaction.
    Compaction,
}

impl PanicPoint {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 15] = [
        Self::Read,
        Self::Scan,
        Self::Write,
        Self::PagedRead,
        Self::PagedWrite,
        Self::Rollback,
        Self::Commit,
        Self::Abort,
        Self::Turn,
        Self::Collect,
        Self::Complete,
        Self::Sleep,
        Self::Drain,
        Self::Checkpoint,
        Self::Compaction,
    ];
}

/// The point at which an engine is to panic next, if it is to.
#[derive(Debug, Default)]
pub(crate) struct PlantedPanic {
    #[cfg(test)]
    point: AtomicU32,
}

impl PlantedPanic {
    /// Plants one.
    #[cfg(test)]
    pub(crate) fn plant(&self, point: PanicPoint) {
        self.point.store(point as u32, Ordering::SeqCst);
    }

    /// Panics if a panic is planted here.
    #[inline(always)]
    pub(crate) fn panic_if_planted(&self, here: PanicPoint) {
        #[cfg(test)]
        {
            // Relaxed on failure: nothing is planted here.
            let here_only = (Ordering::SeqCst, Ordering::Relaxed);
            let planted =
                self.point.compare_exchange(here as u32, 0, here_only.0, here_only.1).is_ok();
            assert!(!planted, "planted in {here:?}");
        }
        #[cfg(not(test))]
        {
            _ = here;
        }
    }
}
