//! Handle of an open database.

use std::path::PathBuf;
use std::sync::Arc;

use super::blocking::refuse_on_worker;
use super::changes::Slots;
use super::error::{Error, Result};
use super::maintenance::Maintenance;
use super::recovery::Recovery;
use super::socket::Socket;
use super::workers::{Workers, ended};
use crate::sched::{self, Executor};
use crate::transaction::{Engine, GuestWriters};

/// An open database. Handles are cheap to clone and work from any thread.
///
/// Dropping the last handle closes the database like [`Database::close`]. On a worker thread (in a
/// closure, an input of a source, or a destructor that runs there) the drop returns immediately:
/// the workers end the open transactions, and the last worker releases the directory.
///
/// | to run | use |
/// |---|---|
/// | a transaction | [`run`](Database::run), [`try_run`](Database::try_run), [`run_on`](Database::run_on), [`run_blocking`](Database::run_blocking) |
/// | a transaction with options, or to learn its commit LSN | [`transaction`](Database::transaction) |
/// | one operation | [`get`](Database::get), [`put`](Database::put), [`scan`](Database::scan), … |
/// | a transaction that spans requests | [`begin`](Database::begin) |
/// | reads as of one moment | [`snapshot`](Database::snapshot) |
/// | one transaction for each input | [`run_source`](Database::run_source) |
/// | a change to many records of a paged table | [`run_bulk`](Database::run_bulk) |
///
/// # Dropped futures
/// The caller may drop the future of any method before it is ready, for example after a timeout. A
/// future that was never polled has no effect.
///
/// - **Transactions** ([`Database::run`], single operations such as [`Database::put`], and methods
///   that create, open or rename tables) abort, unless the commit is already decided. The result is
///   all or nothing.
/// - **[`Database::begin`] and [`Database::snapshot`]** leave no transaction and no
///   [`Snapshot`](crate::Snapshot) open. [`Database::stage_table`] discards the table, as dropping the
///   [`StagedTable`](crate::StagedTable) does.
/// - **Reads** ([`Database::tables`], [`Database::table_contents`], [`Database::indexes`],
///   [`Database::change_slots`]) have no effect.
/// - **Maintenance and long operations** document their own behaviour. Most of them continue.
///
/// [`Transaction`](crate::Transaction) and
/// [`InteractiveTransaction::step`](crate::InteractiveTransaction::step) describe dropped futures
/// within a transaction.
#[derive(Clone)]
pub struct Database {
    pub(in crate::database) shared: Arc<Shared>,
    /// Its transactions may write although writes are restricted (`restriction.rs`).
    pub(in crate::database) may_write: bool,
}

/// State that all handles share. Fields are dropped in order: workers before the data they use.
pub(super) struct Shared {
    pub(in crate::database) executor: Executor,
    pub(in crate::database) workers: Workers,
    pub(in crate::database) guests: Arc<GuestWriters>,
    pub(in crate::database) engine: Arc<Engine>,
    pub(in crate::database) slots: Arc<Slots>,
    pub(in crate::database) recovery: Recovery,
    pub(in crate::database) socket: OwnedSocket,
}

/// The socket of a database, which ends with it.
pub(super) struct OwnedSocket(pub(super) Arc<Socket>);

impl Drop for OwnedSocket {
    fn drop(&mut self) {
        // A worker cannot wait for a thread that may be waiting for a worker.
        if !sched::on_worker() {
            self.0.join();
        }
    }
}

impl Shared {
    /// Returns access to maintenance that does not keep the database open.
    pub(super) fn maintenance(&self) -> Maintenance {
        Maintenance::new(self.engine.clone(), self.workers.clone())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.engine.checkpoints.stop();
        self.engine.watch.end();
        self.socket.0.close();
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({} workers)", self.shared.engine.workers())
    }
}

impl Database {
    /// Runs a job on some worker.
    pub(super) fn spawn(
        &self,
        job: impl FnOnce() -> std::pin::Pin<Box<dyn Future<Output = ()>>> + Send + 'static,
    ) -> Result<()> {
        self.shared.workers.spawn(job)
    }

    /// Returns the reason why the workers have stopped.
    pub(in crate::database) fn ended(&self) -> Error {
        ended(&self.shared.engine.failure)
    }

    /// Closes the database: ends its transactions, flushes the log, and releases the directory.
    ///
    /// Blocks until everything has ended, including checks and backups. After that the directory
    /// can be opened again or removed, even if handles remain. Calls on these handles fail with
    /// [`Error::Closed`]; [`Database::stats`] still works. Closing twice is not an error. Dropping
    /// the last handle also closes the database, and blocks in the same way, also in an async
    /// function. An async program therefore closes it on a thread that may block:
    /// `tokio::task::spawn_blocking(move || db.close()).await`.
    ///
    /// No new transaction begins, and sources take no more inputs. Open transactions may finish,
    /// and `close` waits for the disk however long that takes. A transaction aborts if it waits for
    /// something outside the engine (another transaction, or the next step of an interactive
    /// transaction), still or again waits 200 to 400 ms later, and did not wait for the engine's
    /// disk in between.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let directory = tempfile::tempdir().unwrap();
    ///         let db = Database::open(directory.path(), Options::default())?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         db.close()?;
    ///         assert!(matches!(db.put(&names, &2, "bob").await, Err(Error::Closed)));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Io`] if the log failed before everything was on disk.
    /// - [`Error::Failed`].
    /// - [`Misuse::WouldBlock`](crate::Misuse) if a transaction calls it.
    pub fn close(&self) -> Result<()> {
        refuse_on_worker()?;
        // Before the workers stop, which flush what guests have logged.
        self.shared.guests.close();
        self.shared.engine.checkpoints.stop();
        self.shared.engine.watch.end();
        self.shared.socket.0.close();
        self.shared.executor.stop();
        self.shared.socket.0.join();
        if let failed @ Error::Failed { .. } = self.ended() {
            return Err(failed);
        }
        match self.shared.engine.log.poisoned() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Returns the path of the local socket on which the database listens, or `None` if it does not
    /// listen ([`Options::socket`](crate::Options::socket)).
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     assert_eq!(db.socket_path()?, None);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] with the reason why the socket could not be created.
    pub fn socket_path(&self) -> Result<Option<PathBuf>> {
        Ok(self.shared.socket.0.path()?)
    }

    /// Adds a line to the answer to `stats` requests at the local socket, such as those of `braid
    /// top`: the state of a layer above the engine, for example a replication. `name` is a word that
    /// begins the line, and `describe` returns the rest. It must be fast, and must hold no handle of
    /// the database. A later call replaces the line.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let db = Database::in_memory(Options::default().workers(1))?;
    ///     db.describe_layer("replication", || "{\"followers\": 2}".to_owned());
    ///     Ok(())
    /// }
    /// ```
    pub fn describe_layer(
        &self,
        name: &str,
        describe: impl Fn() -> String + Send + Sync + 'static,
    ) {
        self.shared.socket.0.set_layer(name, Arc::new(describe));
    }
}
