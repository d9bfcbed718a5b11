//! How many transactions a worker keeps open.
//!
//! A worker has twice as many contexts as [`EngineOptions::most_open`](super::engine::EngineOptions::most_open):
//! one half for what runs, which the scheduler bounds, the other for what waits for something outside
//! the engine. No task waits for a context, since the tasks that have one may be waiting for that task: when
//! there is none, a transaction does not begin. Invariants:
//!
//! - of the contexts in use, at most half are interactive transactions';
//! - contexts in use, and those kept for transactions that are between two attempts, are at most all.

use std::rc::Rc;

use super::context::Transaction;
use super::isolation::Mode;
use super::worker::{NoContext, WorkerTransactions};

/// One of the interactive transactions that a worker may have.
#[derive(Debug)]
pub(crate) struct InteractivePermit(Rc<WorkerTransactions>);

impl InteractivePermit {
    /// Takes a permit for as long as the result lives.
    ///
    /// # Errors
    /// When the worker has as many interactive transactions as it may have.
    pub(crate) fn take(worker: &Rc<WorkerTransactions>) -> Result<Self, NoContext> {
        if worker.interactive.get() == worker.most_contexts() / 2 {
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

/// A context that is kept for a transaction's next attempt, so that none is refused halfway.
#[derive(Debug)]
pub(crate) struct NextAttempt(Rc<WorkerTransactions>);

impl NextAttempt {
    /// Keeps the context that an attempt has just given back, and counts that it will be repeated. Nothing may
    /// suspend in between.
    pub(crate) fn keep(worker: &Rc<WorkerTransactions>) -> Self {
        worker.kept.set(worker.kept.get() + 1);
        worker.counters().retries.add(1);
        assert!(worker.active() + worker.kept.get() <= worker.most_contexts());
        Self(worker.clone())
    }

    /// Begins the attempt.
    pub(crate) fn begin(self, mode: Mode) -> Transaction {
        let worker = self.0.clone();
        drop(self);
        worker.begin_as(mode).expect("a context was kept for it")
    }
}

impl Drop for NextAttempt {
    fn drop(&mut self) {
        self.0.kept.set(self.0.kept.get() - 1);
    }
}
