//! Public interface of the engine: opening and closing, typed tables, transactions, errors. It is
//! the top one of the layers:
//!
#![cfg_attr(doc, doc = concat!("<div>", include_str!("../../docs/layers.svg"), "</div>\n"))]

mod bulk;
mod catalog;
mod change;
mod changes;
mod contents;
mod drop;
mod encode;
mod error;
mod expiry;
#[cfg(any(doc, doctest))]
pub mod guide;
mod index;
mod interactive;
mod keys;
mod load;
mod memory_budget;
#[cfg(feature = "metrics")]
mod metrics;
mod options;
mod read_only;
mod recovery;
mod retry;
mod run;
mod run_on;
mod savepoint;
mod scan;
mod single;
mod single_range;
mod snapshot;
mod source;
mod span;
mod stage;
mod stats;
mod table;
mod table_options;
mod tables;
#[cfg(all(test, not(loom)))]
mod tests;
mod trace;
mod transaction;
mod transaction_builder;
mod tuning;
mod unfold;
#[cfg(feature = "experiment")]
mod unversioned;
mod upkeep;
mod weak;
mod workers;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

pub use crate::record::EncodedKey;
pub use bulk::BulkTables;
pub use catalog::TableDescription;
use changes::Slots;
pub use changes::{
    Change, ChangeKind, ChangeSlot, ChangeToken, ChangeTransaction, Changes, ChangesFrom,
    FeedTable, TokenError,
};
pub use contents::TableContents;
pub use error::{
    BusyWith, ChangesError, Contended, Error, ErrorKind, IndexError, MemoryLimit, Misuse, Result,
    TransactionEnd,
};
pub use index::{
    Index, IndexDescription, IndexEntries, IndexKeys, IndexOptions, IndexProgress, IndexScan,
    IndexStage,
};
pub use interactive::InteractiveTransaction;
pub use keys::Keys;
pub use memory_budget::MemoryBudget;
use memory_budget::{ResolvedBudget, RingSize};
pub use options::Options;
pub use recovery::{OpenProgress, OpenStage, Recovery};
pub use run_on::Handles;
pub use savepoint::Savepoint;
pub use scan::Scan;
pub use single_range::OwnedScan;
pub use snapshot::Snapshot;
pub use source::SourceRun;
pub use stage::StagedTable;
#[cfg(braid_simulation)]
pub use stats::MemoryProbe;
pub use stats::{
    AbortStats, LogPositions, MemoryStats, PageStats, Stats, SuspensionStats, TableSize,
    WorkerStats,
};
pub use table::{KeyRange, Table};
pub use table_options::TableOptions;
pub use trace::{Activity, Trace, TraceSlice};
pub use transaction::Transaction;
pub use transaction_builder::{Outcome, TransactionBuilder};
pub use tuning::{Overload, Tuning};
#[cfg(feature = "experiment")]
pub use unversioned::load_onto_pages;
pub use upkeep::{Backup, CheckReport, Checkpoint, Compaction, LogBlock};
pub use weak::WeakDatabase;
use workers::Workers;

use crate::durability::{self, RecoveryError, RecoveryObserver};
use crate::io::{self, SimulatedDisk};
use crate::log::{self, ColdStore, Log, LogError, LogOptions};
use crate::memory::MemoryCounters;
use crate::reclaim::Domain;
#[cfg(not(feature = "experiment"))]
use crate::sched::Policy;
#[cfg(any(test, braid_simulation))]
use crate::sched::Width;
use crate::sched::{self, Executor, ExecutorOptions, Failure};
use crate::sync::clock;
use crate::sync::thread::{self, Thread};
use crate::transaction::{Durability, Engine, EngineOptions, WorkerDriver};
use crate::version::MAX_VALUE_BYTES;

/// The width of a worker on a simulated disk, which must not depend on time.
#[cfg(any(test, braid_simulation))]
const SIMULATED_WIDTH: usize = 8;

/// Default limit on the versions of one transaction on paged tables: an eighth of the memory
/// budget, and at least two values of the maximum length.
fn version_bytes(memory_budget: u64) -> u64 {
    const PART: u64 = 8;
    (memory_budget / PART).max(2 * MAX_VALUE_BYTES as u64)
}

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
/// - **[`Database::begin`] and [`Database::snapshot`]** leave no transaction and no [`Snapshot`]
///   open. [`Database::stage_table`] discards the table, as dropping the [`StagedTable`] does.
/// - **Reads** ([`Database::tables`], [`Database::table_contents`], [`Database::indexes`],
///   [`Database::change_slots`]) have no effect.
/// - **Maintenance and long operations** document their own behaviour. Most of them continue.
///
/// [`Transaction`] and [`InteractiveTransaction::step`] describe dropped futures within a
/// transaction.
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}

/// State that all handles share. Fields are dropped in order: workers before the data they use.
struct Shared {
    executor: Executor,
    workers: Workers,
    engine: Arc<Engine>,
    slots: Arc<Slots>,
    recovery: Recovery,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.engine.checkpoints.stop();
        self.engine.watch.end();
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Database({} workers)", self.shared.engine.workers())
    }
}

impl Database {
    /// Opens or creates the database in a directory and recovers all committed transactions. Blocks
    /// until recovery ends.
    ///
    /// With [`Durability::Volatile`] the database reads the directory and writes nothing to it.
    /// [`Options::read_only`] opens a database that another process may write to.
    ///
    /// ```
    /// # use braiddb::{Database, Error, Options, Table};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path().join("database");
    /// let db = Database::open(&path, Options::default())?;
    /// let names: Table<str, u64> = pollster::block_on(db.open_or_create_table("names"))?;
    /// pollster::block_on(db.put(&names, "ada", &7))?;
    /// db.close()?;
    ///
    /// let db = Database::open(&path, Options::default())?;
    /// let names: Table<str, u64> = pollster::block_on(db.open_table("names"))?;
    /// assert_eq!(pollster::block_on(db.get(&names, "ada"))?, Some(7));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Error::Options`] if an option is out of range.
    /// - [`Error::Io`] if the directory is in use, has no database, is damaged, or cannot be read
    ///   or written.
    /// - [`Error::Panicked`] if `watch` of [`Database::open_watched`] panicked.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_watched(directory, options, |_| {})
    }

    /// Opens a database like [`Database::open`] and reports progress: replaying gigabytes of log
    /// takes seconds.
    ///
    /// ```
    /// use braiddb::{Database, Options};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let db = Database::open_watched(directory.path(), Options::default(), |progress| {
    ///     eprintln!("{:?}: {} of {}", progress.stage, progress.done, progress.total);
    /// })?;
    /// assert_eq!(db.stats().recovery.records, 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_watched(
        directory: impl AsRef<Path>,
        options: Options,
        mut watch: impl FnMut(OpenProgress),
    ) -> Result<Self> {
        let mut panic = None;
        let opened = Self::open_in(directory.as_ref(), options, None, &mut |step| {
            if panic.is_none() {
                // Catches the panic here, so that it does not unwind the threads of recovery.
                panic = sched::contain(|| watch(step.into())).err();
            }
        });
        match panic {
            Some(panic) => Err(Error::Panicked(panic.message)),
            None => opened,
        }
    }

    /// Opens the database on a simulated disk, or makes one there. It does the same each time from
    /// the same seed, if its callers do, with one worker, or in a controlled schedule with as many
    /// as the options say; see [`crate::simulation`].
    ///
    /// # Errors
    /// As [`Database::open`].
    #[cfg(any(test, braid_simulation))]
    pub fn open_simulated(disk: &SimulatedDisk, options: Options, seed: u64) -> Result<Self> {
        let hot_width = match options.tuning.hot_width {
            Width::Auto => Width::Fixed(SIMULATED_WIDTH),
            width @ Width::Fixed(_) => width,
        };
        let workers = if crate::sync::takes_part() { options.workers } else { 1 };
        let options = options.workers(workers).tune(|tuning| tuning.hot_width(hot_width));
        Self::open_in("simulated".as_ref(), options, Some((disk, seed)), &mut |_| {})
    }

    fn open_in(
        directory: &Path,
        options: Options,
        simulated: Option<(&SimulatedDisk, u64)>,
        watch: RecoveryObserver<'_>,
    ) -> Result<Self> {
        options.validate().map_err(Error::Options)?;
        let tuning = &options.tuning;
        let log_options = LogOptions {
            disk: simulated.map(|(disk, _)| disk.clone()),
            segment_bytes: tuning.log_segment_bytes,
            page_bytes: tuning.page_bytes,
            create: options.create,
            #[cfg(feature = "experiment")]
            tracker: tuning.hole_tracker,
            #[cfg(braid_simulation)]
            room_bytes: tuning.log_room_bytes,
            #[cfg(feature = "experiment")]
            flush_unit: tuning.flush_unit,
            ..LogOptions::new(directory, options.workers)
        };
        match options.read_only {
            true => Self::open_to_read(&log_options, &options, simulated, watch),
            false => Self::open_once(log_options, &options, simulated, watch),
        }
    }

    /// Opens the database with one attempt.
    fn open_once(
        log_options: LogOptions,
        options: &Options,
        simulated: Option<(&SimulatedDisk, u64)>,
        watch: RecoveryObserver<'_>,
    ) -> Result<Self> {
        let memory_budget = match (simulated, options.memory_budget) {
            // A simulation must not depend on the machine's memory.
            (Some(_), MemoryBudget::Automatic) => MemoryBudget::Unlimited,
            (_, budget) => budget,
        };
        let ring = RingSize {
            asked: options.tuning.log_ring_bytes.map(|bytes| bytes as u64),
            under_way: log::min_ring_bytes(options.workers),
        };
        let ResolvedBudget { budget, ring_bytes } =
            memory_budget.resolve(ring).map_err(Error::Options)?;
        let begin = clock::now();
        let (log, reader) = match options.read_only {
            true => Log::open_read_only(&log_options)?,
            false => Log::open(LogOptions { ring_bytes, ..log_options })?,
        };
        let store = log.cold_store();
        let files = log.readable_files().expect("a log that was opened has files");
        let (log, unused_log) = match options.durability {
            Durability::Volatile if !options.read_only => {
                (Log::volatile(options.workers), Some(log))
            }
            _ => (log, None),
        };
        let engine = engine(options, budget, log, store);
        let recovered = durability::recover(&engine, &files, catalog::table_id_of, reader, watch);
        let (recovered, pages) = recovered.map_err(|error| match error {
            RecoveryError::Log(error) => Error::from(error),
            RecoveryError::Table(full) => Error::from(full),
            RecoveryError::Pages(error) => Error::from(error),
        })?;
        engine.log.resume_at(recovered.replayed.end)?;
        tracing::info!(?recovered, "recovered");
        let recovery = Recovery::new(&recovered, begin.elapsed());
        let db = Self::start(options, engine, unused_log, simulated, recovery)?;
        let dropped = block_on(db.load_catalog(pages))?;
        block_on(db.load_slots())?;
        files.check_current()?;
        drop(files);
        let engine = &db.shared.engine;
        engine.checkpoints.note_listed();
        engine.expect_checkpoint();
        engine.log.begin_to_grow();
        if !engine.read_only {
            let given_back = db.give_back_at_opening(&recovered.replayed, dropped.had_pages);
            db.clear_later(dropped, given_back)?;
        }
        Ok(db)
    }

    /// Opens a new database in memory. It writes no log and no files; its durability is
    /// [`Durability::Volatile`] regardless of the options.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// db.put(&names, &1, "ada").await?;
    /// assert_eq!(db.get(&names, &1).await?.as_deref(), Some("ada"));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::Options`]; [`Error::Io`] if the operating system cannot start the workers.
    pub fn in_memory(options: Options) -> Result<Self> {
        let options = options.durability(Durability::Volatile);
        options.validate().map_err(Error::Options)?;
        if let MemoryBudget::Bytes(_) = options.memory_budget {
            let message = "memory_budget is set, but an in-memory database cannot evict records \
                           to disk: omit memory_budget, or open a directory";
            return Err(Error::Options(message.to_owned()));
        }
        let options = options.read_only(false);
        let engine = engine(&options, None, Log::volatile(options.workers), None);
        Self::start(&options, engine, None, None, Recovery::default())
    }

    fn start(
        options: &Options,
        engine: Arc<Engine>,
        unused_log: Option<Log>,
        simulated: Option<(&SimulatedDisk, u64)>,
        recovery: Recovery,
    ) -> Result<Self> {
        let tuning = &options.tuning;
        let scheduling = ExecutorOptions {
            workers: options.workers,
            pin: tuning.pin,
            #[cfg(feature = "experiment")]
            policy: tuning.policy,
            #[cfg(not(feature = "experiment"))]
            policy: Policy::default(),
            hot_width: tuning.hot_width,
            cold_width: match tuning.overload {
                Overload::Wait => tuning.cold_width,
                // The engine fails reads beyond the limit.
                Overload::Shed => tuning.max_open,
            },
            max_open: tuning.max_open,
            read_depth: tuning.read_depth,
            trace: tuning.trace,
            seed: simulated.map(|(_, seed)| seed),
        };
        let (device, for_drivers) = (tuning.device, engine.clone());
        let disk = simulated.map(|(disk, _)| disk.clone());
        let for_device = disk.clone();
        let at_end = engine.clone();
        let executor = Executor::start(
            scheduling,
            engine.failure.clone(),
            move |_| match &for_device {
                Some(disk) => Ok(disk.device()),
                None => io::open_device(device),
            },
            move |number, handles| WorkerDriver::new(for_drivers.clone(), number, handles),
            move || {
                at_end.watch.end();
                at_end.release_files();
                drop(unused_log);
            },
        );
        let mut executor = executor.map_err(|error| {
            let files = engine.log.readable_files();
            let path = files.as_ref().map_or("memory".as_ref(), |files| files.directory().path());
            LogError::io("start workers for the database in", path, 0, error)
        })?;
        if let Some(disk) = disk {
            executor.settle_by(disk);
        }
        let watch = engine.watch.clone();
        engine.failure.on_failure(move || watch.end());
        let workers = Workers::new(executor.jobs().clone());
        let shared = Shared { executor, workers, engine, slots: Arc::default(), recovery };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Runs a job on some worker.
    fn spawn(
        &self,
        job: impl FnOnce() -> std::pin::Pin<Box<dyn Future<Output = ()>>> + Send + 'static,
    ) -> Result<()> {
        self.shared.workers.spawn(job)
    }

    /// Returns the reason why the workers have stopped.
    fn ended(&self) -> Error {
        ended(&self.shared.engine.failure)
    }

    /// Closes the database: ends its transactions, flushes the log, and releases the directory.
    ///
    /// Blocks until everything has ended, including checks and backups. After that the directory
    /// can be opened again or removed, even if handles remain. Calls on these handles fail with
    /// [`Error::Closed`]; [`Database::stats`] still works. Closing twice is not an error. Dropping
    /// the last handle also closes the database.
    ///
    /// No new transaction begins, and sources take no more inputs. Open transactions may finish,
    /// and `close` waits for the disk however long that takes. A transaction aborts if it waits for
    /// something outside the engine (another transaction, or the next step of an interactive
    /// transaction), still or again waits 200 to 400 ms later, and did not wait for the engine's
    /// disk in between.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir().unwrap();
    /// let db = Database::open(directory.path(), Options::default())?;
    /// let names: Table<u64, str> = db.create_table("names").await?;
    /// db.put(&names, &1, "ada").await?;
    /// db.close()?;
    /// assert!(matches!(db.put(&names, &2, "bob").await, Err(Error::Closed)));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// - [`Error::Io`] if the log failed before everything was on disk.
    /// - [`Error::Failed`].
    /// - [`Misuse::WouldBlock`](crate::Misuse) if a transaction calls it.
    pub fn close(&self) -> Result<()> {
        refuse_on_worker()?;
        self.shared.engine.checkpoints.stop();
        self.shared.engine.watch.end();
        self.shared.executor.stop();
        if let failed @ Error::Failed { .. } = self.ended() {
            return Err(failed);
        }
        match self.shared.engine.log.poisoned() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// Returns the reason why the workers have stopped: the engine failed, or the database is closed.
fn ended(failure: &Failure) -> Error {
    match failure.message() {
        Some(message) => Error::Failed { message: message.to_string() },
        None => Error::Closed,
    }
}

fn engine(
    options: &Options,
    memory_budget: Option<u64>,
    log: Log,
    store: Option<ColdStore>,
) -> Arc<Engine> {
    // Only the workers and the threads of recovery register with the domain.
    const RECOVERY_THREADS: usize = 16;
    let memory = MemoryCounters::of_database();
    let domain = Arc::new(Domain::new(options.workers + RECOVERY_THREADS, memory.clone()));
    let tuning = &options.tuning;
    let clock = tuning.wall_clock.clone();
    let options = EngineOptions {
        workers: options.workers,
        max_open: tuning.max_open,
        durability: options.durability,
        read_only: options.read_only,
        isolation: options.isolation,
        interactive_idle: options.interactive_idle,
        interactive_age: options.interactive_age,
        #[cfg(feature = "experiment")]
        certifier: tuning.certifier,
        memory_budget,
        #[cfg(feature = "experiment")]
        page_frames: tuning.page_frames,
        #[cfg(not(feature = "experiment"))]
        page_frames: None,
        page_bytes: tuning.page_bytes,
        version_bytes: tuning.version_bytes.or(memory_budget.map(version_bytes)),
        shed_beyond: (tuning.overload == Overload::Shed).then_some(tuning.cold_width),
        checkpoint_bytes: tuning.checkpoint_bytes,
        checkpoint_job: durability::job,
        estimate_checkpoint_file: durability::estimate_checkpoint_file,
    };
    Arc::new(Engine::new(&options, log, store, domain, memory).with_wall_clock(clock))
}

/// Fails on a worker's thread, which a blocking call would stop.
fn refuse_on_worker() -> Result<()> {
    if sched::on_worker() { Err(Error::Misuse(Misuse::WouldBlock)) } else { Ok(()) }
}

/// Runs a future on the calling thread, which sleeps while it waits.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
