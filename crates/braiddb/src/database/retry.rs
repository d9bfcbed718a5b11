//! Retries of transaction attempts: reasons and waits.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use super::error::{BusyWith, Error};
use crate::log::LogError;
use crate::rid::TableId;
use crate::transaction::{
    ActiveTransaction, MAX_FREEING_ATTEMPTS, NamedKeys, OperationError, PriorityToken,
    WorkerTransactions, YieldedToPriority,
};

/// The reason for a retry.
pub(super) enum RetryCause {
    /// Another transaction wrote a record first.
    WriteConflict(Option<Box<NamedKeys>>),
    /// Another transaction holds the starvation guard.
    PriorityToken,
    /// A bulk operation is running on this table.
    BulkOperation(Arc<str>, TableId),
    /// Validation failed: records that were read have changed.
    FailedValidation(Box<NamedKeys>),
    /// The disk has no room for a deletion.
    FullDisk(Arc<LogError>),
}

impl RetryCause {
    /// Returns the reason for a retry after an attempt failed with `error`.
    ///
    /// # Errors
    /// Returns `error` if the transaction must not be retried.
    pub(super) fn of(error: OperationError) -> Result<Self, OperationError> {
        match error {
            OperationError::Conflict(record) => Ok(RetryCause::WriteConflict(record)),
            OperationError::YieldedToPriority => Ok(RetryCause::PriorityToken),
            OperationError::BulkUnderWay(table, id) => Ok(RetryCause::BulkOperation(table, id)),
            OperationError::NotSerializable(what) => Ok(RetryCause::FailedValidation(what)),
            OperationError::NoRoomToDelete(why) => Ok(RetryCause::FullDisk(why)),
            error => Err(error),
        }
    }

    /// Returns the error that the caller receives after the last attempt.
    pub(super) fn into_error(self, attempts: u32) -> Error {
        match self {
            RetryCause::WriteConflict(record) => Error::conflict(attempts, record),
            RetryCause::PriorityToken => Error::conflict(attempts, None),
            RetryCause::BulkOperation(table, _) => {
                Error::Busy(BusyWith::BulkOperation { table: table.to_string() })
            }
            RetryCause::FailedValidation(changed) => {
                Error::NotSerializable { attempts, read: Box::new((*changed).into()) }
            }
            RetryCause::FullDisk(error) => Error::from_running(error),
        }
    }
}

/// The failed attempts of a transaction.
pub(super) struct Retries<'w> {
    worker: &'w Rc<WorkerTransactions>,
    failed_certifications: u32,
    /// Number of times that disk space was freed.
    freed_space: u32,
    priority_token: Option<PriorityToken<'w>>,
    yielded: YieldedToPriority,
}

impl<'w> Retries<'w> {
    /// Starts without failed attempts.
    pub(super) fn new(worker: &'w Rc<WorkerTransactions>) -> Self {
        let yielded = YieldedToPriority::default();
        Self { worker, failed_certifications: 0, freed_space: 0, priority_token: None, yielded }
    }

    /// Returns whether another attempt is useless: disk space was freed repeatedly, and does not
    /// suffice.
    pub(super) fn is_futile(&self, cause: &RetryCause) -> bool {
        matches!(cause, RetryCause::FullDisk(_)) && self.freed_space >= MAX_FREEING_ATTEMPTS
    }

    /// Lets the next attempt pass the starvation guard if it holds the guard, or was refused too
    /// often.
    #[inline]
    pub(super) fn exempt(&mut self, transaction: &ActiveTransaction) {
        self.yielded.exempt_after_aborts(transaction);
        if let Some(priority_token) = &self.priority_token {
            priority_token.exempt(transaction);
        }
    }

    /// Waits before the next attempt. The future is boxed and the function is not inlined, so that
    /// the code generated for each closure contains only a call, and its state no space for this
    /// future.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_before_retry(
        &mut self,
        cause: RetryCause,
        attempt: u32,
    ) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move {
            match cause {
                RetryCause::WriteConflict(_) => self.worker.back_off(attempt).await,
                RetryCause::BulkOperation(_, table) => self.worker.wait_for_gate(table).await,
                RetryCause::PriorityToken => {
                    self.worker.wait_for_priority_token(&mut self.yielded).await
                }
                RetryCause::FullDisk(_) => {
                    self.freed_space += 1;
                    self.worker.free_disk_space().await;
                }
                // The transaction that changed the records read already has its LSN, so there is no
                // reason to wait.
                RetryCause::FailedValidation(_) => {
                    self.failed_certifications += 1;
                    if self.priority_token.is_none() {
                        let engine = self.worker.engine();
                        self.priority_token =
                            engine.take_priority_token(self.failed_certifications);
                    }
                }
            }
        })
    }
}
