//! Operations on records of a paged table that do not suspend, for who does several of them in one stretch. Where a
//! page that one needs is not in memory, or no frame is free, it says so and has done nothing.

use super::error::{Interrupted, PageError};
use super::space::PageSpace;
use super::table::{Copied, Decision, PagedRecord, PagedTable, RecordBeforeWrite, Written};
use super::tree::Room;
use super::value::SlotValue;
use super::versions::Refusal;
use crate::reclaim::OperationGuard;
#[cfg(any(test, braid_simulation))]
use crate::sync::statistic::{AtomicU64, Ordering};
use crate::version::{Undecided, View};

/// Why an operation has not been done.
#[derive(Debug)]
pub(crate) enum NotNow {
    /// It may be later, once what interrupted it is there.
    Interrupted(Interrupted),
    /// A page cannot be had.
    Failed(PageError),
}

impl NotNow {
    pub(super) fn new(space: &PageSpace, interrupted: Interrupted) -> Self {
        match space.error(interrupted) {
            None => NotNow::Interrupted(interrupted),
            Some(error) => NotNow::Failed(error),
        }
    }
}

/// In tests and simulations, makes some writes say that they cannot be done now: that is rare otherwise.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    #[cfg(any(test, braid_simulation))]
    writes: AtomicU64,
}

impl Interruptions {
    /// Whether a write is to be interrupted.
    #[cfg(any(test, braid_simulation))]
    fn interrupts(&self) -> bool {
        /// Half as many writes in a row are not interrupted, so what consists of many comes to its end.
        const PERIOD: u64 = 1 << 10;
        // Relaxed: counts only.
        (self.writes.fetch_add(1, Ordering::Relaxed) % PERIOD).is_power_of_two()
    }

    /// Whether a write is to be interrupted.
    #[cfg(not(any(test, braid_simulation)))]
    fn interrupts(&self) -> bool {
        false
    }
}

impl PagedTable {
    /// Prefetches the path to the leaf of a key into the processor's caches, and sees to it that there is room for a value,
    /// if the leaf is in memory; the room may be taken when this returns.
    ///
    /// # Errors
    /// When a page cannot be had now.
    pub(crate) async fn prefetch_path(
        &self,
        key: &[u8],
        value: Option<SlotValue<'_>>,
    ) -> Result<(), NotNow> {
        let bytes = value.map_or(0, SlotValue::cell_bytes);
        let latched = self.tree().latch_if_in_memory(key, Room::value(bytes)).await;
        latched.map(drop).map_err(|interrupted| self.not_now(interrupted))
    }

    /// As [`read`](Self::read), without suspensions.
    ///
    /// # Errors
    /// When it cannot be done now. Within, while another worker decides what is seen.
    pub(crate) fn read_now(
        &self,
        key: &[u8],
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<Result<PagedRecord, Undecided>, NotNow> {
        if key.len() > self.max_key_bytes() {
            return Ok(Ok(PagedRecord::NONE));
        }
        let copied = self
            .tree()
            .try_read_now(key, |leaf, slot| Copied::of(self, leaf, slot, key, operation));
        match copied {
            Ok(copied) => Ok(copied.seen_by(view)),
            Err(interrupted) => Err(self.not_now(interrupted)),
        }
    }

    /// As [`write`](Self::write), without suspensions.
    ///
    /// # Errors
    /// When it cannot be done now; then nothing is done. Within, when the transaction may not write the record.
    pub(crate) fn write_now<E>(
        &self,
        key: &[u8],
        value: Option<SlotValue<'_>>,
        view: View<'_>,
        operation: &OperationGuard,
        decide: impl FnOnce(RecordBeforeWrite<'_>) -> Decision<E>,
    ) -> Result<Result<Written<E>, Refusal>, NotNow> {
        if self.interruptions.interrupts() {
            return Err(NotNow::Interrupted(Interrupted::Restart));
        }
        let room = value.map_or(Room::NONE, |value| Room::value(value.cell_bytes()));
        match self.tree().try_latch(key, room) {
            Ok(leaf) => Ok(self.write_latched(leaf, key, value, view, operation, decide)),
            Err(interrupted) => Err(self.not_now(interrupted)),
        }
    }

    pub(super) fn not_now(&self, interrupted: Interrupted) -> NotNow {
        NotNow::new(self.tree().space(), interrupted)
    }
}
