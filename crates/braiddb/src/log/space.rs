//! Log space: the tail, and the admission of reservations.
//!
//! Admission precedes reservation, so that no worker waits between reserving and filling. A worker
//! calls [`Space::admits`] and then reserves without suspending, so it has at most one block that
//! is admitted and not reserved. Invariant: `tail <= released + ring`. It holds because a block is
//! admitted only if it fits together with the largest common block of every worker and, while a
//! worker holds the large latch or waits for it, with the largest block of all. The padding of
//! flushes, at most two sectors for each of the few flushes in flight, and the small blocks of guests
//! have [`PADDING_BYTES`].
//!
//! In the same way the tail stays within the extent of the log on disk for the block's purpose
//! (`extent`). The extent also defines the size of common blocks, which is small in a small log.

use crossbeam_utils::CachePadded;

use std::sync::Arc;

use super::Lsn;
use super::block::{MAX_COMMON_BLOCK_BYTES, MAX_LARGE_BLOCK_BYTES};
use super::extent::{BlockPurpose, Extent, MIN_COMMON_BYTES, PADDING_BYTES};
use super::tracker::Tracker;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The tail of the log and its bounds.
#[derive(Debug)]
pub(super) struct Space<T> {
    tail: CachePadded<AtomicU64>,
    /// Everything before is durable, and its space in the ring is free.
    released: CachePadded<AtomicU64>,
    large: CachePadded<LargeBlockAdmission>,
    pub(super) tracker: T,
    ring_bytes: u64,
    /// The part of the ring that admission may assign, in bytes.
    admitted_bytes: u64,
    workers: u64,
    /// Maximum size of a common block for any extent of the log on disk.
    common_bytes: u64,
    extent: Arc<Extent>,
}

/// The single large block that may be admitted and not reserved.
#[derive(Debug)]
struct LargeBlockAdmission {
    /// The thread that has admitted it; 0 if none.
    owner: AtomicU64,
    /// While the tail is below this, common blocks leave space for a waiting large block.
    waits_until: AtomicU64,
}

/// Returns a nonzero number that no other living thread has.
fn this_thread() -> u64 {
    #[cfg(not(loom))]
    thread_local!(static PLACE: u8 = const { 0 });
    // The threads of a model run on one thread of the system.
    #[cfg(loom)]
    loom::thread_local!(static PLACE: u8 = 0);
    PLACE.with(|place| std::ptr::from_ref(place) as u64)
}

impl<T: Tracker> Space<T> {
    pub(super) fn new(workers: usize, ring_bytes: u64, tracker: T) -> Self {
        assert!(
            ring_bytes >= Self::min_ring_bytes(workers),
            "a ring too small admits nothing when it is empty"
        );
        Self {
            tail: CachePadded::new(AtomicU64::new(Lsn::FIRST.0)),
            released: CachePadded::new(AtomicU64::new(Lsn::FIRST.0)),
            large: CachePadded::new(LargeBlockAdmission {
                owner: AtomicU64::new(0),
                waits_until: AtomicU64::new(0),
            }),
            tracker,
            ring_bytes,
            admitted_bytes: ring_bytes,
            workers: workers as u64,
            common_bytes: MAX_COMMON_BLOCK_BYTES as u64,
            extent: Arc::new(Extent::unbounded()),
        }
    }

    /// Limits the used part of the ring to `bytes`, in addition to the space for the workers'
    /// largest blocks, padding, and a large block.
    #[cfg(braid_simulation)]
    pub(super) fn with_room(self, bytes: u64) -> Self {
        let kept = self.workers * self.common_bytes + PADDING_BYTES;
        Self { admitted_bytes: bytes.saturating_add(kept).min(self.ring_bytes), ..self }
    }

    /// Bounds the blocks by an extent, which also defines the size of common blocks. Blocks of more
    /// than `common_bytes` are always large.
    pub(super) fn within(self, extent: Arc<Extent>, common_bytes: u64) -> Self {
        Self { extent, common_bytes, ..self }
    }

    /// Returns the maximum size of a common block. It only grows.
    pub(super) fn common_bytes(&self) -> u64 {
        self.extent.common_bytes()
    }

    /// Returns the smallest ring in which an empty log admits any block.
    pub(super) fn min_ring_bytes(workers: usize) -> u64 {
        let common = MAX_COMMON_BLOCK_BYTES as u64;
        (workers as u64 + 1) * common + MAX_LARGE_BLOCK_BYTES as u64 + PADDING_BYTES
    }

    #[inline]
    pub(super) fn tail(&self) -> Lsn {
        // SeqCst: the tail is the engine's clock; orders with the additions of commits.
        Lsn(self.tail.load(Ordering::SeqCst))
    }

    #[inline]
    pub(super) fn released(&self) -> Lsn {
        // Acquire pairs with the Release of `release`: a worker that reuses the space comes after
        // the writes that read it.
        Lsn(self.released.load(Ordering::Acquire))
    }

    /// Records that everything before `lsn` is durable.
    pub(super) fn release(&self, lsn: Lsn) {
        // Relaxed: only advanced under the flush lock.
        assert!(self.released.load(Ordering::Relaxed) <= lsn.0, "the durable LSN never decreases");
        // Release pairs with the Acquire in `released`. The fences in between ensure that a waiter
        // sees this, or this thread's later check of the waiting workers sees the waiter
        // (`WaitingWorkers`).
        self.released.store(lsn.0, Ordering::Release);
    }

    /// Starts the log at `tail`, before the first reservation.
    pub(super) fn start(&self, tail: Lsn, released: Lsn) {
        // Release: the threads that will reserve are started after this.
        self.tracker.start(tail.0);
        self.released.store(released.0, Ordering::Release);
        self.tail.store(tail.0, Ordering::Release);
    }

    /// Advances the clock without a reservation.
    #[inline]
    pub(super) fn advance_clock(&self, step: u64) -> Lsn {
        // SeqCst as in `reserve`.
        Lsn(self.tail.fetch_add(step, Ordering::SeqCst))
    }

    /// Returns whether a block of `bytes` may be reserved now. An admitted large block must be the
    /// thread's next reservation.
    #[inline]
    pub(super) fn admits(&self, bytes: u64, purpose: BlockPurpose) -> bool {
        // Read in this order: see `Extent::limit`.
        let limit = self.extent.limit(purpose);
        let common = self.extent.common_bytes();
        // Acquire pairs with the Release of the latch: if it is seen free, the tail below includes
        // the block that the latch was taken for. If it is seen free too early, while it is taken,
        // it costs one block at most, for which space is provided: this worker's next addition to
        // the tail acquires the owner's addition below.
        let owner = self.large.owner.load(Ordering::Acquire);
        let owned = owner != 0;
        // A block that this thread admitted as a large one stays large, even if the limit has grown
        // since.
        if bytes > common || (owned && owner == this_thread()) {
            return self.admits_large(bytes, purpose);
        }
        let tail = self.tail().0;
        // Relaxed: only prevents starvation of large blocks.
        let awaited = tail < self.large.waits_until.load(Ordering::Relaxed);
        let large = |taken| if taken { MAX_LARGE_BLOCK_BYTES as u64 } else { 0 };
        self.fits(tail, bytes + large(owned || awaited))
            && self.bound(tail, bytes + large(owned), common) <= limit
    }

    fn fits(&self, tail: u64, bytes: u64) -> bool {
        self.bound(tail, bytes, self.common_bytes)
            <= self.released().0.saturating_add(self.admitted_bytes)
    }

    /// Returns the possible end of the log after a block of `bytes` is reserved together with all
    /// admitted blocks of others, each of `common` bytes.
    fn bound(&self, tail: u64, bytes: u64, common: u64) -> u64 {
        tail + bytes + self.workers * common + PADDING_BYTES
    }

    /// Returns the end that the extent needs for a block of `bytes`, ignoring large blocks of
    /// others, if it does not reach that far.
    fn missing_extent(&self, bytes: u64, purpose: BlockPurpose) -> Option<u64> {
        let limit = self.extent.limit(purpose);
        let end = self.bound(self.tail().0, bytes, self.extent.common_bytes());
        (end > limit).then_some(end)
    }

    /// Returns whether the extent has space for a block of `bytes`, ignoring large blocks of
    /// others.
    pub(super) fn is_within_extent(&self, bytes: u64, purpose: BlockPurpose) -> bool {
        self.missing_extent(bytes, purpose).is_none()
    }

    /// Demands an extension for the block, if the extent has no space for it.
    pub(super) fn demand_extent(&self, bytes: u64, purpose: BlockPurpose) {
        if let Some(end) = self.missing_extent(bytes, purpose) {
            self.extent.demand(end, purpose);
        }
    }

    #[cold]
    fn admits_large(&self, bytes: u64, purpose: BlockPurpose) -> bool {
        assert!(
            bytes <= MAX_LARGE_BLOCK_BYTES as u64,
            "a record's size is checked when it is written"
        );
        let (owner, me) = (&self.large.owner, this_thread());
        // AcqRel pairs with itself and the loads in `admits`. If the owner asks again, it already
        // has the latch. On failure Acquire is stronger than necessary: the word belongs to this
        // thread, or nothing is read through it.
        let latched = owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire);
        if latched.is_err_and(|other| other != me) {
            return false;
        }
        // Read in this order, and before the tail: see `Extent::limit`.
        let limit = self.extent.limit(purpose);
        let common = self.extent.common_bytes();
        // An addition, not a load: it counts earlier reservations, and later ones acquire the
        // latch. The workers therefore leave space for this block from their next admission on.
        let tail = self.tail.fetch_add(0, Ordering::SeqCst);
        let (fits, within) = (self.fits(tail, bytes), self.bound(tail, bytes, common) <= limit);
        if !fits {
            // Other blocks leave space for it during one ring's length, so that common blocks do
            // not starve it. Relaxed: as in `admits`.
            self.large.waits_until.store(tail + self.ring_bytes, Ordering::Relaxed);
        }
        if !(fits && within) {
            // Releases the latch, because the thread may never retry. Release pairs with the
            // Acquire of the next owner.
            owner.store(0, Ordering::Release);
        }
        fits && within
    }

    /// Reserves `bytes` that were admitted, for `filler`.
    #[inline]
    pub(super) fn reserve(&self, filler: usize, bytes: u64) -> Lsn {
        let lsn = self.tracker.reserve(filler, &self.tail, bytes);
        if bytes > MIN_COMMON_BYTES {
            self.release_latch();
        }
        Lsn(lsn)
    }

    /// Releases the latch if this thread admitted its reserved block with it. By now, the block may
    /// no longer count as large.
    fn release_latch(&self) {
        let LargeBlockAdmission { owner, waits_until } = &*self.large;
        // Relaxed: only this thread sets or clears its own number.
        if owner.load(Ordering::Relaxed) == this_thread() {
            // Relaxed: as in `admits`.
            waits_until.store(0, Ordering::Relaxed);
            // Release pairs with the Acquire in `admits`: the tail includes this block.
            owner.store(0, Ordering::Release);
        }
    }

    /// Reserves up to a multiple of `sector`, with a block of at least `least` bytes. Returns the
    /// block and its length, or `None` if the tail is already there.
    pub(super) fn reserve_padding(
        &self,
        filler: usize,
        sector: u64,
        least: u64,
    ) -> (Lsn, Option<u64>) {
        let mut tail = self.tail().0;
        if tail.is_multiple_of(sector) {
            return (Lsn(tail), None);
        }
        self.tracker.begin(filler, tail);
        loop {
            let bytes = (tail + least).next_multiple_of(sector) - tail;
            // SeqCst as in `reserve`. Relaxed on failure: the retry may use any tail.
            let order = (Ordering::SeqCst, Ordering::Relaxed);
            match self.tail.compare_exchange_weak(tail, tail + bytes, order.0, order.1) {
                Ok(_) => return (Lsn(tail), Some(bytes)),
                // The mark stays a bound: the tail only grows.
                Err(now) => tail = now,
            }
        }
    }

    /// Marks a filler's block as filled.
    #[inline]
    pub(super) fn filled(&self, filler: usize, lsn: Lsn, bytes: u64, durable: Lsn) {
        self.tracker.end(filler, lsn.0..lsn.0 + bytes, durable.0);
    }

    /// Returns the position up to which every block is filled.
    pub(super) fn buffered(&self) -> Lsn {
        let tail = self.tail().0;
        Lsn(self.tracker.prefix(tail))
    }
}
