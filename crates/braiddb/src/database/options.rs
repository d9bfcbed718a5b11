//! How a database is opened and how a transaction is run.

use std::time::Duration;

use super::memory_budget::MemoryBudget;
use crate::io::DeviceKind;
#[cfg(any(test, feature = "experiment", braid_simulation))]
use crate::log::HoleTracker;
use crate::log::{DEFAULT_PAGE_BYTES, MAX_RING, PAGE_BYTES, is_table_page_size};
use crate::sched::{Policy, Width};
use crate::sync::thread;
use crate::transaction::{Certifier, Durability, Isolation, Mode, WallClock};

/// Schedules and simulations use small databases, in which everything happens soon.
const SMALL: bool = cfg!(braid_simulation);
const MIN_SEGMENT: u64 = if SMALL { 8 << 10 } else { 64 << 10 };
const MAX_SEGMENT: u64 = 1 << 30;
const MIN_RING: u64 = if SMALL { 1 << 20 } else { 32 << 20 };
/// More than a checkpoint itself logs where nobody writes, or one would make the next one due.
const MIN_CHECKPOINT: u64 = if SMALL { 8 << 10 } else { 32 << 10 };
/// Some small records and their entries in indexes: with less, next to no transaction would come to its end.
const MIN_VERSION_BYTES: u64 = 4 << 10;

/// How to open a database. Start from `Options::default()` and change what matters.
///
/// ```
/// use braiddb::{Durability, Options, Width};
///
/// let options = Options::default().workers(2).durability(Durability::Relaxed);
/// assert_eq!(options.hot_width, Width::Auto);
/// ```
///
/// All of them, each where it may be of use:
///
/// ```
/// # use std::time::Duration;
/// # use braiddb::{Certifier, DeviceKind, Durability, Isolation, Options, Overload, Policy, WallClock, Width};
/// // For an embedded program with little memory, which is asked by people.
/// let small = Options::default()
///     .workers(1)
///     .memory_budget(64 << 20)
///     .log_ring_bytes(32 << 20)
///     .log_segment_bytes(4 << 20)
///     .page_bytes(16 << 10)
///     .checkpoint_bytes(16 << 20)
///     .interactive_idle(Some(Duration::from_mins(30)))
///     .interactive_age(None);
///
/// // For a service that would rather refuse than be late.
/// let service = Options::default()
///     .pin(true)
///     .max_open(1024)
///     .cold_width(256)
///     .overload(Overload::Shed)
///     .read_depth(32)
///     .isolation(Isolation::Snapshot);
///
/// // To look at what is there.
/// let looking = Options::default().create(false).read_only(true);
///
/// // To measure the engine's parts.
/// let measured = Options::default()
///     .policy(Policy::Sequential)
///     .hot_width(Width::Fixed(8))
///     .certifier(Certifier::SerialSafetyNet)
///     .durability(Durability::Volatile)
///     .device(DeviceKind::Blocking)
///     .flush_unit(0)
///     .wall_clock(WallClock::default())
///     .trace(100_000);
/// # drop((small, service, looking, measured));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Worker threads, each of which braids many transactions; at most 256. Default: one a core.
    pub workers: usize,
    /// Whether each worker stays on a core of its own. Default: no.
    pub pin: bool,
    /// How a worker chooses what to run next. Default: [`Policy::DualQueue`].
    pub policy: Policy,
    /// Transactions a worker interleaves to hide cache misses. Default: tuned while running.
    pub hot_width: Width,
    /// Transactions a worker lets wait for storage or for their commit. Default: 4096.
    pub cold_width: usize,
    /// What happens beyond. Default: [`Overload::Wait`].
    pub overload: Overload,
    /// Reads of the disk a worker has under way at a time; more wait in order without being
    /// issued. Default: 64.
    pub read_depth: usize,
    /// Bytes of memory that records, indexes and the log's ring may take together; records beyond
    /// stay on disk and are read when they are asked for. Indexes and 8 bytes a record stay in
    /// memory, but of [paged](crate::TableOptions::paged) tables, whose pages have a share of the budget that changes with use. A number of bytes, which must be more than the log's ring takes ([`Options::log_ring_bytes`]),
    /// or `None` for no bound, may be given as they are. Default: [`MemoryBudget::Automatic`], half of the memory that
    /// the machine has, or the process's control group allows.
    pub memory_budget: MemoryBudget,
    /// Pages of paged tables that may be in memory, of a database with a directory: others leave memory; for tests
    /// (`docs/paged.md`). Default: none, and [`Options::memory_budget`] says how many.
    #[doc(hidden)]
    pub page_frames: Option<u32>,
    /// Bytes of a page of [paged](crate::TableOptions::paged) tables: a power of two from 4096, which is the default, to
    /// 64 KiB. Larger ones take more memory for each record that is in use by itself, and are read and written more slowly;
    /// scans of a table larger than memory read fewer of them, and values of up to a quarter of a page lie on it. All paged
    /// tables of a database have the same, as they share memory: those of its first one, for good. Some 64 pages have memory
    /// whatever the budget: 4 MiB of pages of 64 KiB.
    pub page_bytes: usize,
    /// Bytes of memory that one transaction may take for versions of records of [paged](crate::TableOptions::paged) tables,
    /// and for what it is to log of them. Beyond, it fails with [`MemoryLimit::Versions`](crate::MemoryLimit), which says what is
    /// made for such sizes: [`Database::run_bulk`](crate::Database::run_bulk). At least 4 KiB. Default, `None`: an eighth of the
    /// memory budget, 32 MiB at least, or without one no bound.
    pub version_bytes: Option<u64>,
    /// Transactions a worker keeps open, from 64 to 16 384, which is the default. So many may run or wait
    /// for the engine; further requests wait in order until one of those is over, or comes to wait for
    /// something outside the engine. As many again may wait for something outside, as a future of the
    /// caller's, a nested [`Database::run`](crate::Database::run), or the next step of an interactive
    /// transaction; these keep no request waiting, which may be what they wait for. Beyond both, a
    /// request fails at once with [`Error::Overloaded`](crate::Error), which may be retried; so does
    /// [`Database::begin`](crate::Database::begin) beyond this many interactive transactions.
    pub max_open: usize,
    /// How long an interactive transaction ([`Database::begin`](crate::Database::begin)) may wait for its
    /// next step: then it is aborted, and the next step fails with
    /// [`TransactionEnd::Expired`](crate::TransactionEnd). So a handle that was leaked, or a client that went away,
    /// keeps no records from being changed. From a millisecond on; `None` for no limit. Default: 5 minutes.
    pub interactive_idle: Option<Duration>,
    /// How long after its beginning an interactive transaction may still be given steps, as
    /// [`Options::interactive_idle`]. A step that was begun in time is carried out. Default: an hour.
    pub interactive_age: Option<Duration>,
    /// When a result leaves the engine. Default: [`Durability::Group`].
    pub durability: Durability,
    /// What transactions may notice of one another, unless [`RunOptions`] say otherwise. Default:
    /// [`Isolation::Serializable`].
    pub isolation: Isolation,
    /// How serializable transactions are certified. Default: [`Certifier::ReadValidation`].
    pub certifier: Certifier,
    /// How the disk is reached. Default: io_uring, or blocking calls where it is refused.
    pub device: DeviceKind,
    /// Bytes of the log's ring in memory; a power of two from 32 MiB to 2 GiB. Seven workers or more take 64
    /// MiB at least, 39 or more 128 MiB, for what each may have under way. Default, `None`: 64 MiB, or 32 MiB
    /// in an [`Options::memory_budget`] of less than 256 MiB.
    pub log_ring_bytes: Option<usize>,
    /// Bytes of one log segment file; a multiple of 4 KiB from 64 KiB to 1 GiB. That of the first begins with
    /// 256 KiB, if that is less, and grows by doubling. A database keeps those that it was made with. Of a disk that runs full some
    /// segments' worth is held back. Default, `None`: 64 MiB, or, if less than 4 GiB of the disk are free when the database is
    /// made, about a 64th of that, and 4 MiB at least.
    pub log_segment_bytes: Option<u64>,
    #[cfg(any(test, feature = "experiment", braid_simulation))]
    /// How the log finds what may be flushed. Default: [`HoleTracker::InFlightMarks`].
    pub hole_tracker: HoleTracker,
    /// While one flush of the log is under way, the next gathers this many bytes. Default: 64 KiB.
    pub flush_unit: u64,
    /// Bytes of log after which a checkpoint is written, so that the next opening need not replay
    /// them. Of the segments freed then, about as much is kept on disk for the log to come; closing,
    /// and [`Database::compact`](crate::Database::compact), give it back. At least 32 KiB.
    /// Default: 1 GiB.
    pub checkpoint_bytes: u64,
    /// The clock by which records of tables with a lifetime expire ([`TableOptions::ttl`](crate::TableOptions::ttl)).
    /// Default: the system's.
    pub wall_clock: WallClock,
    /// Slices of each worker's time that are kept for [`Database::trace`](crate::Database::trace), the latest, of 24
    /// bytes each; at most 16 777 216. Each poll of a transaction then costs two looks at the clock more. Default: 0, which keeps none.
    pub trace: usize,
    /// Whether opening a directory without a database makes one. Default: yes.
    pub create: bool,
    /// Whether the database is only read ([`Database::open_read_only`](crate::Database::open_read_only)). Default: no.
    pub read_only: bool,
    /// Bytes of log that are not durable yet, beside what is kept for the workers' largest blocks, at
    /// most: as if the ring were that small. Default: no bound but the ring.
    #[cfg(braid_simulation)]
    pub log_room_bytes: u64,
}

/// What happens to transactions that need storage while [`Options::cold_width`] others of their
/// worker wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overload {
    /// No transaction begins until fewer wait.
    #[default]
    Wait,
    /// They fail with [`Error::Overloaded`](crate::Error), which may be retried, and those that
    /// need only memory go on (MosaicDB §4.3).
    Shed,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: thread::available_parallelism().map_or(1, usize::from).min(256),
            pin: false,
            policy: Policy::default(),
            hot_width: Width::Auto,
            cold_width: 4096,
            overload: Overload::default(),
            read_depth: 64,
            memory_budget: MemoryBudget::default(),
            page_frames: None,
            page_bytes: DEFAULT_PAGE_BYTES,
            version_bytes: None,
            max_open: 16 << 10,
            // What happens in a simulation must not depend on time.
            interactive_idle: (!SMALL).then_some(Duration::from_mins(5)),
            interactive_age: (!SMALL).then_some(Duration::from_hours(1)),
            durability: Durability::default(),
            isolation: Isolation::default(),
            certifier: Certifier::default(),
            device: DeviceKind::Auto,
            log_ring_bytes: None,
            log_segment_bytes: None,
            #[cfg(any(test, feature = "experiment", braid_simulation))]
            hole_tracker: HoleTracker::default(),
            flush_unit: 64 << 10,
            checkpoint_bytes: 1 << 30,
            wall_clock: WallClock::default(),
            trace: 0,
            create: true,
            read_only: false,
            #[cfg(braid_simulation)]
            log_room_bytes: u64::MAX,
        }
    }
}

/// Setters in the order of the fields, each returning the changed options.
macro_rules! setters {
    ($($field:ident: $kind:ty),* $(,)?) => {
        impl Options {
            $(
                #[doc = concat!("Sets [`Options::", stringify!($field), "`].")]
                #[must_use]
                pub fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

setters! {
    workers: usize,
    pin: bool,
    policy: Policy,
    hot_width: Width,
    cold_width: usize,
    overload: Overload,
    read_depth: usize,
    page_bytes: usize,
    max_open: usize,
    interactive_idle: Option<Duration>,
    interactive_age: Option<Duration>,
    durability: Durability,
    isolation: Isolation,
    certifier: Certifier,
    device: DeviceKind,
    flush_unit: u64,
    checkpoint_bytes: u64,
    wall_clock: WallClock,
    trace: usize,
    create: bool,
    read_only: bool,
}

#[cfg(any(test, feature = "experiment", braid_simulation))]
setters! { hole_tracker: HoleTracker }

#[cfg(braid_simulation)]
setters! { log_room_bytes: u64 }

impl Options {
    /// Sets [`Options::memory_budget`]: a number of bytes, `None` for no bound, or a [`MemoryBudget`]. It is more than the log's
    /// ring takes, which is 32 MiB at least, as two of the longest values fit in it.
    ///
    /// ```
    /// use braiddb::{Database, Options};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path();
    /// let db = Database::open(path, Options::default().memory_budget(256 << 20))?;
    /// # Ok::<_, braiddb::Error>(())
    /// ```
    #[must_use]
    pub fn memory_budget(mut self, memory_budget: impl Into<MemoryBudget>) -> Self {
        self.memory_budget = memory_budget.into();
        self
    }

    /// Sets [`Options::log_ring_bytes`]: a number of bytes, or `None` for the default.
    ///
    /// ```
    /// use braiddb::{Database, Options};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path();
    /// let db = Database::open(path, Options::default().log_ring_bytes(32 << 20).memory_budget(96 << 20))?;
    /// # Ok::<_, braiddb::Error>(())
    /// ```
    #[must_use]
    pub fn log_ring_bytes(mut self, log_ring_bytes: impl Into<Option<usize>>) -> Self {
        self.log_ring_bytes = log_ring_bytes.into();
        self
    }

    /// Sets [`Options::log_segment_bytes`]: a number of bytes, or `None` for the default.
    ///
    /// ```
    /// use braiddb::{Database, Options};
    ///
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let path = directory.path();
    /// let db = Database::open(path, Options::default().log_segment_bytes(4 << 20))?;
    /// # Ok::<_, braiddb::Error>(())
    /// ```
    #[must_use]
    pub fn log_segment_bytes(mut self, log_segment_bytes: impl Into<Option<u64>>) -> Self {
        self.log_segment_bytes = log_segment_bytes.into();
        self
    }

    /// Sets [`Options::version_bytes`]: a number of bytes, or `None` for the default.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1).version_bytes(64 << 10))?;
    /// let table: Table<u64, u64> = db.create_table_with("squares", TableOptions::default().paged()).await?;
    /// let many = db.run(async move |tx| {
    ///     for n in 0..10_000 {
    ///         tx.put(&table, &n, &(n * n)).await?;
    ///     }
    ///     Ok(())
    /// });
    /// assert!(many.await.unwrap_err().to_string().contains("run_bulk"));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn version_bytes(mut self, version_bytes: impl Into<Option<u64>>) -> Self {
        self.version_bytes = version_bytes.into();
        self
    }

    /// Sets [`Options::page_frames`].
    #[doc(hidden)]
    #[must_use]
    pub fn page_frames(mut self, page_frames: Option<u32>) -> Self {
        self.page_frames = page_frames;
        self
    }

    /// What is wrong with the options, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        let range = |what: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(format!("{what} is {value}, but must be between {low} and {high}"))
        };
        range("workers", self.workers as u64, 1, 256)?;
        range("cold_width", self.cold_width as u64, 1, 1 << 14)?;
        range("read_depth", self.read_depth as u64, 1, 1 << 12)?;
        range("max_open", self.max_open as u64, if SMALL { 8 } else { 64 }, 1 << 14)?;
        if let Width::Fixed(width) = self.hot_width {
            range("hot_width", width as u64, 1, 1024)?;
        }
        let ring_bytes = self.log_ring_bytes.map_or(MIN_RING, |bytes| bytes as u64);
        range("log_ring_bytes", ring_bytes, MIN_RING, MAX_RING)?;
        if !ring_bytes.is_power_of_two() {
            return Err(format!(
                "log_ring_bytes is {ring_bytes}, but must be a power of two between {MIN_RING} \
                 and {MAX_RING}"
            ));
        }
        let segment_bytes = self.log_segment_bytes.unwrap_or(MIN_SEGMENT);
        range("log_segment_bytes", segment_bytes, MIN_SEGMENT, MAX_SEGMENT)?;
        if !segment_bytes.is_multiple_of(4096) {
            return Err(format!(
                "log_segment_bytes is {segment_bytes}, but must be a multiple of 4096 between {MIN_SEGMENT} \
                 and {MAX_SEGMENT}"
            ));
        }
        if !is_table_page_size(self.page_bytes) {
            return Err(format!(
                "page_bytes is {}, but must be a power of two between {} and {}",
                self.page_bytes,
                PAGE_BYTES.start(),
                PAGE_BYTES.end()
            ));
        }
        for (option, limit) in
            [("interactive_idle", self.interactive_idle), ("interactive_age", self.interactive_age)]
        {
            if let Some(limit) = limit.filter(|limit| *limit < Duration::from_millis(1)) {
                return Err(format!("{option} is {limit:?}, but must be a millisecond or more"));
            }
        }
        range("trace", self.trace as u64, 0, 1 << 24)?;
        range("checkpoint_bytes", self.checkpoint_bytes, MIN_CHECKPOINT, u64::MAX)?;
        if let Some(bytes) = self.version_bytes {
            range("version_bytes", bytes, MIN_VERSION_BYTES, u64::MAX)?;
        }
        Ok(())
    }
}

/// How one transaction is run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunOptions {
    /// How often the closure is run at most, when it meets conflicts. Default: 64, which is some six seconds where another
    /// transaction keeps a record written all the time: between attempts it stands back, at first for as long as others take,
    /// in the end for up to a quarter of a second.
    pub max_attempts: u32,
    /// What the transaction may notice of others. Default: [`Options::isolation`].
    pub isolation: Option<Isolation>,
    /// Whether it only reads. It is refused writes ([`Misuse::ReadOnlyTransaction`](crate::Misuse)), what it reads need
    /// not be noted, and it never fails because of others; it is serializable under either isolation.
    /// Default: no.
    pub read_only: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { max_attempts: 64, isolation: None, read_only: false }
    }
}

impl RunOptions {
    /// Sets [`RunOptions::max_attempts`]; at least one attempt is made.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, RunOptions, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<str, u64> = db.create_table("names").await?;
    /// let once = RunOptions::default().max_attempts(1);
    /// let outcome = db.run_with(once, async move |tx| tx.put(&names, "ada", &7).await).await?;
    /// assert_eq!(outcome.attempts, 1);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts.max(1);
        self
    }

    /// Sets [`RunOptions::isolation`].
    ///
    /// ```
    /// use braiddb::{Isolation, RunOptions};
    ///
    /// let options = RunOptions::default().isolation(Isolation::Snapshot);
    /// assert_eq!(options.isolation, Some(Isolation::Snapshot));
    /// ```
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }

    /// Sets [`RunOptions::read_only`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, RunOptions, Table};
    ///
    /// # pollster::block_on(async {
    /// let db = Database::in_memory(Options::default().workers(1))?;
    /// let names: Table<str, u64> = db.create_table("names").await?;
    /// let reading = RunOptions::default().read_only(true);
    /// let count = db.run_with(reading, async move |tx| tx.count(&names, ..).await).await?;
    /// assert_eq!(count.value, 0);
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// How the transaction takes part in a database with this isolation.
    pub(super) fn mode(&self, isolation: Isolation) -> Mode {
        match self.read_only {
            true => Mode::ReadOnly,
            false => self.isolation.unwrap_or(isolation).into(),
        }
    }
}

/// What [`crate::Database::run_with`] reports of a committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome<T> {
    /// What the closure returned.
    pub value: T,
    /// How often the closure ran: 1 without conflicts.
    pub attempts: u32,
    /// The LSN the transaction committed at; if it wrote nothing, the LSN it read at.
    pub commit_lsn: u64,
}
