//! Bulk operations: loads and changes of any size to paged tables, all or nothing, without memory for versions.

use std::pin::{Pin, pin};
use std::sync::Arc;

use super::error::{BusyWith, Error, Misuse, Result};
use super::options::{Outcome, RunOptions};
use super::run::{Failed, Request, once_durable};
use super::table::Table;
use super::transaction::Transaction;
use super::{Database, refuse_on_worker};
use crate::record::Records;
use crate::sched::{self, CallerRuntime, Contained, ContainedFuture, Panic, UntilRecorded};
use crate::sync::oneshot;
use crate::transaction::{AbortCause, CannotBegin, WorkerTransactions};

/// Tables that a bulk operation changes: one, some in an array, a slice or a vector, or a tuple of tables of several types.
pub trait BulkTables: sealed::Listed {}

impl<T: sealed::Listed + ?Sized> BulkTables for T {}

mod sealed {
    use super::{Arc, Records, Table};

    /// Lists tables.
    pub trait Listed {
        #[doc(hidden)]
        fn list(&self, tables: &mut Vec<ListedTable>);
    }

    /// A table that is listed.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct ListedTable {
        pub(super) name: Arc<str>,
        pub(super) records: Arc<Records>,
    }

    impl<K: ?Sized, V: ?Sized> Listed for Table<K, V> {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            let (name, records) = (self.name.clone(), self.core.clone());
            tables.push(ListedTable { name, records });
        }
    }

    impl<T: Listed + ?Sized> Listed for &T {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            (**self).list(tables);
        }
    }

    impl<T: Listed> Listed for [T] {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            self.iter().for_each(|table| table.list(tables));
        }
    }

    impl<T: Listed, const N: usize> Listed for [T; N] {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            self.as_slice().list(tables);
        }
    }

    impl<T: Listed> Listed for Vec<T> {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            self.as_slice().list(tables);
        }
    }

    macro_rules! tuples {
        ($($name:ident)+) => {
            impl<$($name: Listed),+> Listed for ($($name,)+) {
                #[expect(non_snake_case, reason = "each is called as its type")]
                fn list(&self, tables: &mut Vec<ListedTable>) {
                    let ($($name,)+) = self;
                    $($name.list(tables);)+
                }
            }
        };
    }

    tuples! { A }
    tuples! { A B }
    tuples! { A B C }
    tuples! { A B C D }
    tuples! { A B C D E }
    tuples! { A B C D E F }
    tuples! { A B C D E F G }
    tuples! { A B C D E F G H }
}

use sealed::ListedTable;

/// The future of a bulk operation: boxed, so that it keeps nothing of how its tables were listed.
type BulkRun<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Database {
    /// Runs `body` as a bulk operation on some [paged](crate::TableOptions::paged) tables, and commits it: a load, or
    /// changes, of any size. It is a transaction as those of [`Database::run`], which sees and does what they do, with these
    /// differences:
    ///
    /// - What it writes to these tables takes no memory for versions, and is logged as it is written. All of it is there in
    ///   the end, also after a crash, or nothing.
    /// - Others read these tables meanwhile, as of their own beginning, and do not write them: who tries is refused with
    ///   [`BusyWith::BulkOperation`](crate::BusyWith), and [`Database::run`] tries again. It begins once those who have written
    ///   are over, and when all transactions see what the bulk operation before it on a table did.
    /// - `body` runs once: an error of the engine's ends it.
    /// - It has no savepoints to roll back to.
    /// - Until it is over, tables that it lists are not dropped, and their indexes neither created nor dropped
    ///   ([`BusyWith::TableChange`](crate::BusyWith)).
    /// - A serializable transaction that has read any of such a table and writes cannot commit after it.
    /// - A change feed gives it as one transaction, all of whose changes it has in memory then.
    ///
    /// Values that it reads one by one stay in memory until it is over; read many with [`Transaction::scan`]. Other tables it
    /// writes as any transaction does. Dropping the future aborts it, unless its commit is already decided.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let squares: Table<u64, u64> =
    ///     db.create_table_with("squares", TableOptions::default().paged()).await?;
    /// let table = squares.clone();
    /// db.run_bulk(&squares, async move |tx| {
    ///     for n in 0..10_000 {
    ///         tx.insert(&table, &n, &(n * n)).await?;
    ///     }
    ///     Ok(())
    /// })
    /// .await?;
    /// assert_eq!(db.get(&squares, &99).await?, Some(9801));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The closure's; [`Misuse::NotPaged`](crate::Misuse); [`BusyWith::TableChange`](crate::BusyWith); [`Error::Conflict`] and [`Error::NotSerializable`], for what it
    /// did to other tables; [`Misuse::WouldBlock`](crate::Misuse) from within a transaction, which it might wait for; as [`Database::run`].
    pub fn run_bulk<T, F>(&self, tables: impl BulkTables, body: F) -> BulkRun<Result<T>>
    where
        F: AsyncFnOnce(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let run = self.try_run_bulk_with(RunOptions::default(), tables, body);
        Box::pin(async move { Ok(run.await?.value) })
    }

    /// Like [`Database::run_bulk`], for a closure whose error is of a type of its own, which the engine's converts to; with
    /// options, of which isolation counts; and reports the commit LSN.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Isolation, Options, RunOptions, Table, TableOptions};
    /// # pollster::block_on(async {
    /// # let db = Database::in_memory(Options::default().workers(1))?;
    /// let [a, b]: [Table<u64, u64>; 2] = [
    ///     db.create_table_with("a", TableOptions::default().paged()).await?,
    ///     db.create_table_with("b", TableOptions::default().paged()).await?,
    /// ];
    /// let (first, second) = (a.clone(), b.clone());
    /// let options = RunOptions::default().isolation(Isolation::Snapshot);
    /// let copied = db.try_run_bulk_with(options, [&a, &b], async move |tx| {
    ///     let mut scan = tx.scan(&first, ..)?;
    ///     while let Some((key, value)) = scan.next().await? {
    ///         tx.put(&second, &key, &value).await?;
    ///     }
    ///     Ok::<_, Error>(())
    /// });
    /// assert!(copied.await?.commit_lsn > 0);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::run_bulk`]; [`Misuse::ReadOnlyTransaction`](crate::Misuse) at the first write if the options say so.
    pub fn try_run_bulk_with<T, E, F>(
        &self,
        options: RunOptions,
        tables: impl BulkTables,
        body: F,
    ) -> BulkRun<Result<Outcome<T>, E>>
    where
        F: AsyncFnOnce(&Transaction) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let mut listed = Vec::new();
        tables.list(&mut listed);
        let db = self.clone();
        Box::pin(async move {
            refuse_on_worker()?;
            let tables = db.check_bulk_tables(listed)?;
            let runtime = CallerRuntime::current();
            let (reply, result) = oneshot::channel();
            let reply = UntilRecorded::new(reply);
            // A worker may drop it that has not begun.
            let body = Contained::new(body);
            db.spawn(move || {
                Box::pin(async move {
                    let operation = pin!(async move {
                        let result = run_on_worker(options, tables, body).await;
                        sched::hold_after_failure().await;
                        result
                    });
                    let attempts = pin!(runtime.run(operation));
                    Request::new(attempts, reply).await;
                })
            })?;
            match result.await {
                // Converted here, on the caller's thread: that is the caller's own code.
                Ok(result) => result.map_err(Failed::into_error),
                Err(oneshot::Canceled) => Err(db.ended().into()),
            }
        })
    }

    fn check_bulk_tables(&self, listed: Vec<ListedTable>) -> Result<Vec<Arc<Records>>> {
        self.refuse_if_read_only()?;
        let each = listed.into_iter().map(|ListedTable { name, records }| {
            if !self.shared.engine.owns(&records) {
                return Err(Error::Misuse(Misuse::ForeignTable(name.to_string())));
            }
            if records.paged().is_none() {
                return Err(Error::Misuse(Misuse::NotPaged(name.to_string())));
            }
            Ok(records)
        });
        each.collect()
    }
}

/// Why an operation does not begin, as its caller is told.
fn cannot_begin(why: CannotBegin) -> Error {
    match why {
        CannotBegin::IndexBusy(table) => {
            Error::Busy(BusyWith::TableChange { table: table.to_string() })
        }
        CannotBegin::Gone(table) => Error::TableNotFound(table.to_string()),
        CannotBegin::Log(error) => error.into(),
        CannotBegin::Closing => Error::Closed,
    }
}

/// Carries a bulk operation out. As of transactions, an error leaves only when what the operation was told may leave.
async fn run_on_worker<T, E, F>(
    options: RunOptions,
    tables: Vec<Arc<Records>>,
    body: Contained<F>,
) -> Result<Outcome<T>, Failed<E>>
where
    F: AsyncFnOnce(&Transaction) -> Result<T, E>,
{
    let worker = WorkerTransactions::current();
    let failed = |error: Error| Failed::Engine(error);
    let gates = worker.close_gates(tables).await.map_err(|why| failed(cannot_begin(why)))?;
    let mode = options.mode(worker.engine().isolation);
    let begun = worker.begin_bulk(mode, gates).map_err(|_| failed(Error::Overloaded))?;
    begun.name_conflicts();
    let transaction = Transaction::new(begun, 1);
    let result = {
        let body = body.into_inner();
        // The closure is called within the future, so that this is contained too.
        let mut future = pin!(Some(async { body(&transaction).await }));
        ContainedFuture::new(future.as_mut()).await
    };
    let core = transaction.into_core();
    let depends_on = core.depends_on();
    let failed = match result {
        Err(Panic { message }) => {
            core.set_abort_cause(AbortCause::Panic);
            Failed::Engine(Error::Panicked(message))
        }
        Ok(Err(error)) => {
            core.set_abort_cause(AbortCause::Requested);
            Failed::Closure(error)
        }
        Ok(Ok(value)) => {
            let value = Contained::new(value);
            match core.commit().await {
                Ok(lsn) => {
                    worker.counters().bulk_operations.add(1);
                    let value = value.into_inner();
                    return Ok(Outcome { value, attempts: 1, commit_lsn: lsn.0 });
                }
                Err(error) => return Err(Failed::Engine(error.into())),
            }
        }
    };
    drop(core);
    Err(once_durable(&worker, depends_on, failed).await)
}
