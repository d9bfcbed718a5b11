//! Typed sources: streams of transactions of one kind, whose futures live unboxed in their slots.
//!
//! For what runs millions of times a second, a stored procedure or a benchmark: no request crosses
//! threads, and nothing is allocated for a transaction.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use super::Database;
use super::error::{Error, Result};
use super::options::RunOptions;
use super::run::attempts;
use super::transaction::Transaction;
use crate::sched;

/// A source under way.
#[derive(Debug)]
#[must_use = "a source's failure is told when it is waited for"]
pub struct SourceRun {
    done: sched::SourceHandle,
    failure: Arc<OnceLock<Error>>,
}

impl SourceRun {
    /// Waits until the source's last transaction is over.
    ///
    /// # Errors
    /// The first error of a transaction, after which no more were begun; [`Error::Closed`] if the
    /// database was closed first.
    pub async fn done(self) -> Result<()> {
        self.done.done().await.map_err(|sched::Closed| Error::Closed)?;
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    /// Blocks until the source's last transaction is over.
    ///
    /// # Errors
    /// As [`SourceRun::done`]; [`Error::WouldBlock`] from within a transaction.
    pub fn wait(self) -> Result<()> {
        super::refuse_on_worker()?;
        super::block_on(self.done())
    }
}

/// What the transactions of one source share on their worker.
struct Procedure<F> {
    body: F,
    failure: Arc<OnceLock<Error>>,
}

impl Database {
    /// Runs `body` as a transaction for each of `inputs`, all on one worker, interleaved with each
    /// other and with whatever else the worker has. Conflicts are retried until they are over:
    /// a stream has no caller to whom they could be handed back.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let table: Table<u64, u64> = db.run_blocking(async |tx| tx.create_table("sums").await)?;
    /// let sums = table.clone();
    /// let source = db.run_source(0, 0..1000, async move |tx, number| {
    ///     tx.put(&sums, number, &(number * 2)).await
    /// })?;
    /// source.wait()?;
    /// assert_eq!(db.run_blocking(async move |tx| tx.get(&table, &21).await)?, Some(42));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Options`] if there is no such worker.
    pub fn run_source<I, F>(&self, worker: usize, inputs: I, body: F) -> Result<SourceRun>
    where
        I: IntoIterator<Item: 'static, IntoIter: 'static> + Send + 'static,
        F: AsyncFn(&Transaction, &I::Item) -> Result<()> + Send + 'static,
    {
        let workers = self.shared.engine.workers();
        if worker >= workers {
            return Err(Error::Options(format!("there is no worker {worker} among {workers}")));
        }
        let failure = Arc::new(OnceLock::new());
        let seen = failure.clone();
        let source = move || {
            let procedure = Rc::new(Procedure { body, failure: seen });
            let mut inputs = inputs.into_iter();
            sched::FromFn(move || {
                if procedure.failure.get().is_some() {
                    return None;
                }
                let (input, procedure) = (inputs.next()?, procedure.clone());
                Some(async move {
                    let body = &procedure.body;
                    let options = RunOptions::default().max_attempts(u32::MAX);
                    let run = attempts(options, async |tx: &Transaction| body(tx, &input).await);
                    if let Err(error) = run.await {
                        // Only the first is told.
                        _ = procedure.failure.set(error);
                    }
                })
            })
        };
        let done = self.shared.executor.run_source(worker, source);
        Ok(SourceRun { done: done.map_err(|sched::Closed| Error::Closed)?, failure })
    }
}
