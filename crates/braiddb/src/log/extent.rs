//! How far the log reaches on disk, and who may fill how much of that.
//!
//! A block is admitted only into segments that are there, with all their space: so a disk that runs
//! full refuses commits before they are decided, and no decided commit ever waits for room. What is at
//! the end of the last segment is left to those who make room: changes stop first, deletions later,
//! the engine's own upkeep last. Past that a segment has to be made, or while there is only the first, its
//! file made larger. A block that is not admitted
//! *demands* one; the worker whose turn it is to prepare space makes it, or *refuses*, and who demanded
//! it is told.
//!
//! Invariants: a limit only grows; a limit is raised only once the segments below it are there,
//! durably named, and their headers say, durably, that their files reach up to it. A demand that is made is met or refused: a worker that prepares space looks at
//! demands after it has given up the right to prepare, and a worker that demands tries to get that right
//! afterwards.
//!
//! A small log has small blocks, and keeps little at its end: both are a share of what there is of the
//! first segment, and grow with it. So a worker may admit a block while another has admitted a larger one
//! and the first does not know of such blocks yet. What that takes is there: blocks become larger by no more
//! than a worker's share of what is added to the log at the same time, and who has seen the larger limit has
//! seen that blocks are larger.

use std::sync::Arc;

use super::block::{BLOCK_ALIGNMENT, MAX_COMMON_BLOCK_BYTES};
use super::{LogError, Lsn};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// What a block is logged for; each may fill more of the log than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BlockPurpose {
    /// A transaction that writes a value.
    Change,
    /// A transaction that only deletes.
    Deletion,
    /// The engine's own: copies of compaction, empty blocks.
    Upkeep,
}

impl BlockPurpose {
    const ALL: [Self; 3] = [Self::Change, Self::Deletion, Self::Upkeep];
}

/// What the padding of flushes may take, at most two sectors for each of the few in flight.
pub(super) const PADDING_BYTES: u64 = 64 << 10;
/// A block of so many bytes is never a large one.
pub(super) const MIN_COMMON_BYTES: u64 = 16 << 10;
const ALIGNMENT: u64 = BLOCK_ALIGNMENT as u64;

/// What is left to deletions and upkeep together: an eighth of a segment, and this at least and at most.
const DELETION_RESERVE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=8 << 20;
/// Of that, what is left to upkeep: a third.
const UPKEEP_SHARE: u64 = 3;

/// The part of the log that is on disk ahead of what is filled.
#[derive(Debug)]
pub(super) struct Extent {
    /// By purpose: blocks for it end before this.
    limits: [AtomicU64; 3],
    /// By purpose: the limit that a transaction waits for.
    demands: [AtomicU64; 3],
    /// By purpose: how often a demand was refused.
    refusals: [AtomicU64; 3],
    newest_refusal: Mutex<Option<Arc<LogError>>>,
    /// Bytes of a segment; 0 if the log is not on disk.
    segment_bytes: u64,
    workers: u64,
    /// What there is of the first segment, all of it once there are others; as of the last extension for
    /// changes.
    first_bytes: AtomicU64,
    /// Blocks of more bytes are large ones.
    common_bytes: AtomicU64,
    /// Counts extensions and refusals, so that workers see that there was one.
    events: AtomicU64,
    /// The newest demand for changes was refused.
    short: AtomicBool,
    /// A segment that nobody demanded could not be made; none is tried until something has changed.
    stalled: AtomicBool,
}

/// An extension that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueExtension {
    pub(super) purpose: BlockPurpose,
    /// A transaction waits for it.
    pub(super) demanded: bool,
}

impl Extent {
    /// That of a log which takes any block: one that is not on disk.
    pub(super) fn unbounded() -> Self {
        let unbounded = Self { segment_bytes: 0, ..Self::new(0, 0) };
        // Relaxed: nobody else has it yet.
        unbounded.common_bytes.store(MAX_COMMON_BLOCK_BYTES as u64, Ordering::Relaxed);
        unbounded.raise(u64::MAX, BlockPurpose::Change);
        unbounded
    }

    /// That of a log in segments of `segment_bytes`, nothing of it on disk yet.
    pub(super) fn new(segment_bytes: u64, workers: usize) -> Self {
        Self {
            limits: Default::default(),
            demands: Default::default(),
            refusals: Default::default(),
            newest_refusal: Mutex::new(None),
            segment_bytes,
            workers: workers as u64,
            first_bytes: AtomicU64::new(0),
            common_bytes: AtomicU64::new(MIN_COMMON_BYTES),
            events: AtomicU64::new(0),
            short: AtomicBool::new(false),
            stalled: AtomicBool::new(false),
        }
    }

    /// Blocks for a purpose end at it or before.
    #[inline]
    pub(super) fn limit(&self, purpose: BlockPurpose) -> u64 {
        // Acquire pairs with the Release in `raise`: the segments are there, and what is read of
        // `common_bytes` afterwards is not less than what the limit was raised with.
        self.limits[purpose as usize].load(Ordering::Acquire)
    }

    /// Bytes beyond which a block is a large one. Who compares with a limit reads that first.
    #[inline]
    pub(super) fn common_bytes(&self) -> u64 {
        // Relaxed: see `limit`; it only grows.
        self.common_bytes.load(Ordering::Relaxed)
    }

    /// Whether a block for a purpose may end at `end`.
    fn allows(&self, end: u64, purpose: BlockPurpose) -> bool {
        end <= self.limit(purpose)
    }

    /// How far the log is on disk.
    pub(super) fn end(&self) -> Lsn {
        Lsn(self.limit(BlockPurpose::Upkeep))
    }

    /// What extensions and refusals there were, as a number that changes with each.
    pub(super) fn events(&self) -> u64 {
        // Acquire pairs with the Release in `note_event`.
        self.events.load(Ordering::Acquire)
    }

    /// How often a demand for a purpose was refused.
    pub(super) fn refusals(&self, purpose: BlockPurpose) -> u64 {
        // SeqCst: looked at between raising a waiter's flag and waiting.
        self.refusals[purpose as usize].load(Ordering::SeqCst)
    }

    /// Why the newest demand was refused.
    pub(super) fn newest_refusal(&self) -> Option<Arc<LogError>> {
        self.newest_refusal.lock().clone()
    }

    /// Whether the newest demand for changes was refused.
    pub(super) fn is_short(&self) -> bool {
        // Relaxed: a hint to those who make room.
        self.short.load(Ordering::Relaxed)
    }

    /// Whether a segment that nobody demanded was not made, as there is hardly room.
    pub(super) fn is_stalled(&self) -> bool {
        // Relaxed: a hint to those who make room.
        self.stalled.load(Ordering::Relaxed)
    }

    /// Bytes that are left to deletions and upkeep.
    pub(super) fn kept_for_deletions(&self) -> u64 {
        self.kept(BlockPurpose::Change)
    }

    /// Bytes that are left to other purposes at the end.
    fn kept(&self, purpose: BlockPurpose) -> u64 {
        if self.segment_bytes == 0 {
            return 0;
        }
        let (least, most) = DELETION_RESERVE_BYTES.into_inner();
        // Relaxed: written by the worker that prepares space; to others a statistic.
        let kept = (self.first_bytes.load(Ordering::Relaxed) / 8).clamp(least, most);
        match purpose {
            BlockPurpose::Change => kept,
            BlockPurpose::Deletion => kept / UPKEEP_SHARE,
            BlockPurpose::Upkeep => 0,
        }
    }

    /// What is between the last block of a log that runs full and the end of its last segment, at most:
    /// what workers may have admitted and not reserved, and padding.
    pub(super) fn slack(&self) -> u64 {
        (self.workers + 1) * self.common_bytes() + PADDING_BYTES
    }

    /// Asks for segments in which a block for a purpose may end at `end`.
    pub(super) fn demand(&self, end: u64, purpose: BlockPurpose) {
        // Relaxed: ordered by the fence.
        self.demands[purpose as usize].fetch_max(end, Ordering::Relaxed);
        // Pairs with the fence in `PreparedSpace::finish`: if a worker prepares when this thread then
        // begins to, that one finds the demand in `due` afterwards.
        fence(Ordering::SeqCst);
    }

    /// What extension is to be made, if any: for what is demanded, or so that `ahead` bytes after the
    /// tail are there.
    pub(super) fn due(&self, tail: Lsn, ahead: u64) -> Option<DueExtension> {
        let demanded = |purpose: &BlockPurpose| {
            // Relaxed: ordered by the fence in `PreparedSpace::finish`, see `demand`.
            let demand = self.demands[*purpose as usize].load(Ordering::Relaxed);
            !self.allows(demand, *purpose)
        };
        if let Some(purpose) = BlockPurpose::ALL.into_iter().rev().find(demanded) {
            return Some(DueExtension { purpose, demanded: true });
        }
        let purpose = BlockPurpose::Change;
        // Relaxed: as in `kept`.
        let first_bytes = self.first_bytes.load(Ordering::Relaxed);
        let ahead =
            if first_bytes < self.segment_bytes { ahead.min(first_bytes / 8) } else { ahead };
        // A log in which hardly anything is needs nothing ahead: what closing logs to it, however many
        // workers there are, must not make it grow. Who needs more than there is demands it.
        let little = if first_bytes < self.segment_bytes { first_bytes / 8 } else { 0 };
        // Relaxed, of `stalled`: what is put off is tried again when it is demanded, at the latest.
        let due = tail.0 > little.max(Lsn::FIRST.0)
            && !self.allows(tail.0 + self.slack() + ahead, purpose)
            && !self.stalled.load(Ordering::Relaxed);
        due.then_some(DueExtension { purpose, demanded: false })
    }

    /// Takes a new end of the log on disk into use, which was made for a purpose: what is made for
    /// deletions or upkeep is not there for changes.
    pub(super) fn extend(&self, end: Lsn, purpose: BlockPurpose) {
        self.grow_shares(end, purpose);
        self.raise(end.0, purpose);
        self.resume();
        // Relaxed: only the worker that prepares space writes it; to others a hint, see `is_short`.
        if purpose == BlockPurpose::Change && self.short.swap(false, Ordering::Relaxed) {
            tracing::info!("the log can grow again: commits go on");
        }
        self.note_event();
    }

    /// Lets all purposes use what was made for some of them; whether that changed anything.
    pub(super) fn share(&self) -> bool {
        let end = self.end();
        self.grow_shares(end, BlockPurpose::Change);
        let shared = self.raise(end.0, BlockPurpose::Change);
        if shared {
            self.extend(end, BlockPurpose::Change);
        }
        shared
    }

    /// Lets blocks be as large, and as much be kept, as is due to a log that is on disk up to `end`; before
    /// its limits are raised.
    fn grow_shares(&self, end: Lsn, purpose: BlockPurpose) {
        let before = self.end().0;
        if purpose != BlockPurpose::Change && before > 0 {
            return;
        }
        let first_bytes = end.0.min(self.segment_bytes);
        let mut common = common_block_bytes(first_bytes);
        if first_bytes < self.segment_bytes {
            common = common.min(first_bytes / (4 * (self.workers + 1)));
        }
        if before > 0 {
            // See the head of this file.
            common = common.min(end.0.saturating_sub(before) / (self.workers + 1));
        }
        let common = common.max(MIN_COMMON_BYTES) / ALIGNMENT * ALIGNMENT;
        // Relaxed: whoever sees the limits that are raised next sees it.
        self.first_bytes.store(first_bytes, Ordering::Relaxed);
        self.common_bytes.fetch_max(common, Ordering::Relaxed);
    }

    fn raise(&self, end: u64, purpose: BlockPurpose) -> bool {
        let mut raised = false;
        for purpose in BlockPurpose::ALL.into_iter().filter(|other| *other >= purpose) {
            let limit = end.saturating_sub(self.kept(purpose));
            // AcqRel, of which the Release pairs with the Acquire in `limit`. Only the worker that prepares
            // space raises limits.
            raised |= self.limits[purpose as usize].fetch_max(limit, Ordering::AcqRel) < limit;
        }
        raised
    }

    /// Refuses what is demanded for a purpose, and for those that may use less.
    pub(super) fn refuse(&self, purpose: BlockPurpose, error: LogError) {
        // Relaxed: as in `extend`.
        if !self.short.swap(true, Ordering::Relaxed) {
            tracing::warn!("{error}");
        }
        *self.newest_refusal.lock() = Some(Arc::new(error));
        for purpose in BlockPurpose::ALL.into_iter().filter(|other| *other <= purpose) {
            // Relaxed: a demand made before this is refused; a demand that is lost
            // here is as good as made before.
            self.demands[purpose as usize].store(0, Ordering::Relaxed);
            // SeqCst: see `refusals`.
            self.refusals[purpose as usize].fetch_add(1, Ordering::SeqCst);
        }
        self.note_event();
    }

    /// Puts off what nobody demands.
    pub(super) fn stall(&self) {
        // Relaxed: see `due`.
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// There may be room again.
    pub(super) fn resume(&self) {
        // Relaxed: see `due`.
        self.stalled.store(false, Ordering::Relaxed);
    }

    fn note_event(&self) {
        // Release pairs with the Acquire in `events`.
        self.events.fetch_add(1, Ordering::Release);
    }
}

/// Bytes beyond which a block is large, in a log of segments of `segment_bytes`: small segments have
/// small blocks, so that few of them are needed ahead of what is filled.
pub(super) fn common_block_bytes(segment_bytes: u64) -> u64 {
    let most = MAX_COMMON_BLOCK_BYTES as u64;
    (segment_bytes / 16).clamp(MIN_COMMON_BYTES, most) / ALIGNMENT * ALIGNMENT
}
