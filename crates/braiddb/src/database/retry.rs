//! Retries of transaction attempts: reasons and waits.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::error::{BusyWith, Error};
use crate::rid::TableId;
use crate::sched::{self, WaitCause};
use crate::sync::{self, clock};
use crate::transaction::{
    ActiveTransaction, NamedKeys, OperationError, PriorityToken, WorkerTransactions,
    YieldedToPriority,
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
        }
    }
}

/// The failed attempts of a transaction.
pub(super) struct Retries<'w> {
    worker: &'w Rc<WorkerTransactions>,
    failed_certifications: u32,
    priority_token: Option<PriorityToken<'w>>,
    yielded: YieldedToPriority,
}

impl<'w> Retries<'w> {
    /// Starts without failed attempts.
    pub(super) fn new(worker: &'w Rc<WorkerTransactions>) -> Self {
        let yielded = YieldedToPriority::default();
        Self { worker, failed_certifications: 0, priority_token: None, yielded }
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
                RetryCause::WriteConflict(_) => back_off(self.worker, attempt).await,
                RetryCause::BulkOperation(_, table) => self.worker.wait_for_gate(table).await,
                RetryCause::PriorityToken => {
                    self.worker.wait_for_priority_token(&mut self.yielded).await
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

/// Waits for a random time whose range doubles with each attempt: first for some rounds of the
/// worker, then for up to a quarter of a second. In all, a transaction backs off for some seconds
/// before it fails, without using processor time.
pub(super) async fn back_off(worker: &WorkerTransactions, attempt: u32) {
    const MAX_ROUNDS: u32 = 1 << 12;
    const MAX_TIME: Duration = Duration::from_millis(256);
    let max_rounds = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
    // In a simulation, behaviour must not depend on real time, except on the time of a controlled
    // schedule.
    let knows_no_time = cfg!(braid_simulation) && !sync::takes_part();
    if max_rounds <= MAX_ROUNDS || knows_no_time {
        for _ in 0..fastrand::u32(0..max_rounds.min(MAX_ROUNDS)) {
            sched::yield_now(WaitCause::Undecided).await;
        }
        return;
    }
    let most = Duration::from_millis(u64::from(max_rounds / MAX_ROUNDS)).min(MAX_TIME);
    let until = clock::now() + most.mul_f64(fastrand::f64());
    let timer = worker.timers.set(until, sched::current_waiter().await);
    while !timer.is_over() {
        sched::park(WaitCause::BackOff).await;
    }
}
