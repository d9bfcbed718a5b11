//! Failed page writes, which delay others.

use std::time::{Duration, Instant};

use super::error::PageError;
use crate::sync::statistic::{AtomicBool, Ordering};
use crate::sync::{ModelMutex, clock};

/// Delay after a failed page write before the memory budget requests another. A checkpoint ends it,
/// because it makes room on a full disk.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Failed page writes of one page space.
#[derive(Debug)]
pub(super) struct FailedWrites {
    /// The last one, if none has succeeded since.
    last: ModelMutex<Option<FailedWrite>>,
    /// True if one failed on a full disk, the first since one succeeded, until `take_disk_full` is
    /// called.
    disk_full: AtomicBool,
}

/// A failed page write.
#[derive(Debug)]
struct FailedWrite {
    /// End of the delay. `None` once a checkpoint has ended it.
    delay_until: Option<Instant>,
}

impl FailedWrites {
    pub(super) fn new() -> Self {
        Self { last: ModelMutex::new(None), disk_full: AtomicBool::new(false) }
    }

    pub(super) fn note(&self, error: &PageError) {
        let delay_until = Some(clock::now() + RETRY_DELAY);
        if self.last.lock().replace(FailedWrite { delay_until }).is_some() {
            return;
        }
        tracing::warn!(
            "cannot write pages of paged tables; they stay in memory beyond the memory budget: {error}"
        );
        if error.is_disk_full() {
            // Relaxed: a hint, seen by a later turn of a worker.
            self.disk_full.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn note_success(&self) {
        *self.last.lock() = None;
    }

    /// Notes that a checkpoint is published.
    pub(super) fn end_delay(&self) {
        if let Some(last) = &mut *self.last.lock() {
            last.delay_until = None;
        }
    }

    /// Returns whether a page write failed on a full disk, the first since one succeeded. Returns
    /// this once.
    pub(super) fn take_disk_full(&self) -> bool {
        // Relaxed, both: only one exchange succeeds, and nothing else depends on it.
        self.disk_full.load(Ordering::Relaxed) && self.disk_full.swap(false, Ordering::Relaxed)
    }

    /// Returns whether a page write failed recently. A simulation must not depend on time, so there
    /// only a success or a checkpoint ends the delay.
    pub(super) fn are_recent(&self) -> bool {
        let delay_until = self.last.lock().as_ref().and_then(|last| last.delay_until);
        delay_until.is_some_and(|until| cfg!(braid_simulation) || clock::now() < until)
    }
}
