//! Planted panics: points where the engine's tests make it panic, to verify that it stops and
//! reports the failure to every caller. Other builds contain none of this.

#[cfg(test)]
use crate::sync::atomic::{AtomicU32, Ordering};

/// A point at which the engine may be made to panic.
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
    /// In a commit, after its LSN is drawn and before its block is filled.
    Commit,
    /// In an abort.
    Abort,
    /// In a turn of housekeeping.
    Turn,
    /// While garbage is freed, which keeps other workers from pruning.
    Collect,
    /// At the completion of a log write.
    Complete,
    /// When a worker is about to sleep.
    Sleep,
    /// When a worker has no task left and must stop.
    Drain,
    /// In a checkpoint.
    Checkpoint,
    /// In a compaction.
    Compaction,
}

impl PanicPoint {
    /// All points.
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

/// The point at which an engine panics next, if any.
#[derive(Debug, Default)]
pub(crate) struct PlantedPanic {
    #[cfg(test)]
    point: AtomicU32,
}

impl PlantedPanic {
    /// Plants a panic.
    #[cfg(test)]
    pub(crate) fn plant(&self, point: PanicPoint) {
        self.point.store(point as u32, Ordering::SeqCst);
    }

    /// Panics if a panic is planted here.
    #[inline(always)]
    pub(crate) fn panic_if_planted(&self, here: PanicPoint) {
        #[cfg(test)]
        {
            // Relaxed on failure: no panic is planted here.
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
