//! Options with which an application opens a database.

use std::time::Duration;

use super::memory_budget::MemoryBudget;
use super::option_checks::{check_range, refused, setters};
use super::tuning::Tuning;
use crate::sync::thread;
use crate::transaction::{Durability, Isolation};

const MAX_WORKERS: usize = 256;
const MIN_INTERACTIVE_LIMIT: Duration = Duration::from_millis(1);
/// Results of a simulation must not depend on time.
const HAS_INTERACTIVE_LIMITS: bool = !cfg!(braid_simulation);

/// Options for opening a database: the decisions of an application. Everything else is
/// [`Tuning`], whose defaults fit most applications.
///
/// ```
/// use braiddb::{Durability, Options};
///
/// let options = Options::default().workers(2).durability(Durability::Relaxed);
/// assert!(options.create);
/// ```
///
/// All options:
///
/// ```
/// use std::time::Duration;
/// use braiddb::{Durability, Isolation, Options, Tuning};
///
/// // A desktop program with little memory. Its users may keep a form open for half an hour.
/// let desktop = Options::default()
///     .workers(1)
///     .memory_budget(64 << 20)
///     .interactive_idle(Some(Duration::from_mins(30)))
///     .interactive_age(None)
///     .tuning(Tuning::default().log_segment_bytes(4 << 20));
///
/// // A cache that may lose its last writes in a crash, and that no command maintains.
/// let cache = Options::default()
///     .durability(Durability::Relaxed)
///     .socket(false)
///     .isolation(Isolation::Snapshot);
///
/// // A report on an existing database.
/// let report = Options::default().create(false).read_only(true);
/// println!("{desktop:?}\n{cache:?}\n{report:?}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Number of worker threads, 1 to 256. Each worker interleaves many transactions.
    /// Default: one per core.
    pub workers: usize,
    /// Point at which a commit returns to its caller. Default: [`Durability::Group`].
    pub durability: Durability,
    /// Isolation level of transactions for which
    /// [`TransactionBuilder::isolation`](crate::TransactionBuilder::isolation) sets none.
    /// Default: [`Isolation::Serializable`].
    pub isolation: Isolation,
    /// Bytes of memory for records, indexes and the log ring together.
    ///
    /// Records beyond the budget stay on disk, and reads load them on demand. Indexes and 8 bytes
    /// per record always stay in memory, except those of
    /// [paged](crate::TableOptions::paged) tables: pages share the budget with other records, in
    /// proportions that follow their use. The budget must exceed the log ring
    /// ([`Tuning::log_ring_bytes`](crate::Tuning::log_ring_bytes)). An in-memory database accepts no budget.
    /// Default: [`MemoryBudget::Automatic`], half of the memory of the machine or control group.
    pub memory_budget: MemoryBudget,
    /// Time that an interactive transaction ([`Database::begin`](crate::Database::begin)) may wait
    /// for its next step, 1 ms or more; `None` sets no limit.
    ///
    /// A transaction that waits longer is aborted, and its next step fails with
    /// [`TransactionEnd::Expired`](crate::TransactionEnd). Thus a leaked handle or a disconnected client
    /// cannot block writers forever. Default: 5 minutes.
    pub interactive_idle: Option<Duration>,
    /// Time after its beginning during which an interactive transaction accepts new steps, 1 ms or
    /// more; `None` sets no limit.
    ///
    /// A later step fails with [`TransactionEnd::Expired`](crate::TransactionEnd). A step that began in
    /// time completes. Default: 1 hour.
    pub interactive_age: Option<Duration>,
    /// Opens the database for reading only; see the [guide](crate::guide::read_only). Default:
    /// `false`.
    pub read_only: bool,
    /// Creates a database in a directory that contains none. If `false`, opening such a directory
    /// fails. Default: `true`.
    pub create: bool,
    /// Listens on the local socket `braid.socket` in the database's directory while the database is
    /// open for writing. Through it, `braid checkpoint`, `braid compact` and `braid check` ask this
    /// process to perform them. Users that may write to the directory may connect.
    ///
    /// If the socket cannot be created, the database is opened without it;
    /// [`Database::socket_path`](crate::Database::socket_path) returns the reason. Databases in memory
    /// and read-only ones do not listen. Default: `true`.
    pub socket: bool,
    /// Settings that trade speed, memory and disk space. Default: [`Tuning::default`](crate::Tuning::default).
    pub tuning: Tuning,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS),
            durability: Durability::default(),
            isolation: Isolation::default(),
            memory_budget: MemoryBudget::default(),
            interactive_idle: HAS_INTERACTIVE_LIMITS.then_some(Duration::from_mins(5)),
            interactive_age: HAS_INTERACTIVE_LIMITS.then_some(Duration::from_hours(1)),
            read_only: false,
            create: true,
            socket: true,
            tuning: Tuning::default(),
        }
    }
}

setters! { Options:
    workers: usize,
    durability: Durability,
    isolation: Isolation,
    interactive_idle: Option<Duration>,
    interactive_age: Option<Duration>,
    read_only: bool,
    create: bool,
    socket: bool,
    tuning: Tuning,
}

impl Options {
    /// Sets [`Options::memory_budget`] to a number of bytes, to `None` for no limit, or to a
    /// [`MemoryBudget`].
    ///
    /// ```
    /// use braiddb::{Database, Options};
    ///
    /// fn main() -> Result<(), braiddb::Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let path = directory.path();
    ///     let db = Database::open(path, Options::default().memory_budget(256 << 20))?;
    ///     db.close()
    /// }
    /// ```
    #[must_use]
    pub fn memory_budget(mut self, memory_budget: impl Into<MemoryBudget>) -> Self {
        self.memory_budget = memory_budget.into();
        self
    }

    /// Changes [`Options::tuning`] and keeps its other settings.
    ///
    /// ```
    /// use braiddb::{Options, Tuning};
    ///
    /// let service = Options::default().tuning(Tuning::default().max_open(1024));
    /// let traced = service.tune(|tuning| tuning.trace(100_000));
    /// assert_eq!((traced.tuning.max_open, traced.tuning.trace), (1024, 100_000));
    /// ```
    #[must_use]
    pub fn tune(mut self, change: impl FnOnce(Tuning) -> Tuning) -> Self {
        self.tuning = change(self.tuning);
        self
    }

    /// Validates the options.
    pub(crate) fn validate(&self) -> Result<(), String> {
        check_range("workers", self.workers as u64, 1..=MAX_WORKERS as u64, "one per core")?;
        check_limit("interactive_idle", self.interactive_idle, "5 minutes")?;
        check_limit("interactive_age", self.interactive_age, "1 hour")?;
        self.tuning.validate()
    }
}

fn check_limit(option: &str, limit: Option<Duration>, default: &str) -> Result<(), String> {
    match limit {
        Some(limit) if limit < MIN_INTERACTIVE_LIMIT => {
            let value = format!("{limit:?}");
            Err(refused(option, value, "1 ms or more, or None for no limit", default))
        }
        _ => Ok(()),
    }
}
