//! Small freed blocks that their worker allocates again.
//!
//! A worker whose transactions update records frees as many versions as it allocates: in batches,
//! long after it allocated them. The allocator has then given up most of their pages, because they
//! were full, and such a free takes several atomic operations. A list per size takes a few
//! instructions.
//!
//! Each block in a list contains the address of the next one. Threads without an own shard of the
//! counters reuse nothing. Builds in which the system allocator or a quarantine looks for uses of
//! freed memory do not either.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;

use super::backend;

const REUSES: bool = !cfg!(any(loom, braid_simulation, braid_system_allocator));

/// Maximum size of a reused block, and the distance between two sizes.
const MAX_BLOCK_BYTES: usize = 256;
const SIZE_STEP: usize = size_of::<usize>();
/// Maximum number of bytes in all lists of a thread.
const MAX_BYTES: usize = 64 << 10;

/// The freed blocks of a thread.
struct ReusedBlocks {
    /// Number of bytes that may still be added; 0 on a thread that reuses nothing.
    room: Cell<usize>,
    /// The first block of each size, in steps of [`SIZE_STEP`].
    first: [Cell<*mut u8>; MAX_BLOCK_BYTES / SIZE_STEP + 1],
}

thread_local! {
    static BLOCKS: ReusedBlocks = const {
        ReusedBlocks {
            room: Cell::new(0),
            first: [const { Cell::new(std::ptr::null_mut()) }; MAX_BLOCK_BYTES / SIZE_STEP + 1],
        }
    };
}

/// Returns whether blocks of a layout are reused.
#[inline(always)]
fn is_reused(layout: Layout) -> bool {
    REUSES && layout.size() <= MAX_BLOCK_BYTES && layout.align() <= SIZE_STEP
}

/// Returns the layout with which a block is allocated, so that all blocks of a list are as large.
#[inline(always)]
pub(super) fn rounded(layout: Layout) -> Layout {
    if is_reused(layout) { of_list(layout.size().div_ceil(SIZE_STEP)) } else { layout }
}

#[inline(always)]
fn of_list(number: usize) -> Layout {
    Layout::from_size_align(number * SIZE_STEP, SIZE_STEP).expect("blocks in lists are small")
}

/// Takes a block from the list of its size.
#[inline(always)]
pub(super) fn take(layout: Layout) -> Option<NonNull<u8>> {
    if !is_reused(layout) {
        return None;
    }
    let number = layout.size().div_ceil(SIZE_STEP);
    BLOCKS.with(|blocks| {
        let block = NonNull::new(blocks.first[number].get())?;
        // SAFETY: `put` stored the address of the next block there, and only this thread uses it.
        blocks.first[number].set(unsafe { block.cast::<*mut u8>().read() });
        blocks.room.set(blocks.room.get() + number * SIZE_STEP);
        Some(block)
    })
}

/// Adds a block to the list of its size. Returns `false` if it must be freed otherwise.
///
/// # Safety
/// The block was allocated with the layout `rounded(layout)`, and is not used any more. If this
/// returns `true`, the caller does not free it.
#[inline(always)]
pub(super) unsafe fn put(block: NonNull<u8>, layout: Layout) -> bool {
    if !is_reused(layout) {
        return false;
    }
    let number = layout.size().div_ceil(SIZE_STEP);
    BLOCKS.with(|blocks| {
        let Some(room) = blocks.room.get().checked_sub(number * SIZE_STEP) else { return false };
        blocks.room.set(room);
        // SAFETY: the block has at least the size and the alignment of an address, and is not used
        // any more (the caller's contract).
        unsafe { block.cast::<*mut u8>().write(blocks.first[number].get()) };
        blocks.first[number].set(block.as_ptr());
        true
    })
}

/// Reuses blocks on this thread from now on.
pub(super) fn start() {
    BLOCKS.with(|blocks| blocks.room.set(MAX_BYTES));
}

/// Frees the blocks of this thread, which reuses none from now on.
pub(super) fn stop() {
    empty();
    BLOCKS.with(|blocks| blocks.room.set(0));
}

/// Frees the blocks of this thread.
pub(super) fn empty() {
    BLOCKS.with(|blocks| {
        for number in 1..blocks.first.len() {
            while let Some(block) = take(of_list(number)) {
                // SAFETY: allocated with this layout (`put`), and in no list any more.
                unsafe { backend::free(block, of_list(number)) };
            }
        }
    });
}

#[cfg(all(test, not(any(loom, braid_simulation, braid_system_allocator))))]
mod tests {
    use super::*;
    use crate::memory::{MemoryCounters, MemoryKind};

    #[test]
    fn blocks_of_one_size_are_reused_up_to_a_limit() {
        // Not through an own shard, because another test may have taken all of them.
        start();
        let counters = MemoryCounters::new();
        let layout = |bytes| Layout::from_size_align(bytes, 8).unwrap();
        let free = |block, bytes| {
            // SAFETY: allocated below with this kind and layout, and not used again.
            unsafe { counters.free(MemoryKind::Version, block, layout(bytes)) };
        };
        let block = counters.allocate(MemoryKind::Version, layout(33));
        free(block, 33);
        assert_ne!(counters.allocate(MemoryKind::Version, layout(32)), block);
        assert_eq!(counters.allocate(MemoryKind::Version, layout(40)), block);
        assert_eq!(counters.bytes(MemoryKind::Version), 72);
        let many = 2 * MAX_BYTES / 256;
        let all: Vec<_> =
            (0..many).map(|_| counters.allocate(MemoryKind::Version, layout(256))).collect();
        all.into_iter().for_each(|block| free(block, 256));
        assert_eq!(BLOCKS.with(|blocks| blocks.room.get()), MAX_BYTES % 256);
        empty();
        assert_eq!(BLOCKS.with(|blocks| blocks.room.get()), MAX_BYTES);
        stop();
    }
}
