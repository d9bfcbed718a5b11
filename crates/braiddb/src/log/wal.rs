//! The write-ahead log: its parts together, and the operations on it.

use std::sync::Arc;
use std::time::Duration;

use super::block::block_bytes;
use super::cold::ColdStore;
use super::error::LogError;
use super::extent::{
    BlockPurpose, Extent, MAX_GUEST_BLOCK_BYTES, MAX_GUEST_FILLERS, common_block_bytes,
};
use super::files::LogFiles;
use super::flush::{FlushState, FlushTurn, LogDisk};
use super::location;
use super::lsn::Lsn;
use super::options::LogOptions;
use super::read_only::{ReadOnlySource, open_directory};
use super::reader::LogReader;
use super::record::BLOCK_ALIGNMENT;
use super::reservation::Reservation;
use super::ring::{MAX_RING, Ring};
use super::segment::Segments;
use super::space::Space;
use super::stats::LogStats;
use super::tail;
#[cfg(feature = "experiment")]
use super::tracker::HoleTracker;
use super::tracker::LogTracker;
use crate::io::{self, Completion, Device, Directory};
use crate::sync::atomic::{Ordering, fence};

/// The clock's step for a commit that is not logged.
const UNLOGGED_CLOCK_STEP: u64 = 8;

/// Returns the segment size of a new database on a disk with `available` free bytes. On a small
/// disk, segments reserve only a part of the space.
pub(super) fn default_segment_bytes(available: u64) -> u64 {
    (available / 256).min(16 << 20).next_power_of_two().max(4 << 20)
}

/// Returns the minimum ring size for this number of workers. The ring uses the next power of two.
pub(crate) fn min_ring_bytes(workers: usize) -> u64 {
    Space::<LogTracker>::min_ring_bytes(workers)
}

/// The write-ahead log.
#[derive(Debug)]
pub(crate) struct Log {
    space: Space<LogTracker>,
    workers: usize,
    pub(super) disk: Option<Box<LogDisk>>,
    /// The source of a read-only log.
    source: Option<Box<ReadOnlySource>>,
}

impl Log {
    /// Creates a log that is only a clock: nothing is written, and everything counts as durable.
    pub(crate) fn volatile(workers: usize) -> Self {
        let clock_only = default_tracker(fillers(workers));
        let space = Space::new(workers, MAX_RING, clock_only);
        space.start(Lsn::FIRST, Lsn::MAX);
        Self { space, workers, disk: None, source: None }
    }

    /// Opens or creates a database's log, and locks the directory. The caller must read the reader
    /// to its end and call [`Log::resume_at`] with that end before it reserves anything.
    ///
    /// # Errors
    /// `Locked` if it is already open; `NotADatabase` if none exists and none may be created;
    /// `Corrupt`, `WrongVersion`; errors of the operating system.
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
        let tracker = LogTracker::new(options.tracker, fillers(workers), ring_bytes);
        #[cfg(not(feature = "experiment"))]
        let tracker = default_tracker(fillers(workers));
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

    /// Opens a database's log read-only, without writing, creating or locking anything. The caller
    /// must read the reader to its end and then call [`Log::resume_at`] with that end. Afterwards
    /// the log is only a clock.
    ///
    /// # Errors
    /// `NotADatabase`; `Corrupt`, `WrongVersion`; errors of the operating system. Any of these may
    /// be caused by another process that writes: see [`DirectoryState`](super::DirectoryState).
    pub(crate) fn open_read_only(options: &LogOptions) -> Result<(Self, LogReader), LogError> {
        let segments = Arc::new(Segments::open_read_only(open_directory(options)?)?);
        let reader = LogReader::new(segments.clone());
        let source = Some(Box::new(ReadOnlySource::new(segments)));
        Ok((Self { source, ..Self::volatile(options.workers) }, reader))
    }

    /// Continues the log after the end found by the reader. Nothing may be reserved before. A
    /// volatile log accepts any LSN, to continue after a log that was read.
    ///
    /// # Errors
    /// Errors of the operating system while the end of the log is repaired.
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

    /// Returns the segments of a log that is written or read-only.
    fn segments(&self) -> Option<&Arc<Segments>> {
        let written = self.disk.as_ref().map(|disk| &disk.segments);
        written.or_else(|| self.source.as_ref().map(|source| &source.segments))
    }

    /// Returns the directory of a log that is written; `None` for a volatile log.
    pub(crate) fn files(&self) -> Option<LogFiles> {
        self.disk.as_ref().map(|disk| LogFiles::new(disk.segments.clone()))
    }

    /// Returns the directory of a log that is written or read-only; `None` for a volatile log.
    pub(crate) fn readable_files(&self) -> Option<LogFiles> {
        self.segments().map(|segments| LogFiles::new(segments.clone()))
    }

    /// Returns the LSN before which everything is on disk. For a read-only log, this is the state
    /// at its opening.
    pub(crate) fn readable_until(&self) -> Lsn {
        self.source.as_ref().map_or_else(|| self.durable(), |source| source.end())
    }

    /// Returns the memory of the log's ring in bytes.
    pub(crate) fn ring_bytes(&self) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.ring.bytes() as u64)
    }

    /// Returns the durable log as a store of records; `None` for a volatile log.
    pub(crate) fn cold_store(&self) -> Option<ColdStore> {
        self.segments().map(ColdStore::new)
    }

    /// Returns the identity of the database; `None` for a volatile log.
    #[cfg(test)]
    pub(super) fn identity(&self) -> Option<super::identity::Identity> {
        self.disk.as_ref().map(|disk| disk.segments.identity)
    }

    /// Returns the position of the next block, which is the current time.
    #[inline]
    pub(crate) fn tail(&self) -> Lsn {
        self.space.tail()
    }

    /// Returns the LSN before which everything is on disk.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        self.space.released()
    }

    /// Returns the LSN before which everything is in the ring or on disk. It may briefly decrease,
    /// because marks are bounds.
    pub(crate) fn buffered(&self) -> Lsn {
        self.space.buffered()
    }

    /// Advances the clock for a commit that is not logged, and returns its LSN.
    #[inline]
    pub(crate) fn advance_clock(&self) -> Lsn {
        self.space.advance_clock(UNLOGGED_CLOCK_STEP)
    }

    /// Appends an empty block if space is available. Later begin stamps then differ from earlier
    /// ones, even without commits.
    pub(crate) fn append_empty_block(&self, worker: usize) {
        if self.disk.is_none() {
            self.advance_clock();
        } else if self.admits(block_bytes(0), BlockPurpose::Upkeep) {
            self.reserve(worker, block_bytes(0)).finish_skip();
        }
    }

    /// Returns whether a block of `block_bytes` may be reserved now. After `true`, the worker must
    /// reserve it before it suspends or asks for a block of another size.
    #[inline]
    pub(crate) fn admits(&self, block_bytes: usize, purpose: BlockPurpose) -> bool {
        self.space.admits(block_bytes as u64, purpose)
    }

    /// Demands an extension of the log, if the lack of space is the reason why a block is not
    /// admitted. The following turns make or refuse it.
    pub(crate) fn demand(&self, block_bytes: usize, purpose: BlockPurpose) {
        self.space.demand_extent(block_bytes as u64, purpose);
    }

    /// Returns how many blocks for a purpose were refused because the log could not be extended.
    pub(crate) fn refusals(&self, purpose: BlockPurpose) -> u64 {
        self.disk.as_ref().map_or(0, |disk| disk.segments.extent.refusals(purpose))
    }

    /// Returns the reason why the log could not be extended for a block, if it was refused since
    /// [`Self::refusals`] was `seen`.
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

    /// Returns whether the log could not be extended for the last transaction that needed it, so
    /// that upkeep must free space.
    pub(crate) fn is_short(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.segments.extent.is_short())
    }

    /// Returns whether the log was not extended ahead of need because the disk is nearly full.
    pub(crate) fn is_stalled(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.segments.extent.is_stalled())
    }

    /// Sets the pause after extensions of the log by 16 MiB for changes; zero if it grows as needed.
    #[inline]
    pub(crate) fn pause_between_extensions(&self, pause: Duration) {
        if let Some(disk) = &self.disk {
            disk.segments.pace.set(pause);
        }
    }

    /// On a nearly full disk, returns the bytes of log after which upkeep should try again to free
    /// space.
    pub(crate) fn upkeep_step(&self) -> Option<u64> {
        let segments = &self.disk.as_ref()?.segments;
        if segments.extent.is_short() {
            return Some(segments.extent.kept_for_deletions());
        }
        let step = segments.segment_bytes().max(segments.reserve.next_checkpoint());
        segments.extent.is_stalled().then_some(step)
    }

    /// Returns the bytes that upkeep may still log before it has freed space.
    pub(crate) fn room_for_upkeep(&self) -> u64 {
        self.disk.as_ref().map_or(u64::MAX, |disk| disk.segments.room_for_upkeep(self.tail()))
    }

    /// Allows extensions ahead of need. Until then, only a waiting transaction extends the log.
    pub(crate) fn begin_to_grow(&self) {
        if let Some(disk) = &self.disk {
            disk.segments.extent.resume();
        }
    }

    /// Sets the approximate size of the next checkpoint, and the additional size of the one after
    /// it, in bytes. Space for both is reserved on disk, if available. With less than `least`, the
    /// next one might fail.
    pub(crate) fn expect_checkpoints(&self, next: u64, after: u64, least: u64) {
        if let Some(disk) = &self.disk {
            disk.segments.reserve.expect_checkpoints(next, after, least);
        }
    }

    /// Returns whether changes were withdrawn because the disk is full, or have had no space so far.
    #[inline(always)]
    pub(crate) fn refuses_changes(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.segments.extent.is_withdrawn())
    }

    /// Completes the disk reserve after the next checkpoint has become larger. If the disk is full,
    /// returns `false` and admits no more changes, or not even deletions.
    pub(crate) fn follow_checkpoint(&self) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.segments.follow_checkpoint())
    }

    /// Returns whether disk space is available beyond what the next checkpoint needs in any case.
    pub(crate) fn has_room_beside_upkeep(&self) -> bool {
        self.disk.as_ref().is_none_or(|disk| disk.segments.has_room_beside_upkeep(0))
    }

    /// Returns the maximum size of a common block in bytes. Larger blocks are admitted one at a
    /// time. The limit grows with a small log.
    pub(crate) fn common_block_bytes(&self) -> usize {
        self.space.common_bytes() as usize
    }

    /// Reserves a block that was admitted, for a worker, or for a guest, whose number follows those
    /// of the workers.
    #[inline]
    pub(crate) fn reserve(&self, worker: usize, block_bytes: usize) -> Reservation<'_> {
        assert!(
            worker < self.workers
                || (worker < self.padder() && block_bytes <= MAX_GUEST_BLOCK_BYTES),
            "{worker} is one of {} workers, or a guest with a small block",
            self.workers
        );
        assert!(block_bytes.is_multiple_of(BLOCK_ALIGNMENT), "blocks are aligned");
        let disk = self.disk.as_ref().expect("a volatile log has no blocks");
        let lsn = self.space.reserve(worker, block_bytes as u64);
        Reservation::new(&disk.ring, &self.space, worker, lsn, block_bytes)
    }

    /// Returns whether compaction must mark records in a block whose LSN is already drawn as moved.
    /// If it returns `false`, the LSN is before every tail that is read after
    /// [`LogFiles::allow_moved`] has returned.
    pub(crate) fn logs_moved(&self) -> bool {
        // The fence is between drawing the LSN and reading the version. It pairs with the fence in
        // `allow_moved`, which is between the version and the tail. Either this thread sees the new
        // version, or the tail is after the LSN.
        fence(Ordering::SeqCst);
        self.disk.as_ref().is_some_and(|disk| disk.segments.allows_moved())
    }

    /// Returns the reason why nothing can be committed any more, if the log failed.
    #[inline]
    pub(crate) fn poisoned(&self) -> Option<Arc<LogError>> {
        self.disk.as_ref()?.poisoned().cloned()
    }

    /// Takes a worker's flush turn: prepares space, and flushes if `wanted` or if much has
    /// gathered.
    pub(crate) fn turn(
        &self,
        flush: &mut FlushState,
        device: &mut dyn Device,
        wanted: bool,
    ) -> FlushTurn {
        let Some(disk) = &self.disk else { return FlushTurn::default() };
        disk.turn(&self.space, self.padder(), flush, device, wanted)
    }

    /// Returns the number of the filler that pads the tail.
    fn padder(&self) -> usize {
        fillers(self.workers) - 1
    }

    /// Handles the completion of an operation that `turn` submitted with the same state.
    pub(crate) fn complete(&self, flush: &mut FlushState, completion: Completion) {
        let disk = self.disk.as_ref().expect("a volatile log submits nothing");
        disk.complete(&self.space, flush, completion);
    }

    /// Closes the files and releases the directory when nothing is read or written any more.
    /// Removes spare files and the reserve if the engine has not failed.
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

    /// Returns the lowest position that change feeds and slots keep; `tail` if none keeps any.
    pub(crate) fn kept_from(&self, tail: Lsn) -> Lsn {
        self.disk.as_ref().map_or(tail, |disk| disk.segments.retention.oldest(tail).min(tail))
    }

    /// Returns the change slot, if any, and the lowest position of each hold on the log.
    pub(crate) fn holders(&self) -> Vec<(Option<Arc<str>>, Lsn)> {
        self.disk.as_ref().map_or_else(Vec::new, |disk| disk.segments.retention.holders())
    }

    /// Returns the counters since the log was opened.
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

/// Returns the number of fillers: workers, guests, and the flush leader, which pads the tail.
fn fillers(workers: usize) -> usize {
    workers + MAX_GUEST_FILLERS + 1
}

/// Returns the default tracker of a log.
fn default_tracker(fillers: usize) -> LogTracker {
    #[cfg(feature = "experiment")]
    return LogTracker::new(HoleTracker::default(), fillers, 0);
    #[cfg(not(feature = "experiment"))]
    LogTracker::new(fillers)
}
