//! Allocation of versions, index nodes and keys, counted by kind; and of transfer buffers, not
//! counted.
//!
//! mimalloc serves it (size classes without per-block headers, huge pages by default, fast frees
//! from other threads). Large blocks are separate mappings, so that freeing one returns its
//! memory to the operating system. The host program's global allocator is not changed. Builds with
//! `--cfg braid_system_allocator` (sanitizers see into it) and loom use the system allocator
//! instead.
//!
//! Counters are sharded by thread. A worker has its own shard, so that counting an allocation needs
//! no atomic read-modify-write.

mod backend;
mod buffer;
mod reserved;
mod reused;
mod shard;

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use crossbeam_utils::CachePadded;

pub(crate) use buffer::{Buffer, SpareWords};
#[cfg(not(loom))]
pub(crate) use reserved::{HUGE_PAGE_BYTES, map, unmap};
pub(crate) use reserved::{Reserved, Zero};
pub(crate) use shard::OwnShard;
use shard::{SHARDS, Shard};

use crate::sync::Mutex;
use crate::sync::statistic::{AtomicI64, AtomicU64, Ordering};

/// Kind of contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum MemoryKind {
    /// Record versions: header and payload.
    Version,
    /// Index nodes.
    Node,
    /// Keys longer than eight bytes, held outside the nodes.
    Key,
    /// Copies of values that were returned to transactions and scans.
    Copy,
    /// Records that are being read from the log, and large values that are about to be written,
    /// counted before they are allocated.
    Reading,
    /// Changes of records on pages, with their before-images, and the chains that link them.
    Change,
}

impl MemoryKind {
    const ALL: [Self; 6] =
        [Self::Version, Self::Node, Self::Key, Self::Copy, Self::Reading, Self::Change];
}

const KINDS: usize = MemoryKind::ALL.len();

/// Bytes in use by kind, one set of counters per database.
///
/// Invariant: the sum over shards of a kind equals the bytes allocated and not yet freed through
/// this counter; a single shard may be negative when another thread frees.
#[derive(Debug)]
pub(crate) struct MemoryCounters {
    shards: Box<[CachePadded<[AtomicI64; KINDS]>; SHARDS]>,
    /// Bytes of indirection arrays, which grow by large steps.
    arrays: CachePadded<AtomicU64>,
    /// Blocks that were freed in a controlled schedule, or in a model.
    #[cfg(any(braid_simulation, loom))]
    quarantine: crate::sync::quarantine::Quarantine,
}

/// The counters of all databases.
static ALL: Mutex<Vec<Weak<MemoryCounters>>> = Mutex::new(Vec::new());

impl MemoryCounters {
    /// Creates the counters of a database.
    pub(crate) fn of_database() -> Arc<Self> {
        backend::prepare();
        let counters = Arc::new(Self::new());
        if !crate::sync::takes_part() {
            ALL.lock().push(Arc::downgrade(&counters));
        }
        counters
    }

    pub(crate) fn new() -> Self {
        let shard = || CachePadded::new(std::array::from_fn(|_| AtomicI64::new(0)));
        Self {
            shards: Box::new(std::array::from_fn(|_| shard())),
            arrays: CachePadded::default(),
            #[cfg(any(braid_simulation, loom))]
            quarantine: Default::default(),
        }
    }

    /// Bytes of `kind` in use now; approximate while other threads allocate.
    pub(crate) fn bytes(&self, kind: MemoryKind) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        let sum: i64 = self.shards.iter().map(|s| s[kind as usize].load(Ordering::Relaxed)).sum();
        sum.max(0) as u64
    }

    /// Bytes in use now.
    pub(crate) fn in_use(&self) -> u64 {
        MemoryKind::ALL.into_iter().map(|kind| self.bytes(kind)).sum()
    }

    /// Bytes that this thread has allocated, less those that it has freed. Threads without their own
    /// shard share one.
    pub(crate) fn of_this_thread(&self) -> i64 {
        // Relaxed: a statistic, ordered with nothing.
        self.shards[Shard::current().number()]
            .iter()
            .map(|bytes| bytes.load(Ordering::Relaxed))
            .sum()
    }

    /// Bytes that the allocator took from the operating system for these counters: a share of its
    /// total, in proportion to the bytes in use of all databases. A host program that uses the same
    /// allocator counts as overhead, at most as much again.
    pub(crate) fn taken(&self) -> u64 {
        if crate::sync::takes_part() {
            // Other databases must not influence a schedule.
            return self.in_use();
        }
        let mut all = ALL.lock();
        all.retain(|counters| counters.strong_count() > 0);
        let all = all.iter().filter_map(Weak::upgrade).map(|counters| counters.in_use()).sum();
        let (committed, mine) = (backend::committed(all), self.in_use());
        let taken = u128::from(committed) * u128::from(mine) / u128::from(all.max(1));
        (taken as u64).clamp(mine, 2 * mine)
    }

    /// Bytes of indirection arrays, which belong to no kind.
    pub(crate) fn array_bytes(&self) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        self.arrays.load(Ordering::Relaxed)
    }

    /// Counts growth of an indirection array.
    pub(crate) fn add_array_bytes(&self, bytes: u64) {
        // Relaxed: a statistic, ordered with nothing.
        self.arrays.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts the bytes of an indirection array.
    pub(crate) fn remove_array_bytes(&self, bytes: u64) {
        // Relaxed: a statistic, ordered with nothing.
        self.arrays.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Allocates `layout` for `kind`; aborts the process as `Vec` does when memory is exhausted.
    #[inline]
    pub(crate) fn allocate(&self, kind: MemoryKind, layout: Layout) -> NonNull<u8> {
        assert!(layout.size() > 0, "an empty block has no address");
        self.count(kind, layout.size() as i64);
        reused::take(layout).unwrap_or_else(|| allocate_new(reused::rounded(layout)))
    }

    /// Frees a block.
    ///
    /// # Safety
    /// `block` came from `allocate` of the same counters with the same `kind` and `layout`, is no
    /// longer used, and is freed once.
    #[inline]
    pub(crate) unsafe fn free(&self, kind: MemoryKind, block: NonNull<u8>, layout: Layout) {
        self.count(kind, -(layout.size() as i64));
        #[cfg(any(braid_simulation, loom))]
        if crate::sync::takes_part() || cfg!(loom) {
            // SAFETY: the caller's contract.
            return unsafe { self.quarantine.take(block, layout) };
        }
        // SAFETY: the caller's contract; `allocate` rounded the layout.
        unsafe {
            if !reused::put(block, layout) {
                free_now(block, reused::rounded(layout));
            }
        }
    }

    /// Counts bytes that are allocated elsewhere, or are about to be; subtracts if negative.
    #[inline]
    pub(crate) fn count(&self, kind: MemoryKind, bytes: i64) {
        let shard = Shard::current();
        let counter = &self.shards[shard.number()][kind as usize];
        // Relaxed: a statistic, ordered with nothing.
        if shard.is_owned() {
            counter.store(counter.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        } else {
            counter.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(any(braid_simulation, loom))]
impl Drop for MemoryCounters {
    fn drop(&mut self) {
        // SAFETY: blocks of the backend, not used since they were freed.
        self.quarantine.release(|block, layout| unsafe { backend::free(block, layout) });
    }
}

/// Allocates `layout`; aborts the process like `Vec` if memory is exhausted.
#[inline(never)]
fn allocate_new(layout: Layout) -> NonNull<u8> {
    backend::allocate(layout).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// # Safety
/// `block` came from [`allocate_new`] with the same `layout`, is no longer used, and is freed once.
#[inline(never)]
unsafe fn free_now(block: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller's contract is the backend's contract.
    unsafe { backend::free(block, layout) }
}

/// Allocates `layout`, zeroed and not counted; aborts the process like `Vec` if memory is
/// exhausted.
pub(crate) fn allocate_uncounted(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0, "an empty block has no address");
    backend::allocate_zeroed(layout).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// Allocates `layout`, uninitialised and not counted; aborts the process like `Vec` if memory is
/// exhausted.
fn allocate_unset(layout: Layout) -> NonNull<u8> {
    assert!(layout.size() > 0, "an empty block has no address");
    backend::allocate(layout).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
}

/// Frees a block that was allocated uncounted.
///
/// # Safety
/// `block` came from [`allocate_uncounted`] or [`allocate_unset`] with the same `layout`, is no
/// longer used, and is freed once.
pub(crate) unsafe fn free_uncounted(block: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller's contract is the backend's contract.
    unsafe { backend::free(block, layout) }
}

/// Returns free memory of this thread, and unowned free memory, to the operating system.
pub(crate) fn return_free_memory() {
    reused::empty();
    backend::return_free_memory();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    #[test]
    fn counts_by_kind_across_threads() {
        with_limit(PART_SECONDS, |_| {
            let counters = MemoryCounters::new();
            let layout = Layout::from_size_align(96, 32).unwrap();
            let block = counters.allocate(MemoryKind::Version, layout).as_ptr() as usize;
            assert_eq!(block % 32, 0);
            assert_eq!(counters.bytes(MemoryKind::Version), 96);
            assert_eq!(counters.bytes(MemoryKind::Node), 0);
            std::thread::scope(|s| {
                s.spawn(|| {
                    let block = NonNull::new(block as *mut u8).unwrap();
                    // SAFETY: allocated above with this kind and layout, and not used again.
                    unsafe { counters.free(MemoryKind::Version, block, layout) };
                });
            });
            assert_eq!(counters.bytes(MemoryKind::Version), 0);
        });
    }
}
