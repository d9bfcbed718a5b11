//! Change: records that a transaction wrote a record of a page, with the record's before-image.
//!
//! ```text
//! offset  size  field
//!      0     8  stamp: commit LSN, name of the transaction, or aborted
//!      8     8  next: the next older change of the record that may still be needed, or 0; bit 0:
//!               pruned
//!     16     8  chain of the change
//!     24     4  before-image: length (bits 0..25); bit 30: stored elsewhere; bit 31: no record
//!     28     4  position in its transaction's write set
//!     32     …  bytes of the before-image, or its reference
//! ```
//!
//! Invariants:
//!
//! - All fields except `stamp` and `next` are immutable after the change is pushed onto its chain.
//! - `stamp` changes once, from a name to an LSN or to aborted.
//! - A change is marked as pruned at most once, under the chain's latch, when it is unlinked because
//!   no transaction sees its before-image.
//! - Only the transaction that made a change retires it, once. The chain exists until then.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::chain::ChainRef;
use crate::memory::{MemoryCounters, MemoryKind};
use crate::page::layout::WORD_BYTES;
use crate::page::value::SlotValue;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::sync;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{MAX_VALUE_BYTES, Stamp};

/// Mark of a pruned change in its link to the next older one.
const PRUNED: u64 = 1;
const LENGTH_MASK: u32 = (1 << 25) - 1;
const ELSEWHERE: u32 = 1 << 30;
const ABSENT: u32 = 1 << 31;
const _: () = assert!(MAX_VALUE_BYTES <= LENGTH_MASK as usize);
#[cfg(not(loom))]
const _: () = assert!(size_of::<ChangeHeader>() == 32 && align_of::<ChangeHeader>() == 8);

#[cfg(all(test, not(loom)))]
thread_local!(static LINKS_FOLLOWED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) });

/// Returns the number of links to older changes that this thread has followed.
#[cfg(all(test, not(loom)))]
pub(in crate::page) fn links_followed() -> u64 {
    LINKS_FOLLOWED.get()
}

/// Header of a change; the before-image follows it in memory.
#[derive(Debug)]
#[repr(C)]
struct ChangeHeader {
    stamp: AtomicU64,
    next: AtomicU64,
    chain: ChainRef,
    length: u32,
    position: u32,
}

/// Pointer to a change. The change stays allocated at least as long as the pointer's holder may
/// access it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangeRef(NonNull<ChangeHeader>);

// SAFETY: a plain address; access through it takes `get`, whose contract covers other threads.
unsafe impl Send for ChangeRef {}
// SAFETY: sharing it shares a plain address; access through that takes `get`, whose contract covers
// other threads.
unsafe impl Sync for ChangeRef {}

/// A change that stays allocated for `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainChange<'a> {
    pointer: NonNull<ChangeHeader>,
    held: PhantomData<&'a ChangeHeader>,
}

impl ChangeRef {
    /// Allocates a change of `chain`, before it is pushed. `before` is the record's before-image,
    /// if the record exists.
    pub(super) fn allocate(
        memory: &MemoryCounters,
        stamp: Stamp,
        chain: ChainRef,
        before: Option<SlotValue<'_>>,
        position: u32,
    ) -> Self {
        let value = before.unwrap_or(SlotValue::Here(&[]));
        assert!(value.value_bytes() <= MAX_VALUE_BYTES);
        let marks = match before {
            None => ABSENT,
            Some(SlotValue::Elsewhere(_)) => ELSEWHERE,
            Some(SlotValue::Here(_)) => 0,
        };
        let length = value.value_bytes() as u32 | marks;
        let (stamp, next) = (AtomicU64::new(stamp.bits()), AtomicU64::new(0));
        let layout = Self::layout(value.cell_bytes());
        let block = memory.allocate(MemoryKind::Change, layout).cast::<ChangeHeader>();
        // SAFETY: the block is fresh, unshared, aligned for a header and holds header and value.
        unsafe {
            block.write(ChangeHeader { stamp, next, chain, length, position });
            let target = block.add(1).cast::<u8>().as_ptr();
            value.with_cell(|cell| {
                std::ptr::copy_nonoverlapping(cell.as_ptr(), target, cell.len());
            });
        }
        Self(block)
    }

    /// Returns the change.
    ///
    /// # Safety
    /// The change is not retired for `'a`. Or it was linked when the holder of an operation guard
    /// that lasts for `'a` loaded the link.
    pub(crate) unsafe fn get<'a>(self) -> ChainChange<'a> {
        ChainChange { pointer: self.0, held: PhantomData }
    }

    /// Frees the change after no operation can hold it any more.
    ///
    /// # Safety
    /// It was allocated with these counters, it is unlinked from its chain, and it is retired once.
    pub(super) unsafe fn retire(self, memory: &MemoryCounters) {
        if is_planted(Bug::ChangeFreedAtOnce) {
            // SAFETY: none: that is the bug.
            return unsafe { self.free(memory) };
        }
        // SAFETY: allocated as long as this thread does not turn (the caller's contract).
        let layout = Self::layout(unsafe { self.get() }.cell_bytes());
        // SAFETY: allocated by `allocate` with this layout; the rest is the caller's contract.
        unsafe { reclaim::retire_block(memory, MemoryKind::Change, self.0.cast(), layout) }
    }

    /// Frees the change immediately.
    ///
    /// # Safety
    /// The contract of `retire`, and no operation can hold the change.
    pub(super) unsafe fn free(self, memory: &MemoryCounters) {
        // SAFETY: allocated until here (the caller's contract).
        let layout = Self::layout(unsafe { self.get() }.cell_bytes());
        // SAFETY: allocated by `allocate` with this layout; the rest is the caller's contract.
        unsafe { memory.free(MemoryKind::Change, self.0.cast(), layout) }
    }

    /// Returns the address as a link word.
    pub(super) fn word(self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Decodes a link word; `None` for 0.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        debug_assert!(word.is_multiple_of(8), "{word:#x} is no change");
        NonNull::new(word as *mut ChangeHeader).map(Self)
    }

    fn layout(cell_bytes: usize) -> Layout {
        Layout::from_size_align(size_of::<ChangeHeader>() + cell_bytes, align_of::<ChangeHeader>())
            .expect("values are bounded far below isize::MAX")
    }
}

impl<'a> ChainChange<'a> {
    fn header(self) -> &'a ChangeHeader {
        // SAFETY: a header's first word is its stamp.
        unsafe { sync::assert_not_freed(self.pointer.as_ptr().cast()) };
        // SAFETY: initialised by `allocate` and allocated for `'a` (contract of `ChangeRef::get`).
        unsafe { self.pointer.as_ref() }
    }

    /// Returns the stamp. Acquire pairs with the Release in `set_stamp`.
    pub(crate) fn stamp(self) -> Stamp {
        Stamp::from_bits(self.header().stamp.load(Ordering::Acquire))
    }

    /// Sets the final stamp. Release pairs with the Acquire in `stamp`.
    pub(crate) fn set_stamp(self, stamp: Stamp) {
        assert!(stamp.name().is_none(), "a final stamp is not a name");
        self.header().stamp.store(stamp.bits(), Ordering::Release);
    }

    /// Returns the next older change. Acquire pairs with the Release in `set_next`.
    pub(super) fn next(self) -> Option<ChangeRef> {
        #[cfg(all(test, not(loom)))]
        LINKS_FOLLOWED.set(links_followed() + 1);
        ChangeRef::from_word(self.header().next.load(Ordering::Acquire) & !PRUNED)
    }

    /// Marks a change that is being pruned; readers that are at it still follow its link. The caller
    /// has the chain latched. Release, because it replaces the store in `set_next`.
    pub(super) fn mark_pruned(self) {
        self.header().next.fetch_or(PRUNED, Ordering::Release);
    }

    /// Returns whether the change is pruned: it is unlinked once the chain's latch is released.
    pub(super) fn is_pruned(self) -> bool {
        // Acquire pairs with the Release in `mark_pruned`.
        self.header().next.load(Ordering::Acquire) & PRUNED != 0
    }

    /// Links the next older change. Release pairs with the Acquire in `next`.
    pub(super) fn set_next(self, next: Option<ChangeRef>) {
        self.header().next.store(next.map_or(0, ChangeRef::word), Ordering::Release);
    }

    /// Returns the chain, which exists as long as the change is not retired.
    pub(super) fn chain(self) -> ChainRef {
        self.header().chain
    }

    /// Returns the memory of the change, including the chain and mapping entry that it may need
    /// alone.
    pub(crate) fn memory_bytes(self) -> u64 {
        /// A chain's header, and an entry of a mapping table that is half full.
        const OVERHEAD_BYTES: usize = 24 + 2 * 16;
        // SAFETY: the chain exists as long as the change is not retired.
        let key = unsafe { self.chain().get() }.key().len();
        (size_of::<ChangeHeader>()
            + self.before().map_or(0, SlotValue::cell_bytes)
            + OVERHEAD_BYTES
            + key) as u64
    }

    /// Returns the position in the transaction's write set.
    pub(crate) fn position(self) -> u32 {
        self.header().position
    }

    /// Returns the before-image; `None` if the record did not exist.
    pub(crate) fn before(self) -> Option<SlotValue<'a>> {
        if self.header().length & ABSENT != 0 {
            return None;
        }
        // SAFETY: `allocate` placed this many initialised bytes right after the header, in one
        // block; they never change and stay allocated for `'a`.
        let cell = unsafe {
            let start = self.pointer.add(1).cast::<u8>();
            std::slice::from_raw_parts(start.as_ptr(), self.cell_bytes())
        };
        let is_elsewhere = self.header().length & ELSEWHERE != 0;
        Some(SlotValue::from_cell(cell, is_elsewhere.then(|| self.value_bytes())))
    }

    fn value_bytes(self) -> usize {
        (self.header().length & LENGTH_MASK) as usize
    }

    /// Returns the number of bytes after the header.
    fn cell_bytes(self) -> usize {
        if self.header().length & ELSEWHERE != 0 { WORD_BYTES } else { self.value_bytes() }
    }
}
