//! Non-suspending operations on records of a paged table, for a caller that runs several of them
//! without suspending. An operation fails without effect if a page that it needs is not resident,
//! or no frame is free.

use super::error::Interrupted;
use super::table::{
    PagedRecord, PagedTable, RecordBeforeWrite, SlotCopy, WriteDecision, WriteResult,
};
use super::tree::LeafRoom;
use super::value::SlotValue;
use super::versions::WriteRefusal;
use super::would_suspend::WouldSuspend;
use crate::reclaim::OperationGuard;
use crate::version::{Undecided, View};

impl PagedTable {
    /// Prefetches the path to the leaf of a key into the processor's caches, and splits the leaf if
    /// it lacks room for the value. Only if the leaf is resident. Another task may use the room
    /// after this returns.
    ///
    /// # Errors
    /// When a page is not available now.
    pub(crate) async fn prefetch_path(
        &self,
        key: &[u8],
        value: Option<SlotValue<'_>>,
    ) -> Result<(), WouldSuspend> {
        let bytes = value.map_or(0, SlotValue::cell_bytes);
        let latched = self.tree().latch_if_in_memory(key, LeafRoom::value(bytes)).await;
        latched.map(drop).map_err(|interrupted| self.would_suspend(interrupted))
    }

    /// Like [`read`](Self::read), without suspending.
    ///
    /// # Errors
    /// When it cannot be done now. The inner result is an error while another worker decides the
    /// outcome of the version that `view` would see.
    pub(crate) fn read_now(
        &self,
        key: &[u8],
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<Result<PagedRecord, Undecided>, WouldSuspend> {
        if key.len() > self.max_key_bytes() {
            return Ok(Ok(PagedRecord::NONE));
        }
        let copied = self
            .tree()
            .try_read_now(key, |leaf, slot| SlotCopy::of(self, leaf, slot, key, operation));
        match copied {
            Ok(copied) => Ok(copied.seen_by(view)),
            Err(interrupted) => Err(self.would_suspend(interrupted)),
        }
    }

    /// Like [`write`](Self::write), without suspending.
    ///
    /// # Errors
    /// When it cannot be done now; then nothing has changed. The inner result is an error if the
    /// transaction may not write the record.
    pub(crate) fn write_now<E>(
        &self,
        key: &[u8],
        value: Option<SlotValue<'_>>,
        view: View<'_>,
        operation: &OperationGuard,
        decide: impl FnOnce(RecordBeforeWrite<'_>) -> WriteDecision<E>,
    ) -> Result<Result<WriteResult<E>, WriteRefusal>, WouldSuspend> {
        if self.interruptions.interrupts() {
            return Err(WouldSuspend::Interrupted(Interrupted::Restart));
        }
        let room = value.map_or(LeafRoom::NONE, |value| LeafRoom::value(value.cell_bytes()));
        match self.tree().try_latch(key, room) {
            Ok(leaf) => Ok(self.write_latched(leaf, key, value, view, operation, decide)),
            Err(interrupted) => Err(self.would_suspend(interrupted)),
        }
    }

    pub(super) fn would_suspend(&self, interrupted: Interrupted) -> WouldSuspend {
        WouldSuspend::new(self.tree().space(), interrupted)
    }
}
