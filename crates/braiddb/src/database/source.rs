//! Typed sources: streams of transactions of one kind, whose futures are stored unboxed in their
//! slots.
//!
//! A source serves stored procedures and benchmarks, which run millions of transactions a second:
//! no request crosses threads, and a transaction allocates nothing.

use std::rc::Rc;
use std::sync::Arc;

use super::blocking::{block_on, refuse_on_worker};
use super::error::{Error, Misuse, Result};
use super::handle::Database;
use super::run::{Body, attempts};
use super::span::TransactionSpan;
use super::transaction::Transaction;
use super::transaction_builder::{
    Outcome, TransactionBuilder, TransactionFailure, TransactionOptions,
};
use super::workers::{NeedsWorkers, ended};
use crate::sched::{
    self, BlockingProbe, CallerRuntime, Contained, Failure, Panic, UntilRecorded, contain,
};
use crate::sync::OnceLock;
use crate::transaction::WorkerTransactions;

/// A running source. [`Database::run_source`] returns it.
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let sums: Table<u64, u64> = db.create_table("sums").await?;
///         let add = async move |tx: &braiddb::Transaction, number: &u64| {
///             tx.put(&sums, number, &0).await
///         };
///         let first = db.run_source(0, 0..100, add.clone())?;
///         let second = db.run_source(0, 100..200, add)?;
///         first.done().await?;
///         // On a thread that may block.
///         second.wait()?;
///         Ok(())
///     })
/// }
/// ```
#[derive(Debug)]
#[must_use = "`done` and `wait` return the failure of a source"]
pub struct SourceRun {
    done: sched::SourceHandle,
    first_error: Arc<OnceLock<Error>>,
    failure: Arc<Failure>,
}

impl SourceRun {
    /// Waits until the last transaction of the source ends. If the caller drops the future, the
    /// source continues.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, Transaction, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let sums: Table<u64, u64> = db.create_table("sums").await?;
    ///         let table = sums.clone();
    ///         let insert =
    ///             async move |tx: &Transaction, number: &u64| tx.insert(&table, number, &0).await;
    ///         db.run_source(0, 0..100, insert.clone())?.done().await?;
    ///         assert_eq!(db.len(&sums).await?, 100);
    ///         // The first error ends the source.
    ///         let again = db.run_source(0, 99..200, insert)?.done().await;
    ///         assert!(matches!(again, Err(Error::KeyExists(_))));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// - The first error of a transaction, or a panic in the inputs' iterator or in `reply`. The
    ///   source begins no transaction after it.
    /// - [`Error::Closed`] if the database closed before the source took its last input, or while a
    ///   transaction waited for something outside the engine.
    /// - [`Error::Failed`].
    pub async fn done(self) -> Result<()> {
        let Self { done, first_error, failure } = self;
        let done = async {
            let done = done.done().await;
            if let Some(error) = first_error.get() {
                return Err(error.clone());
            }
            done.map_err(|sched::ExecutorClosed| ended(&failure))
        };
        NeedsWorkers::new(BlockingProbe::new(&failure), done).await
    }

    /// Blocks the calling thread until the last transaction of the source ends.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, Transaction};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let sums: Table<u64, u64> = db.run_blocking(async |tx| tx.create_table("sums").await)?;
    ///     let table = sums.clone();
    ///     let insert =
    ///         async move |tx: &Transaction, number: &u64| tx.insert(&table, number, &0).await;
    ///     db.run_source(0, 0..100, insert)?.wait()?;
    ///     assert_eq!(db.run_blocking(async move |tx| tx.count(&sums, ..).await)?, 100);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`SourceRun::done`]; [`Misuse::WouldBlock`](crate::Misuse) from within a transaction.
    pub fn wait(self) -> Result<()> {
        refuse_on_worker()?;
        block_on(self.done())
    }
}

/// State that the transactions of one source share on their worker.
struct Procedure<F, R> {
    options: TransactionOptions,
    worker: Rc<WorkerTransactions>,
    runtime: CallerRuntime,
    body: Contained<F>,
    reply: Contained<R>,
    /// Only the first is reported.
    first_error: Arc<OnceLock<Error>>,
    failure: Arc<Failure>,
}

impl<F, R> Procedure<F, R> {
    #[inline(always)]
    fn reply<I, T>(&self, input: I, result: Result<Outcome<T>, Box<TransactionFailure<Error>>>)
    where
        R: Fn(I, Result<Outcome<T>>) -> Result<()>,
    {
        self.runtime.enter();
        let reply = || (self.reply)(input, result.map_err(|failure| failure.into_error()));
        match contain(reply) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.fail(error),
            Err(panic) => self.fail(panicked(panic)),
        }
    }

    #[cold]
    fn fail(&self, error: Error) {
        // Only the first is reported.
        _ = self.first_error.set(error);
    }
}

/// The closure of a source, and the input of one transaction.
struct ClosureWithInput<'c, F, I>(&'c F, &'c I);

impl<T, F, I> Body<T, Error> for ClosureWithInput<'_, F, I>
where
    F: AsyncFn(&Transaction, &I) -> Result<T>,
{
    #[inline(always)]
    fn attempt(&self, transaction: &Transaction) -> impl Future<Output = Result<T>> {
        (self.0)(transaction, self.1)
    }
}

fn panicked(Panic { message }: Panic) -> Error {
    Error::Panicked(message)
}

/// An input that the source took. It receives exactly one reply: the result of its transaction, or
/// the reason why the worker dropped it.
struct DrawnInput<I, T, F, R>
where
    R: Fn(I, Result<Outcome<T>>) -> Result<()>,
{
    input: Option<I>,
    procedure: Rc<Procedure<F, R>>,
    result: std::marker::PhantomData<fn() -> T>,
}

impl<I, T, F, R> DrawnInput<I, T, F, R>
where
    R: Fn(I, Result<Outcome<T>>) -> Result<()>,
{
    fn new(input: I, procedure: Rc<Procedure<F, R>>) -> Self {
        Self { input: Some(input), procedure, result: std::marker::PhantomData }
    }

    fn input(&self) -> &I {
        self.input.as_ref().expect("not replied to yet")
    }

    #[cold]
    #[inline(never)]
    fn reply_dropped(&self, input: I) {
        let ended = TransactionFailure::Engine(ended(&self.procedure.failure));
        self.procedure.reply(input, Err(Box::new(ended)));
    }

    #[inline(always)]
    fn reply(mut self, result: Result<Outcome<T>, Box<TransactionFailure<Error>>>) {
        let input = self.input.take().expect("not replied to yet");
        self.procedure.reply(input, result);
    }
}

impl<I, T, F, R> Drop for DrawnInput<I, T, F, R>
where
    R: Fn(I, Result<Outcome<T>>) -> Result<()>,
{
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(input) = self.input.take() {
            self.reply_dropped(input);
        }
    }
}

impl Database {
    /// Runs `body` as one transaction for each item of `inputs`, interleaved on one worker.
    ///
    /// A stored procedure or a benchmark runs millions of transactions a second this way: no
    /// request crosses threads, and a transaction allocates nothing. The source retries conflicts
    /// without limit and ends at the first other error. After [`Error::CommitUnknown`] that
    /// transaction may be stored or not; it does not run again. Closing the database ends the
    /// source: it takes no more inputs, and its open transactions end.
    ///
    /// [`TransactionBuilder::run_source`] sets options and reports each transaction.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     let table: Table<u64, u64> = db.run_blocking(async |tx| tx.create_table("sums").await)?;
    ///     let sums = table.clone();
    ///     let source = db.run_source(0, 0..1000, async move |tx, number| {
    ///         tx.put(&sums, number, &(number * 2)).await
    ///     })?;
    ///     source.wait()?;
    ///     assert_eq!(db.run_blocking(async move |tx| tx.get(&table, &21).await)?, Some(42));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Misuse::NoSuchWorker`](crate::Misuse) if the database has no worker of this number.
    pub fn run_source<I, F>(&self, worker: usize, inputs: I, body: F) -> Result<SourceRun>
    where
        I: IntoIterator<Item: 'static, IntoIter: 'static> + Send + 'static,
        F: AsyncFn(&Transaction, &I::Item) -> Result<()> + Send + 'static,
    {
        let reply = |_, result: Result<Outcome<()>>| result.map(drop);
        self.transaction().run_source(worker, inputs, body, reply)
    }
}

impl TransactionBuilder {
    /// Runs a source like [`Database::run_source`], with the isolation level of this builder or
    /// read-only, and calls `reply` at the end of each transaction.
    ///
    /// `reply` runs on the worker's thread. It receives the input and the result that
    /// [`TransactionBuilder::run`] would have returned. It runs once for every input that the
    /// source took, also if a closing or failed database drops the transaction ([`Error::Closed`],
    /// [`Error::Failed`]). If `reply` returns an error or panics, the source ends, and
    /// [`SourceRun::done`] returns that error.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use braiddb::{Database, Error, Isolation, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let sums: Table<u64, u64> = db.create_table("sums").await?;
    ///         let committed = Arc::new(AtomicU64::new(0));
    ///         let (table, counted) = (sums.clone(), committed.clone());
    ///         let source = db.transaction().isolation(Isolation::Snapshot).run_source(
    ///             0,
    ///             0..1000,
    ///             async move |tx, number| tx.put(&table, number, &(number * 2)).await,
    ///             move |_number, result| {
    ///                 result?;
    ///                 counted.fetch_add(1, Ordering::Relaxed);
    ///                 Ok(())
    ///             },
    ///         )?;
    ///         source.done().await?;
    ///         assert_eq!(committed.load(Ordering::Relaxed), 1000);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run_source`].
    pub fn run_source<I, T, F, R>(
        self,
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
        let Self { db, options } = self;
        let options = TransactionOptions { max_attempts: u32::MAX, ..options };
        let workers = db.shared.engine.workers();
        if worker >= workers {
            let last = workers - 1;
            return Err(Misuse::NoSuchWorker { worker, last }.into());
        }
        let runtime = CallerRuntime::current();
        let first_error = Arc::new(OnceLock::new());
        let failure = db.shared.engine.failure.clone();
        let (body, reply) = (Contained::new(body), Contained::new(reply));
        let inputs = Contained::new(inputs);
        let (first, engine_failure) = (first_error.clone(), failure.clone());
        let source = move || {
            let (first_error, failure) = (first, engine_failure);
            let worker = WorkerTransactions::current();
            let procedure =
                Rc::new(Procedure { options, worker, body, reply, runtime, first_error, failure });
            let mut inputs = match contain(|| inputs.into_inner().into_iter()) {
                Ok(inputs) => Some(Contained::new(inputs)),
                Err(panic) => {
                    _ = procedure.first_error.set(panicked(panic));
                    None
                }
            };
            let draw = move || {
                if procedure.first_error.get().is_some() {
                    return None;
                }
                let inputs = inputs.as_mut()?;
                let input = contain(|| inputs.next()).unwrap_or_else(|panic| {
                    // Only the first is reported.
                    _ = procedure.first_error.set(panicked(panic));
                    None
                })?;
                Some(UntilRecorded::new(DrawnInput::new(input, procedure.clone())))
            };
            sched::FromFn(draw, |drawn: UntilRecorded<DrawnInput<_, _, F, R>>| async move {
                let result = {
                    let Procedure { options, worker, runtime, body, .. } = &*drawn.procedure;
                    let body = ClosureWithInput(&**body, drawn.input());
                    let span = TransactionSpan::begin(*options).enter();
                    let result = attempts(*options, worker, runtime, body).await;
                    span.end(&result);
                    result
                };
                drawn.into_inner().reply(result);
            })
        };
        let done = db.shared.executor.run_source(worker, source);
        let done = done.map_err(|sched::ExecutorClosed| ended(&failure))?;
        Ok(SourceRun { done, first_error, failure })
    }
}
