//! Interactive transactions: steps come one by one, from any thread, with any delay between them.
//! `interactive/records.rs` has the operations on records.
//!
//! The transaction occupies a slot of a worker and waits on a channel for its next step. Each step
//! is a closure that runs on that worker.

mod records;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_core::Stream;

use super::error::{Error, Result, TransactionEnd};
use super::handle::Database;
use super::transaction::Transaction;
use super::transaction_builder::{TransactionBuilder, TransactionOptions};
use super::workers::{NeedsWorkers, Workers, ended, send};
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sched::{
    self, BlockingProbe, CallerRuntime, Contained, ContainedFuture, Failure, Panic, UntilRecorded,
    UserFailure,
};
use crate::sync::{OnceLock, async_queue, clock, oneshot};
use crate::transaction::{AbortCause, Engine, InteractivePermit, WorkerTransactions};

type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
/// Runs a step and sends the result to its caller. Returns `false` if the step panicked.
type Step = Box<dyn for<'a> FnOnce(&'a Transaction) -> LocalFuture<'a, bool> + Send>;

enum InteractiveRequest {
    Step(Step),
    Commit(oneshot::Sender<Result<u64>>),
    Abort(oneshot::Sender<()>),
}

/// Returns the answer of a step after everything the transaction has read is durable, or the log's
/// error if the log fails first.
async fn once_durable<A>(transaction: &Transaction, answer: Contained<Result<A>>) -> Result<A> {
    if !is_planted(Bug::StepBeforeDurable) {
        transaction.core().wait_to_answer().await?;
    }
    answer.into_inner()
}

/// A transaction whose operations come one by one, from any thread. [`Database::begin`] returns it.
///
/// Each operation returns only after everything the transaction has read is durable (see
/// [`Durability`](crate::Durability)). An operation that reads a record waits for the commit that
/// wrote the record; other operations do not wait.
///
/// The transaction aborts if the caller drops it or leaves it open for too long
/// ([`Options::interactive_idle`](crate::Options), [`Options::interactive_age`](crate::Options)).
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let table: Table<str, u64> = db.open_or_create_table("stock").await?;
///         let transaction = db.begin().await?;
///         transaction.put(&table, "apples", &3).await?;
///         assert_eq!(transaction.get(&table, "apples").await?, Some(3));
///         transaction.commit().await?;
///         Ok(())
///     })
/// }
/// ```
#[derive(Debug)]
pub struct InteractiveTransaction {
    requests: async_queue::UnboundedSender<InteractiveRequest>,
    failure: Arc<Failure>,
    expired: Arc<OnceLock<ExpiredLimit>>,
}

/// The option whose limit a transaction exceeded, and that limit.
#[derive(Clone, Copy, Debug)]
struct ExpiredLimit {
    option: &'static str,
    limit: Duration,
}

impl From<ExpiredLimit> for Error {
    fn from(ExpiredLimit { option, limit }: ExpiredLimit) -> Self {
        Error::TransactionEnded(TransactionEnd::Expired { option, limit })
    }
}

/// Limits on how long a transaction may be open. Without limits it reads no clock.
struct OpenLimits<'e> {
    engine: &'e Engine,
    /// Start of the transaction, if its age is limited.
    begun: Option<Instant>,
}

impl<'e> OpenLimits<'e> {
    /// Returns the limits of a transaction that begins now.
    fn begin(engine: &'e Engine) -> Self {
        Self { engine, begun: engine.interactive_age.map(|_| clock::now()) }
    }

    /// Returns the deadline of the next step, and the limit that it exceeds then.
    fn expiry(&self) -> Option<(Instant, ExpiredLimit)> {
        // A deadline beyond the clock's range is no deadline.
        let moment = |since: Instant, option, limit: Duration| {
            Some((since.checked_add(limit)?, ExpiredLimit { option, limit }))
        };
        let Engine { interactive_idle, interactive_age, .. } = self.engine;
        let idle =
            interactive_idle.and_then(|limit| moment(clock::now(), "interactive_idle", limit));
        let age = self.begun.zip(*interactive_age);
        let age = age.and_then(|(begun, limit)| moment(begun, "interactive_age", limit));
        [idle, age].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

/// Waits for the next request. Returns the exceeded limit if none comes in time, and `None` if the
/// user has dropped the transaction.
async fn next_request(
    worker: &WorkerTransactions,
    inbox: &mut async_queue::UnboundedReceiver<InteractiveRequest>,
    expiry: Option<(Instant, ExpiredLimit)>,
) -> Result<Option<InteractiveRequest>, ExpiredLimit> {
    let waiter = sched::current_foreign_waiter().await;
    let timer = expiry.map(|(at, expired)| (worker.timers.set(at, waiter), expired));
    poll_fn(|context| {
        // A request that has arrived runs, even after the deadline.
        if let Poll::Ready(request) = Pin::new(&mut *inbox).poll_next(context) {
            return Poll::Ready(Ok(request));
        }
        match &timer {
            Some((timer, expired)) if timer.is_over() => Poll::Ready(Err(*expired)),
            _ => Poll::Pending,
        }
    })
    .await
}

impl Database {
    /// Begins an interactive transaction: its operations come one by one, from any thread.
    ///
    /// [`TransactionBuilder::begin`] sets options. If the caller drops the future, no transaction
    /// remains open.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let carts: Table<str, u64> = db.create_table("carts").await?;
    ///         let tx = db.begin().await?;
    ///         tx.put(&carts, "ada", &1).await?;
    ///         // Other transactions do not see the record yet.
    ///         assert_eq!(db.get(&carts, "ada").await?, None);
    ///         tx.commit().await?;
    ///         assert_eq!(db.get(&carts, "ada").await?, Some(1));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`]. [`Error::Overloaded`], without waiting, if the worker already has
    /// [`Tuning::max_open`](crate::Tuning::max_open) open transactions.
    pub async fn begin(&self) -> Result<InteractiveTransaction> {
        self.transaction().begin().await
    }

    /// Begins a read-only transaction without time limits. Returns it and its begin stamp.
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub(super) async fn begin_unlimited(&self) -> Result<(InteractiveTransaction, Lsn)> {
        self.shared.workers.begin_unlimited().await
    }
}

impl TransactionBuilder {
    /// Begins an interactive transaction like [`Database::begin`], with the options of this
    /// builder.
    ///
    /// A conflict ends the transaction; the caller decides whether to begin another one.
    ///
    /// ```
    /// use braiddb::{Database, Error, Misuse, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let carts: Table<str, u64> = db.create_table("carts").await?;
    ///         let tx = db.transaction().read_only(true).begin().await?;
    ///         db.put(&carts, "ada", &1).await?;
    ///         // The transaction reads the state in which it began.
    ///         assert_eq!(tx.get(&carts, "ada").await?, None);
    ///         let refused = tx.put(&carts, "ada", &2).await;
    ///         assert!(matches!(refused, Err(Error::Misuse(Misuse::ReadOnlyTransaction))));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub async fn begin(self) -> Result<InteractiveTransaction> {
        let shared = &self.db.shared;
        Ok(shared.workers.begin(self.options, true).await?.0)
    }
}

impl Workers {
    /// As [`Database::begin_unlimited`].
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub(super) async fn begin_unlimited(&self) -> Result<(InteractiveTransaction, Lsn)> {
        self.begin(TransactionOptions::READ_ONLY, false).await
    }

    async fn begin(
        &self,
        options: TransactionOptions,
        limited: bool,
    ) -> Result<(InteractiveTransaction, Lsn)> {
        let (requests, inbox) = async_queue::unbounded();
        let (reply, begun) = oneshot::channel();
        let (inbox, reply) = (UntilRecorded::new(inbox), UntilRecorded::new(reply));
        let expired = Arc::new(OnceLock::new());
        let at_expiry = expired.clone();
        let begin = async {
            self.spawn(move || Box::pin(serve((options, limited), inbox, reply, at_expiry)))?;
            begun.await.map_err(|oneshot::Canceled| self.ended())?
        };
        let begin = NeedsWorkers::new(self.probe(), begin).await?;
        let failure = self.failure().clone();
        Ok((InteractiveTransaction { requests, failure, expired }, begin))
    }
}

/// The worker's side of an interactive transaction.
async fn serve(
    (options, limited): (TransactionOptions, bool),
    mut inbox: UntilRecorded<async_queue::UnboundedReceiver<InteractiveRequest>>,
    begun: UntilRecorded<oneshot::Sender<Result<Lsn>>>,
    at_expiry: Arc<OnceLock<ExpiredLimit>>,
) {
    let worker = WorkerTransactions::current();
    let place = InteractivePermit::take(&worker);
    // Counted before it begins, so that no task waits for it unknowingly.
    let _counted = (!limited).then(|| worker.engine().count_snapshot());
    let mode = options.mode(worker.engine());
    let Ok((_place, core)) = place.and_then(|place| Ok((place, worker.begin_as(mode)?))) else {
        send(begun.into_inner(), Err(Error::Overloaded));
        return;
    };
    core.name_conflicts();
    let begin = core.begin();
    core.take_time();
    let mut transaction = Transaction::new(core, 1);
    send(begun.into_inner(), Ok(begin));
    let limits = limited.then(|| OpenLimits::begin(worker.engine()));
    loop {
        let expiry = limits.as_ref().and_then(OpenLimits::expiry);
        let request = next_request(&worker, &mut inbox, expiry).await;
        sched::hold_after_failure().await;
        let request = match request {
            Ok(request) => request,
            Err(expired) => {
                // Set before the channel closes: a caller that finds it closed reads this.
                at_expiry.get_or_init(|| expired);
                transaction.core().set_abort_cause(AbortCause::Expired);
                return;
            }
        };
        match request {
            // The user dropped the transaction, which closes the channel: abort.
            None => return,
            Some(InteractiveRequest::Step(step)) => {
                if !step(&transaction).await {
                    transaction.core().set_abort_cause(AbortCause::Panic);
                    return;
                }
                // Frees the values that the step read; the transaction may stay open for long.
                transaction.core_mut().free_copies();
            }
            Some(InteractiveRequest::Commit(reply)) => {
                let reply = UntilRecorded::new(reply);
                let committed = transaction.into_core().commit().await;
                sched::hold_after_failure().await;
                let committed = committed.map(|lsn| lsn.0).map_err(Error::from);
                send(reply.into_inner(), committed);
                return;
            }
            Some(InteractiveRequest::Abort(reply)) => {
                let reply = UntilRecorded::new(reply);
                transaction.core().set_abort_cause(AbortCause::Requested);
                transaction.into_core().abort().await;
                sched::hold_after_failure().await;
                send(reply.into_inner(), ());
                return;
            }
        }
    }
}

impl InteractiveTransaction {
    /// Runs a closure on the transaction's worker, as one step.
    ///
    /// Dropping the future after its first poll does not cancel the step: it runs before later
    /// steps, and only its result is lost. The same holds for all operations of this type.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         let table = names.clone();
    ///         let before = transaction
    ///             .step(async move |tx| {
    ///                 let before = tx.get(&table, &1).await?.map(str::to_owned);
    ///                 tx.put(&table, &1, "ada").await?;
    ///                 Ok(before)
    ///             })
    ///             .await?;
    ///         assert_eq!(before, None);
    ///         transaction.commit().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// - The error of `step`. The transaction stays open.
    /// - [`Error::Panicked`] if `step` panicked. This ends the transaction.
    /// - [`TransactionEnd::Expired`](crate::TransactionEnd) if no step came for too long.
    /// - [`Error::Io`] if the log fails before the answer is durable.
    /// - [`TransactionEnd::Finished`](crate::TransactionEnd) if an earlier step panicked or the database is closed.
    /// - [`Error::Failed`].
    pub async fn step<T, F>(&self, step: F) -> Result<T>
    where
        F: AsyncFnOnce(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_step(step).await
    }

    /// Like [`InteractiveTransaction::step`], for a closure with its own error type
    /// `E: From<Error>`.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// #[derive(Debug)]
    /// enum Refused {
    ///     NoSuchPerson,
    ///     Database(Error),
    /// }
    ///
    /// impl From<Error> for Refused {
    ///     fn from(error: Error) -> Self {
    ///         Self::Database(error)
    ///     }
    /// }
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         let found = transaction
    ///             .try_step(async move |tx| {
    ///                 let name = tx.get(&names, &1).await?.ok_or(Refused::NoSuchPerson)?;
    ///                 Ok::<_, Refused>(name.to_owned())
    ///             })
    ///             .await;
    ///         assert!(matches!(found, Err(Refused::NoSuchPerson)));
    ///         transaction.abort().await?;
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`InteractiveTransaction::step`].
    pub async fn try_step<T, E, F>(&self, step: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let runtime = CallerRuntime::current();
        let (reply, result) = oneshot::channel();
        let (step, reply) = (Contained::new(step), UntilRecorded::new(reply));
        let step: Step = Box::new(move |transaction| {
            Box::pin(async move {
                let mut future = pin!(None);
                let step = step.into_inner();
                let make = move || step(transaction);
                let result = ContainedFuture::new(&runtime, future.as_mut(), make).await;
                let result = match result.map_err(|failure| *failure) {
                    Ok(value) => Ok(Ok(value)),
                    Err(UserFailure::Error(error)) => Ok(Err(error)),
                    Err(UserFailure::Panic(Panic { message })) => Err(Error::Panicked(message)),
                };
                let over = result.is_err();
                let answer = once_durable(transaction, Contained::new(result)).await;
                sched::hold_after_failure().await;
                send(reply.into_inner(), answer);
                !over
            })
        });
        // Converted on the caller's thread: `E::from` is user code.
        self.request(InteractiveRequest::Step(step), result).await??
    }

    /// Sends a request, and returns its reply.
    async fn request<A>(
        &self,
        request: InteractiveRequest,
        reply: oneshot::Receiver<A>,
    ) -> Result<A> {
        let replied = async {
            self.requests.unbounded_send(request).map_err(|_| self.over())?;
            reply.await.map_err(|oneshot::Canceled| self.over())
        };
        NeedsWorkers::new(BlockingProbe::new(&self.failure), replied).await
    }

    /// Returns the reason why the transaction answers no more requests.
    fn over(&self) -> Error {
        if let Some(&expired) = self.expired.get() {
            return expired.into();
        }
        match ended(&self.failure) {
            Error::Closed => Error::TransactionEnded(TransactionEnd::Finished),
            failed => failed,
        }
    }

    /// Commits the transaction. Returns the LSN at which it committed, or at which it read if it
    /// wrote nothing.
    ///
    /// Dropping the future after its first poll does not cancel the commit; only its result is
    /// lost.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         transaction.put(&names, &1, "ada").await?;
    ///         transaction.commit().await?;
    ///         assert_eq!(db.get(&names, &1).await?.as_deref(), Some("ada"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// - Nothing of the transaction is stored: [`Error::Conflict`] if one of its steps met a
    ///   conflict, [`Error::NotSerializable`] if another transaction changed a record that it read,
    ///   [`TransactionEnd::Finished`](crate::TransactionEnd) if it had ended, [`Error::Io`] if the log had failed.
    /// - The transaction may be stored or not: [`Error::CommitUnknown`] if the log failed during
    ///   the commit, or [`Error::Failed`].
    pub async fn commit(self) -> Result<u64> {
        let (reply, result) = oneshot::channel();
        self.request(InteractiveRequest::Commit(reply), result).await?
    }

    /// Aborts the transaction: none of its writes is stored.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         let transaction = db.begin().await?;
    ///         transaction.put(&names, &1, "ada").await?;
    ///         transaction.abort().await?;
    ///         assert!(db.is_empty(&names).await?);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// [`TransactionEnd::Finished`](crate::TransactionEnd) if it had ended; [`Error::Failed`].
    pub async fn abort(self) -> Result<()> {
        let (reply, result) = oneshot::channel();
        self.request(InteractiveRequest::Abort(reply), result).await
    }
}
