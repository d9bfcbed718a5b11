//! Transactions that can pass their certification no more. One that has stepped over a committed version
//! of a record has read what is not so any longer. It may go on reading, as of its beginning; but once it
//! also writes, it is bound to fail, and fails at once rather than when it commits.

use super::context::Transaction;
use super::error::OperationError;
use super::isolation::Mode;
use super::read_set::NamedKeys;
use crate::reclaim::OperationGuard;
use crate::record::{Records, Seen};
use crate::rid::Rid;

/// What keeps a transaction from committing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Conflict {
    #[default]
    None,
    /// Another one wrote a record first that this one was to write.
    Write,
    /// As `Write`, and that one had committed: the snapshot may be extended.
    NewerWrite,
    /// A bulk operation has a table that this one was to write.
    Bulk,
    /// Another one has changed what this one read, and this one writes.
    StaleRead,
}

impl Transaction {
    /// Notes that the transaction has read a record as it was when the transaction began, although
    /// another one has committed a write to it since. What was read of it was noted as any other read.
    ///
    /// # Errors
    /// `NotSerializable`, if the transaction has written.
    #[cold]
    pub(super) fn note_stale_read(
        &self,
        table: &Records,
        key: &[u8],
    ) -> Result<(), OperationError> {
        if self.may_become_stale() {
            self.stale().get_or_init(|| Box::new(NamedKeys::record(table, key)));
            if !self.writes().borrow().is_empty() {
                return Err(self.stale_conflict());
            }
        }
        Ok(())
    }

    /// Whether it matters that another one has changed what the transaction reads.
    #[inline(always)]
    pub(super) fn may_become_stale(&self) -> bool {
        self.mode() == Mode::Serializable && self.stale().get().is_none()
    }

    /// Whether the transaction reads a record that somebody else has committed a newer version of.
    #[inline(always)]
    pub(super) fn is_stale(
        &self,
        table: &Records,
        rid: Rid,
        seen: Option<Seen<'_>>,
        operation: &OperationGuard,
    ) -> bool {
        seen.is_none_or(|seen| seen.below_newer) && self.is_overwritten(table, rid, operation)
    }

    /// Whether somebody else has committed a write to a record since the transaction began, and that
    /// matters.
    #[cold]
    pub(super) fn is_overwritten(
        &self,
        table: &Records,
        rid: Rid,
        operation: &OperationGuard,
    ) -> bool {
        self.may_become_stale() && table.is_overwritten(rid, self.view(), operation)
    }

    /// Checks that the transaction may write; asked right before it does.
    ///
    /// # Errors
    /// `NotSerializable`, if it has read a record as it is no longer.
    #[inline(always)]
    pub(super) fn check_not_stale(&self) -> Result<(), OperationError> {
        if self.stale().get().is_none() { Ok(()) } else { Err(self.stale_conflict()) }
    }

    /// Notes that the transaction is lost.
    #[cold]
    fn stale_conflict(&self) -> OperationError {
        self.set_conflict(Conflict::StaleRead);
        let changed = self.stale().get().expect("the caller met it");
        OperationError::NotSerializable(changed.clone())
    }

    /// What keeps the transaction from committing, if something does.
    #[inline(always)]
    pub(crate) fn lost(&self) -> Option<OperationError> {
        if self.conflict_met() == Conflict::None { None } else { self.why_lost() }
    }

    #[cold]
    fn why_lost(&self) -> Option<OperationError> {
        match self.conflict_met() {
            Conflict::None => None,
            Conflict::Write | Conflict::NewerWrite => {
                Some(OperationError::Conflict(self.conflict_record()))
            }
            Conflict::Bulk => {
                let (table, id) = self.bulk_met().get().expect("the conflict is about it");
                Some(OperationError::BulkUnderWay(table.clone(), *id))
            }
            Conflict::StaleRead => {
                let changed = self.stale().get().expect("the conflict is about it");
                Some(OperationError::NotSerializable(changed.clone()))
            }
        }
    }
}
