//! Admission: begin of transactions, and how many a worker keeps open.
//!
//! A worker has twice as many contexts as
//! [`EngineOptions::max_open`](super::engine::EngineOptions::max_open). Half are for running
//! transactions, which the scheduler limits. Half are for transactions that wait for something
//! outside the engine. No task waits for a context, because the tasks that hold one may be waiting
//! for that task. If no context is free, a transaction does not begin. Invariants:
//!
//! - at most half of the contexts in use belong to interactive transactions;
//! - contexts in use, plus those reserved for a next attempt, never exceed the total.

use std::rc::Rc;

use super::active_transaction::ActiveTransaction;
use super::isolation::TransactionMode;
use super::worker::{NoContext, WorkerTransactions};
use crate::log::Lsn;

/// Permit for one of a worker's interactive transactions; dropping it releases it.
#[derive(Debug)]
pub(crate) struct InteractivePermit(Rc<WorkerTransactions>);

impl InteractivePermit {
    /// Takes a permit; the result releases it when dropped.
    ///
    /// # Errors
    /// `NoContext` if the worker has its maximum of interactive transactions.
    pub(crate) fn take(worker: &Rc<WorkerTransactions>) -> Result<Self, NoContext> {
        if worker.interactive.get() == worker.max_contexts() / 2 {
            return Err(NoContext);
        }
        worker.interactive.set(worker.interactive.get() + 1);
        Ok(Self(worker.clone()))
    }
}

impl Drop for InteractivePermit {
    fn drop(&mut self) {
        self.0.interactive.set(self.0.interactive.get() - 1);
    }
}

/// A context reserved for a transaction's next attempt, so that a retry is never refused.
#[derive(Debug)]
pub(crate) struct NextAttempt(Rc<WorkerTransactions>);

impl NextAttempt {
    /// Reserves the context that an attempt has just released, and counts a retry. The caller must
    /// not suspend in between.
    pub(crate) fn keep(worker: &Rc<WorkerTransactions>) -> Self {
        worker.kept.set(worker.kept.get() + 1);
        worker.counters().retries.add(1);
        assert!(worker.active() + worker.kept.get() <= worker.max_contexts());
        Self(worker.clone())
    }

    /// Begins the attempt. Its result also depends on the commit at `depends_on`, which an earlier
    /// attempt has seen.
    pub(crate) fn begin(self, mode: TransactionMode, depends_on: Lsn) -> ActiveTransaction {
        let worker = self.0.clone();
        drop(self);
        let transaction = worker.begin_as(mode).expect("a context is reserved for it");
        transaction.note_lsn(depends_on);
        transaction
    }
}

impl Drop for NextAttempt {
    fn drop(&mut self) {
        self.0.kept.set(self.0.kept.get() - 1);
    }
}

impl WorkerTransactions {
    /// Begins an internal transaction, whose abort is not counted.
    ///
    /// # Errors
    /// `NoContext` if every context is in use.
    pub(crate) fn begin(self: &Rc<Self>) -> Result<ActiveTransaction, NoContext> {
        let transaction = self.begin_as(TransactionMode::Snapshot)?;
        transaction.leave_uncounted();
        Ok(transaction)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// `NoContext` if every context is in use.
    pub(crate) fn begin_as(
        self: &Rc<Self>,
        mode: TransactionMode,
    ) -> Result<ActiveTransaction, NoContext> {
        let mode = match mode {
            _ if self.engine().read_only => TransactionMode::ReadOnly,
            #[cfg(feature = "experiment")]
            mode if self.engine().certifies_by_safety_net() => mode.under_safety_net(),
            mode => mode,
        };
        let contexts = &mut *self.contexts.borrow_mut();
        let context = self.take_context(contexts)?;
        let name = self.engine().status.begin(self.number(), context.number);
        // The worker's published stamp, an earlier tail, is a lower bound of this one.
        let begin = self.engine().log.tail();
        contexts.begins.begin(context.number, begin);
        Ok(ActiveTransaction::new(self.clone(), context, name, begin, mode))
    }
}
