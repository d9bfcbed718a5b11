//! The write-ahead log: one, central, filled by all workers at once, flushed by the worker that has a turn
//! (ELEDA), and the clock of the engine: a commit's position is its place in the order of all.
//!
//! A commit reserves by one `fetch_add` on the tail, copies its records into the ring while others
//! fill theirs, and is durable once the contiguous prefix up to it has been written. Invariants:
//! `durable <= buffered <= tail`; durable only ever is the end of a padded flush; blocks are never
//! changed once filled, nor sectors once durable.

mod block;
mod cold;
#[cfg(not(loom))]
#[cfg(feature = "experiment")]
mod drive;
mod durable_waiters;
mod error;
mod extent;
mod files;
mod flush;
mod follow;
mod growth;
mod identity;
mod leader;
mod location;
mod lsn;
#[cfg(all(test, loom))]
mod model;
mod prepare;
mod prepared;
mod read_only;
mod reader;
mod record;
mod reservation;
mod reserve;
mod retention;
mod ring;
mod segment;
mod space;
mod spare;
mod stats;
mod tail;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
mod tracker;
mod waiting;
#[cfg(all(test, loom))]
mod wake_up_model;

use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use block::{BlockKind, MAX_LARGE_BLOCK_BYTES, block_bytes};
pub(crate) use cold::{ColdRecord, ColdSpan, ColdStore};
#[cfg(not(loom))]
#[cfg(feature = "experiment")]
pub use drive::{TrackerDrive, TrackerDriveResult};
pub(crate) use durable_waiters::LogWatch;
pub use error::LogError;
pub(crate) use extent::BlockPurpose;
use extent::{Extent, common_block_bytes};
pub(crate) use files::{DirectoryCopy, LogFiles, WeakLogFiles};
use flush::LogDisk;
pub(crate) use flush::{FlushState, FlushTurn};
pub(crate) use follow::BlockFollower;
pub(crate) use identity::{DEFAULT_PAGE_BYTES, PAGE_BYTES, UNFINISHED_SUFFIX, is_table_page_size};
pub(crate) use location::{CHECKPOINT_NAME, CHECKPOINT_SUFFIX};
pub(crate) use lsn::Lsn;
pub(crate) use read_only::DirectoryState;
use read_only::ReadOnlySource;
pub(crate) use reader::{Block, LogReader};
pub(crate) use record::{RecordKind, RecordView, record_bytes};
pub(crate) use reservation::Reservation;
pub(crate) use retention::{LogFreed, LogHold};
use ring::Ring;
use segment::Segments;
use space::Space;
pub use stats::LogStats;
#[cfg(feature = "experiment")]
pub use tracker::HoleTracker;
use tracker::LogTracker;
pub(crate) use waiting::WaitingWorkers;

use crate::io::{self, Completion, Device, Directory, SimulatedDisk};
use crate::sync::atomic::{Ordering, fence};

/// The clock's step for a commit that is not logged.
const UNLOGGED_CLOCK_STEP: u64 = 8;
/// Blocks tell distances within the ring in 32 bits.
pub(crate) const MAX_RING: u64 = 2 << 30;

/// How to open a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// The database's directory.
    pub(crate) directory: PathBuf,
    /// The simulated disk that is used instead of the directory, if one is.
    pub(crate) disk: Option<SimulatedDisk>,
    pub(crate) workers: usize,
    /// Bytes of the ring in memory; rounded up to a power of two that holds what the workers may
    /// have in flight.
    pub(crate) ring_bytes: u64,
    /// Bytes of log in a segment, if the database is made now.
    pub(crate) segment_bytes: Option<u64>,
    /// Bytes of a page of paged tables, if the database has none yet.
    pub(crate) page_bytes: usize,
    /// Whether a database is made if there is none.
    pub(crate) create: bool,
    #[cfg(feature = "experiment")]
    pub(crate) tracker: HoleTracker,
    /// While one flush is under way, the next gathers this many bytes.
    pub(crate) flush_unit: u64,
    /// See [`crate::Tuning::log_room_bytes`].
    #[cfg(braid_simulation)]
    pub(crate) room_bytes: u64,
}

impl LogOptions {
    /// The defaults.
    pub(crate) fn new(directory: impl Into<PathBuf>, workers: usize) -> Self {
        Self {
            directory: directory.into(),
            disk: None,
            workers,
            ring_bytes: 64 << 20,
            segment_bytes: None,
            page_bytes: DEFAULT_PAGE_BYTES,
            create: true,
            #[cfg(feature = "experiment")]
            tracker: HoleTracker::default(),
            flush_unit: 64 << 10,
            #[cfg(braid_simulation)]
            room_bytes: u64::MAX,
        }
    }
}

/// Bytes of a segment of a new database, where so many are free on the disk: of a small disk only a part is held back that way.
fn default_segment_bytes(available: u64) -> u64 {
    (available / 64).min(64 << 20).next_power_of_two().max(4 << 20)
}

/// Bytes of the least ring for so many workers; a power of two is taken that has as many.
pub(crate) fn min_ring_bytes(workers: usize) -> u64 {
    Space::<LogTracker>::min_ring_bytes(workers)
}

/// The log.
#[derive(Debug)]
pub(crate) struct Log {
    space: Space<LogTracker>,
    workers: usize,
    disk: Option<Box<LogDisk>>,
    /// What was read, of a log that is not written.
    source: Option<Box<ReadOnlySource>>,
}

impl Log {
    /// A log that is only a clock: nothing is written, everything counts as durable.
    pub(crate) fn volatile(workers: usize) -> Self {
        let clock_only = default_tracker(workers + 1);
        let space = Space::new(workers, MAX_RING, clock_only);
        space.start(Lsn::FIRST, Lsn::MAX);
        Self { space, workers, disk: None, source: None }
    }

    /// Opens a database's log, or makes one, and locks the directory. Everything must be read from
    /// the reader, and then [`Log::resume_at`] its end, before anything is reserved.
    ///
    /// # Errors
    /// `Locked` if it is open already; `NotADatabase` if there is none and none is to be made;
    /// `Corrupt`, `WrongVersion`; the operating system's.
    pub(crate) fn open(options: LogOptions) -> Result<(Self, LogReader), LogError> {
        let LogOptions { directory, disk, workers, ring_bytes, create, .. } = options;
        let ring_bytes = ring_bytes.max(min_ring_bytes(workers)).next_power_of_two();
        if ring_bytes > MAX_RING {
            return Err(LogError::Size {
                what: "a log ring",
                bytes: ring_bytes,
                limit: format!("at most {MAX_RING}"),
            });
        }
        let directory = match disk {
            Some(disk) => Directory::open_simulated(&disk)?,
            None => {
                location::check(&directory, create)?;
                Directory::open(&directory, create)?
            }
        };
        let ring = Ring::new(ring_bytes as usize)
            .map_err(|error| LogError::io("map the log's ring for", directory.path(), 0, error))?;
        let extent = |segment_bytes| Extent::new(segment_bytes, workers);
        let usual = || default_segment_bytes(directory.available_bytes());
        let sizes = (options.segment_bytes.unwrap_or_else(usual), options.page_bytes);
        let segments = Arc::new(Segments::open(directory, sizes, create, extent)?);
        let reader = LogReader::new(segments.clone());
        #[cfg(feature = "experiment")]
        let tracker = LogTracker::new(options.tracker, workers + 1, ring_bytes);
        #[cfg(not(feature = "experiment"))]
        let tracker = default_tracker(workers + 1);
        let common_bytes = common_block_bytes(segments.segment_bytes());
        let space = Space::new(workers, ring_bytes, tracker);
        let space = space.within(segments.extent.clone(), common_bytes);
        #[cfg(braid_simulation)]
        let space = space.with_room(options.room_bytes);
        Ok((
            Self {
                space,
                workers,
                disk: Some(Box::new(LogDisk::new(ring, segments, options.flush_unit))),
                source: None,
            },
            reader,
        ))
    }

    /// Lets the log go on after what the reader read; nothing may be reserved before. A volatile
    /// log takes any LSN, to go on after a log that was read.
    ///
    /// # Errors
    /// The operating system's, while the end of the log is put in order.
    pub(crate) fn resume_at(&self, end: Lsn) -> Result<(), LogError> {
        let Some(disk) = &self.disk else {
            if let Some(source) = &self.source {
                source.set_end(end);
            }
            self.space.start(end, Lsn::MAX);
            return Ok(());
        };
        let tail = disk.segments.tail.lock().take();
        let tail = tail.expect("the reader reads to the end first");
        assert_eq!(tail.end, end, "the log resumes where the reader ended");
        let next = tail::close(&disk.segments, tail)?;
        disk.start(next);
        self.space.start(next, next);
        Ok(())
    }

    /// The segments, which are written or only read.
    fn segments(&self) -> Option<&Arc<Segments>> {
        let written = self.disk.as_ref().map(|disk| &disk.segments);
        written.or_else(|| self.source.as_ref().map(|source| &source.segments))
    }

    /// The directory of a log that is written; `None` for a volatile log.
    pub(crate) fn files(&self) -> Option<LogFiles> {
        self.disk.as_ref().map(|disk| LogFiles::new(disk.segments.clone()))
    }

    /// Bytes of memory that the log's ring takes.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.ring.bytes() as u64)
    }

    /// The durable log as a store of records; `None` for a volatile log.
    pub(crate) fn cold_store(&self) -> Option<ColdStore> {
        self.segments().map(ColdStore::new)
    }

    /// Which database this is; `None` for a volatile log.
    #[cfg(test)]
    fn identity(&self) -> Option<identity::Identity> {
        self.disk.as_ref().map(|disk| disk.segments.identity)
    }

    /// Where the next block will be: the time.
    #[inline]
    pub(crate) fn tail(&self) -> Lsn {
        self.space.tail()
    }

    /// Everything before is on disk.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        self.space.released()
    }

    /// Everything before is in the ring or on disk. May step back for a moment: marks are bounds.
    pub(crate) fn buffered(&self) -> Lsn {
        self.space.buffered()
    }

    /// Advances the clock for a commit that is not logged; its LSN.
    #[inline]
    pub(crate) fn advance_clock(&self) -> Lsn {
        self.space.advance_clock(UNLOGGED_CLOCK_STEP)
    }

    /// Appends an empty block, if there is room for one: later begin stamps are then different from
    /// earlier ones, also where nobody commits.
    pub(crate) fn append_empty_block(&self, worker: usize) {
        if self.disk.is_none() {
            self.advance_clock();
        } else if self.admits(block_bytes(0), BlockPurpose::Upkeep) {
            self.reserve(worker, block_bytes(0)).finish_skip();
        }
    }

    /// Whether a block of `block_bytes` may be reserved now. The worker that is told so reserves
    /// it before it suspends or asks again for a block of another size.
    #[inline]
    pub(crate) fn admits(&self, block_bytes: usize, purpose: BlockPurpose) -> bool {
        self.space.admits(block_bytes as u64, purpose)
    }

    /// Asks for the log to be extended, if that is why a block is not admitted. It is, or is refused,
    /// in the turns that follow.
    pub(crate) fn demand(&self, block_bytes: usize, purpose: BlockPurpose) {
        self.space.demand_extent(block_bytes as u64, purpose);
    }

    /// How often blocks for a purpose were refused, as the log could not be extended.
    pub(crate) fn refusals(&self, purpose: BlockPurpose) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.segments.extent.refusals(purpose))
    }

    /// Why the log could not be extended for a block that was not refused when [`Self::refusals`] was
    /// `seen`, if it could not be.
    pub(crate) fn refused(
        &self,
        block_bytes: usize,
        purpose: BlockPurpose,
        seen: u64,
    ) -> Option<Arc<LogError>> {
        let extent = &self.disk.as_ref()?.segments.extent;
        let refused = extent.refusals(purpose) != seen
            && !self.space.is_within_extent(block_bytes as u64, purpose);
        refused.then(|| extent.newest_refusal().expect("set before it is counted"))
    }

    /// Whether the log could not be extended for the last transaction that needed it: room is to be
    /// made.
    pub(crate) fn is_short(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.segments.extent.is_short())
    }

    /// Whether the log was not extended ahead of need, as there is hardly room on the disk.
    pub(crate) fn is_stalled(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.segments.extent.is_stalled())
    }

    /// Where there is hardly room for the log to grow: the bytes of log after which upkeep should look
    /// for some again.
    pub(crate) fn upkeep_step(&self) -> Option<u64> {
        let segments = &self.disk.as_ref()?.segments;
        if segments.extent.is_short() {
            return Some(segments.extent.kept_for_deletions());
        }
        let step = segments.segment_bytes().max(segments.reserve.next_checkpoint());
        segments.extent.is_stalled().then_some(step)
    }

    /// Bytes that upkeep may yet log before it has made room.
    pub(crate) fn room_for_upkeep(&self) -> u64 {
        self.disk.as_ref().map_or(u64::MAX, |disk| disk.segments.room_for_upkeep(self.tail()))
    }

    /// Bytes that can be logged once the log is extended for the next time, at most, before it is extended again.
    pub(crate) fn bytes_before_next_extension(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| {
            let there = disk.segments.extent.end().0.saturating_sub(self.tail().0);
            there + disk.segments.next_bytes()
        })
    }

    /// Lets the log be extended ahead of need: until then it is for what a transaction waits for only.
    pub(crate) fn begin_to_grow(&self) {
        if let Some(disk) = &self.disk {
            disk.segments.extent.resume();
        }
    }

    /// Says how many bytes the next checkpoint will take, about, and how many more the one after it: room
    /// for both is held back on the disk, where there is some.
    pub(crate) fn expect_checkpoints(&self, next: u64, after: u64) {
        if let Some(disk) = &self.disk {
            disk.segments.reserve.expect_checkpoints(next, after);
        }
    }

    /// Bytes beyond which a block is large, and admitted one at a time. It grows with a log that is small.
    pub(crate) fn common_block_bytes(&self) -> usize {
        self.space.common_bytes() as usize
    }

    /// Reserves a block that was admitted.
    #[inline]
    pub(crate) fn reserve(&self, worker: usize, block_bytes: usize) -> Reservation<'_> {
        assert!(worker < self.workers, "worker {worker} is one of {}", self.workers);
        assert!(block_bytes.is_multiple_of(block::BLOCK_ALIGNMENT), "blocks are aligned");
        let disk = self.disk.as_ref().expect("nothing is logged to a volatile log");
        let lsn = self.space.reserve(worker, block_bytes as u64);
        Reservation::new(&disk.ring, &self.space, worker, lsn, block_bytes)
    }

    /// Whether what compaction logs again, in a block whose LSN is drawn, is to be told from what transactions
    /// commit. If not, the LSN is before every tail that is read after [`LogFiles::allow_moved`] has returned.
    pub(crate) fn logs_moved(&self) -> bool {
        // Between drawing the LSN and looking at the version; pairs with the one in `allow_moved`, which is between
        // the version and the tail. So this sees the version, or the tail is behind the LSN.
        fence(Ordering::SeqCst);
        self.disk.as_ref().is_some_and(|disk| disk.segments.allows_moved())
    }

    /// Why nothing can be committed any more, if so.
    #[inline]
    pub(crate) fn poisoned(&self) -> Option<Arc<LogError>> {
        self.disk.as_ref()?.poisoned().cloned()
    }

    /// A worker's turn at flushing: prepares space, and flushes if `wanted` or much has gathered.
    pub(crate) fn turn(
        &self,
        flush: &mut FlushState,
        device: &mut dyn Device,
        wanted: bool,
    ) -> FlushTurn {
        let Some(disk) = &self.disk else { return FlushTurn::default() };
        disk.turn(&self.space, self.workers, flush, device, wanted)
    }

    /// Takes the completion of an operation that `turn` submitted with the same state.
    pub(crate) fn complete(&self, flush: &mut FlushState, completion: Completion) {
        let disk = self.disk.as_ref().expect("a volatile log submits nothing");
        disk.complete(&self.space, flush, completion);
    }

    /// Gives up the files and the directory, when nothing is read or written any more: the directory is
    /// free then. What was kept for the log to come is removed, if the engine is in order.
    pub(crate) fn release(&self, in_order: bool) {
        if let Some(source) = &self.source {
            source.segments.release();
        }
        let Some(disk) = &self.disk else { return };
        if in_order {
            disk.segments.remove_spares();
        }
        disk.segments.release();
    }

    /// What was counted since the log was opened.
    pub(crate) fn stats(&self) -> LogStats {
        #[cfg(feature = "experiment")]
        let advances = self.space.tracker.advances();
        let pool = io::pool_stats();
        if let Some(source) = &self.source {
            let disk_bytes = source.segments.disk_bytes();
            let (files_open, files_reopened) = (pool.open, pool.reopened);
            return LogStats { disk_bytes, files_open, files_reopened, ..LogStats::default() };
        }
        self.disk.as_ref().map_or_else(LogStats::default, |disk| LogStats {
            segments_freed: disk.segments.freed.get(),
            disk_bytes: disk.segments.disk_bytes(),
            reserve_bytes: disk.segments.reserve.held(),
            extensions_refused: disk.segments.extent.refusals(BlockPurpose::Change),
            files_open: pool.open,
            files_reopened: pool.reopened,
            #[cfg(feature = "experiment")]
            crawled_bytes: advances.crawled,
            #[cfg(feature = "experiment")]
            hopped_bytes: advances.hopped,
            ..disk.counters.snapshot()
        })
    }
}

/// The tracker of a log for which no other was chosen.
fn default_tracker(fillers: usize) -> LogTracker {
    #[cfg(feature = "experiment")]
    return LogTracker::new(HoleTracker::default(), fillers, 0);
    #[cfg(not(feature = "experiment"))]
    LogTracker::new(fillers)
}
