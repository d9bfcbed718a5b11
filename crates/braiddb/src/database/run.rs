//! Running a closure as a transaction: attempts, retries, panics, cancellation.
//!
//! Everything of the user's that lives or runs on the worker (the closure and its future, values,
//! errors, the caller's waker) is contained, each by itself (`sched::contain`).

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::Database;
use super::error::{Error, Result};
use super::options::{Outcome, RunOptions};
use super::retry::{Lost, Retries};
use super::span::TransactionSpan;
use super::transaction::Transaction;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sched::{
    self, CallerRuntime, Contained, ContainedFuture, Panic, UntilRecorded, contain, drop_contained,
    outlined,
};
use crate::sync::oneshot;
use crate::transaction::{AbortCause, NextAttempt, WorkerTransactions};

impl Database {
    /// Runs `body` as one transaction on some worker, and commits it.
    ///
    /// `body` may run several times: after a conflict, or if what it read was changed before it could
    /// commit, it is aborted and run again, up to a bound.
    /// Its own error aborts and comes back unchanged. A panic in it aborts this transaction alone,
    /// and comes back as [`Error::Panicked`]; one in the destructor of what it captured, which is
    /// dropped on the worker before this call returns, changes no outcome: it is counted
    /// ([`Stats::destructor_panics`](crate::Stats)), and told in the program's trace.
    /// Whatever is returned, a value or an error, leaves only when what `body` was told is durable;
    /// see [`Durability`](crate::Durability).
    /// Dropping the returned future aborts, unless the commit is already decided. The future can
    /// be awaited on any executor.
    ///
    /// The closure runs on one of the database's worker threads, which runs many transactions in turn: each gives way to the
    /// others where it awaits. One that computes for long, or blocks its thread (a lock, a file, `thread::sleep`), delays those
    /// that are under way on its worker; transactions that come later are taken over by other workers. That is told once in the
    /// program's trace, and seen in [`WorkerStats::longest_stretch`](crate::WorkerStats). Do such work before or after, or on a
    /// thread pool of its own, and await its result.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let table: Table<str, u64> = db.open_or_create_table("counters").await?;
    /// let count = db
    ///     .run(async move |tx| {
    ///         let count = tx.get(&table, "visits").await?.unwrap_or(0) + 1;
    ///         tx.put(&table, "visits", &count).await?;
    ///         Ok(count)
    ///     })
    ///     .await?;
    /// assert_eq!(count, 1);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// For errors of the closure's own see [`Database::try_run`]. That "`?` couldn't convert the error to `braiddb::Error`",
    /// or "expected `braiddb::Error`, found `anyhow::Error`", as of `anyhow::ensure!` in the closure, means that `run`
    /// should be `try_run`.
    ///
    /// # Errors
    /// The closure's; [`Error::Conflict`] or [`Error::NotSerializable`] after the last attempt;
    /// [`Error::Panicked`];
    /// [`Error::Closed`]; [`Error::Io`] if the log had failed: nothing of the transaction is there.
    /// [`Error::CommitUnknown`] if the log failed during the commit, and [`Error::Failed`]: the
    /// transaction may be there or not, and is not run again.
    pub fn run<T, F>(&self, body: F) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_run(body)
    }

    /// Like [`Database::run`], for a closure whose error is of a type of its own, which the engine's
    /// converts to.
    ///
    /// ```
    /// # use braiddb::{Database, Options, Table};
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// #[derive(Debug)]
    /// enum Refused {
    ///     Poor,
    ///     Database(braiddb::Error),
    /// }
    ///
    /// impl From<braiddb::Error> for Refused {
    ///     fn from(error: braiddb::Error) -> Self {
    ///         Refused::Database(error)
    ///     }
    /// }
    ///
    /// let cents: Table<u64, u64> = pollster::block_on(db.create_table("cents"))?;
    /// let spent = db.try_run(async move |tx| {
    ///     let left = tx.get(&cents, &1).await?.unwrap_or(0).checked_sub(100);
    ///     tx.put(&cents, &1, &left.ok_or(Refused::Poor)?).await?;
    ///     Ok::<_, Refused>(())
    /// });
    /// assert!(matches!(pollster::block_on(spent), Err(Refused::Poor)));
    /// # Ok::<_, braiddb::Error>(())
    /// ```
    ///
    /// The type of the error has to be said somewhere: by `Ok::<_, Refused>(())` as above, by an `Err(Refused::..)` in the
    /// closure, or by returning what `try_run` gives without another `?`. Where only `?` is applied, within and without,
    /// the compiler knows what the error converts from and to, but not what it is ("type annotations needed"). With
    /// `anyhow`:
    ///
    /// ```
    /// # use braiddb::{Database, Options, Table};
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
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// # let cents: Table<u64, u64> = pollster::block_on(db.create_table("cents"))?;
    /// # assert!(pollster::block_on(add(&db, cents.clone(), "99")).is_ok());
    /// # assert_eq!(pollster::block_on(add(&db, cents, "100")).unwrap_err().to_string(), "that is too much");
    /// # Ok::<_, braiddb::Error>(())
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
        let run = self.try_run_with(RunOptions::default(), body);
        async move { Ok(run.await?.value) }
    }

    /// Like [`Database::run`], and reports attempts and commit LSN.
    ///
    /// ```
    /// use braiddb::{Database, Error, Isolation, Options, RunOptions, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// let options = RunOptions::default().isolation(Isolation::Snapshot).max_attempts(5);
    /// let outcome = db.run_with(options, async move |tx| tx.put(&names, &1, "ada").await).await?;
    /// assert_eq!(outcome.attempts, 1);
    /// println!("committed at {}", outcome.commit_lsn);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`].
    pub fn run_with<T, F>(
        &self,
        options: RunOptions,
        body: F,
    ) -> impl Future<Output = Result<Outcome<T>>> + Send + use<T, F>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_run_with(options, body)
    }

    /// Like [`Database::run_with`], for a closure whose error is of a type of its own.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, RunOptions, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// let options = RunOptions::default().read_only(true);
    /// let name = db
    ///     .try_run_with(options, async move |tx| {
    ///         let name = tx.get(&names, &1).await?.ok_or_else(|| anyhow::anyhow!("nobody has this number"))?;
    ///         Ok::<_, anyhow::Error>(name.to_owned())
    ///     })
    ///     .await;
    /// assert_eq!(name.unwrap_err().to_string(), "nobody has this number");
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`].
    pub fn try_run_with<T, E, F>(
        &self,
        options: RunOptions,
        body: F,
    ) -> impl Future<Output = Result<Outcome<T>, E>> + Send + use<T, E, F>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        // A handle of its own: the future may be sent away, and outlive the one it came from.
        let db = self.clone();
        async move {
            let (runtime, span) = (CallerRuntime::current(), TransactionSpan::begin(&options));
            let (reply, result) = oneshot::channel();
            let reply = UntilRecorded::new(reply);
            // A worker may drop it that has not begun.
            let body = Contained::new(body);
            db.spawn(move || {
                Box::pin(async move {
                    let attempts = pin!(async move {
                        let span = span.enter();
                        let result = {
                            // Dropped before the caller gets the result.
                            let body = body;
                            attempts(options, &*body).await
                        };
                        span.end(&result);
                        result
                    });
                    let attempts = pin!(runtime.run(attempts));
                    Request::new(attempts, reply).await;
                })
            })?;
            match result.await {
                // Converted here, on the caller's thread: that is the caller's own code.
                Ok(result) => result.map_err(Failed::into_error),
                Err(oneshot::Canceled) => Err(db.ended().into()),
            }
        }
    }

    /// Like [`Database::run`], and blocks this thread until the transaction is over.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.run_blocking(async |tx| tx.create_table("names").await)?;
    /// db.run_blocking(async move |tx| tx.put(&names, &1, "ada").await)?;
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::run`]; [`Misuse::WouldBlock`](crate::Misuse) from within a transaction, where blocking would
    /// stop the worker that is to run it.
    pub fn run_blocking<T, F>(&self, body: F) -> Result<T>
    where
        F: AsyncFn(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_run_blocking(body)
    }

    /// Like [`Database::run_blocking`], for a closure whose error is of a type of its own.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.run_blocking(async |tx| tx.create_table("names").await)?;
    /// let renamed = db.try_run_blocking(async move |tx| {
    ///     let name = tx.get(&names, &1).await?.ok_or_else(|| anyhow::anyhow!("nobody has this number"))?;
    ///     anyhow::ensure!(name != "root", "this one keeps its name");
    ///     Ok(tx.put(&names, &1, "ada").await?)
    /// });
    /// assert_eq!(renamed.unwrap_err().to_string(), "nobody has this number");
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::run_blocking`].
    pub fn try_run_blocking<T, E, F>(&self, body: F) -> Result<T, E>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        super::refuse_on_worker()?;
        super::block_on(self.try_run(body))
    }
}

/// Runs `body` in transactions of this worker, until one commits; its value and the commit LSN.
pub(super) async fn commit_on_worker<T>(
    body: impl AsyncFn(&Transaction) -> Result<T>,
) -> Result<(T, Lsn)> {
    let outcome = attempts(RunOptions::default(), body).await.map_err(Failed::into_error)?;
    Ok((outcome.value, Lsn(outcome.commit_lsn)))
}

/// Runs `body` in a transaction of this worker that only reads; its value and the LSN it read at.
pub(super) async fn read_on_worker<T>(
    body: impl AsyncFn(&Transaction) -> Result<T>,
) -> Result<(T, Lsn)> {
    let options = RunOptions::default().read_only(true);
    let outcome = attempts(options, body).await.map_err(Failed::into_error)?;
    Ok((outcome.value, Lsn(outcome.commit_lsn)))
}

/// Why a transaction failed.
pub(super) enum Failed<E> {
    /// Its closure said so.
    Closure(E),
    /// The engine says so.
    Engine(Error),
}

impl<E: From<Error>> Failed<E> {
    pub(super) fn into_error(self) -> E {
        match self {
            Failed::Closure(error) => error,
            Failed::Engine(error) => error.into(),
        }
    }
}

/// Attempts until one commits, its closure fails for good, or there were enough.
pub(super) async fn attempts<T, E, F>(options: RunOptions, body: F) -> Result<Outcome<T>, Failed<E>>
where
    F: AsyncFn(&Transaction) -> Result<T, E>,
{
    let result = attempt_all(options, body).await;
    sched::hold_after_failure().await;
    result
}

/// What comes of the attempts leaves only when what any of them was told may leave: an error may tell
/// of a record as a value does, and a closure may keep what an earlier attempt read. If the log fails
/// first, its error comes back in place of the closure's. A last [`Error::Conflict`] does not wait for
/// the commit of the transaction that was faster, which may yet abort: it tells nothing of what is
/// there.
async fn attempt_all<T, E, F>(options: RunOptions, body: F) -> Result<Outcome<T>, Failed<E>>
where
    F: AsyncFn(&Transaction) -> Result<T, E>,
{
    let worker = WorkerTransactions::current();
    let mode = options.mode(worker.engine().isolation);
    let Ok(mut begun) = worker.begin_as(mode) else {
        return Err(Failed::Engine(Error::Overloaded));
    };
    let (mut attempt, mut depends_on) = (1, Lsn::ZERO);
    let mut retries = Retries::new(&worker);
    let failed = loop {
        begun.note_lsn(depends_on);
        retries.let_pass(&begun);
        if attempt == options.max_attempts {
            begun.name_conflicts();
        }
        let transaction = Transaction::new(begun, attempt);
        let result = {
            // The closure is called within the future, so that this is contained too.
            let mut future = pin!(Some(async { body(&transaction).await }));
            ContainedFuture::new(future.as_mut()).await
        };
        let core = transaction.into_core();
        depends_on = core.depends_on();
        let failure = match result {
            Err(Panic { message }) => {
                core.set_abort_cause(AbortCause::Panic);
                break Failed::Engine(Error::Panicked(message));
            }
            Ok(Err(error)) => {
                let Some(conflict) = core.lost() else {
                    core.set_abort_cause(AbortCause::Requested);
                    break Failed::Closure(error);
                };
                // The closure failed of the conflict, or passed over it: both must try again.
                drop_contained(error);
                drop(core);
                conflict
            }
            Ok(Ok(value)) => {
                let value = Contained::new(value);
                match outlined(pin!(core.commit())).await {
                    Ok(lsn) => {
                        let value = value.into_inner();
                        return Ok(Outcome { value, attempts: attempt, commit_lsn: lsn.0 });
                    }
                    Err(error) => error,
                }
            }
        };
        let lost = Lost::to(failure).map_err(|error| Failed::Engine(Error::from(error)))?;
        if attempt >= options.max_attempts {
            break Failed::Engine(lost.into_error(attempt));
        }
        let next = NextAttempt::keep(&worker);
        sched::count_failed_attempt();
        retries.stand_back(lost, attempt).await;
        attempt += 1;
        begun = next.begin(mode);
    };
    Err(once_durable(&worker, depends_on, failed).await)
}

/// A failure, once what it may tell is durable; the log's, if it fails before.
pub(super) async fn once_durable<E>(
    worker: &WorkerTransactions,
    depends_on: Lsn,
    failed: Failed<E>,
) -> Failed<E> {
    let failed = Contained::new(failed);
    if !is_planted(Bug::ErrorBeforeDurable)
        && let Err(error) = outlined(pin!(worker.wait_to_answer(depends_on))).await
    {
        return Failed::Engine(error.into());
    }
    failed.into_inner()
}

/// Sends a caller its result, and runs its waker. The caller may just have dropped its future: then the
/// result is dropped.
pub(super) fn send<T>(reply: oneshot::Sender<T>, result: T) {
    if let Err(panic) = contain(|| drop_contained(reply.send(result))) {
        report_waker(&panic);
    }
}

#[cold]
#[inline(never)]
fn report_waker(panic: &Panic) {
    tracing::error!("the waker of a transaction's caller panicked: {}", panic.message);
}

/// The attempts at a request, given up as soon as its caller has dropped it.
pub(super) struct Request<'r, F: Future<Output: 'static>> {
    attempts: Pin<&'r mut F>,
    reply: Option<UntilRecorded<oneshot::Sender<F::Output>>>,
    /// Whether the caller's going will wake this request.
    watched: bool,
}

impl<'r, F: Future<Output: 'static>> Request<'r, F> {
    pub(super) fn new(
        attempts: Pin<&'r mut F>,
        reply: UntilRecorded<oneshot::Sender<F::Output>>,
    ) -> Self {
        Self { attempts, reply: Some(reply), watched: false }
    }
}

impl<F: Future<Output: 'static>> Future for Request<'_, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let reply = self.reply.as_ref().expect("polled until ready");
        // Before the first poll too: what nobody waits for any more is not begun.
        if reply.is_canceled() {
            return Poll::Ready(());
        }
        if let Poll::Ready(result) = self.attempts.as_mut().poll(cx) {
            let reply = self.reply.take().expect("polled until ready");
            send(reply.into_inner(), result);
            return Poll::Ready(());
        }
        if !self.watched {
            self.watched = true;
            // The slot's waker stays good for all later polls, so once is enough.
            let reply = self.reply.as_mut().expect("polled until ready");
            if reply.poll_canceled(cx).is_ready() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }
}
