//! Runs a closure as a transaction: attempts, retries, panics, cancellation.
//!
//! The worker runs and drops user code: the closure and its future, values, errors, the caller's
//! waker. `sched::contain` catches the panics of each separately.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::blocking::{block_on, refuse_on_worker};
use super::error::{Error, Result};
use super::handle::Database;
use super::retry::{Retries, RetryCause};
use super::span::TransactionSpan;
use super::transaction::Transaction;
use super::transaction_builder::{
    Ending, Outcome, TransactionBuilder, TransactionFailure, TransactionOptions,
};
use super::workers::{NeedsWorkers, send};
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sched::{
    self, CallerRuntime, Contained, ContainedFuture, Panic, UntilRecorded, UserFailure,
    drop_contained, outlined,
};
use crate::sync::oneshot;
use crate::transaction::{
    AbortCause, ActiveTransaction, NextAttempt, OperationError, WorkerTransactions,
};

impl Database {
    /// Runs `body` as a transaction and commits it.
    ///
    /// Returns only after everything the transaction read or wrote is durable; see
    /// [`Durability`](crate::Durability). The future runs on any executor.
    ///
    /// - **Cancellation**: if the caller drops the future, the transaction aborts, unless the worker
    ///   has already begun to commit it. It then commits, and only its result is lost. The worker
    ///   checks before each operation of `body` and immediately before the commit, so `body` does
    ///   no further operations; code of `body` between two operations still runs to the next
    ///   `.await`. A program that must know the outcome awaits the future to its end.
    /// - **Retries**: after a conflict, or if another transaction changed what `body` read, the
    ///   transaction aborts and `body` runs again.
    ///   [`TransactionBuilder::max_attempts`] limits the attempts.
    /// - **Errors**: an error of `body` aborts the transaction, and `run` returns it unchanged.
    /// - **Panics**: a panic of `body` aborts this transaction only, and `run` returns
    ///   [`Error::Panicked`]. The captured values are dropped on the worker before `run` returns.
    ///   A panic in one of their destructors changes no result. It is logged and counted
    ///   ([`Stats::destructor_panics`](crate::Stats)).
    /// - **Long computations**: `body` runs on a worker thread of the database. Each transaction
    ///   lets others run where it awaits. Code that computes for long or blocks the thread (a lock,
    ///   a file, `thread::sleep`) delays the open transactions of its worker; other workers take
    ///   over transactions that have not begun. The engine logs this once and reports it in
    ///   [`WorkerStats::longest_stretch`](crate::stats::WorkerStats). Do such work before or after
    ///   the transaction, or on another thread pool, and await its result.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let table: Table<str, u64> = db.open_or_create_table("counters").await?;
    ///         let count = db
    ///             .run(async move |tx| {
    ///                 let count = tx.get(&table, "visits").await?.unwrap_or(0) + 1;
    ///                 tx.put(&table, "visits", &count).await?;
    ///                 Ok(count)
    ///             })
    ///             .await?;
    ///         assert_eq!(count, 1);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// [`Database::transaction`] sets options, and reports attempts and the commit LSN.
    /// [`Database::try_run`] accepts closures with other error types. Use it if the compiler
    /// reports "`?` couldn't convert the error to `braiddb::Error`", or "expected `braiddb::Error`,
    /// found `anyhow::Error`" (from `anyhow::ensure!` in the closure).
    ///
    /// # Errors
    /// - The error of `body`.
    /// - [`Error::Conflict`] or [`Error::NotSerializable`] after the last attempt.
    /// - [`Error::Panicked`], [`Error::Closed`], or [`Error::Io`] if the log had failed: nothing
    ///   of the transaction is stored.
    /// - [`Error::CommitUnknown`] if the log failed during the commit, or [`Error::Failed`]: the
    ///   transaction may be stored or not. It does not run again.
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_run(body)
    }

    /// Like [`Database::run`], for a closure with its own error type `E: From<Error>`.
    ///
    /// ```
    /// use braiddb::{Database, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), braiddb::Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     #[derive(Debug)]
    ///     enum Refused {
    ///         Poor,
    ///         Database(braiddb::Error),
    ///     }
    ///
    ///     impl From<braiddb::Error> for Refused {
    ///         fn from(error: braiddb::Error) -> Self {
    ///             Refused::Database(error)
    ///         }
    ///     }
    ///
    ///     let cents: Table<u64, u64> = block_on(db.create_table("cents"))?;
    ///     let spent = db.try_run(async move |tx| {
    ///         let left = tx.get(&cents, &1).await?.unwrap_or(0).checked_sub(100);
    ///         tx.put(&cents, &1, &left.ok_or(Refused::Poor)?).await?;
    ///         Ok::<_, Refused>(())
    ///     });
    ///     assert!(matches!(block_on(spent), Err(Refused::Poor)));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The code must name the error type once: with `Ok::<_, Refused>(())` as above, with an
    /// `Err(Refused::..)` in the closure, or by returning the result of `try_run` without another
    /// `?`. Otherwise the compiler reports "type annotations needed". With `anyhow`:
    ///
    /// ```
    /// use braiddb::{Database, Options, Table, block_on};
    ///
    /// async fn add(db: &Database, cents: Table<u64, u64>, text: &'static str) -> anyhow::Result<()> {
    ///     db.try_run(async move |tx| {
    ///         let more: u64 = text.parse()?;
    ///         anyhow::ensure!(more < 100, "that is too much");
    ///         tx.put(&cents, &1, &more).await?;
    ///         anyhow::Ok(())
    ///     })
    ///     .await?;
    ///     Ok(())
    /// }
    ///
    /// fn main() -> Result<(), braiddb::Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let cents: Table<u64, u64> = block_on(db.create_table("cents"))?;
    ///     assert!(block_on(add(&db, cents.clone(), "99")).is_ok());
    ///     assert_eq!(block_on(add(&db, cents, "100")).unwrap_err().to_string(), "that is too much");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`].
    pub fn try_run<T, E, F>(
        &self,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let run = self.transaction().try_run(body);
        async move { Ok(run.await?.value) }
    }

    /// Like [`Database::run`], and blocks the calling thread until the transaction ends.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<u64, str> = db.run_blocking(async |tx| tx.create_table("names").await)?;
    ///     db.run_blocking(async move |tx| tx.put(&names, &1, "ada").await)?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`]. [`Misuse::WouldBlock`](crate::Misuse) if a transaction calls it: blocking would stop
    /// the worker that has to run the new transaction.
    pub fn run_blocking<T, F>(&self, body: F) -> Result<T>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        refuse_on_worker()?;
        block_on(self.try_run(body))
    }
}

impl TransactionBuilder {
    /// Runs `body` like [`Database::run`], with the options of this builder, and reports the
    /// attempts and the commit LSN.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let put = db.transaction().run(async move |tx| tx.put(&names, &1, "ada").await);
    ///         println!("committed at {}", put.await?.commit_lsn);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`].
    pub fn run<T, F>(self, body: F) -> impl Future<Output = Result<Outcome<T>>> + Send + use<T, F>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_run(body)
    }

    /// Like [`TransactionBuilder::run`], for a closure with its own error type; see
    /// [`Database::try_run`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let name = db.transaction().read_only(true).try_run(async move |tx| {
    ///             let name = tx.get(&names, &1).await?;
    ///             let name = name.ok_or_else(|| anyhow::anyhow!("no person has this number"))?;
    ///             Ok::<_, anyhow::Error>(name.to_owned())
    ///         });
    ///         assert_eq!(name.await.unwrap_err().to_string(), "no person has this number");
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`].
    pub fn try_run<T, E, F>(
        self,
        body: F,
    ) -> impl Future<Output = Result<Outcome<T>, E>> + Send + use<T, E, F>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        // The future owns a handle: it may be sent to another thread and outlive the caller's.
        let Self { db, options } = self;
        NeedsWorkers::new(db.shared.workers.probe(), async move {
            let (runtime, span) = (CallerRuntime::current(), TransactionSpan::begin(options));
            let (reply, result) = oneshot::channel();
            let reply = UntilRecorded::new(reply);
            // A worker may drop the closure before it begins.
            let body = Contained::new(body);
            db.spawn(move || {
                Box::pin(async move {
                    let attempts = pin!(async {
                        let span = span.enter();
                        let result = {
                            // Dropped before the caller receives the result.
                            let body = body;
                            let worker = WorkerTransactions::current();
                            attempts(options, &worker, &runtime, Closure(&*body)).await
                        };
                        span.end(&result);
                        result
                    });
                    Request::new(&runtime, attempts, reply).await;
                })
            })?;
            match result.await {
                // Converted on the caller's thread: `E::from` is user code.
                Ok(result) => result.map_err(|failure| failure.into_error()),
                Err(oneshot::Canceled) => Err(db.ended().into()),
            }
        })
    }

    /// Like [`TransactionBuilder::run`], and blocks the calling thread until the transaction ends.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<u64, str> = db.run_blocking(async |tx| tx.create_table("names").await)?;
    ///     let put = async move |tx: &braiddb::Transaction| tx.put(&names, &1, "ada").await;
    ///     assert_eq!(db.transaction().run_blocking(put)?.attempts, 1);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run_blocking`].
    pub fn run_blocking<T, F>(self, body: F) -> Result<Outcome<T>>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_run_blocking(body)
    }

    /// Like [`TransactionBuilder::run_blocking`], for a closure with its own error type; see
    /// [`Database::try_run`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let names: Table<u64, str> = db.run_blocking(async |tx| tx.create_table("names").await)?;
    ///     let renamed = db.transaction().try_run_blocking(async move |tx| {
    ///         let name = tx.get(&names, &1).await?;
    ///         let name = name.ok_or_else(|| anyhow::anyhow!("no person has this number"))?;
    ///         anyhow::ensure!(name != "root", "the name `root` cannot change");
    ///         Ok(tx.put(&names, &1, "ada").await?)
    ///     });
    ///     assert_eq!(renamed.unwrap_err().to_string(), "no person has this number");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run_blocking`].
    pub fn try_run_blocking<T, E, F>(self, body: F) -> Result<Outcome<T>, E>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        refuse_on_worker()?;
        block_on(self.try_run(body))
    }
}

/// Runs `body` on this worker until it commits. Returns its value and the commit LSN.
pub(super) async fn commit_on_worker<T>(
    body: impl AsyncFn(&Transaction) -> Result<T>,
) -> Result<(T, Lsn)> {
    commit_with(TransactionOptions::DEFAULT, body).await
}

/// Does what `commit_on_worker` does, with these options.
pub(super) async fn commit_with<T>(
    options: TransactionOptions,
    body: impl AsyncFn(&Transaction) -> Result<T>,
) -> Result<(T, Lsn)> {
    let worker = WorkerTransactions::current();
    let outcome = attempts(options, &worker, &CallerRuntime::NONE, Closure(&body))
        .await
        .map_err(|failure| failure.into_error())?;
    Ok((outcome.value, Lsn(outcome.commit_lsn)))
}

/// Runs `body` in a read-only transaction on this worker. Returns its value and the LSN it read at.
pub(super) async fn read_on_worker<T>(
    body: impl AsyncFn(&Transaction) -> Result<T>,
) -> Result<(T, Lsn)> {
    commit_with(TransactionOptions::READ_ONLY, body).await
}

/// The user's part of a transaction.
pub(super) trait Body<T, E> {
    /// Returns the future of one attempt.
    fn attempt(&self, transaction: &Transaction) -> impl Future<Output = Result<T, E>>;
}

/// A closure without an input.
pub(super) struct Closure<'c, F>(pub(super) &'c F);

impl<T, E, F: AsyncFn(&Transaction) -> Result<T, E>> Body<T, E> for Closure<'_, F> {
    #[inline(always)]
    fn attempt(&self, transaction: &Transaction) -> impl Future<Output = Result<T, E>> {
        (self.0)(transaction)
    }
}

/// Makes attempts until one commits, the closure fails without a conflict, or the limit is reached.
///
/// Returns only after everything that any attempt read is durable: an error can reveal a record as
/// a value does, and a closure may keep data that an earlier attempt read. If the log fails first,
/// this returns the log's error instead of the closure's. A final [`Error::Conflict`] does not wait
/// for the commit of the winning transaction, which may still abort: the error reveals no data.
///
/// A failure is boxed, because results move several times and errors are larger than most values.
pub(super) async fn attempts<T, E>(
    options: TransactionOptions,
    worker: &Rc<WorkerTransactions>,
    runtime: &CallerRuntime,
    body: impl Body<T, E>,
) -> Result<Outcome<T>, Box<TransactionFailure<E>>> {
    let Ok(mut begun) = worker.begin_as(options.mode(worker.engine())) else {
        sched::hold_after_failure().await;
        return Err(Box::new(TransactionFailure::Engine(Error::Overloaded)));
    };
    let (mut attempt, mut retries) = (1, Retries::new(worker));
    let mut depends_on;
    let (failed, core) = loop {
        if attempt == options.max_attempts {
            begun.name_conflicts();
        }
        let transaction = Transaction::new(begun, attempt);
        let result = {
            let mut future = pin!(None);
            ContainedFuture::new(runtime, future.as_mut(), || body.attempt(&transaction)).await
        };
        let core = transaction.into_core();
        depends_on = core.depends_on();
        let failure = match result {
            Err(failure) => {
                let error = match *failure {
                    UserFailure::Error(error) => error,
                    UserFailure::Panic(Panic { message }) => {
                        core.set_abort_cause(AbortCause::Panic);
                        break (TransactionFailure::Engine(Error::Panicked(message)), Some(core));
                    }
                };
                let Some(conflict) = core.lost() else {
                    core.set_abort_cause(AbortCause::Requested);
                    break (TransactionFailure::Closure(error), Some(core));
                };
                // The closure returned the conflict or ignored it: both retry.
                drop_contained(error);
                outlined(pin!(core.abort())).await;
                conflict
            }
            Ok(value) => {
                let value = Contained::new(value);
                let committed = match options.ending {
                    Ending::Durable => match core.commit_at_once() {
                        Ok(lsn) => Ok(lsn.into()),
                        Err(rest) => outlined(pin!(rest.complete())).await.map(EndLsns::from),
                    },
                    ending => outlined(pin!(end_early(core, ending))).await,
                };
                match committed {
                    Ok(EndLsns { lsn: Lsn(commit_lsn), depends_on: Lsn(depends_on) }) => {
                        sched::hold_after_failure().await;
                        let value = value.into_inner();
                        return Ok(Outcome { value, attempts: attempt, commit_lsn, depends_on });
                    }
                    Err(error) => error,
                }
            }
        };
        let cause = match RetryCause::of(failure) {
            Ok(cause) => cause,
            Err(error) => {
                sched::hold_after_failure().await;
                return Err(Box::new(TransactionFailure::Engine(error.into())));
            }
        };
        if attempt >= options.max_attempts || retries.is_futile(&cause) {
            break (TransactionFailure::Engine(cause.into_error(attempt)), None);
        }
        let next = NextAttempt::keep(worker);
        sched::count_failed_attempt();
        retries.wait_before_retry(cause, attempt).await;
        attempt += 1;
        begun = next.begin(options.mode(worker.engine()), depends_on);
        retries.exempt(&begun);
    };
    Err(fail(worker, core, depends_on, failed).await)
}

/// Where a transaction ended.
struct EndLsns {
    /// The commit LSN, or the begin stamp if it committed no writes.
    lsn: Lsn,
    /// The newest commit that its result depends on, if that may not be durable.
    depends_on: Lsn,
}

impl From<Lsn> for EndLsns {
    fn from(lsn: Lsn) -> Self {
        Self { lsn, depends_on: Lsn::ZERO }
    }
}

/// Ends a transaction whose result need not wait for the log.
async fn end_early(core: ActiveTransaction, ending: Ending) -> Result<EndLsns, OperationError> {
    if ending == Ending::Abort {
        let (lsn, depends_on) = (core.begin(), core.depends_on());
        core.end_execution();
        core.abort().await;
        return Ok(EndLsns { lsn, depends_on });
    }
    let (lsn, depends_on) = core.commit_visibly().await?;
    Ok(EndLsns { lsn, depends_on })
}

/// Aborts the last attempt, if it is open, and returns the failure as [`once_durable`] does.
async fn fail<E>(
    worker: &WorkerTransactions,
    core: Option<ActiveTransaction>,
    depends_on: Lsn,
    failed: TransactionFailure<E>,
) -> Box<TransactionFailure<E>> {
    let failed = Contained::new(failed);
    if let Some(core) = core {
        outlined(pin!(core.abort())).await;
    }
    let failed = once_durable(worker, depends_on, failed.into_inner()).await;
    sched::hold_after_failure().await;
    Box::new(failed)
}

/// Returns the failure after everything the transaction read is durable, or the log's error if the
/// log fails first.
pub(super) async fn once_durable<E>(
    worker: &WorkerTransactions,
    depends_on: Lsn,
    failed: TransactionFailure<E>,
) -> TransactionFailure<E> {
    let failed = Contained::new(failed);
    if !is_planted(Bug::ErrorBeforeDurable)
        && let Err(error) = outlined(pin!(worker.wait_to_answer(depends_on))).await
    {
        return TransactionFailure::Engine(error.into());
    }
    failed.into_inner()
}

/// Attempts of one request. Ends as soon as the caller drops its future: within a poll, they stop
/// before the next operation and before the commit.
pub(super) struct Request<'r, F: Future<Output: 'static>> {
    runtime: &'r CallerRuntime,
    attempts: Pin<&'r mut F>,
    reply: Option<UntilRecorded<oneshot::Sender<F::Output>>>,
    /// `true` if this request wakes when the caller drops its future.
    watched: bool,
}

impl<'r, F: Future<Output: 'static>> Request<'r, F> {
    pub(super) fn new(
        runtime: &'r CallerRuntime,
        attempts: Pin<&'r mut F>,
        reply: UntilRecorded<oneshot::Sender<F::Output>>,
    ) -> Self {
        Self { runtime, attempts, reply: Some(reply), watched: false }
    }
}

impl<F: Future<Output: 'static>> Future for Request<'_, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { runtime, attempts, reply, .. } = &mut *self;
        let reply = &**reply.as_ref().expect("polled until ready");
        // Also before the first poll: a request without a caller does not begin.
        if reply.is_canceled() {
            return Poll::Ready(());
        }
        // Values of the caller may be dropped without a poll of the caller's future.
        runtime.enter();
        if let Poll::Ready(result) = sched::poll_for(reply, || attempts.as_mut().poll(cx)) {
            let reply = self.reply.take().expect("polled until ready");
            send(reply.into_inner(), result);
            return Poll::Ready(());
        }
        if !self.watched {
            self.watched = true;
            // The slot's waker stays valid for all later polls, so registering once is enough.
            let reply = self.reply.as_mut().expect("polled until ready");
            if reply.poll_canceled(cx).is_ready() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}
