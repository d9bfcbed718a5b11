//! Why an attempt at a transaction is made again, and what is waited for before.

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

/// Why an attempt is to be made again.
pub(super) enum Lost {
    /// Another transaction wrote a record first.
    ToWrite(Option<Box<NamedKeys>>),
    /// Another transaction has the turnstile.
    ToPriorityToken,
    /// A bulk operation has this table.
    ToBulk(Arc<str>, TableId),
    /// What was read had changed.
    Certification(Box<NamedKeys>),
}

impl Lost {
    /// What an attempt was lost to that failed of `error`.
    ///
    /// # Errors
    /// `error`, if it is not to be made again.
    pub(super) fn to(error: OperationError) -> Result<Self, OperationError> {
        match error {
            OperationError::Conflict(record) => Ok(Lost::ToWrite(record)),
            OperationError::YieldedToPriority => Ok(Lost::ToPriorityToken),
            OperationError::BulkUnderWay(table, id) => Ok(Lost::ToBulk(table, id)),
            OperationError::NotSerializable(what) => Ok(Lost::Certification(what)),
            error => Err(error),
        }
    }

    /// What the caller is told after the last attempt.
    pub(super) fn into_error(self, attempts: u32) -> Error {
        match self {
            Lost::ToWrite(record) => Error::conflict(attempts, record),
            Lost::ToPriorityToken => Error::conflict(attempts, None),
            Lost::ToBulk(table, _) => {
                Error::Busy(BusyWith::BulkOperation { table: table.to_string() })
            }
            Lost::Certification(changed) => {
                Error::NotSerializable { attempts, read: Box::new((*changed).into()) }
            }
        }
    }
}

/// The attempts at a transaction that were made in vain.
pub(super) struct Retries<'w> {
    worker: &'w Rc<WorkerTransactions>,
    failed_certifications: u32,
    priority_token: Option<PriorityToken<'w>>,
    yielded: YieldedToPriority,
}

impl<'w> Retries<'w> {
    /// None yet.
    pub(super) fn new(worker: &'w Rc<WorkerTransactions>) -> Self {
        let yielded = YieldedToPriority::default();
        Self { worker, failed_certifications: 0, priority_token: None, yielded }
    }

    /// Lets the next attempt pass the turnstile, if it has that, or was turned away too often.
    #[inline]
    pub(super) fn exempt(&mut self, transaction: &ActiveTransaction) {
        self.yielded.exempt_after_aborts(transaction);
        if let Some(priority_token) = &self.priority_token {
            priority_token.exempt(transaction);
        }
    }

    /// Waits until another attempt is worth it. Boxed, and not inlined: what is compiled for each closure has but a call
    /// of it, and its state no room for it.
    #[cold]
    #[inline(never)]
    pub(super) fn stand_back(
        &mut self,
        lost: Lost,
        attempt: u32,
    ) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async move {
            match lost {
                Lost::ToWrite(_) => back_off(self.worker, attempt).await,
                Lost::ToBulk(_, table) => self.worker.wait_for_gate(table).await,
                Lost::ToPriorityToken => {
                    self.worker.wait_for_priority_token(&mut self.yielded).await
                }
                // The transaction that changed what was read has drawn its LSN: there is no reason to wait.
                Lost::Certification(_) => {
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

/// Lets others run for a random while that doubles with each attempt: for rounds of the worker at first, then
/// for a time, up to a quarter of a second. So a transaction stands back for some seconds in all before it gives
/// up, and takes no processor time meanwhile.
pub(super) async fn back_off(worker: &WorkerTransactions, attempt: u32) {
    const MAX_ROUNDS: u32 = 1 << 12;
    const MAX_TIME: Duration = Duration::from_millis(256);
    let max_rounds = 1_u32.checked_shl(attempt).unwrap_or(u32::MAX);
    // What happens in a simulation must not depend on time, but for that of a controlled schedule.
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
