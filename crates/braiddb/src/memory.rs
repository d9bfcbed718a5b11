//! Memory for versions, index nodes and keys, counted by kind.
//!
//! mimalloc serves it (size classes without per-block headers, huge pages by default, fast frees
//! from other threads); the host program's global allocator is left alone. The system allocator
//! takes its place under `--cfg braid_system_allocator` (sanitizers see into it) and loom.
//!
//! Counters are sharded by thread: an allocation costs one uncontended relaxed add.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// What a block of memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    /// Record versions: header and payload.
    Version,
    /// Index nodes.
    Node,
    /// Keys longer than eight bytes, held outside the nodes.
    Key,
}

const KINDS: usize = 3;
const SHARDS: usize = 64;

/// Bytes in use by kind, one per database.
///
/// Invariant: the sum over shards of a kind equals the bytes allocated and not yet freed through
/// this counter; a single shard may be negative when another thread frees.
#[derive(Debug)]
pub(crate) struct MemoryCounters {
    shards: Box<[CachePadded<[AtomicI64; KINDS]>]>,
}

impl MemoryCounters {
    pub(crate) fn new() -> Self {
        let shard = || CachePadded::new(std::array::from_fn(|_| AtomicI64::new(0)));
        Self { shards: (0..SHARDS).map(|_| shard()).collect() }
    }

    /// Bytes of `kind` in use now; approximate while other threads allocate.
    pub(crate) fn bytes(&self, kind: Kind) -> u64 {
        // Relaxed: a statistic, ordered with nothing.
        let sum: i64 = self.shards.iter().map(|s| s[kind as usize].load(Ordering::Relaxed)).sum();
        sum.max(0) as u64
    }

    /// Allocates `layout` for `kind`; aborts the process as `Vec` does when memory is exhausted.
    pub(crate) fn allocate(&self, kind: Kind, layout: Layout) -> NonNull<u8> {
        assert!(layout.size() > 0, "an empty block has no address of its own");
        self.add(kind, layout.size() as i64);
        backend::allocate(layout).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
    }

    /// Frees a block.
    ///
    /// # Safety
    /// `block` came from `allocate` of the same counters with the same `kind` and `layout`, nobody
    /// uses it any more, and it is freed once.
    pub(crate) unsafe fn free(&self, kind: Kind, block: NonNull<u8>, layout: Layout) {
        self.add(kind, -(layout.size() as i64));
        // SAFETY: the caller's contract is the backend's contract.
        unsafe { backend::free(block, layout) }
    }

    fn add(&self, kind: Kind, bytes: i64) {
        // Relaxed: a statistic, ordered with nothing.
        self.shards[shard()][kind as usize].fetch_add(bytes, Ordering::Relaxed);
    }
}

fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: only uniqueness matters, and `fetch_add` gives it.
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.with(|shard| *shard)
}

#[cfg(not(any(loom, braid_system_allocator)))]
mod backend {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    pub(super) fn allocate(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: size is not zero (asserted by the caller) and `Layout` holds a power of two.
        let block = unsafe { libmimalloc_sys::mi_malloc_aligned(layout.size(), layout.align()) };
        NonNull::new(block.cast())
    }

    pub(super) unsafe fn free(block: NonNull<u8>, _layout: Layout) {
        // SAFETY: the block came from `mi_malloc_aligned` and is not used again.
        unsafe { libmimalloc_sys::mi_free(block.as_ptr().cast()) }
    }
}

#[cfg(any(loom, braid_system_allocator))]
mod backend {
    use std::alloc::Layout;
    use std::ptr::NonNull;

    pub(super) fn allocate(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: size is not zero (asserted by the caller).
        NonNull::new(unsafe { std::alloc::alloc(layout) })
    }

    pub(super) unsafe fn free(block: NonNull<u8>, layout: Layout) {
        // SAFETY: the block came from `alloc` with this layout and is not used again.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn counts_by_kind_across_threads() {
        let counters = MemoryCounters::new();
        let layout = Layout::from_size_align(96, 32).unwrap();
        let block = counters.allocate(Kind::Version, layout).as_ptr() as usize;
        assert_eq!(block % 32, 0);
        assert_eq!(counters.bytes(Kind::Version), 96);
        assert_eq!(counters.bytes(Kind::Node), 0);
        std::thread::scope(|s| {
            s.spawn(|| {
                let block = NonNull::new(block as *mut u8).unwrap();
                // SAFETY: allocated above with this kind and layout, and not used again.
                unsafe { counters.free(Kind::Version, block, layout) };
            });
        });
        assert_eq!(counters.bytes(Kind::Version), 0);
    }
}
