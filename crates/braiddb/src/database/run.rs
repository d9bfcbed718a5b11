//! Running a closure as a transaction: attempts, retries, panics, cancellation.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_channel::oneshot;

use super::Database;
use super::error::{Error, Result};
use super::options::{Outcome, RunOptions};
use super::transaction::Transaction;
use crate::sched::{self, Cause};
use crate::transaction::{AbortCause, OperationError, Worker};

impl Database {
    /// Runs `body` as one transaction on some worker, and commits it.
    ///
    /// `body` may run several times: after a conflict it is aborted and run again, up to a bound.
    /// Its own error aborts and comes back unchanged. A panic in it aborts this transaction alone.
    /// Dropping the returned future aborts, unless the commit is already decided. The future can
    /// be awaited on any executor.
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
    ///         Ok::<_, Error>(count)
    ///     })
    ///     .await?;
    /// assert_eq!(count, 1);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The closure's own; [`Error::Conflict`] after the last attempt; [`Error::Panicked`];
    /// [`Error::Closed`]; [`Error::Log`] if the log had failed: nothing of the transaction is there.
    /// [`Error::CommitUnknown`] if the log failed during the commit: the transaction may be there
    /// or not, and is not run again.
    pub fn run<T, E, F>(&self, body: F) -> impl Future<Output = Result<T, E>> + Send + use<T, E, F>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let run = self.run_with(RunOptions::default(), body);
        async move { Ok(run.await?.value) }
    }

    /// Like [`Database::run`], and reports attempts and commit LSN.
    ///
    /// # Errors
    /// As [`Database::run`].
    pub fn run_with<T, E, F>(
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
            let (reply, result) = oneshot::channel();
            db.spawn(move || {
                Box::pin(async move {
                    let attempts = pin!(attempts(options, body));
                    Request { attempts, reply: Some(reply), watched: false }.await;
                })
            })?;
            match result.await {
                Ok(result) => result,
                Err(oneshot::Canceled) => Err(Error::Closed.into()),
            }
        }
    }

    /// Like [`Database::run`], and blocks this thread until the transaction is over.
    ///
    /// # Errors
    /// As [`Database::run`]; [`Error::Options`] from within a transaction, where blocking would
    /// stop the worker that is to run it.
    pub fn run_blocking<T, E, F>(&self, body: F) -> Result<T, E>
    where
        F: AsyncFn(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        super::refuse_on_worker()?;
        super::block_on(self.run(body))
    }
}

/// Attempts until one commits, its closure fails for good, or there were enough.
pub(super) async fn attempts<T, E, F>(options: RunOptions, body: F) -> Result<Outcome<T>, E>
where
    F: AsyncFn(&Transaction) -> Result<T, E>,
    E: From<Error>,
{
    let worker = Worker::current();
    let mut attempt = 1;
    loop {
        let core = worker.begin().map_err(|_| E::from(Error::Overloaded))?;
        let transaction = Transaction::new(core, attempt);
        let result = Unwinding(pin!(body(&transaction))).await;
        let core = transaction.into_core();
        match result {
            Err(panic) => {
                core.blame(AbortCause::Panic);
                return Err(Error::Panicked(panic).into());
            }
            Ok(Err(error)) if !core.is_conflicted() => {
                core.blame(AbortCause::Requested);
                return Err(error);
            }
            // The closure failed of the conflict, or passed over it: both must try again.
            Ok(Err(_)) => drop(core),
            Ok(Ok(value)) => match core.commit().await {
                Ok(lsn) => return Ok(Outcome { value, attempts: attempt, commit_lsn: lsn.0 }),
                Err(OperationError::Conflict) => {}
                Err(error) => return Err(Error::from(error).into()),
            },
        }
        if attempt >= options.max_attempts {
            return Err(Error::Conflict { attempts: attempt }.into());
        }
        worker.counters().retries.add(1);
        back_off(attempt).await;
        attempt += 1;
    }
}

/// Lets others run for a random while that doubles with each attempt.
async fn back_off(attempt: u32) {
    const MOST_DOUBLINGS: u32 = 12;
    for _ in 0..fastrand::u32(0..1 << attempt.min(MOST_DOUBLINGS)) {
        sched::yield_now(Cause::Undecided).await;
    }
}

/// A closure's future; a panic in it comes back as its message.
pub(super) struct Unwinding<'f, F>(pub(super) Pin<&'f mut F>);

impl<F: Future> Future for Unwinding<'_, F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // A future that panicked is not polled again, only dropped; and what it shares with the
        // engine is in order whenever it can panic, because the engine's own code does not.
        match std::panic::catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(message(&*payload))),
        }
    }
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The attempts at a request, given up as soon as its caller has dropped it.
struct Request<'r, F: Future> {
    attempts: Pin<&'r mut F>,
    reply: Option<oneshot::Sender<F::Output>>,
    /// Whether the caller's going will wake this request.
    watched: bool,
}

impl<F: Future> Future for Request<'_, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let reply = self.reply.as_ref().expect("polled until ready");
        if self.watched && reply.is_canceled() {
            return Poll::Ready(());
        }
        if let Poll::Ready(result) = self.attempts.as_mut().poll(cx) {
            let reply = self.reply.take().expect("polled until ready");
            // The caller may just have gone; then nobody is left to tell.
            _ = reply.send(result);
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
