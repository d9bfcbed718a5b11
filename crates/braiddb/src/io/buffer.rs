//! Sector-aligned buffers. Every read from storage allocates one. The system's allocator
//! consolidates its free lists for blocks of this size, which takes up to half a millisecond, so
//! buffers come from the engine's allocator.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::SECTOR_BYTES;
use crate::memory;

/// A zeroed, sector-aligned buffer whose length is a multiple of the sector size.
pub(crate) struct AlignedBuffer {
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the buffer is the only owner of its memory, as a `Box<[u8]>` is.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// Allocates `bytes` rounded up to whole sectors (at least one), all zero.
    pub(crate) fn zeroed(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(SECTOR_BYTES);
        Self { pointer: memory::allocate_uncounted(Self::layout(bytes)), bytes }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, SECTOR_BYTES).expect("buffers are far below isize::MAX")
    }
}

impl std::ops::Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation has `bytes` initialised bytes and is owned by `self`.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }
}

impl std::ops::DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the allocation has `bytes` initialised bytes and is owned by `self`, to which
        // `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout, freed once.
        unsafe { memory::free_uncounted(self.pointer, Self::layout(self.bytes)) }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.bytes)
    }
}
