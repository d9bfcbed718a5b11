//! Memory that was freed in a controlled schedule, or in a model: overwritten, and kept from being used
//! again until the database is gone. Who still reads it finds the pattern; who still writes it leaves a trace.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Mutex;

/// What freed memory is full of: no commit's LSN, no transaction's name, no address.
pub(super) const FREED: u8 = 0xdb;
pub(super) const FREED_WORD: u64 = u64::from_ne_bytes([FREED; 8]);

/// Blocks that were freed.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(Mutex<Vec<(NonNull<u8>, Layout)>>);

// SAFETY: nobody but the quarantine may use what is in it.
unsafe impl Send for Quarantine {}
// SAFETY: the blocks are reached through the list only, which is locked.
unsafe impl Sync for Quarantine {}

impl Quarantine {
    /// Takes a block that was freed.
    ///
    /// # Panics
    /// If it was freed before.
    ///
    /// # Safety
    /// Nobody may use the block any more; it is of `layout`.
    pub(crate) unsafe fn take(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: mapped as long as the quarantine is there, if it was freed before.
        unsafe { assert_not_freed(block.as_ptr().cast()) };
        // SAFETY: the caller's promise.
        unsafe { block.write_bytes(FREED, layout.size()) };
        self.0.lock().expect("nobody panics with it").push((block, layout));
    }

    /// Gives the blocks to `free`.
    ///
    /// # Panics
    /// If one was written to after it was freed.
    pub(crate) fn release(&mut self, mut free: impl FnMut(NonNull<u8>, Layout)) {
        for (block, layout) in self.0.get_mut().expect("nobody panics with it").drain(..) {
            // SAFETY: the block is the quarantine's, and was filled when it came.
            let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), layout.size()) };
            let written = bytes.iter().position(|byte| *byte != FREED);
            assert!(
                written.is_none(),
                "byte {written:?} of {} was written after they were freed",
                layout.size()
            );
            free(block, layout);
        }
    }
}

/// Looks whether the first word of a version or a node says that it was freed.
///
/// # Panics
/// If it does.
///
/// # Safety
/// The word is mapped: it is the first of something that was allocated, and in a schedule it stays
/// mapped when it is freed.
#[track_caller]
pub(crate) unsafe fn assert_not_freed(pointer: *const u64) {
    // SAFETY: mapped (the caller's promise); only the holder of the baton runs.
    let word = unsafe { pointer.read_volatile() };
    assert!(word != FREED_WORD, "used after it was freed");
}
