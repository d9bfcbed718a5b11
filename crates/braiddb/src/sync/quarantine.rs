//! Quarantine: memory that was freed in a controlled schedule, or in a model, is overwritten with a
//! pattern and not reused until the database is dropped. A later read finds the pattern; a later
//! write destroys it.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Mutex;

/// Pattern of freed memory: invalid as an LSN, a transaction's name or an address.
pub(super) const FREED: u8 = 0xdb;
pub(super) const FREED_WORD: u64 = u64::from_ne_bytes([FREED; 8]);

/// Blocks that were freed.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(Mutex<Vec<(NonNull<u8>, Layout)>>);

// SAFETY: only the quarantine may use its blocks.
unsafe impl Send for Quarantine {}
// SAFETY: the blocks are reachable only through the list, which is locked.
unsafe impl Sync for Quarantine {}

impl Quarantine {
    /// Adds a freed block.
    ///
    /// # Panics
    /// Panics if it was freed before.
    ///
    /// # Safety
    /// The block is no longer used and has this `layout`.
    pub(crate) unsafe fn take(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: mapped while the quarantine exists, if it was freed before.
        unsafe { assert_not_freed(block.as_ptr().cast()) };
        // SAFETY: the caller's contract.
        unsafe { block.write_bytes(FREED, layout.size()) };
        self.0.lock().expect("no holder panics").push((block, layout));
    }

    /// Passes the blocks to `free`.
    ///
    /// # Panics
    /// Panics if a block was written after it was freed.
    pub(crate) fn release(&mut self, mut free: impl FnMut(NonNull<u8>, Layout)) {
        for (block, layout) in self.0.get_mut().expect("no holder panics").drain(..) {
            // SAFETY: the block belongs to the quarantine, and was filled when it was added.
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

/// Checks that the first word of a version or a node does not have the pattern of freed memory.
///
/// # Panics
/// Panics if it does.
///
/// # Safety
/// The word is mapped: it is the first word of an allocated block, and in a schedule it stays
/// mapped when it is freed.
#[track_caller]
pub(crate) unsafe fn assert_not_freed(pointer: *const u64) {
    // SAFETY: mapped (the caller's contract); only the holder of the baton runs.
    let word = unsafe { pointer.read_volatile() };
    assert!(word != FREED_WORD, "used after it was freed");
}
