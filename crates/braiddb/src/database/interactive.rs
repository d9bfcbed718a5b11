//! Transactions whose steps come one by one, from any thread, with any time between them. What they do to records is in
//! `interactive/records.rs`.
//!
//! The transaction itself lives in a slot of a worker and waits there, on a channel, for its next
//! step; each step is a closure that runs on that worker.

mod records;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_core::Stream;

use super::Database;
use super::error::{Error, Result};
use super::options::RunOptions;
use super::run::send;
use super::transaction::Transaction;
use super::workers::Workers;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sched::{
    self, CallerRuntime, Contained, ContainedFuture, Failure, Panic, UntilRecorded,
};
use crate::sync::{OnceLock, async_queue, clock, oneshot};
use crate::transaction::{AbortCause, Engine, InteractivePermit, Mode, WorkerTransactions};

type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;
/// Runs a step and sends its caller the result; `false` if it panicked.
type Step = Box<dyn for<'a> FnOnce(&'a Transaction) -> LocalFuture<'a, bool> + Send>;

enum Request {
    Step(Step),
    Commit(oneshot::Sender<Result<u64>>),
    Abort(oneshot::Sender<()>),
}

/// A step's answer, once it may leave: when what the transaction was told so far is durable. If the
/// log fails before, its error is the answer.
async fn once_durable<A>(transaction: &Transaction, answer: Contained<Result<A>>) -> Result<A> {
    if !is_planted(Bug::StepBeforeDurable) {
        transaction.core().wait_to_answer().await?;
    }
    answer.into_inner()
}

/// A transaction whose steps may come from any thread, one after the other.
///
/// Each step's answer leaves only when what the transaction was told so far is durable, as a
/// finished transaction's result does (see [`Durability`](crate::Durability)): a step that reads
/// what others have just committed waits for their commits, any other step for nothing.
///
/// Dropping it aborts it; so does leaving it open for too long ([`Options::interactive_idle`](crate::Options),
/// [`Options::interactive_age`](crate::Options)).
///
/// ```
/// # use braiddb::{Database, Error, Options, Table};
/// # pollster::block_on(async {
/// let db = Database::in_memory(Options::default().workers(1))?;
/// let table: Table<str, u64> = db.open_or_create_table("stock").await?;
/// let transaction = db.begin().await?;
/// transaction.put(&table, "apples", &3).await?;
/// assert_eq!(transaction.get(&table, "apples").await?, Some(3));
/// transaction.commit().await?;
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct InteractiveTransaction {
    requests: async_queue::UnboundedSender<Request>,
    failure: Arc<Failure>,
    expired: Arc<OnceLock<Expired>>,
}

/// The option beyond which a transaction was open, and its value.
#[derive(Clone, Copy, Debug)]
struct Expired {
    option: &'static str,
    limit: Duration,
}

impl From<Expired> for Error {
    fn from(Expired { option, limit }: Expired) -> Self {
        Error::TransactionExpired { option, limit }
    }
}

/// How long a transaction may be open. Where that is not bounded no clock is looked at.
struct Limits<'e> {
    engine: &'e Engine,
    /// When the transaction began, if its age is bounded.
    begun: Option<Instant>,
}

impl<'e> Limits<'e> {
    /// Of a transaction that begins now.
    fn begin(engine: &'e Engine) -> Self {
        Self { engine, begun: engine.interactive_age.map(|_| clock::now()) }
    }

    /// Until when the next step may come, and what is exceeded then.
    fn expiry(&self) -> Option<(Instant, Expired)> {
        // A moment that no clock reaches is none.
        let moment = |since: Instant, option, limit: Duration| {
            Some((since.checked_add(limit)?, Expired { option, limit }))
        };
        let Engine { interactive_idle, interactive_age, .. } = self.engine;
        let idle =
            interactive_idle.and_then(|limit| moment(clock::now(), "interactive_idle", limit));
        let age = self.begun.zip(*interactive_age);
        let age = age.and_then(|(begun, limit)| moment(begun, "interactive_age", limit));
        [idle, age].into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

/// The next request, or what is exceeded if none comes in time; `None` when the user has dropped the
/// transaction.
async fn next_request(
    worker: &WorkerTransactions,
    inbox: &mut async_queue::UnboundedReceiver<Request>,
    expiry: Option<(Instant, Expired)>,
) -> Result<Option<Request>, Expired> {
    let waiter = sched::current_foreign_waiter().await;
    let timer = expiry.map(|(at, expired)| (worker.timers.set(at, waiter), expired));
    poll_fn(|context| {
        // A request that has come is carried out, however late it is looked at.
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
    /// Begins a transaction whose steps come one by one. If the future is dropped, none is left.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let carts: Table<str, u64> = db.create_table("carts").await?;
    /// let tx = db.begin().await?;
    /// tx.put(&carts, "ada", &1).await?;
    /// // Nobody else sees it yet.
    /// assert_eq!(db.get(&carts, "ada").await?, None);
    /// tx.commit().await?;
    /// assert_eq!(db.get(&carts, "ada").await?, Some(1));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Overloaded`] at once, if the worker has as many open as it may have
    /// ([`Tuning::max_open`](crate::Tuning::max_open)).
    pub async fn begin(&self) -> Result<InteractiveTransaction> {
        self.begin_with(RunOptions::default()).await
    }

    /// As [`Database::begin`], for a transaction that only reads: it refuses to write
    /// ([`Error::ReadOnly`]), and never fails because of others.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let carts: Table<str, u64> = db.create_table("carts").await?;
    /// let tx = db.begin_read_only().await?;
    /// db.put(&carts, "ada", &1).await?;
    /// // As it was when it began.
    /// assert_eq!(tx.get(&carts, "ada").await?, None);
    /// assert!(matches!(tx.put(&carts, "ada", &2).await, Err(Error::ReadOnly)));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub async fn begin_read_only(&self) -> Result<InteractiveTransaction> {
        self.begin_with(RunOptions::default().read_only(true)).await
    }

    /// As [`Database::begin`], with options; how often it is attempted is the caller's.
    ///
    /// ```
    /// use braiddb::{Database, Error, Isolation, Options, RunOptions, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// let options = RunOptions::default().isolation(Isolation::Snapshot);
    /// let transaction = db.begin_with(options).await?;
    /// transaction.put(&names, &1, "ada").await?;
    /// transaction.commit().await?;
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub async fn begin_with(&self, options: RunOptions) -> Result<InteractiveTransaction> {
        let mode = options.mode(self.shared.engine.isolation);
        Ok(self.shared.workers.begin(mode, true).await?.0)
    }

    /// A transaction that only reads, and that only its user ends; and its begin stamp.
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub(super) async fn begin_unlimited(&self) -> Result<(InteractiveTransaction, Lsn)> {
        self.shared.workers.begin_unlimited().await
    }
}

impl Workers {
    /// As [`Database::begin_unlimited`].
    ///
    /// # Errors
    /// As [`Database::begin`].
    pub(super) async fn begin_unlimited(&self) -> Result<(InteractiveTransaction, Lsn)> {
        self.begin(Mode::ReadOnly, false).await
    }

    async fn begin(&self, mode: Mode, limited: bool) -> Result<(InteractiveTransaction, Lsn)> {
        let (requests, inbox) = async_queue::unbounded();
        let (reply, begun) = oneshot::channel();
        let (inbox, reply) = (UntilRecorded::new(inbox), UntilRecorded::new(reply));
        let expired = Arc::new(OnceLock::new());
        let at_expiry = expired.clone();
        self.spawn(move || Box::pin(serve((mode, limited), inbox, reply, at_expiry)))?;
        let begin = begun.await.map_err(|oneshot::Canceled| self.ended())??;
        let failure = self.failure().clone();
        Ok((InteractiveTransaction { requests, failure, expired }, begin))
    }
}

/// The worker's side of an interactive transaction.
async fn serve(
    (mode, limited): (Mode, bool),
    mut inbox: UntilRecorded<async_queue::UnboundedReceiver<Request>>,
    begun: UntilRecorded<oneshot::Sender<Result<Lsn>>>,
    at_expiry: Arc<OnceLock<Expired>>,
) {
    let worker = WorkerTransactions::current();
    let place = InteractivePermit::take(&worker);
    let Ok((_place, core)) = place.and_then(|place| Ok((place, worker.begin_as(mode)?))) else {
        send(begun.into_inner(), Err(Error::Overloaded));
        return;
    };
    core.name_conflicts();
    let begin = core.begin();
    core.take_time();
    let mut transaction = Transaction::new(core, 1);
    send(begun.into_inner(), Ok(begin));
    let limits = limited.then(|| Limits::begin(worker.engine()));
    let _counted = (!limited).then(|| worker.engine().count_snapshot());
    loop {
        let expiry = limits.as_ref().and_then(Limits::expiry);
        let request = next_request(&worker, &mut inbox, expiry).await;
        sched::hold_after_failure().await;
        let request = match request {
            Ok(request) => request,
            Err(expired) => {
                // Before the channel closes, so that whoever finds it closed finds this.
                at_expiry.get_or_init(|| expired);
                transaction.core().set_abort_cause(AbortCause::Expired);
                return;
            }
        };
        match request {
            // The channel closes when the user drops the transaction: that aborts it.
            None => return,
            Some(Request::Step(step)) => {
                if !step(&transaction).await {
                    transaction.core().set_abort_cause(AbortCause::Panic);
                    return;
                }
                // What it was handed is not kept until the end, which may be far.
                transaction.core_mut().free_copies();
            }
            Some(Request::Commit(reply)) => {
                let reply = UntilRecorded::new(reply);
                let committed = transaction.into_core().commit().await;
                sched::hold_after_failure().await;
                let committed = committed.map(|lsn| lsn.0).map_err(Error::from);
                send(reply.into_inner(), committed);
                return;
            }
            Some(Request::Abort(reply)) => {
                let reply = UntilRecorded::new(reply);
                transaction.core().set_abort_cause(AbortCause::Requested);
                drop(transaction);
                send(reply.into_inner(), ());
                return;
            }
        }
    }
}

impl InteractiveTransaction {
    /// Runs `step` on the transaction's worker, as one of its steps.
    ///
    /// Not to be dropped lightly: the future of this method, and of those below, hands the step to the
    /// worker when it is first polled. If it is dropped later the step is carried out all the same,
    /// before those that follow, and only its result is lost.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// let transaction = db.begin().await?;
    /// let table = names.clone();
    /// let before = transaction
    ///     .step(async move |tx| {
    ///         let before = tx.get(&table, &1).await?.map(str::to_owned);
    ///         tx.put(&table, &1, "ada").await?;
    ///         Ok(before)
    ///     })
    ///     .await?;
    /// assert_eq!(before, None);
    /// transaction.commit().await?;
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The step's own, after which the transaction goes on; [`Error::Panicked`] if it panicked, which
    /// ends the transaction; [`Error::TransactionExpired`] if it was aborted because no step came for too long;
    /// [`Error::Log`] in the place of either if the log fails before the answer
    /// may leave; [`Error::TransactionOver`] if it is over, because an earlier step panicked
    /// or the database was closed; [`Error::Failed`].
    pub async fn step<T, F>(&self, step: F) -> Result<T>
    where
        F: AsyncFnOnce(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        self.try_step(step).await
    }

    /// Like [`InteractiveTransaction::step`], for a step whose error is of a type of its own, which the
    /// engine's converts to.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
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
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// let transaction = db.begin().await?;
    /// let found = transaction
    ///     .try_step(async move |tx| {
    ///         let name = tx.get(&names, &1).await?.ok_or(Refused::NoSuchPerson)?;
    ///         Ok::<_, Refused>(name.to_owned())
    ///     })
    ///     .await;
    /// assert!(matches!(found, Err(Refused::NoSuchPerson)));
    /// transaction.abort().await?;
    /// # Ok::<_, Error>(()) }).unwrap();
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
                let step = async move { step.into_inner()(transaction).await };
                let mut step = pin!(Some(step));
                let step = pin!(ContainedFuture::new(step.as_mut()));
                let result = runtime.run(step).await;
                let over = result.is_err();
                let result = result.map_err(|Panic { message }| Error::Panicked(message));
                let answer = once_durable(transaction, Contained::new(result)).await;
                sched::hold_after_failure().await;
                send(reply.into_inner(), answer);
                !over
            })
        });
        self.send(Request::Step(step))?;
        match result.await {
            // Converted here, on the caller's thread: that is the caller's own code.
            Ok(answer) => answer?,
            Err(oneshot::Canceled) => Err(self.over().into()),
        }
    }

    fn send(&self, request: Request) -> Result<()> {
        self.requests.unbounded_send(request).map_err(|_| self.over())
    }

    /// Why no answer comes.
    fn over(&self) -> Error {
        if let Some(&expired) = self.expired.get() {
            return expired.into();
        }
        match super::ended(&self.failure) {
            Error::Closed => Error::TransactionOver,
            failed => failed,
        }
    }

    /// Commits; returns the LSN that it committed at, or if it wrote nothing the LSN it read at. If the future is dropped after
    /// its first poll, the transaction commits or fails all the same, without an error.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// let transaction = db.begin().await?;
    /// transaction.put(&names, &1, "ada").await?;
    /// transaction.commit().await?;
    /// assert_eq!(db.get(&names, &1).await?.as_deref(), Some("ada"));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`] if one of its steps met one; [`Error::NotSerializable`] if others have changed
    /// what it read; [`Error::TransactionOver`] if it was over
    /// already; [`Error::Log`] if the log had failed; after these nothing of the transaction is there.
    /// [`Error::CommitUnknown`] if the log failed during the commit, and [`Error::Failed`]: the
    /// transaction may be there or not.
    pub async fn commit(self) -> Result<u64> {
        let (reply, result) = oneshot::channel();
        self.send(Request::Commit(reply))?;
        result.await.map_err(|oneshot::Canceled| self.over())?
    }

    /// Aborts.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// let transaction = db.begin().await?;
    /// transaction.put(&names, &1, "ada").await?;
    /// transaction.abort().await?;
    /// assert!(db.is_empty(&names).await?);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::TransactionOver`] if it was over already; [`Error::Failed`].
    pub async fn abort(self) -> Result<()> {
        let (reply, result) = oneshot::channel();
        self.send(Request::Abort(reply))?;
        result.await.map_err(|oneshot::Canceled| self.over())
    }
}
