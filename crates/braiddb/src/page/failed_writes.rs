//! Failed page writes, which delay others.

use std::time::{Duration, Instant};

use super::error::PageError;
use crate::sync::{ModelMutex, clock};

/// Delay after a failed page write before the memory budget requests another.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Time of the last failed page write, if none has succeeded since.
#[derive(Debug)]
pub(super) struct FailedWrites(ModelMutex<Option<Instant>>);

impl FailedWrites {
    pub(super) fn new() -> Self {
        Self(ModelMutex::new(None))
    }

    pub(super) fn note(&self, error: &PageError) {
        if self.0.lock().replace(clock::now()).is_none() {
            tracing::warn!(
                "cannot write pages of paged tables; they stay in memory beyond the memory budget: {error}"
            );
        }
    }

    pub(super) fn note_success(&self) {
        *self.0.lock() = None;
    }

    /// Returns whether a page write failed recently. A simulation must not depend on time, so there
    /// this returns whether none has succeeded since the last failure.
    pub(super) fn are_recent(&self) -> bool {
        self.0
            .lock()
            .is_some_and(|last| cfg!(braid_simulation) || clock::now() < last + RETRY_DELAY)
    }
}
