//! Opening of a database.

use std::path::Path;
use std::sync::Arc;

use super::blocking::block_on;
use super::catalog::CatalogEntry;
use super::error::{Error, Result};
use super::handle::{Database, OwnedSocket, Shared};
use super::memory_budget::{MemoryBudget, ResolvedBudget, RingSize};
use super::options::Options;
use super::recovery::{OpenProgress, Recovery};
use super::socket::{DescriptionSource, Socket};
#[cfg(feature = "json")]
use super::stats::Stats;
use super::tuning::Overload;
use super::workers::Workers;
use crate::durability::{self, RecoveryError, RecoveryObserver};
use crate::io::{self, SimulatedDisk};
use crate::log::{self, ColdStore, Log, LogError, LogOptions};
use crate::memory::MemoryCounters;
use crate::reclaim::Domain;
use crate::rid::TableId;
#[cfg(not(feature = "experiment"))]
use crate::sched::Policy;
#[cfg(any(test, braid_simulation))]
use crate::sched::Width;
use crate::sched::{self, Executor, ExecutorOptions, Job, WorkersEnd};
use crate::sync::clock;
use crate::transaction::{
    Durability, Engine, EngineOptions, GuestWriters, Housekeeping, WorkerDriver,
};
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

impl Database {
    /// Opens or creates the database in a directory and recovers all committed transactions. Blocks
    /// until recovery ends.
    ///
    /// With [`Durability::Volatile`] the database reads the directory and writes nothing to it.
    /// [`Options::read_only`] opens a database that another process may write to.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let path = directory.path().join("database");
    ///     let db = Database::open(&path, Options::default())?;
    ///     let names: Table<str, u64> = block_on(db.open_or_create_table("names"))?;
    ///     block_on(db.put(&names, "ada", &7))?;
    ///     db.close()?;
    ///
    ///     let db = Database::open(&path, Options::default())?;
    ///     let names: Table<str, u64> = block_on(db.open_table("names"))?;
    ///     assert_eq!(block_on(db.get(&names, "ada"))?, Some(7));
    ///     Ok(())
    /// }
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
    /// fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let directory = tempfile::tempdir()?;
    ///     let db = Database::open_watched(directory.path(), Options::default(), |progress| {
    ///         eprintln!("{:?}: {} of {}", progress.stage, progress.done, progress.total);
    ///     })?;
    ///     assert_eq!(db.stats().recovery.records, 0);
    ///     Ok(())
    /// }
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
    pub(super) fn open_once(
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
        let recovered = durability::recover(&engine, &files, reader, watch);
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
        if simulated.is_none()
            && let Some(files) = engine.log.files()
        {
            let (directory, socket) = (files.directory().path(), &db.shared.socket.0);
            match options.socket {
                true => {
                    socket.listen(directory, &db.shared.maintenance(), db.describe_stats());
                }
                false => Socket::remove_left(directory),
            }
        }
        Ok(db)
    }

    /// Returns a description of the statistics that does not keep the database open.
    #[cfg(feature = "json")]
    fn describe_stats(&self) -> Option<DescriptionSource> {
        let Shared { engine, executor, recovery, .. } = &*self.shared;
        let (engine, recovery) = (engine.clone(), *recovery);
        let schedulers = executor.counters().to_vec();
        Some(Arc::new(move || {
            let stats = Stats::collect(&engine, &schedulers, recovery);
            serde_json::to_string(&stats).expect("statistics have an encoding")
        }))
    }

    /// Returns `None`, because this build has no JSON.
    #[cfg(not(feature = "json"))]
    fn describe_stats(&self) -> Option<DescriptionSource> {
        None
    }

    /// Opens a new database in memory. It writes no log and no files; its durability is
    /// [`Durability::Volatile`] regardless of the options.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let names: Table<u64, str> = db.create_table("names").await?;
    ///         db.put(&names, &1, "ada").await?;
    ///         assert_eq!(db.get(&names, &1).await?.as_deref(), Some("ada"));
    ///         Ok(())
    ///     })
    /// }
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
        mut unused_log: Option<Log>,
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
        let (at_end, socket) = (engine.clone(), Arc::new(Socket::default()));
        let socket_at_end = socket.clone();
        let guests = Arc::new(GuestWriters::new(engine.clone()));
        let guests_of_drivers = guests.clone();
        let executor = Executor::start(
            scheduling,
            engine.failure.clone(),
            move |_| match &for_device {
                Some(disk) => Ok(disk.device()),
                None => io::open_device(device),
            },
            move |number, handles| {
                WorkerDriver::new(for_drivers.clone(), number, handles, guests_of_drivers.clone())
            },
            move |end| {
                at_end.watch.end();
                if end == WorkersEnd::Left {
                    socket_at_end.close();
                    at_end.release_files();
                    drop(unused_log.take());
                }
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
        let workers = Workers::new(executor.jobs().clone());
        let (slots, socket) = (Arc::default(), OwnedSocket(socket));
        let shared = Shared { executor, workers, guests, engine, slots, recovery, socket };
        Ok(Self { shared: Arc::new(shared), may_write: false })
    }
}

#[derive(Debug)]
struct DatabaseHousekeeping;

impl Housekeeping for DatabaseHousekeeping {
    fn checkpoint_job(&self) -> Job {
        durability::job()
    }

    fn estimate_checkpoint_file(&self, engine: &Engine) -> u64 {
        durability::estimate_checkpoint_file(engine)
    }

    fn table_id_of(&self, key: &[u8], value: &[u8]) -> Option<TableId> {
        Some(TableId(CatalogEntry::decode(key, value).ok()?.id()))
    }
}

fn engine(
    options: &Options,
    memory_budget: Option<u64>,
    log: Log,
    store: Option<ColdStore>,
) -> Arc<Engine> {
    let memory = MemoryCounters::of_database();
    // Only the workers and the threads of recovery register with the domain.
    let threads = options.workers + durability::max_recovery_threads();
    let domain = Arc::new(Domain::new(threads, memory.clone()));
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
        housekeeping: &DatabaseHousekeeping,
    };
    Arc::new(Engine::new(&options, log, store, domain, memory).with_wall_clock(clock))
}
