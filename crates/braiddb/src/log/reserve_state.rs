//! State of the disk reserve, which `reserve` maintains.

use crate::io::File;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The state of the reserve.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    pub(super) file: Mutex<Option<File>>,
    /// Reserved bytes.
    pub(super) held: AtomicU64,
    /// Approximate size of the next checkpoint in bytes.
    next_checkpoint: AtomicU64,
    /// The size of the following checkpoint in bytes, without the space freed by the next one.
    checkpoint_after: AtomicU64,
    /// The part of the reserve for checkpoints without which the next one might fail, in bytes.
    least: AtomicU64,
    pub(super) whole: AtomicBool,
    /// True after the reserve was lent or could not be completed, until it is complete.
    pub(super) lacking: AtomicBool,
    /// True while a checkpoint or compaction uses the reserve.
    pub(super) lent: AtomicBool,
}

impl Reserve {
    /// Returns the reserved bytes.
    pub(super) fn held(&self) -> u64 {
        // Relaxed: changed under the lock of the file, read as a statistic.
        self.held.load(Ordering::Relaxed)
    }

    /// Closes the file without removing it.
    pub(super) fn forget(&self) {
        self.file.lock().take();
    }

    /// Records the approximate size of the next checkpoint, the additional size of the one after
    /// it, and the size without which the next one might fail.
    pub(super) fn expect_checkpoints(&self, next: u64, after: u64, least: u64) {
        // Relaxed: estimates.
        self.least.store(least, Ordering::Relaxed);
        self.next_checkpoint.store(next, Ordering::Relaxed);
        self.checkpoint_after.store(after, Ordering::Relaxed);
    }

    /// Returns the bytes without which the next checkpoint might fail.
    pub(super) fn least(&self) -> u64 {
        // Relaxed: an estimate.
        self.least.load(Ordering::Relaxed)
    }

    /// Returns the approximate size of the next checkpoint in bytes.
    pub(super) fn next_checkpoint(&self) -> u64 {
        // Relaxed: an estimate.
        self.next_checkpoint.load(Ordering::Relaxed)
    }

    /// Returns the bytes to reserve for checkpoints.
    pub(super) fn for_checkpoints(&self) -> u64 {
        // Relaxed: an estimate.
        self.next_checkpoint() + self.checkpoint_after.load(Ordering::Relaxed)
    }

    /// Returns whether the reserve was lent or could not be completed.
    pub(super) fn is_lacking(&self) -> bool {
        // Relaxed: a hint.
        self.lacking.load(Ordering::Relaxed)
    }

    /// Returns whether the reserve was complete at the last attempt.
    pub(super) fn is_whole(&self) -> bool {
        // Relaxed: a hint.
        self.whole.load(Ordering::Relaxed)
    }
}
