//! Non-suspending operations on records of a paged table, for a caller that runs several of them
//! without suspending. An operation fails without effect if a page that it needs is not resident,
//! or no frame is free.

use super::error::Interrupted;
use super::table::{PagedRecord, PagedTable, SlotCopy};
use super::tree::{LatchedLeaf, LeafRoom};
use super::would_suspend::WouldSuspend;
use crate::reclaim::OperationGuard;
use crate::version::{Undecided, View};

impl PagedTable {
    /// Does what [`latch`](Self::latch) does, without suspending.
    ///
    /// # Errors
    /// When it cannot be done now; then nothing has changed.
    pub(crate) fn latch_now(
        &self,
        key: &[u8],
        bytes: Option<usize>,
    ) -> Result<LatchedLeaf<'_>, WouldSuspend> {
        if self.interruptions.interrupts() {
            return Err(WouldSuspend::Interrupted(Interrupted::Restart));
        }
        let latched = self.tree().try_latch(key, LeafRoom::of(bytes));
        latched.map_err(|interrupted| self.would_suspend(interrupted))
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

    pub(super) fn would_suspend(&self, interrupted: Interrupted) -> WouldSuspend {
        WouldSuspend::new(self.tree().space(), interrupted)
    }
}
