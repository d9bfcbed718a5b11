//! Reasons why an operation was not done without suspending.

use super::error::{Interrupted, PageError};
use super::space::PageSpace;
#[cfg(any(test, braid_simulation))]
use crate::sync::statistic::{AtomicU64, Ordering};

/// Reason why an operation was not done.
#[derive(Debug)]
pub(crate) enum WouldSuspend {
    /// The caller retries after the missing pages or frames are available.
    Interrupted(Interrupted),
    /// A page cannot be provided.
    Failed(PageError),
}

impl WouldSuspend {
    pub(super) fn new(space: &PageSpace, interrupted: Interrupted) -> Self {
        match space.error(interrupted) {
            None => WouldSuspend::Interrupted(interrupted),
            Some(error) => WouldSuspend::Failed(error),
        }
    }
}

/// Interrupts some writes in tests and simulations, because such interruptions are rare otherwise.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    #[cfg(any(test, braid_simulation))]
    writes: AtomicU64,
}

impl Interruptions {
    /// Returns whether the next write is interrupted.
    #[cfg(any(test, braid_simulation))]
    pub(super) fn interrupts(&self) -> bool {
        /// At least half of each period passes without interruption, so an operation with many
        /// writes completes.
        const PERIOD: u64 = 1 << 10;
        // Relaxed: counts only.
        (self.writes.fetch_add(1, Ordering::Relaxed) % PERIOD).is_power_of_two()
    }

    /// Returns whether the next write is interrupted.
    #[cfg(not(any(test, braid_simulation)))]
    pub(super) fn interrupts(&self) -> bool {
        false
    }
}
