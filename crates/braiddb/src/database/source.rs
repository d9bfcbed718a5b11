//! Typed sources: streams of transactions of one kind, whose futures live unboxed in their slots.
//!
//! For what runs millions of times a second, a stored procedure or a benchmark: no request crosses
//! threads, and nothing is allocated for a transaction.

use std::rc::Rc;
use std::sync::Arc;

use super::Database;
use super::error::{Error, Result};
use super::options::{Outcome, RunOptions};
use super::run::attempts;
use super::transaction::Transaction;
use crate::sched;
use crate::sync::OnceLock;

/// A source under way.
#[derive(Debug)]
#[must_use = "a source's failure is told when it is waited for"]
pub struct SourceRun {
    done: sched::SourceHandle,
    failure: Arc<OnceLock<Error>>,
}

impl SourceRun {
    /// Waits until the source's last transaction is over. If the future is dropped, the source goes on.
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
struct Procedure<F, R> {
    body: F,
    reply: R,
}

impl Database {
    /// Runs `body` as a transaction for each of `inputs`, all on one worker, interleaved with each
    /// other and with whatever else the worker has. Conflicts are retried until they are over:
    /// a stream has no caller to whom they could be handed back. It ends at the first other error;
    /// after [`Error::CommitUnknown`] the transaction may be there or not, and is not run again.
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
        self.run_source_with(worker, inputs, body, |_, result| result.map(|_| ()))
    }

    /// Like [`Database::run_source`], and tells `reply` of each transaction that is over, on the
    /// worker's thread: its input, and what [`Database::run_with`] would have returned. An error
    /// that `reply` returns ends the source and is told when it is waited for.
    ///
    /// # Errors
    /// As [`Database::run_source`].
    pub fn run_source_with<I, T, F, R>(
        &self,
        worker: usize,
        inputs: I,
        body: F,
        reply: R,
    ) -> Result<SourceRun>
    where
        I: IntoIterator<Item: 'static, IntoIter: 'static> + Send + 'static,
        T: 'static,
        F: AsyncFn(&Transaction, &I::Item) -> Result<T> + Send + 'static,
        R: Fn(I::Item, Result<Outcome<T>>) -> Result<()> + Send + 'static,
    {
        let workers = self.shared.engine.workers();
        if worker >= workers {
            return Err(Error::Options(format!("there is no worker {worker} among {workers}")));
        }
        let failure = Arc::new(OnceLock::new());
        let seen = failure.clone();
        let source = move || {
            let procedure = Rc::new(Procedure { body, reply });
            let mut inputs = inputs.into_iter();
            sched::FromFn(move || {
                if seen.get().is_some() {
                    return None;
                }
                let (input, procedure, seen) = (inputs.next()?, procedure.clone(), seen.clone());
                Some(async move {
                    let body = &procedure.body;
                    let options = RunOptions::default().max_attempts(u32::MAX);
                    let run = attempts(options, async |tx: &Transaction| body(tx, &input).await);
                    let result = run.await;
                    if let Err(error) = (procedure.reply)(input, result) {
                        // Only the first is told.
                        _ = seen.set(error);
                    }
                })
            })
        };
        let done = self.shared.executor.run_source(worker, source);
        Ok(SourceRun { done: done.map_err(|sched::Closed| Error::Closed)?, failure })
    }
}
