//! Extent of the log on disk, and admission of blocks by purpose.
//!
//! A block is admitted only into segments that exist with all their space. A full disk therefore
//! rejects commits before they are decided, and a decided commit never waits for space. The end of
//! the last segment is reserved for operations that free space: changes stop first, deletions
//! later, and the engine's own upkeep last. Beyond that, a new segment is needed, or a longer file
//! while only the first segment exists. A block that is not admitted *demands* an extension. The
//! worker whose turn it is to prepare space makes the extension or *refuses* it, and reports the
//! refusal to the demanding transaction.
//!
//! Invariants:
//!
//! - A limit is raised only after the segments below it exist under durable names, and their durable
//!   headers cover the files up to the limit. On a full disk, limits for changes and deletions are
//!   withdrawn. A block that was admitted before still has its space, because no segment after the
//!   tail is freed.
//! - Every demand is met or refused. A worker that prepares space checks the demands after it has
//!   released the right to prepare, and a worker that demands tries to acquire that right
//!   afterwards.
//!
//! A small log has small blocks and reserves little at its end. Both are a share of the first
//! segment's current size, and grow with it. A worker may therefore admit a block under the old
//! block size while another worker has admitted a larger one. The space suffices for both: the
//! maximum block size grows by at most one worker's share of the bytes added at the same time, and
//! a worker that has seen the larger limit has also seen the larger block size. A limit that is
//! raised again after it was withdrawn is such a larger limit.

use std::sync::Arc;

use super::block::MAX_COMMON_BLOCK_BYTES;
use super::record::BLOCK_ALIGNMENT;
use super::{LogError, Lsn};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The purpose of a block. Each purpose may fill more of the log than the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BlockPurpose {
    /// A transaction that writes a value.
    Change,
    /// A transaction that only deletes.
    Deletion,
    /// The engine's own blocks: copies by compaction, and empty blocks.
    Upkeep,
}

impl BlockPurpose {
    const ALL: [Self; 3] = [Self::Change, Self::Deletion, Self::Upkeep];
}

/// Maximum padding of flushes in bytes, two sectors for each of the few flushes in flight, and of
/// blocks that guests have admitted and not reserved.
pub(super) const PADDING_BYTES: u64 = 64 << 10;
/// Maximum number of guests that fill blocks at the same time, and of bytes per block.
pub(crate) const MAX_GUEST_FILLERS: usize = 16;
pub(crate) const MAX_GUEST_BLOCK_BYTES: usize = 2 << 10;
/// A block up to this size in bytes is never a large one.
pub(super) const MIN_COMMON_BYTES: u64 = 16 << 10;
const ALIGNMENT: u64 = BLOCK_ALIGNMENT as u64;

/// Bounds of the space reserved for deletions and upkeep together, which is an eighth of a segment.
const DELETION_RESERVE_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=8 << 20;
/// Divisor for the part of that space which is reserved for upkeep.
const UPKEEP_SHARE: u64 = 3;

/// The part of the log that exists on disk ahead of the filled part.
#[derive(Debug)]
pub(super) struct Extent {
    /// For each purpose: blocks must end at or before this limit.
    limits: [AtomicU64; 3],
    /// For each purpose: the limit that a transaction waits for.
    demands: [AtomicU64; 3],
    /// For each purpose: the number of refused demands.
    refusals: [AtomicU64; 3],
    newest_refusal: Mutex<Option<Arc<LogError>>>,
    /// The size of a segment in bytes; 0 if the log is not on disk.
    segment_bytes: u64,
    workers: u64,
    /// The size of the first segment's file at the last extension for changes. It is a whole
    /// segment once others exist.
    first_bytes: AtomicU64,
    /// Blocks of more bytes are large ones.
    common_bytes: AtomicU64,
    /// Counts extensions and refusals, so that workers notice each one.
    events: AtomicU64,
    /// True if the newest demand for changes was refused.
    short: AtomicBool,
    /// Maximum number of bytes beyond the tail for which the log is extended without demand. 0 if
    /// such an extension failed; none is tried again until the situation has changed.
    max_ahead: AtomicU64,
}

/// An extension that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueExtension {
    pub(super) purpose: BlockPurpose,
    /// True if a transaction waits for it.
    pub(super) demanded: bool,
    /// Bytes that the log should have beyond its tail.
    pub(super) ahead: u64,
}

impl Extent {
    /// Creates the extent of a log that is not on disk, and so admits any block.
    pub(super) fn unbounded() -> Self {
        let unbounded = Self { segment_bytes: 0, ..Self::new(0, 0) };
        // Relaxed: no other thread has it yet.
        unbounded.common_bytes.store(MAX_COMMON_BLOCK_BYTES as u64, Ordering::Relaxed);
        unbounded.raise(u64::MAX, BlockPurpose::Change);
        unbounded
    }

    /// Creates the extent of a log in segments of `segment_bytes`, without any on disk.
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
            max_ahead: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns the limit for a purpose: its blocks end at or before it.
    #[inline]
    pub(super) fn limit(&self, purpose: BlockPurpose) -> u64 {
        // Acquire pairs with the Release in `raise`: the segments exist, and a later read of
        // `common_bytes` returns at least the value at the time of the raise.
        self.limits[purpose as usize].load(Ordering::Acquire)
    }

    /// Returns the maximum size of a common block. A caller must read it before it compares with a
    /// limit.
    #[inline]
    pub(super) fn common_bytes(&self) -> u64 {
        // Relaxed: see `limit`; it only grows.
        self.common_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether a block for a purpose may end at `end`.
    fn allows(&self, end: u64, purpose: BlockPurpose) -> bool {
        end <= self.limit(purpose)
    }

    /// Returns the end of the log on disk.
    pub(super) fn end(&self) -> Lsn {
        Lsn(self.limit(BlockPurpose::Upkeep))
    }

    /// Returns a number that changes with each extension and each refusal.
    pub(super) fn events(&self) -> u64 {
        // Acquire pairs with the Release in `note_event`.
        self.events.load(Ordering::Acquire)
    }

    /// Returns the number of refused demands for a purpose.
    pub(super) fn refusals(&self, purpose: BlockPurpose) -> u64 {
        // SeqCst: read between raising a waiter's flag and waiting.
        self.refusals[purpose as usize].load(Ordering::SeqCst)
    }

    /// Returns the reason of the newest refusal.
    pub(super) fn newest_refusal(&self) -> Option<Arc<LogError>> {
        self.newest_refusal.lock().clone()
    }

    /// Returns whether the newest demand for changes was refused.
    pub(super) fn is_short(&self) -> bool {
        // Relaxed: a hint for upkeep that frees space.
        self.short.load(Ordering::Relaxed)
    }

    /// Returns whether an extension without demand was skipped, because the disk is nearly full.
    pub(super) fn is_stalled(&self) -> bool {
        // Relaxed: a hint for upkeep that frees space.
        self.max_ahead.load(Ordering::Relaxed) == 0
    }

    /// Returns the bytes reserved for deletions and upkeep.
    pub(super) fn kept_for_deletions(&self) -> u64 {
        self.kept(BlockPurpose::Change)
    }

    /// Returns the bytes at the end that are reserved for other purposes.
    fn kept(&self, purpose: BlockPurpose) -> u64 {
        if self.segment_bytes == 0 {
            return 0;
        }
        let (least, most) = DELETION_RESERVE_BYTES.into_inner();
        // Relaxed: written by the worker that prepares space; a statistic for others.
        let kept = (self.first_bytes.load(Ordering::Relaxed) / 8).clamp(least, most);
        match purpose {
            BlockPurpose::Change => kept,
            BlockPurpose::Deletion => kept / UPKEEP_SHARE,
            BlockPurpose::Upkeep => 0,
        }
    }

    /// Returns the maximum unused space at the end of a full log: blocks that workers have admitted
    /// but not reserved, and padding.
    pub(super) fn slack(&self) -> u64 {
        (self.workers + 1) * self.common_bytes() + PADDING_BYTES
    }

    /// Returns whether a block for a purpose waits for an extension.
    pub(super) fn is_demanded(&self, purpose: BlockPurpose) -> bool {
        // Relaxed: ordered by the fence in `PreparedSpace::finish`, see `demand`.
        let demand = self.demands[purpose as usize].load(Ordering::Relaxed);
        !self.allows(demand, purpose)
    }

    /// Demands an extension in which a block for a purpose can end at `end`.
    pub(super) fn demand(&self, end: u64, purpose: BlockPurpose) {
        // Relaxed: ordered by the fence.
        self.demands[purpose as usize].fetch_max(end, Ordering::Relaxed);
        // Pairs with the fence in `PreparedSpace::finish`: if another worker is preparing space
        // when this thread then tries to, that worker finds the demand in `due` afterwards.
        fence(Ordering::SeqCst);
    }

    /// Returns the extension that is due, if any: to meet a demand, or so that `ahead` bytes exist
    /// after the tail.
    pub(super) fn due(&self, tail: Lsn, ahead: u64) -> Option<DueExtension> {
        let mut purposes = BlockPurpose::ALL.into_iter().rev();
        if let Some(purpose) = purposes.find(|purpose| self.is_demanded(*purpose)) {
            return Some(DueExtension { purpose, demanded: true, ahead: 0 });
        }
        let purpose = BlockPurpose::Change;
        // Relaxed: as in `kept`.
        let first_bytes = self.first_bytes.load(Ordering::Relaxed);
        let is_small = first_bytes < self.segment_bytes;
        // Relaxed: a skipped extension is tried again on demand at the latest.
        let max_ahead = self.max_ahead.load(Ordering::Relaxed);
        let ahead = ahead.min(max_ahead).min(if is_small { first_bytes / 8 } else { u64::MAX });
        // A nearly empty log needs no space ahead of the tail. The blocks logged when a database
        // closes must not make the log grow, even with many workers. A transaction that needs more
        // space demands it.
        let little = if is_small { first_bytes / 8 } else { 0 };
        let due = tail.0 > little.max(Lsn::FIRST.0)
            && !self.allows(tail.0 + self.slack() + ahead, purpose)
            && max_ahead > 0;
        due.then_some(DueExtension { purpose, demanded: false, ahead })
    }

    /// Starts using a new end of the log on disk, which was made for a purpose. Changes cannot use
    /// space that was made for deletions or upkeep.
    pub(super) fn extend(&self, end: Lsn, purpose: BlockPurpose) {
        self.grow_shares(end, purpose);
        self.raise(end.0, purpose);
        self.resume();
        // Relaxed: written only by the worker that prepares space; a hint for others, see
        // `is_short`.
        if purpose == BlockPurpose::Change && self.short.swap(false, Ordering::Relaxed) {
            tracing::info!("the log can grow again: commits continue");
        }
        self.note_event();
    }

    /// Lets a purpose, and those that may use more, use all space that exists. Returns whether that
    /// changed anything.
    pub(super) fn share(&self, purpose: BlockPurpose) -> bool {
        let end = self.end();
        self.grow_shares(end, purpose);
        let shared = self.raise(end.0, purpose);
        if shared {
            self.extend(end, purpose);
        }
        shared
    }

    /// Admits no more blocks for a purpose, nor for purposes that may use less, until [`Self::share`]
    /// or an extension. An extension in progress may raise the limits again; the caller repeats the
    /// call if the disk is still full at the next adjustment of the reserve.
    pub(super) fn withdraw(&self, purpose: BlockPurpose) {
        for purpose in BlockPurpose::ALL.into_iter().filter(|other| *other <= purpose) {
            // Relaxed: a block that is admitted under the previous limit has its space.
            self.limits[purpose as usize].store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether changes were withdrawn, or have had no space so far.
    #[inline(always)]
    pub(super) fn is_withdrawn(&self) -> bool {
        // Relaxed: a hint; the caller demands space.
        self.limits[BlockPurpose::Change as usize].load(Ordering::Relaxed) == 0
    }

    /// Raises the block size and the reserved space to the shares of a log that extends to `end`.
    /// Called before its limits are raised.
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
        // Relaxed: a thread that sees the limits raised next sees this value too.
        self.first_bytes.store(first_bytes, Ordering::Relaxed);
        self.common_bytes.fetch_max(common, Ordering::Relaxed);
    }

    fn raise(&self, end: u64, purpose: BlockPurpose) -> bool {
        let mut raised = false;
        for purpose in BlockPurpose::ALL.into_iter().filter(|other| *other >= purpose) {
            let limit = end.saturating_sub(self.kept(purpose));
            // AcqRel: its Release pairs with the Acquire in `limit`. Only the worker that prepares
            // space raises limits.
            raised |= self.limits[purpose as usize].fetch_max(limit, Ordering::AcqRel) < limit;
        }
        raised
    }

    /// Refuses the demands for a purpose, and for purposes that may use less.
    pub(super) fn refuse(&self, purpose: BlockPurpose, error: LogError) {
        // Relaxed: as in `extend`.
        if !self.short.swap(true, Ordering::Relaxed) {
            tracing::warn!("{error}");
        }
        *self.newest_refusal.lock() = Some(Arc::new(error));
        for purpose in BlockPurpose::ALL.into_iter().filter(|other| *other <= purpose) {
            // Relaxed: demands made before this store are refused. A concurrent demand that is
            // overwritten here counts as made before.
            self.demands[purpose as usize].store(0, Ordering::Relaxed);
            // SeqCst: see `refusals`.
            self.refusals[purpose as usize].fetch_add(1, Ordering::SeqCst);
        }
        self.note_event();
    }

    /// Suspends extensions without demand.
    pub(super) fn stall(&self) {
        self.limit_ahead(0);
    }

    /// Limits extensions without demand to `bytes` beyond the tail, until the next extension.
    pub(super) fn limit_ahead(&self, bytes: u64) {
        // Relaxed: see `due`.
        self.max_ahead.store(bytes, Ordering::Relaxed);
    }

    /// Resumes extensions without demand: space may be available again.
    pub(super) fn resume(&self) {
        self.limit_ahead(u64::MAX);
    }

    fn note_event(&self) {
        // Release pairs with the Acquire in `events`.
        self.events.fetch_add(1, Ordering::Release);
    }
}

/// Returns the maximum size of a common block in a log with segments of `segment_bytes`. Small
/// segments have small blocks, so that few segments are needed ahead of the filled part.
pub(super) fn common_block_bytes(segment_bytes: u64) -> u64 {
    let most = MAX_COMMON_BLOCK_BYTES as u64;
    (segment_bytes / 16).clamp(MIN_COMMON_BYTES, most) / ALIGNMENT * ALIGNMENT
}
