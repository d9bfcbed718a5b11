//! The failure of an engine.

use std::sync::Arc;

use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The failure state of one database's engine.
#[derive(Default)]
pub(crate) struct Failure {
    begun: AtomicBool,
    message: OnceLock<Arc<str>>,
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Failure({:?})", self.message())
    }
}

impl Failure {
    /// Returns whether the engine has panicked. If so, nothing may be acknowledged any more. The
    /// message may follow a moment later.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        // Acquire pairs with the Release in `begin`.
        self.begun.load(Ordering::Acquire)
    }

    /// Returns the message of the failure, if any. A caller whose reply was dropped with a worker
    /// finds the reason here.
    pub(crate) fn message(&self) -> Option<&Arc<str>> {
        self.message.get()
    }

    /// Called before the message is recorded.
    pub(super) fn begin(&self) {
        // Release pairs with the Acquire in `has_begun`.
        self.begun.store(true, Ordering::Release);
    }

    /// Records the first failure. Returns `false` if one was already recorded.
    pub(super) fn record(&self, message: &str) -> bool {
        self.begin();
        self.message.set(message.into()).is_ok()
    }
}
