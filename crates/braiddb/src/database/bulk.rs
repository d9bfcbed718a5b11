//! Bulk operations: atomic loads and changes of any size to paged tables, without memory for
//! versions.

use std::pin::{Pin, pin};
use std::sync::Arc;

use super::blocking::refuse_on_worker;
use super::error::{BusyWith, Error, MissingTable, Misuse, Result};
use super::handle::Database;
use super::run::{Request, once_durable};
use super::table::Table;
use super::transaction::Transaction;
use super::transaction_builder::{
    Outcome, TransactionBuilder, TransactionFailure, TransactionOptions,
};
use crate::record::{PagedRecords, Records};
use crate::sched::{
    self, CallerRuntime, Contained, ContainedFuture, Panic, UntilRecorded, UserFailure,
};
use crate::sync::oneshot;
use crate::transaction::{AbortCause, CannotBegin, WorkerTransactions};

/// Tables that a bulk operation changes: one table; an array, a slice or a vector of tables; or a
/// tuple of tables of several types.
pub trait BulkTables: sealed::ListTables {}

impl<T: sealed::ListTables + ?Sized> BulkTables for T {}

mod sealed {
    use super::{Arc, Records, Table};

    /// Lists tables.
    pub trait ListTables {
        #[doc(hidden)]
        fn list(&self, tables: &mut Vec<ListedTable>);
    }

    /// An entry of the table list.
    #[doc(hidden)]
    #[derive(Debug)]
    pub struct ListedTable {
        pub(super) name: Arc<str>,
        pub(super) records: Arc<Records>,
    }

    impl<K: ?Sized, V: ?Sized> ListTables for Table<K, V> {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            let (name, records) = (self.name.clone(), self.core.clone());
            tables.push(ListedTable { name, records });
        }
    }

    impl<T: ListTables + ?Sized> ListTables for &T {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            (**self).list(tables);
        }
    }

    impl<T: ListTables> ListTables for [T] {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            self.iter().for_each(|table| table.list(tables));
        }
    }

    impl<T: ListTables, const N: usize> ListTables for [T; N] {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            self.as_slice().list(tables);
        }
    }

    impl<T: ListTables> ListTables for Vec<T> {
        fn list(&self, tables: &mut Vec<ListedTable>) {
            self.as_slice().list(tables);
        }
    }

    macro_rules! tuples {
        ($($name:ident)+) => {
            impl<$($name: ListTables),+> ListTables for ($($name,)+) {
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

/// The future of a bulk operation. It is boxed, so its type does not depend on how the tables were
/// listed.
type BulkRun<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Database {
    /// Runs `body` as one bulk operation of any size on [paged](crate::TableOptions::paged) tables,
    /// and commits it. `body` uses a transaction as in [`Database::run`], with these differences:
    ///
    /// - Writes to the listed tables need no memory for versions and are logged immediately. The
    ///   operation is atomic, also across a crash.
    /// - Other transactions can read these tables at the same time; they see the state at their own
    ///   start. Their writes to these tables fail with [`BusyWith::BulkOperation`](crate::BusyWith), and
    ///   [`Database::run`] retries them.
    /// - The operation starts after all transactions that wrote these tables have ended. It also
    ///   waits until every transaction sees the previous bulk operation on each table.
    /// - `body` runs once: an error of the engine ends it.
    /// - The transaction has no savepoints.
    /// - Until it ends, its tables cannot be dropped, and their indexes can be neither created nor
    ///   dropped ([`BusyWith::TableChange`](crate::BusyWith)).
    /// - A serializable transaction that read one of these tables and also writes cannot commit
    ///   after it.
    /// - A change feed returns it as one transaction and holds all of its changes in memory.
    ///
    /// Values read one by one stay in memory until the operation ends; use [`Transaction::scan`]
    /// for large reads. Writes to tables that are not listed work as in any transaction. Dropping
    /// the future aborts the operation, unless its commit is already decided.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let squares: Table<u64, u64> =
    ///             db.create_table_with("squares", TableOptions::default().paged()).await?;
    ///         let table = squares.clone();
    ///         db.run_bulk(&squares, async move |tx| {
    ///             for n in 0..10_000 {
    ///                 tx.insert(&table, &n, &(n * n)).await?;
    ///             }
    ///             Ok(())
    ///         })
    ///         .await?;
    ///         assert_eq!(db.get(&squares, &99).await?, Some(9801));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The error of the closure; [`Misuse::NotPaged`](crate::Misuse); [`BusyWith::TableChange`](crate::BusyWith); [`Error::Conflict`] and
    /// [`Error::NotSerializable`] because of its accesses to other tables; [`Misuse::WouldBlock`](crate::Misuse) if
    /// called within a transaction, because it might wait for that transaction; the errors of
    /// [`Database::run`].
    pub fn run_bulk<T, F>(&self, tables: impl BulkTables, body: F) -> BulkRun<Result<T>>
    where
        F: AsyncFnOnce(&Transaction) -> Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let run = self.transaction().try_run_bulk(tables, body);
        Box::pin(async move { Ok(run.await?.value) })
    }

    fn check_bulk_tables(&self, listed: Vec<ListedTable>) -> Result<Vec<Arc<PagedRecords>>> {
        self.refuse_if_read_only()?;
        let each = listed.into_iter().map(|ListedTable { name, records }| {
            if !self.shared.engine.owns(&records) {
                return Err(Error::Misuse(Misuse::ForeignTable(name.to_string())));
            }
            self.refuse_if_restricted(&name)?;
            records.into_paged().ok_or_else(|| Error::Misuse(Misuse::NotPaged(name.to_string())))
        });
        each.collect()
    }
}

impl TransactionBuilder {
    /// Runs a bulk operation like [`Database::run_bulk`], with the isolation level of this builder
    /// and a closure with its own error type, and reports the commit LSN.
    ///
    /// ```
    /// use braiddb::{Database, Error, Isolation, Options, Table, TableOptions, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let [a, b]: [Table<u64, u64>; 2] = [
    ///             db.create_table_with("a", TableOptions::default().paged()).await?,
    ///             db.create_table_with("b", TableOptions::default().paged()).await?,
    ///         ];
    ///         let (first, second) = (a.clone(), b.clone());
    ///         let snapshot = db.transaction().isolation(Isolation::Snapshot);
    ///         let copied = snapshot.try_run_bulk([&a, &b], async move |tx| {
    ///             let mut scan = tx.scan(&first, ..)?;
    ///             while let Some((key, value)) = scan.next().await? {
    ///                 tx.put(&second, &key, &value).await?;
    ///             }
    ///             Ok::<_, Error>(())
    ///         });
    ///         assert!(copied.await?.commit_lsn > 0);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`Database::run_bulk`]; [`Misuse::ReadOnlyTransaction`](crate::Misuse) at the first write of a read-only
    /// transaction.
    pub fn try_run_bulk<T, E, F>(
        self,
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
        let Self { db, options } = self;
        Box::pin(async move {
            refuse_on_worker()?;
            let tables = db.check_bulk_tables(listed)?;
            let runtime = CallerRuntime::current();
            let (reply, result) = oneshot::channel();
            let reply = UntilRecorded::new(reply);
            // A worker may drop this body before it starts.
            let body = Contained::new(body);
            db.spawn(move || {
                Box::pin(async move {
                    let operation = pin!(async {
                        let result = run_on_worker(options, &runtime, tables, body).await;
                        sched::hold_after_failure().await;
                        result
                    });
                    Request::new(&runtime, operation, reply).await;
                })
            })?;
            match result.await {
                // The conversion is the caller's code, so it runs on the caller's thread.
                Ok(result) => result.map_err(TransactionFailure::into_error),
                Err(oneshot::Canceled) => Err(db.ended().into()),
            }
        })
    }
}

/// Converts the reason why an operation cannot start into the caller's error.
fn cannot_begin(why: CannotBegin) -> Error {
    match why {
        CannotBegin::IndexBusy(table) => {
            Error::Busy(BusyWith::TableChange { table: table.to_string() })
        }
        CannotBegin::Gone(table) => MissingTable::new(&*table).into(),
        CannotBegin::Log(error) => error.into(),
        CannotBegin::Closing => Error::Closed,
    }
}

/// Runs a bulk operation on a worker. It returns an error only when everything the operation read
/// is durable, as for transactions.
async fn run_on_worker<T, E, F>(
    options: TransactionOptions,
    runtime: &CallerRuntime,
    tables: Vec<Arc<PagedRecords>>,
    body: Contained<F>,
) -> Result<Outcome<T>, TransactionFailure<E>>
where
    F: AsyncFnOnce(&Transaction) -> Result<T, E>,
{
    let worker = WorkerTransactions::current();
    let failed = |error: Error| TransactionFailure::Engine(error);
    let gates = worker.close_gates(tables).await.map_err(|why| failed(cannot_begin(why)))?;
    let mode = options.mode(worker.engine());
    let begun = worker.begin_bulk(mode, gates).map_err(|_| failed(Error::Overloaded))?;
    begun.name_conflicts();
    let transaction = Transaction::new(begun, 1);
    let result = {
        let (body, mut future) = (body.into_inner(), pin!(None));
        ContainedFuture::new(runtime, future.as_mut(), || body(&transaction)).await
    };
    let core = transaction.into_core();
    let depends_on = core.depends_on();
    let failed = match result.map_err(|failure| *failure) {
        Err(UserFailure::Panic(Panic { message })) => {
            core.set_abort_cause(AbortCause::Panic);
            TransactionFailure::Engine(Error::Panicked(message))
        }
        Err(UserFailure::Error(error)) => {
            core.set_abort_cause(AbortCause::Requested);
            TransactionFailure::Closure(error)
        }
        Ok(value) => {
            let value = Contained::new(value);
            match core.commit().await {
                Ok(lsn) => {
                    worker.counters().bulk_operations.add(1);
                    let value = value.into_inner();
                    let (attempts, commit_lsn, depends_on) = (1, lsn.0, 0);
                    return Ok(Outcome { value, attempts, commit_lsn, depends_on });
                }
                Err(error) => return Err(TransactionFailure::Engine(error.into())),
            }
        }
    };
    let failed = Contained::new(failed);
    core.abort().await;
    Err(once_durable(&worker, depends_on, failed.into_inner()).await)
}
