//! Tuning: settings that trade speed, memory and disk space.

use super::option_checks::{check_range, refused, setters};
use crate::io::DeviceKind;
#[cfg(feature = "experiment")]
use crate::log::HoleTracker;
use crate::log::{DEFAULT_PAGE_BYTES, MAX_RING, PAGE_BYTES, is_table_page_size};
#[cfg(feature = "experiment")]
use crate::sched::Policy;
use crate::sched::Width;
#[cfg(feature = "experiment")]
use crate::transaction::Certifier;
use crate::transaction::WallClock;

/// Simulations use small databases, so that rare events happen soon.
const IS_SMALL: bool = cfg!(braid_simulation);
const MAX_HOT_WIDTH: u64 = 1024;
const MAX_COLD_WIDTH: u64 = 1 << 14;
const DEFAULT_COLD_WIDTH: usize = 4096;
const MAX_READ_DEPTH: u64 = 1 << 12;
const DEFAULT_READ_DEPTH: usize = 64;
const MIN_OPEN: u64 = if IS_SMALL { 8 } else { 64 };
const MAX_OPEN: u64 = 1 << 14;
const MIN_LOG_RING_BYTES: u64 = if IS_SMALL { 1 << 20 } else { 32 << 20 };
const MAX_LOG_RING_BYTES: u64 = MAX_RING;
const LOG_SEGMENT_STEP_BYTES: u64 = 4096;
const MIN_LOG_SEGMENT_BYTES: u64 = if IS_SMALL { 8 << 10 } else { 64 << 10 };
const MAX_LOG_SEGMENT_BYTES: u64 = 1 << 30;
/// More than an idle checkpoint logs. With less, each checkpoint would trigger the next one.
const MIN_CHECKPOINT_BYTES: u64 = if IS_SMALL { 8 << 10 } else { 32 << 10 };
const DEFAULT_CHECKPOINT_BYTES: u64 = 1 << 30;
/// A few small records and their index entries. With less, almost no transaction could commit.
const MIN_VERSION_BYTES: u64 = 4 << 10;
const MAX_TRACE_SLICES: u64 = 1 << 24;
#[cfg(feature = "experiment")]
const DEFAULT_FLUSH_UNIT_BYTES: u64 = 64 << 10;

/// Settings that trade speed, memory and disk space. The defaults fit most applications: each
/// field documents the symptom on which to change it. Symptoms are figures of
/// [`Database::stats`](crate::Database::stats) or errors.
///
/// ```
/// use braiddb::{Options, Tuning};
///
/// let tuning = Tuning::default().log_segment_bytes(1 << 20);
/// let options = Options::default().workers(1).tuning(tuning);
/// assert_eq!(options.tuning.log_segment_bytes, Some(1 << 20));
/// ```
///
/// All settings:
///
/// ```
/// use braiddb::{DeviceKind, Overload, Tuning, WallClock, Width};
///
/// // Little memory and a small disk.
/// let small = Tuning::default()
///     .max_open(64)
///     .log_ring_bytes(32 << 20)
///     .log_segment_bytes(4 << 20)
///     .page_bytes(16 << 10)
///     .version_bytes(8 << 20)
///     .checkpoint_bytes(16 << 20);
///
/// // A dedicated machine whose service prefers errors to long waits.
/// let service = Tuning::default()
///     .pin(true)
///     .cold_width(256)
///     .overload(Overload::Shed)
///     .read_depth(32);
///
/// // A measurement.
/// let measured = Tuning::default()
///     .hot_width(Width::Fixed(8))
///     .device(DeviceKind::Blocking)
///     .wall_clock(WallClock::default())
///     .trace(100_000);
/// println!("{small:?}\n{service:?}\n{measured:?}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// Pins each worker to one core. Default: `false`.
    ///
    /// Set it if latency varies because the operating system moves workers between cores, and
    /// nothing else runs on these cores.
    pub pin: bool,
    /// Number of transactions that a worker interleaves to hide cache misses: [`Width::Auto`], or
    /// a fixed number from 1 to 1024. Default: [`Width::Auto`], which adapts to the load.
    ///
    /// Fix it if [`WorkerStats::width`](crate::stats::WorkerStats) keeps changing under a steady load, or
    /// for repeatable measurements.
    pub hot_width: Width,
    /// Number of transactions per worker that may wait for storage or for their commit, 1 to
    /// 16 384. [`Tuning::overload`] decides about further ones. Default: 4096.
    ///
    /// Raise it if [`WorkerStats::cold`](crate::stats::WorkerStats) stays at this number while the disk
    /// has capacity left. Lower it if transactions wait too long behind others for the disk.
    pub cold_width: usize,
    /// Treatment of transactions beyond [`Tuning::cold_width`]. Default: [`Overload::Wait`].
    ///
    /// Set [`Overload::Shed`] if an early error serves callers better than a long wait.
    pub overload: Overload,
    /// Number of disk reads that a worker has in flight, 1 to 4096. Further reads wait in order.
    /// Default: 64.
    ///
    /// Raise it if the disk serves more reads in parallel. Lower it if reads delay the log's
    /// writes, so that commits become slow.
    pub read_depth: usize,
    /// Bytes of a page of [paged](crate::TableOptions::paged) tables: a power of two from 4096 to
    /// 65 536. Default: 4096.
    ///
    /// The first paged table of a database fixes the size for all later ones. Raise it if most
    /// work is scans of tables larger than memory, or if many values exceed a quarter of a page:
    /// such values lie outside the page. Each randomly read record then takes more memory and
    /// reads more bytes. At least 64 pages stay in memory regardless of the budget: 4 MiB of
    /// pages of 64 KiB.
    pub page_bytes: usize,
    /// Bytes of memory for one transaction's versions of records in
    /// [paged](crate::TableOptions::paged) tables and for its unwritten log records, 4096 or more.
    /// Default, `None`: an eighth of the memory budget but at least 32 MiB, or no limit if the
    /// budget is unlimited.
    ///
    /// Raise it if large transactions fail with [`MemoryLimit::Versions`](crate::MemoryLimit) and cannot
    /// use [`Database::run_bulk`](crate::Database::run_bulk) instead. Lower it if one transaction
    /// takes too much of the memory budget.
    pub version_bytes: Option<u64>,
    /// Number of open transactions per worker, 64 to 16 384. Default: 16 384.
    ///
    /// This many transactions may run or wait for the engine; further requests wait in order.
    /// The same number of others may wait for something outside the engine: a future of the
    /// caller, a nested [`Database::run`](crate::Database::run), or the next step of an
    /// interactive transaction. These delay no request, because they may depend on one. Beyond
    /// both limits, a request fails immediately with [`Error::Overloaded`](crate::Error) and may be retried. So does
    /// [`Database::begin`](crate::Database::begin) beyond this many interactive transactions.
    ///
    /// Lower it to reject overload earlier and to use less memory.
    pub max_open: usize,
    /// Interface to the disk. Default: [`DeviceKind::Auto`], io_uring with a fallback to blocking
    /// calls.
    ///
    /// Set [`DeviceKind::Uring`] if opening must fail where io_uring is unavailable, and
    /// [`DeviceKind::Blocking`] if io_uring of this kernel fails or is too slow.
    pub device: DeviceKind,
    /// Bytes of the log ring, which holds commits until they are on disk: a power of two from
    /// 32 MiB to 2 GiB. Default, `None`: 64 MiB, or 32 MiB if [`Options::memory_budget`] is less
    /// than 256 MiB.
    ///
    /// With 7 or more workers the ring takes at least 64 MiB, with 39 or more at least 128 MiB.
    /// Raise it if [`SuspensionStats::log_space`](crate::stats::SuspensionStats) grows: transactions wait
    /// for room in the ring.
    ///
    /// [`Options::memory_budget`]: crate::Options::memory_budget
    pub log_ring_bytes: Option<usize>,
    /// Bytes of a log segment file: a multiple of 4096 from 64 KiB to 1 GiB. Default, `None`:
    /// 16 MiB; if creation finds less than 4 GiB of free disk space, about a 256th of it but at
    /// least 4 MiB.
    ///
    /// A database keeps the size with which it was created. The first segment file begins with
    /// 256 KiB or the segment size, if that is less, and doubles as it grows. Lower it if
    /// [`LogStats::reserve_bytes`](crate::stats::LogStats), a few segments that stay reserved for a full
    /// disk, takes too much of a small disk.
    pub log_segment_bytes: Option<u64>,
    /// Maximum bytes of log after which the database writes a checkpoint, 32 768 or more.
    /// Default: 1 GiB.
    ///
    /// A database with little data writes one after half as many bytes of log as it has data, or as
    /// many as the last checkpoint's file has if that is more, but at least after 64 MiB. If the
    /// images of pages that a checkpoint writes take more than twice this, the next one is due when
    /// half as much was logged.
    ///
    /// Opening replays the log after the last checkpoint. The database keeps about this much disk
    /// space in freed segments for reuse; closing and
    /// [`Database::compact`](crate::Database::compact) release it. Lower it if opening takes too
    /// long or the log takes too much disk space. Raise it if checkpoints take too much disk
    /// bandwidth.
    pub checkpoint_bytes: u64,
    /// Clock by which records of tables with a lifetime
    /// ([`TableOptions::ttl`](crate::TableOptions::ttl)) expire. Default: the system clock.
    ///
    /// Set it if a test must control time, or if the application has a more reliable clock.
    pub wall_clock: WallClock,
    /// Number of time slices per worker that [`Database::trace`](crate::Database::trace) can
    /// return, 0 to 16 777 216, of 24 bytes each. Default: 0, no trace.
    ///
    /// Set it to find the cause of a delay. Each poll of a transaction then reads the clock twice
    /// more.
    pub trace: usize,
    /// Scheduling policy of the workers. Default: [`Policy::DualQueue`].
    #[cfg(feature = "experiment")]
    pub policy: Policy,
    /// Certifier of serializable transactions. Default: [`Certifier::ReadValidation`].
    #[cfg(feature = "experiment")]
    pub certifier: Certifier,
    /// Tracker of unfilled log blocks. Default: [`HoleTracker::InFlightMarks`].
    #[cfg(feature = "experiment")]
    pub hole_tracker: HoleTracker,
    /// Bytes that the next log flush gathers while one is in flight. Default: 64 KiB.
    #[cfg(feature = "experiment")]
    pub flush_unit: u64,
    /// Number of page frames of a database with a directory, instead of a share of the memory
    /// budget. Default: `None`, the share.
    #[cfg(feature = "experiment")]
    pub page_frames: Option<u32>,
    /// Limit of bytes of log that are not yet durable, in addition to the headroom for the
    /// workers' largest blocks: simulates a smaller ring. Default: `u64::MAX`, the ring is the
    /// only limit.
    #[cfg(braid_simulation)]
    pub log_room_bytes: u64,
}

/// Treatment of transactions that need storage while [`Tuning::cold_width`] others of their
/// worker wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overload {
    /// No transaction begins until fewer wait.
    #[default]
    Wait,
    /// They fail with [`Error::Overloaded`](crate::Error) and may be retried. Transactions that
    /// need only memory continue (MosaicDB §4.3).
    Shed,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            pin: false,
            hot_width: Width::Auto,
            cold_width: DEFAULT_COLD_WIDTH,
            overload: Overload::default(),
            read_depth: DEFAULT_READ_DEPTH,
            page_bytes: DEFAULT_PAGE_BYTES,
            version_bytes: None,
            max_open: MAX_OPEN as usize,
            device: DeviceKind::Auto,
            log_ring_bytes: None,
            log_segment_bytes: None,
            checkpoint_bytes: DEFAULT_CHECKPOINT_BYTES,
            wall_clock: WallClock::default(),
            trace: 0,
            #[cfg(feature = "experiment")]
            policy: Policy::default(),
            #[cfg(feature = "experiment")]
            certifier: Certifier::default(),
            #[cfg(feature = "experiment")]
            hole_tracker: HoleTracker::default(),
            #[cfg(feature = "experiment")]
            flush_unit: DEFAULT_FLUSH_UNIT_BYTES,
            #[cfg(feature = "experiment")]
            page_frames: None,
            #[cfg(braid_simulation)]
            log_room_bytes: u64::MAX,
        }
    }
}

setters! { Tuning:
    pin: bool,
    hot_width: Width,
    cold_width: usize,
    overload: Overload,
    read_depth: usize,
    page_bytes: usize,
    max_open: usize,
    device: DeviceKind,
    checkpoint_bytes: u64,
    wall_clock: WallClock,
    trace: usize,
}

#[cfg(feature = "experiment")]
setters! { Tuning:
    policy: Policy,
    certifier: Certifier,
    hole_tracker: HoleTracker,
    flush_unit: u64,
    page_frames: Option<u32>,
}

#[cfg(braid_simulation)]
setters! { Tuning:
    log_room_bytes: u64,
}

impl Tuning {
    /// Sets [`Tuning::log_ring_bytes`] to a number of bytes, or to `None` for the default.
    ///
    /// ```
    /// use braiddb::{Database, Options, Tuning};
    ///
    /// fn main() -> Result<(), braiddb::Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let path = directory.path();
    ///     let tuning = Tuning::default().log_ring_bytes(32 << 20);
    ///     let db = Database::open(path, Options::default().memory_budget(96 << 20).tuning(tuning))?;
    ///     db.close()
    /// }
    /// ```
    #[must_use]
    pub fn log_ring_bytes(mut self, log_ring_bytes: impl Into<Option<usize>>) -> Self {
        self.log_ring_bytes = log_ring_bytes.into();
        self
    }

    /// Sets [`Tuning::log_segment_bytes`] to a number of bytes, or to `None` for the default.
    ///
    /// ```
    /// use braiddb::{Database, Options, Tuning};
    ///
    /// fn main() -> Result<(), braiddb::Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let path = directory.path();
    ///     let tuning = Tuning::default().log_segment_bytes(4 << 20);
    ///     let db = Database::open(path, Options::default().tuning(tuning))?;
    ///     db.close()
    /// }
    /// ```
    #[must_use]
    pub fn log_segment_bytes(mut self, log_segment_bytes: impl Into<Option<u64>>) -> Self {
        self.log_segment_bytes = log_segment_bytes.into();
        self
    }

    /// Sets [`Tuning::version_bytes`] to a number of bytes, or to `None` for the default.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, TableOptions, Tuning, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let tuning = Tuning::default().version_bytes(64 << 10);
    ///         let db = Database::in_memory(Options::default().workers(1).tuning(tuning))?;
    ///         let paged = TableOptions::default().paged();
    ///         let table: Table<u64, u64> = db.create_table_with("squares", paged).await?;
    ///         let many = db.run(async move |tx| {
    ///             for n in 0..10_000 {
    ///                 tx.put(&table, &n, &(n * n)).await?;
    ///             }
    ///             Ok(())
    ///         });
    ///         assert!(many.await.unwrap_err().to_string().contains("run_bulk"));
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn version_bytes(mut self, version_bytes: impl Into<Option<u64>>) -> Self {
        self.version_bytes = version_bytes.into();
        self
    }

    /// Validates the tuning.
    pub(super) fn validate(&self) -> Result<(), String> {
        if let Width::Fixed(width) = self.hot_width {
            check_range("hot_width", width as u64, 1..=MAX_HOT_WIDTH, "Width::Auto")?;
        }
        let numbers = [
            ("cold_width", self.cold_width as u64, 1..=MAX_COLD_WIDTH, "4096"),
            ("read_depth", self.read_depth as u64, 1..=MAX_READ_DEPTH, "64"),
            ("max_open", self.max_open as u64, MIN_OPEN..=MAX_OPEN, "16384"),
            ("checkpoint_bytes", self.checkpoint_bytes, MIN_CHECKPOINT_BYTES..=u64::MAX, "1 GiB"),
            ("trace", self.trace as u64, 0..=MAX_TRACE_SLICES, "0"),
        ];
        for (option, value, range, default) in numbers {
            check_range(option, value, range, default)?;
        }
        if let Some(bytes) = self.version_bytes {
            let default = "None, an eighth of the memory budget";
            check_range("version_bytes", bytes, MIN_VERSION_BYTES..=u64::MAX, default)?;
        }
        self.validate_sizes()
    }

    fn validate_sizes(&self) -> Result<(), String> {
        if let Some(bytes) = self.log_ring_bytes
            && !((MIN_LOG_RING_BYTES..=MAX_LOG_RING_BYTES).contains(&(bytes as u64))
                && bytes.is_power_of_two())
        {
            let allowed =
                format!("a power of two between {MIN_LOG_RING_BYTES} and {MAX_LOG_RING_BYTES}");
            return Err(refused("log_ring_bytes", bytes, &allowed, "None, 64 MiB"));
        }
        if let Some(bytes) = self.log_segment_bytes
            && !((MIN_LOG_SEGMENT_BYTES..=MAX_LOG_SEGMENT_BYTES).contains(&bytes)
                && bytes.is_multiple_of(LOG_SEGMENT_STEP_BYTES))
        {
            let allowed = format!(
                "a multiple of {LOG_SEGMENT_STEP_BYTES} between {MIN_LOG_SEGMENT_BYTES} and \
                 {MAX_LOG_SEGMENT_BYTES}"
            );
            return Err(refused("log_segment_bytes", bytes, &allowed, "None, 16 MiB"));
        }
        if !is_table_page_size(self.page_bytes) {
            let (low, high) = (PAGE_BYTES.start(), PAGE_BYTES.end());
            let allowed = format!("a power of two between {low} and {high}");
            return Err(refused("page_bytes", self.page_bytes, &allowed, "4096"));
        }
        Ok(())
    }
}
