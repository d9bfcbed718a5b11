//! Keys in nodes: a head of eight bytes, and a word that defines the rest.
//!
//! The head is the key's first eight bytes, big-endian and padded with zeros, so that heads compare
//! in key order. The word has a tag in its top byte:
//!
//! | tag | key | lower 56 bits |
//! |---|---|---|
//! | 0 | none: an empty place, or minus infinity in an inner node | 0 |
//! | 1..=9 | inline, of length tag − 1 | the record id (leaf) or 0 (separator) |
//! | 10 | longer than eight bytes | the address of its [`KeyCell`] |
//!
//! Order: by head; among equal heads by tag; among long keys with equal heads by their bytes. That
//! is the order of the keys, because an inline key with a long key's head is its proper prefix.

use std::alloc::Layout;
use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::memory::{MemoryCounters, MemoryKind};
use crate::reclaim;
use crate::rid::Rid;

/// Maximum length of a table's encoded key, in bytes.
/// [`MAX_PAGED_KEY_BYTES`](crate::MAX_PAGED_KEY_BYTES) is the maximum of paged tables.
pub const MAX_KEY_BYTES: usize = 2048;

const TAG_SHIFT: u32 = 56;
const PAYLOAD_MASK: u64 = (1 << TAG_SHIFT) - 1;
const LONG_KEY_TAG: u64 = 10;
const EIGHT_BYTES_TAG: u64 = 9;
const _: () = assert!(Rid::LIMIT <= PAYLOAD_MASK);

/// Word next to a head; the table in the module documentation defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyWord(pub(super) u64);

impl KeyWord {
    /// An empty place; minus infinity as a separator.
    pub(super) const NONE: KeyWord = KeyWord(0);

    pub(super) fn inline(bytes: usize, payload: u64) -> Self {
        assert!(bytes <= 8 && payload <= PAYLOAD_MASK);
        KeyWord((bytes as u64 + 1) << TAG_SHIFT | payload)
    }

    pub(super) fn long(cell: KeyCell) -> Self {
        let address = cell.0.as_ptr() as u64;
        assert!(address <= PAYLOAD_MASK, "user addresses have 56 bits at most");
        KeyWord(LONG_KEY_TAG << TAG_SHIFT | address)
    }

    pub(super) fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    /// Returns the cell of a long key.
    pub(super) fn cell(self) -> Option<KeyCell> {
        let address = (self.0 & PAYLOAD_MASK) as *mut KeyHeader;
        (self.tag() == LONG_KEY_TAG)
            .then(|| KeyCell(NonNull::new(address).expect("a long key's address")))
    }
}

#[derive(Debug)]
#[repr(C)]
struct KeyHeader {
    rid: u64,
    bytes: u64,
}

/// Memory of a long key: record id, length, bytes. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyCell(NonNull<KeyHeader>);

// SAFETY: an address of memory that never changes; reading it takes `bytes`, whose contract covers
// other threads.
unsafe impl Send for KeyCell {}

impl KeyCell {
    pub(super) fn allocate(memory: &MemoryCounters, key: &[u8], rid: u64) -> Self {
        let block = memory.allocate(MemoryKind::Key, Self::layout(key.len())).cast::<KeyHeader>();
        // SAFETY: fresh, aligned for the header, and long enough for header and key.
        unsafe {
            block.write(KeyHeader { rid, bytes: key.len() as u64 });
            let target = block.add(1).cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(key.as_ptr(), target, key.len());
        }
        Self(block)
    }

    /// Frees the cell.
    ///
    /// # Safety
    /// Allocated with the same counters; unreachable for other threads; freed once.
    pub(super) unsafe fn free(self, memory: &MemoryCounters) {
        // SAFETY: allocated until here.
        let layout = Self::layout(unsafe { self.bytes() }.len());
        // SAFETY: allocated with this layout; the rest is the caller's contract.
        unsafe { memory.free(MemoryKind::Key, self.0.cast(), layout) }
    }

    /// Frees the cell after no operation can hold it any more.
    ///
    /// # Safety
    /// Allocated with the same counters; no longer referenced; retired once.
    pub(super) unsafe fn retire(self, memory: &MemoryCounters) {
        // SAFETY: allocated as long as this thread does not turn (the caller's contract).
        let layout = Self::layout(unsafe { self.bytes() }.len());
        // SAFETY: allocated with this layout; the rest is the caller's contract.
        unsafe { reclaim::retire_block(memory, MemoryKind::Key, self.0.cast(), layout) }
    }

    /// Returns the whole key.
    ///
    /// # Safety
    /// The cell is not freed for `'a`.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        // SAFETY: initialised by `allocate` before its address was published, never changed, and
        // allocated by the caller's contract.
        unsafe {
            let bytes = self.0.as_ref().bytes as usize;
            std::slice::from_raw_parts(self.0.add(1).cast::<u8>().as_ptr(), bytes)
        }
    }

    /// Returns the record id.
    ///
    /// # Safety
    /// The cell is not freed before the call ends.
    unsafe fn rid(self) -> Rid {
        // SAFETY: initialised before its address was published, never changed, and allocated by the
        // caller's contract.
        Rid::new(unsafe { self.0.as_ref() }.rid)
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(size_of::<KeyHeader>() + bytes, align_of::<KeyHeader>())
            .expect("keys are short")
    }
}

/// A key to search for.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchKey<'a> {
    pub(super) head: u64,
    pub(super) tag: u64,
    pub(super) bytes: &'a [u8],
}

impl<'a> SearchKey<'a> {
    #[inline(always)]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        match bytes.first_chunk::<8>() {
            Some(head) => {
                let tag = if bytes.len() == 8 { EIGHT_BYTES_TAG } else { LONG_KEY_TAG };
                Self { head: u64::from_be_bytes(*head), tag, bytes }
            }
            None => {
                let mut head = [0; 8];
                head[..bytes.len()].copy_from_slice(bytes);
                Self { head: u64::from_be_bytes(head), tag: bytes.len() as u64 + 1, bytes }
            }
        }
    }

    pub(super) fn is_long(&self) -> bool {
        self.tag == LONG_KEY_TAG
    }
}

/// Key of an entry in a node. Its cell, if it has one, stays allocated for `'n`.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldKey<'n> {
    head: u64,
    word: KeyWord,
    held: PhantomData<&'n KeyHeader>,
}

impl<'n> HeldKey<'n> {
    /// Creates the key from its head and word.
    ///
    /// # Safety
    /// The word's cell, if it has one, is not freed for `'n`.
    #[inline(always)]
    pub(super) unsafe fn new(head: u64, word: KeyWord) -> Self {
        Self { head, word, held: PhantomData }
    }

    pub(super) fn head(self) -> u64 {
        self.head
    }

    #[inline(always)]
    pub(super) fn word(self) -> KeyWord {
        self.word
    }

    /// Returns the record id of a leaf's entry.
    #[inline(always)]
    pub(super) fn rid(self) -> Rid {
        match self.word.cell() {
            // The payload of a leaf's word is a record id.
            None => Rid::new(self.word.0 & (Rid::LIMIT - 1)),
            // SAFETY: allocated for `'n` (the type's invariant).
            Some(cell) => unsafe { cell.rid() },
        }
    }

    /// Returns the key's bytes, if it has exactly eight.
    #[inline(always)]
    pub(super) fn whole(self) -> Option<[u8; 8]> {
        (self.word.tag() == EIGHT_BYTES_TAG).then(|| self.head.to_be_bytes())
    }

    /// Returns the bytes of a key of at most eight bytes, padded with zeros, and their number.
    #[inline(always)]
    pub(super) fn short(self) -> Option<([u8; 8], u32)> {
        let tag = self.word.tag();
        (tag != LONG_KEY_TAG).then(|| (self.head.to_be_bytes(), tag as u32 - 1))
    }

    /// Passes the key's bytes to `look`.
    pub(super) fn with_bytes<R>(self, look: impl FnOnce(&[u8]) -> R) -> R {
        match self.word.cell() {
            // SAFETY: allocated for `'n` (the type's invariant).
            Some(cell) => look(unsafe { cell.bytes() }),
            None => {
                let bytes = self.head.to_be_bytes();
                look(&bytes[..self.word.tag() as usize - 1])
            }
        }
    }

    /// Compares a searched key with this one.
    #[inline]
    pub(super) fn compared_with(self, key: &SearchKey<'_>) -> Order {
        let order = key.head.cmp(&self.head).then_with(|| key.tag.cmp(&self.word.tag()));
        match self.word.cell() {
            // SAFETY: allocated for `'n` (the type's invariant).
            Some(cell) if order == Order::Equal => key.bytes.cmp(unsafe { cell.bytes() }),
            _ => order,
        }
    }
}
