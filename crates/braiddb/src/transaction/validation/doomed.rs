//! Doomed transactions: those that have read a superseded version and can no longer validate. A
//! doomed transaction may continue to read its snapshot. If it also writes, it fails immediately
//! instead of at commit.

use crate::reclaim::OperationGuard;
use crate::record::{MemoryRecords, Records, SeenVersion};
use crate::rid::Rid;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::isolation::TransactionMode;
use crate::transaction::context::transaction_state::Conflict;

impl ActiveTransaction {
    /// Notes that the transaction has read a superseded version of a record. The read itself is
    /// noted like any other.
    ///
    /// # Errors
    /// `NotSerializable` if the transaction has written.
    #[cold]
    pub(in crate::transaction) fn note_doomed_read(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<(), OperationError> {
        if self.can_become_doomed() {
            self.doom(table, key);
            if !self.writes().borrow().is_empty() {
                return Err(self.doomed_conflict());
            }
        }
        Ok(())
    }

    /// Returns whether reading a superseded version would doom the transaction.
    #[inline(always)]
    pub(in crate::transaction) fn can_become_doomed(&self) -> bool {
        self.mode() == TransactionMode::Serializable && self.doomed_by().is_none()
    }

    /// Returns whether another transaction has committed a newer version of the record being read.
    #[inline(always)]
    pub(in crate::transaction) fn is_superseded(
        &self,
        table: &MemoryRecords,
        rid: Rid,
        seen: Option<SeenVersion<'_>>,
        operation: &OperationGuard,
    ) -> bool {
        seen.is_none_or(|seen| seen.below_newer) && self.is_overwritten(table, rid, operation)
    }

    /// Returns whether another transaction has committed a write to a record since this one began,
    /// and this matters for the isolation level.
    #[cold]
    pub(in crate::transaction) fn is_overwritten(
        &self,
        table: &MemoryRecords,
        rid: Rid,
        operation: &OperationGuard,
    ) -> bool {
        self.can_become_doomed() && table.is_overwritten(rid, self.view(), operation)
    }

    /// Checks that the transaction may write; called immediately before each write.
    ///
    /// # Errors
    /// `NotSerializable` if it has read a superseded version.
    #[inline(always)]
    pub(in crate::transaction) fn check_not_doomed(&self) -> Result<(), OperationError> {
        if self.doomed_by().is_none() { Ok(()) } else { Err(self.doomed_conflict()) }
    }

    /// Marks the transaction as lost to a conflict.
    #[cold]
    fn doomed_conflict(&self) -> OperationError {
        self.set_conflict(Conflict::SupersededRead);
        let changed = self.doomed_by().expect("the caller met it");
        OperationError::NotSerializable(Box::new(changed.clone()))
    }
}
