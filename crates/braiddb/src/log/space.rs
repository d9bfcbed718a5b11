//! Log space: the tail, and who may reserve how much of it.
//!
//! Admission comes before reservation, so that nobody ever waits between reserving and filling.
//! A worker asks [`Space::admits`] and then reserves without suspending, so it has at most one
//! block admitted and not reserved. Invariant: `tail <= released + ring`. It holds as a block is
//! admitted only if it fits beside one largest common block of every worker and, while a worker
//! holds the large latch or waits for it, one largest block of all. The padding of flushes, at
//! most two sectors for each of the few flushes in flight, has [`PADDING_BYTES`]. In the same way the
//! tail stays within the extent of the log on disk, as far as it is for the block's purpose (`extent`), which
//! also says what blocks are common: in a small log only small ones.

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
    /// Everything before is durable, and its room in the ring free.
    released: CachePadded<AtomicU64>,
    large: CachePadded<LargeBlockAdmission>,
    pub(super) tracker: T,
    ring_bytes: u64,
    /// How much of the ring admission may give away.
    admitted_bytes: u64,
    workers: u64,
    /// The largest block that is not a large one, however far the log reaches on disk.
    common_bytes: u64,
    extent: Arc<Extent>,
}

/// The one large block that may be admitted and not reserved.
#[derive(Debug)]
struct LargeBlockAdmission {
    /// The thread that has it admitted; 0 if none.
    owner: AtomicU64,
    /// While the tail is below this, common blocks leave room for one that waits.
    waits_until: AtomicU64,
}

/// A number, not 0, that no other living thread has.
fn this_thread() -> u64 {
    #[cfg(not(loom))]
    thread_local!(static PLACE: u8 = const { 0 });
    // The threads of a model are one of the system's.
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

    /// Lets no more than `bytes` of the ring be in use, beside what is kept for the workers' largest
    /// blocks, padding, and a large block.
    #[cfg(braid_simulation)]
    pub(super) fn with_room(self, bytes: u64) -> Self {
        let kept = self.workers * self.common_bytes + PADDING_BYTES;
        Self { admitted_bytes: bytes.saturating_add(kept).min(self.ring_bytes), ..self }
    }

    /// The same, of a log whose blocks are to be within an extent, which says what blocks are large ones: those
    /// of more than `common_bytes` always are.
    pub(super) fn within(self, extent: Arc<Extent>, common_bytes: u64) -> Self {
        Self { extent, common_bytes, ..self }
    }

    /// Bytes beyond which a block is a large one. It only grows.
    pub(super) fn common_bytes(&self) -> u64 {
        self.extent.common_bytes()
    }

    /// The least ring in which an empty log admits any block.
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
        // Acquire pairs with the Release of `release`: a worker that reuses the room comes after the
        // writes that read it.
        Lsn(self.released.load(Ordering::Acquire))
    }

    /// Says that everything before `lsn` is durable.
    pub(super) fn release(&self, lsn: Lsn) {
        // Relaxed: only advanced under the flush lock.
        assert!(self.released.load(Ordering::Relaxed) <= lsn.0, "durable never goes back");
        // Release pairs with the Acquire in `released`. That a waiter sees this, or else this
        // thread's later look at the waiting workers sees the waiter, is due to the fences between
        // (`WaitingWorkers`).
        self.released.store(lsn.0, Ordering::Release);
    }

    /// Starts the log at `tail`; before anybody reserves.
    pub(super) fn start(&self, tail: Lsn, released: Lsn) {
        // Release: the threads that will reserve are started after this.
        self.tracker.start(tail.0);
        self.released.store(released.0, Ordering::Release);
        self.tail.store(tail.0, Ordering::Release);
    }

    /// Advances the clock without reserving anything.
    #[inline]
    pub(super) fn advance_clock(&self, step: u64) -> Lsn {
        // SeqCst as in `reserve`.
        Lsn(self.tail.fetch_add(step, Ordering::SeqCst))
    }

    /// Whether a block of `bytes` may be reserved now. A large one that is admitted must be
    /// reserved next.
    #[inline]
    pub(super) fn admits(&self, bytes: u64, purpose: BlockPurpose) -> bool {
        // In this order: see `Extent::limit`.
        let limit = self.extent.limit(purpose);
        let common = self.extent.common_bytes();
        // Acquire pairs with the Release of the latch: seen free, the tail below has the block it
        // was taken for. Seen free too early, while it is taken, it costs one block at most, which
        // is provided for: this worker's next addition to the tail acquires the owner's below.
        let owner = self.large.owner.load(Ordering::Acquire);
        let owned = owner != 0;
        // A block that this thread has admitted as a large one is one, whatever is large by now.
        if bytes > common || (owned && owner == this_thread()) {
            return self.admits_large(bytes, purpose);
        }
        let tail = self.tail().0;
        // Relaxed: only keeps large blocks from starving.
        let awaited = tail < self.large.waits_until.load(Ordering::Relaxed);
        let large = |taken| if taken { MAX_LARGE_BLOCK_BYTES as u64 } else { 0 };
        self.fits(tail, bytes + large(owned || awaited))
            && self.bound(tail, bytes + large(owned), common) <= limit
    }

    fn fits(&self, tail: u64, bytes: u64) -> bool {
        self.bound(tail, bytes, self.common_bytes)
            <= self.released().0.saturating_add(self.admitted_bytes)
    }

    /// Where the log may end once a block of `bytes` is reserved, with all that others have admitted: of
    /// `common` bytes each.
    fn bound(&self, tail: u64, bytes: u64, common: u64) -> u64 {
        tail + bytes + self.workers * common + PADDING_BYTES
    }

    /// Where the extent would have to end for a block of `bytes`, large blocks of others aside, if it
    /// does not.
    fn missing_extent(&self, bytes: u64, purpose: BlockPurpose) -> Option<u64> {
        let limit = self.extent.limit(purpose);
        let end = self.bound(self.tail().0, bytes, self.extent.common_bytes());
        (end > limit).then_some(end)
    }

    /// Whether the extent of the log, large blocks of others aside, has room for a block of `bytes`.
    pub(super) fn is_within_extent(&self, bytes: u64, purpose: BlockPurpose) -> bool {
        self.missing_extent(bytes, purpose).is_none()
    }

    /// Demands that the extent be made to have it, if it does not.
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
        // AcqRel pairs with itself and the loads in `admits`. Asked again by its owner, the latch
        // is there already. On failure Acquire is more than it takes: the word is this thread's own, or
        // nothing is read by it.
        let latched = owner.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire);
        if latched.is_err_and(|other| other != me) {
            return false;
        }
        // In this order, and before the tail: see `Extent::limit`.
        let limit = self.extent.limit(purpose);
        let common = self.extent.common_bytes();
        // An addition, not a load: reservations before it are counted, those after it acquire the
        // latch, and so leave room for this block from the worker's next admission on.
        let tail = self.tail.fetch_add(0, Ordering::SeqCst);
        let (fits, within) = (self.fits(tail, bytes), self.bound(tail, bytes, common) <= limit);
        if !fits {
            // For one ring's length room is left for it, so that common blocks do not starve it. Relaxed: as in
            // `admits`.
            self.large.waits_until.store(tail + self.ring_bytes, Ordering::Relaxed);
        }
        if !(fits && within) {
            // Unlatched, as nobody knows whether it will come back. Release pairs with the Acquire of who latches next.
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

    /// Gives back the latch by which this thread admitted the block that it has reserved, if it has it: what
    /// was large then need not be any more.
    fn release_latch(&self) {
        let LargeBlockAdmission { owner, waits_until } = &*self.large;
        // Relaxed: whether it is this thread's only this thread changes.
        if owner.load(Ordering::Relaxed) == this_thread() {
            // Relaxed: as in `admits`.
            waits_until.store(0, Ordering::Relaxed);
            // Release pairs with the Acquire in `admits`: the tail has this block.
            owner.store(0, Ordering::Release);
        }
    }

    /// Reserves up to a multiple of `sector`, by a block of at least `least` bytes: the block and
    /// its length, or `None` if the tail is there already.
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
            // SeqCst as in `reserve`. Relaxed on failure: any tail will do to try again with.
            let order = (Ordering::SeqCst, Ordering::Relaxed);
            match self.tail.compare_exchange_weak(tail, tail + bytes, order.0, order.1) {
                Ok(_) => return (Lsn(tail), Some(bytes)),
                // The mark stays a bound: the tail only grows.
                Err(now) => tail = now,
            }
        }
    }

    /// Ends a filler's block: it is filled.
    #[inline]
    pub(super) fn filled(&self, filler: usize, lsn: Lsn, bytes: u64, durable: Lsn) {
        self.tracker.end(filler, lsn.0..lsn.0 + bytes, durable.0);
    }

    /// Up to where every block is filled.
    pub(super) fn buffered(&self) -> Lsn {
        let tail = self.tail().0;
        Lsn(self.tracker.prefix(tail))
    }
}
