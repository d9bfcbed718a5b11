//! Keys in nodes: the prefix that a node's keys share, a head of eight bytes, and a word that defines
//! the rest.
//!
//! The head is the first eight bytes behind the prefix, big-endian and padded with zeros, so that
//! heads compare in key order. The word has a tag in its top byte:
//!
//! | tag | bytes behind the prefix | lower 56 bits |
//! |---|---|---|
//! | 0 | none: an empty place, or minus infinity in an inner node | 0 |
//! | 1..=9 | at most eight, tag − 1 | the record id (leaf) or 0 (separator) |
//! | 10..=255 | more; the tag is a fingerprint of the key | the address of its [`KeyCell`] |
//!
//! Order: by head; among equal heads by tag, where all fingerprints are equal; among long keys with
//! equal heads by their bytes. That is the order of the keys, because a short key with a long key's
//! head is its proper prefix.

use std::alloc::Layout;
use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::ptr::NonNull;

use smallvec::SmallVec;

use crate::memory::{MemoryCounters, MemoryKind};
use crate::reclaim;
use crate::rid::Rid;
use crate::sched;

/// Maximum length of a table's encoded key, in bytes.
/// [`MAX_PAGED_KEY_BYTES`](crate::MAX_PAGED_KEY_BYTES) is the maximum of paged tables.
pub const MAX_KEY_BYTES: usize = 2048;

/// Number of words of a node's prefix; few in models and simulations.
pub(super) const PREFIX_WORDS: usize = if cfg!(any(loom, braid_simulation)) { 2 } else { 7 };
/// Maximum length of a node's prefix, in bytes.
pub(super) const MAX_PREFIX_BYTES: usize = PREFIX_WORDS * 8;

/// Cells that a changed node references no longer.
pub(super) type UnusedCells = SmallVec<[KeyCell; 8]>;

const TAG_SHIFT: u32 = 56;
const PAYLOAD_MASK: u64 = (1 << TAG_SHIFT) - 1;
/// Smallest tag of a long key.
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

    /// Creates the word of a long key with a fingerprint.
    pub(super) fn long(cell: KeyCell, fingerprint: u64) -> Self {
        let address = cell.address();
        assert!(address <= PAYLOAD_MASK, "user addresses have 56 bits at most");
        KeyWord(fingerprint << TAG_SHIFT | address)
    }

    /// Creates the word of a prefix, which has no fingerprint.
    pub(super) fn of_prefix(cell: KeyCell) -> Self {
        Self::long(cell, LONG_KEY_TAG)
    }

    #[inline(always)]
    pub(super) fn tag(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    /// Returns the record id of a leaf's short key.
    #[inline(always)]
    pub(super) fn inline_rid(self) -> Rid {
        // The payload of a leaf's word is a record id.
        Rid::new(self.0 & (Rid::LIMIT - 1))
    }

    /// Returns the cell of a long key.
    #[inline(always)]
    pub(super) fn cell(self) -> Option<KeyCell> {
        if self.tag() < LONG_KEY_TAG {
            return None;
        }
        Some(KeyCell::at(self.0 & PAYLOAD_MASK).expect("a long key's address"))
    }
}

/// Returns the place of a tag in the order of keys with equal heads.
#[inline(always)]
pub(super) fn rank(tag: u64) -> u64 {
    tag.min(LONG_KEY_TAG)
}

/// Returns the tag of a key of more than eight bytes: a fingerprint of its last bytes.
#[inline(never)]
fn fingerprint(bytes: &[u8]) -> u64 {
    const FINGERPRINTS: u64 = (1 << (u64::BITS - TAG_SHIFT)) - LONG_KEY_TAG;
    let words = bytes.rchunks_exact(8).take(4);
    let hash = words.fold(0_u64, |hash, word| {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        // A multiplication moves entropy upwards only.
        (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32)
    });
    LONG_KEY_TAG + (((hash & u64::from(u32::MAX)) * FINGERPRINTS) >> 32)
}

/// Returns the eight bytes of a key from `start`, big-endian and padded with zeros.
#[inline(always)]
pub(super) fn word_of(bytes: &[u8], start: usize) -> u64 {
    let rest = bytes.get(start..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(word) => u64::from_be_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(word)
        }
    }
}

#[derive(Debug)]
#[repr(C)]
struct KeyHeader {
    rid: u64,
    bytes: u64,
}

/// Memory of a long key, or of a node's prefix: record id, length, bytes. It never changes.
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

    /// Returns its address; 0 is the address of no cell.
    pub(super) fn address(self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Returns the cell at an address.
    #[inline(always)]
    pub(super) fn at(address: u64) -> Option<Self> {
        NonNull::new(address as *mut KeyHeader).map(Self)
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

/// A key to search for: the whole key, and its head and tag behind the prefix of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchKey<'a> {
    pub(super) head: u64,
    pub(super) tag: u64,
    pub(super) bytes: &'a [u8],
}

impl<'a> SearchKey<'a> {
    /// Creates the key for a node without a prefix.
    #[inline(always)]
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let (head, tag) = match (bytes.first_chunk::<8>(), bytes.len()) {
            (Some(head), 8) => (u64::from_be_bytes(*head), EIGHT_BYTES_TAG),
            (Some(head), _) => (u64::from_be_bytes(*head), fingerprint(bytes)),
            (None, length) => (word_of(bytes, 0), length as u64 + 1),
        };
        Self { head, tag, bytes }
    }

    /// Returns this key, which was created by `new`, for a node with a prefix of `bytes`.
    #[inline(always)]
    pub(super) fn behind(&self, bytes: usize) -> Self {
        let rest = self.bytes.len().saturating_sub(bytes);
        let tag = if rest <= 8 { rest as u64 + 1 } else { self.tag };
        Self { head: word_of(self.bytes, bytes), tag, bytes: self.bytes }
    }

    #[inline(always)]
    pub(super) fn is_long(&self) -> bool {
        self.tag >= LONG_KEY_TAG
    }

    /// Returns the word of an entry or a separator with this key; `payload` is its record id or 0.
    #[inline(always)]
    pub(super) fn word(&self, payload: u64, memory: &MemoryCounters) -> KeyWord {
        if self.is_long() {
            KeyWord::long(KeyCell::allocate(memory, self.bytes, payload), self.tag)
        } else {
            KeyWord::inline(self.tag as usize - 1, payload)
        }
    }
}

/// Key of an entry in a node. Its cell and its prefix's cell, if it has them, stay allocated for
/// `'n`.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldKey<'n> {
    head: u64,
    word: KeyWord,
    /// Prefix of its node; `None` if that is empty, and possibly if the word has a cell.
    prefix: Option<KeyCell>,
    held: PhantomData<&'n KeyHeader>,
}

impl<'n> HeldKey<'n> {
    /// Creates the key from its node's prefix, its head and its word.
    ///
    /// # Safety
    /// The word's cell and the prefix, if there are any, are not freed for `'n`.
    #[inline(always)]
    pub(super) unsafe fn new(prefix: Option<KeyCell>, head: u64, word: KeyWord) -> Self {
        Self { head, word, prefix, held: PhantomData }
    }

    #[inline(always)]
    pub(super) fn word(self) -> KeyWord {
        self.word
    }

    /// Returns the record id of a leaf's entry.
    #[inline(always)]
    pub(super) fn rid(self) -> Rid {
        match self.word.cell() {
            None => self.word.inline_rid(),
            // SAFETY: allocated for `'n` (the type's invariant).
            Some(cell) => unsafe { cell.rid() },
        }
    }

    /// Returns the key's bytes, if it has exactly eight and its node no prefix.
    #[inline(always)]
    pub(super) fn whole(self) -> Option<[u8; 8]> {
        let is_whole = self.word.tag() == EIGHT_BYTES_TAG && self.prefix.is_none();
        is_whole.then(|| self.head.to_be_bytes())
    }

    /// Returns the bytes of a key of at most eight bytes, padded with zeros, and their number.
    #[inline(always)]
    pub(super) fn short(self) -> Option<([u8; 8], u32)> {
        let tag = self.word.tag();
        match self.prefix {
            None => (tag < LONG_KEY_TAG).then(|| (self.head.to_be_bytes(), tag as u32 - 1)),
            Some(_) => self.short_behind_prefix(),
        }
    }

    #[cold]
    fn short_behind_prefix(self) -> Option<([u8; 8], u32)> {
        self.with_bytes(|bytes| {
            let is_short = bytes.len() <= 8;
            is_short.then(|| (word_of(bytes, 0).to_be_bytes(), bytes.len() as u32))
        })
    }

    /// Passes the key's bytes to `look`.
    #[inline]
    pub(super) fn with_bytes<R>(self, look: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: allocated for `'n` (the type's invariant), both.
        let (cell, prefix) = unsafe {
            (self.word.cell().map(|cell| cell.bytes()), self.prefix.map(|cell| cell.bytes()))
        };
        let (head, rest) = (self.head.to_be_bytes(), self.word.tag() as usize);
        match (cell, prefix) {
            (Some(cell), _) => look(cell),
            (None, None) => look(&head[..rest - 1]),
            (None, Some(prefix)) => {
                let mut key = [0; MAX_PREFIX_BYTES + 8];
                key[..prefix.len()].copy_from_slice(prefix);
                key[prefix.len()..][..8].copy_from_slice(&head);
                look(&key[..prefix.len() + rest - 1])
            }
        }
    }

    /// Returns whether the key has more than eight bytes, without access to its cell.
    pub(super) fn is_longer_than_a_head(self) -> bool {
        // SAFETY: allocated for `'n` (the type's invariant).
        let prefix = self.prefix.map_or(0, |cell| unsafe { cell.bytes() }.len());
        prefix + rank(self.word.tag()) as usize > EIGHT_BYTES_TAG as usize
    }

    /// Returns the head and word of this key in a node with a prefix of `prefix_bytes`. A cell that
    /// it needs no longer is added to `unused`.
    pub(super) fn recoded(
        self,
        prefix_bytes: usize,
        memory: &MemoryCounters,
        unused: &mut UnusedCells,
    ) -> (u64, KeyWord) {
        if prefix_bytes == 0 && self.prefix.is_none() && self.word.cell().is_none() {
            return (self.head, self.word);
        }
        self.with_bytes(|bytes| {
            let key = SearchKey::new(bytes).behind(prefix_bytes);
            let word = match self.word.cell() {
                Some(_) if key.is_long() => self.word,
                cell => {
                    unused.extend(cell);
                    key.word(self.rid().number(), memory)
                }
            };
            (key.head, word)
        })
    }

    /// Compares a searched key, behind the same prefix, with this one.
    #[inline]
    pub(super) fn compared_with(self, key: &SearchKey<'_>) -> Order {
        let order = key.head.cmp(&self.head);
        let order = order.then_with(|| rank(key.tag).cmp(&rank(self.word.tag())));
        match self.word.cell() {
            // SAFETY: allocated for `'n` (the type's invariant).
            Some(cell) if order == Order::Equal => key.bytes.cmp(unsafe { cell.bytes() }),
            _ => order,
        }
    }

    /// Returns whether the key has these bytes.
    #[inline]
    pub(super) fn has_bytes(self, key: &[u8]) -> bool {
        self.with_bytes(|bytes| bytes == key)
    }

    /// Prefetches the first and the last cache line of the cell of a key of `bytes`.
    #[inline(always)]
    pub(super) fn prefetch(self, bytes: usize) {
        if let Some(cell) = self.word.cell() {
            let start = cell.0.as_ptr().cast_const();
            sched::prefetch(start);
            sched::prefetch(start.cast::<u8>().wrapping_add(size_of::<KeyHeader>() + bytes - 1));
        }
    }

    /// Returns whether this is the searched key, behind the same prefix and with the same head.
    pub(super) fn is(self, key: &SearchKey<'_>) -> bool {
        self.word.tag() == key.tag
            && match self.word.cell() {
                None => true,
                // SAFETY: allocated for `'n` (the type's invariant).
                Some(cell) => unsafe { cell.bytes() == key.bytes },
            }
    }
}
