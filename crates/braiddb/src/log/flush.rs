//! Flushing of the log to disk: any worker that has a turn may lead a flush (ELEDA §4).
//!
//! A flush pads the tail to a sector with a skip block, so that its end is a block boundary. Once
//! everything before that end is filled, the range is written from the ring in direct, synced
//! writes. The durable LSN advances over complete flushes in order, so it is always such an end. No
//! durable sector is ever written again, and an LSN is durable if and only if it is below the
//! durable LSN.
//!
//! No worker waits here. A flush that cannot proceed is continued by a later turn; `leader` lists
//! which worker takes it, and why its turn is certain.

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use super::block::HEADER_BYTES;
use super::extent::BlockPurpose;
use super::leader::{Flush, Leader, LeaderStep};
use super::prepare::{PREPARE_TOKEN, Preparation};
use super::reservation::Reservation;
use super::ring::Ring;
use super::segment::Segments;
use super::space::Space;
use super::stats::Counters;
use super::tracker::LogTracker;
use super::{LogError, Lsn};
use crate::io::{Completion, Device, MappedPointer, Operation, SECTOR_BYTES, WriteSource};
use crate::planted::{Bug, is_planted};
use crate::sched;
use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Token of operations of the engine's housekeeping, which include those of the log.
pub(crate) const LOG_TOKEN: u64 = sched::HOUSEKEEPING_TOKEN;

/// Maximum size of a single write, in bytes.
const WRITE_BYTES: u64 = 1 << 20;

/// The on-disk part of a log.
#[derive(Debug)]
pub(super) struct LogDisk {
    pub(super) ring: Arc<Ring>,
    pub(super) segments: Arc<Segments>,
    leader: Leader,
    started: AtomicU64,
    poison: OnceLock<Arc<LogError>>,
    pub(super) counters: Counters,
}

/// The flush state of one worker.
#[derive(Debug, Default)]
pub(crate) struct FlushState {
    outstanding: usize,
    preparation: Option<Preparation>,
    seen_durable: Lsn,
    seen_poison: bool,
    /// The last seen value of [`Extent::events`](super::extent::Extent::events).
    seen_events: u64,
}

impl FlushState {
    /// Returns the number of the log's operations on this worker's device.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }
}

/// The result of one flush turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlushTurn {
    /// The worker's device has operations of the log, whose completion will wake the worker.
    pub(crate) in_flight: bool,
    /// Since the worker's last turn, more became durable, or the log failed, was extended, or could
    /// not be extended. Waiters must check their conditions.
    pub(crate) advanced: bool,
    /// The log failed, was extended, or could not be extended, possibly without a completion. The
    /// caller must wake other workers whose transactions wait.
    pub(crate) news: bool,
    /// A new segment came into use.
    pub(crate) extended: bool,
    /// A flush waits only for a few instructions of another worker. The turn must be repeated soon.
    pub(crate) pending: bool,
    /// An extension may have been withheld until then.
    pub(crate) paused_until: Option<Instant>,
}

impl LogDisk {
    pub(super) fn new(ring: Ring, segments: Arc<Segments>, flush_unit: u64) -> Self {
        Self {
            ring: Arc::new(ring),
            segments,
            leader: Leader::new(flush_unit),
            started: AtomicU64::new(Lsn::FIRST.0),
            poison: OnceLock::new(),
            counters: Counters::default(),
        }
    }

    /// Starts at a sector boundary, before which everything is durable.
    pub(super) fn start(&self, lsn: Lsn) {
        assert!(lsn.0.is_multiple_of(SECTOR_BYTES as u64), "flushes start at sectors");
        self.leader.start(lsn);
        // Relaxed: the threads that will read it are started later.
        self.started.store(lsn.0, Ordering::Relaxed);
        self.segments.start_prepared(lsn);
        self.segments.adopt_reserve();
        // The size of the disk reserve is known only after the tables are loaded, so the first
        // change demands space for changes. If that space is not available, deletions and upkeep
        // can still use the log.
        self.segments.extent.extend(self.segments.end(), BlockPurpose::Deletion);
        self.segments.extent.stall();
    }

    pub(super) fn poisoned(&self) -> Option<&Arc<LogError>> {
        self.poison.get()
    }

    fn fail(&self, error: LogError) {
        if self.poison.set(Arc::new(error)).is_ok() {
            let error = self.poison.get().expect("set just now");
            tracing::error!("the log has failed, nothing can be committed any more: {error}");
        }
    }

    /// Flushes what is due, on this worker's device.
    pub(super) fn turn(
        &self,
        space: &Space<LogTracker>,
        padder: usize,
        flush: &mut FlushState,
        device: &mut dyn Device,
        wanted: bool,
    ) -> FlushTurn {
        let (mut pending, mut paused_until) = (false, None);
        if self.poison.get().is_none() {
            paused_until = self.prepare(space, flush, device);
            // Runs after the preparation: a flush that waited for it is continued here.
            if self.leader.is_due(space, &self.segments.prepared, wanted) {
                pending = self.flush(space, padder, flush, device);
            }
        }
        let (durable, failed) = (space.released(), self.poison.get().is_some());
        let events = self.segments.extent.events();
        let extended = events != flush.seen_events;
        let news = extended || failed != flush.seen_poison;
        let advanced = durable > flush.seen_durable || news;
        (flush.seen_durable, flush.seen_poison) = (durable, failed);
        flush.seen_events = events;
        let in_flight = flush.outstanding > 0;
        FlushTurn { in_flight, advanced, news, extended, pending, paused_until }
    }

    /// Prepares space. Returns the end of the pause for which an extension may have been withheld.
    fn prepare(
        &self,
        space: &Space<LogTracker>,
        flush: &mut FlushState,
        device: &mut dyn Device,
    ) -> Option<Instant> {
        let before = device.outstanding();
        // Relaxed: set before the workers started.
        let started = Lsn(self.started.load(Ordering::Relaxed));
        let tail = space.tail();
        let submitted = self.leader.submitted();
        let prepared =
            self.segments.prepare(&mut flush.preparation, device, started, submitted, tail);
        flush.outstanding += device.outstanding() - before;
        let prepared = prepared.map_err(|error| self.fail(error)).ok()?;
        self.counters.segments_created.add(prepared.segments);
        self.counters.segments_reused.add(prepared.reused);
        prepared.paused_until
    }

    /// Starts a flush if possible. Returns `true` if the attempt must be repeated soon.
    fn flush(
        &self,
        space: &Space<LogTracker>,
        padder: usize,
        flush: &mut FlushState,
        device: &mut dyn Device,
    ) -> bool {
        let prepared = &self.segments.prepared;
        let (pad, writes) = (|| self.pad(space, padder), |from, to| self.writes(from, to));
        match self.leader.next(space, prepared, pad, writes) {
            LeaderStep::Rest => false,
            LeaderStep::Repeat => true,
            LeaderStep::Submit(Flush { number, bytes, writes }) => {
                self.counters.flushes.add(1);
                self.counters.bytes_written.add(bytes);
                flush.outstanding += writes.len();
                for write in writes {
                    device.submit(write, LOG_TOKEN | number);
                }
                false
            }
        }
    }

    /// Ends the tail at a sector boundary, with a skip block if necessary. Only the leader calls
    /// it.
    fn pad(&self, space: &Space<LogTracker>, padder: usize) -> Lsn {
        let sector = SECTOR_BYTES as u64;
        let (lsn, padding) = space.reserve_padding(padder, sector, HEADER_BYTES as u64);
        let Some(bytes) = padding else { return lsn };
        Reservation::new(&self.ring, space, padder, lsn, bytes as usize).finish_skip();
        self.counters.padding_bytes.add(bytes);
        Lsn(lsn.0 + bytes)
    }

    /// Returns the writes that store `[from, to)` on disk.
    fn writes(&self, from: Lsn, to: Lsn) -> Vec<Operation> {
        assert!(from < to && to.0 - from.0 <= self.ring.bytes() as u64);
        let mapping: Arc<dyn Any + Send + Sync> = self.ring.clone();
        let mut writes = Vec::new();
        let mut at = from;
        while at < to {
            let ring_bytes = self.ring.bytes() as u64;
            let to_wrap = ring_bytes - at.0 % ring_bytes;
            let bytes = (to.0 - at.0).min(WRITE_BYTES).min(to_wrap).min(self.segments.rest(at));
            let (file, offset) = self.segments.locate(at).expect("prepared space has its files");
            let pointer = MappedPointer(self.ring.at(at));
            let source =
                WriteSource::Mapped { mapping: mapping.clone(), pointer, bytes: bytes as usize };
            let sync = !is_planted(Bug::SkippedSync);
            writes.push(Operation::Write { file, offset, source, sync });
            at = Lsn(at.0 + bytes);
        }
        writes
    }

    /// Handles the completion of one of the log's operations.
    pub(super) fn complete(
        &self,
        space: &Space<LogTracker>,
        flush: &mut FlushState,
        completion: Completion,
    ) {
        assert!(completion.token & LOG_TOKEN != 0, "only the log's operations come here");
        assert!(flush.outstanding > 0, "completions are of operations under way");
        flush.outstanding -= 1;
        if completion.token & PREPARE_TOKEN == PREPARE_TOKEN {
            if let Some(preparation) = &mut flush.preparation {
                preparation.complete(completion);
            }
            return;
        }
        self.leader.complete(space, completion.token & !LOG_TOKEN, |from| {
            if let Err(error) = completion.result {
                let (path, offset) = self.segments.place(from);
                self.fail(LogError::io("write", &path, offset, error));
            }
            self.poison.get().is_none()
        });
    }
}
