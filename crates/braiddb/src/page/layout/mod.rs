//! Page layout: the bytes of a page.
//!
//! ```text
//! byte   0    header (`header`)
//! byte  64    16 hints of 4 bytes: the upper halves of the heads of evenly spaced entries
//! byte 128    entries of 16 bytes, growing upward: a head, which is the 8 bytes of the key after the
//!             prefix that all keys of the page share, and a word (`entry`)
//!             free
//!             cells, growing downward, each a number of whole words: bytes of keys beyond their heads,
//!             values, fences
//! ```
//!
//! Invariants:
//!
//! - Entries are sorted by key and distinct.
//! - All keys are between the fences, including the low and excluding the high fence. So all keys
//!   begin with the common prefix of the fences, which the low fence stores.
//! - No cell is shared, or overlaps another.
//!
//! A page is a sequence of words, whose byte order on disk is little-endian. The words of a
//! resident page are atomics, read and written Relaxed under a latch's version. A reader may see
//! any mixture of words, so every position is taken modulo the page size and every length is
//! bounded. A private copy has plain cells, and the same code works on both.

mod entry;
mod header;
mod image;
mod inner;
mod leaf;
mod rebuild;
mod search;
#[cfg(all(test, not(loom)))]
mod tests;

use std::cell::Cell;

use smallvec::SmallVec;

pub(in crate::page) use entry::{PAGE_ID_LIMIT, SlotFlags};
use header::PageKind;
pub(in crate::page) use header::{PageFormat, PageShape};
pub(in crate::page) use image::{PageDamage, image_checksum};
pub(in crate::page) use inner::ChildrenWords;
pub(crate) use leaf::StoredOnPage;
pub(in crate::page) use leaf::{KeySlot, LeafSlot, LeafSlots};
pub(in crate::page) use rebuild::SplitPoint;
pub(in crate::page) use search::KeySuffix;

use crate::log::PAGE_BYTES;
use crate::memory::Buffer;
use crate::sync::atomic::{AtomicU64, Ordering};

pub(in crate::page) const WORD_BYTES: usize = 8;
/// Number of hints of a page; fewer in models, whose pages are small.
const HINTS: usize = if cfg!(loom) { 2 } else { 16 };
/// Number of words before the entries.
const ENTRIES_AT: usize = header::HEADER_WORDS + HINTS / 2;
const ENTRY_WORDS: usize = 2;
const HEAD_BYTES: usize = 8;
/// Smallest page size; tests use it to build deep trees.
pub(in crate::page) const MIN_PAGE_BYTES: usize = if cfg!(loom) { 256 } else { 512 };
pub(in crate::page) const MAX_PAGE_BYTES: usize = 64 << 10;

const _: () = {
    let mut page_bytes = MIN_PAGE_BYTES;
    while page_bytes <= MAX_PAGE_BYTES {
        assert!(can_always_be_split(page_bytes), "a split makes room");
        page_bytes *= 2;
    }
};

#[cfg(not(loom))]
const _: () = {
    assert!(HINTS * size_of::<u32>() == 64, "hints are a line");
    assert!(ENTRIES_AT * WORD_BYTES == 128, "entries begin at byte 128");
    assert!(
        MAX_PAGE_BYTES / WORD_BYTES <= 1 << entry::OFFSET_BITS,
        "an entry can reference any word"
    );
    assert!(
        max_key_bytes(MAX_PAGE_BYTES) < 1 << entry::KEY_BITS,
        "an entry can store any key length"
    );
    assert!(MAX_PAGE_BYTES / WORD_BYTES < 1 << 16, "a header can store any word number");
};

/// A key, or a part of one, copied from a page.
pub(crate) type KeyBytes = SmallVec<[u8; 24]>;

/// Smallest page size of users' tables.
pub(in crate::page) const MIN_TABLE_PAGE_BYTES: usize = *PAGE_BYTES.start();

/// Maximum key length of a paged table's record, in bytes. [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES)
/// is the maximum of other tables.
pub const MAX_PAGED_KEY_BYTES: usize = MIN_TABLE_PAGE_BYTES / 8;

/// Returns the maximum key length for a page size. All page sizes of tables have the same maximum,
/// so that the log can be replayed to pages of any size.
pub(in crate::page) const fn max_key_bytes(page_bytes: usize) -> usize {
    match page_bytes {
        MIN_TABLE_PAGE_BYTES.. => MAX_PAGED_KEY_BYTES,
        _ => page_bytes / 32,
    }
}

/// Returns the maximum length of a value that is stored on a page of this size.
pub(in crate::page) const fn max_inline_value_bytes(page_bytes: usize) -> usize {
    if page_bytes < MIN_TABLE_PAGE_BYTES { page_bytes / 16 } else { page_bytes / 4 }
}

/// Returns the maximum length of a cell with two values, which a bulk operation writes: the longest
/// inline value, a reference to a large value, and the cell's header.
pub(in crate::page) const fn max_pair_bytes(page_bytes: usize) -> usize {
    max_inline_value_bytes(page_bytes) + 2 * WORD_BYTES
}

/// Returns whether any page of this size can be split into two pages that have room for its
/// entries. The larger half exceeds half of the page by at most half an entry, and its fences may
/// be longer than those of the whole page.
const fn can_always_be_split(page_bytes: usize) -> bool {
    let room = page_bytes - ENTRIES_AT * WORD_BYTES;
    let key = max_key_bytes(page_bytes).next_multiple_of(WORD_BYTES);
    // The bytes reserved for undoing are rounded up by a word.
    let value = max_pair_bytes(page_bytes) + WORD_BYTES;
    let entry = ENTRY_WORDS * WORD_BYTES + key + value;
    room / 2 + entry / 2 + 2 * key <= room
}

/// Returns whether pages can have this size.
pub(crate) fn is_page_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&bytes)
}

/// A word of a page.
pub(in crate::page) trait PageWord {
    fn get(&self) -> u64;
    fn set(&self, value: u64);
}

impl PageWord for AtomicU64 {
    #[inline(always)]
    fn get(&self) -> u64 {
        // Relaxed: validated by a version of the page's latch, or latched.
        self.load(Ordering::Relaxed)
    }

    /// The page is latched. An unchanged word is not written, so its cache line stays shared.
    #[inline(always)]
    fn set(&self, value: u64) {
        // Relaxed, both: the latch orders them (`latch`).
        if self.load(Ordering::Relaxed) != value {
            self.store(value, Ordering::Relaxed);
        }
    }
}

impl PageWord for Cell<u64> {
    #[inline(always)]
    fn get(&self) -> u64 {
        Cell::get(self)
    }

    #[inline(always)]
    fn set(&self, value: u64) {
        Cell::set(self, value);
    }
}

/// A page. Its contents are meaningless until validated, unless it is latched or a private copy. It
/// is changed only while it is latched, or if it is a private copy.
#[derive(Debug)]
pub(in crate::page) struct Page<'p, W = AtomicU64> {
    words: &'p [W],
}

impl<W> Clone for Page<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Page<'_, W> {}

impl<'p, W: PageWord> Page<'p, W> {
    /// Creates a page from its words.
    pub(in crate::page) fn new(words: &'p [W]) -> Self {
        assert!(is_page_size(words.len() * WORD_BYTES));
        Self { words }
    }

    /// Creates a page from its words, whose number the caller guarantees.
    #[inline(always)]
    pub(in crate::page) fn of_words(words: &'p [W]) -> Self {
        debug_assert!(is_page_size(words.len() * WORD_BYTES));
        Self { words }
    }

    /// Returns the number of words.
    #[inline(always)]
    pub(in crate::page) fn len(self) -> usize {
        self.words.len()
    }

    /// Returns the number of bytes.
    pub(in crate::page) fn bytes(self) -> usize {
        self.len() * WORD_BYTES
    }

    #[inline(always)]
    fn at(self, number: usize) -> &'p W {
        // The number of words is a power of two.
        &self.words[number & (self.words.len() - 1)]
    }

    #[inline(always)]
    fn word(self, number: usize) -> u64 {
        self.at(number).get()
    }

    #[inline(always)]
    fn set_word(self, number: usize, value: u64) {
        self.at(number).set(value);
    }

    /// Returns the address of the cache line with the hints, for a prefetch.
    #[inline(always)]
    pub(in crate::page) fn hint_line(self) -> *const W {
        self.at(header::HEADER_WORDS)
    }

    /// Appends `bytes` bytes from word `start` to `out`.
    fn copy_bytes(self, start: usize, bytes: usize, out: &mut impl ByteSink) {
        let bytes = bytes.min(self.bytes());
        for number in 0..bytes / WORD_BYTES {
            out.append(&self.word(start + number).to_le_bytes());
        }
        let rest = bytes % WORD_BYTES;
        if rest > 0 {
            out.append(&self.word(start + bytes / WORD_BYTES).to_le_bytes()[..rest]);
        }
    }

    /// Writes bytes from word `start`, and zeros up to the end of the last word.
    fn write_bytes(self, start: usize, bytes: &[u8]) {
        for number in 0..bytes.len().div_ceil(WORD_BYTES) {
            self.set_word(start + number, word_of(bytes, number));
        }
    }

    /// Returns a private copy of the page.
    pub(in crate::page) fn copy(self) -> PageCopy {
        PageCopy(self.words.iter().map(|word| Cell::new(word.get())).collect())
    }

    /// Overwrites this page with `other`, which has the same size.
    pub(in crate::page) fn copy_from<V: PageWord>(self, other: Page<'_, V>) {
        assert_eq!(self.len(), other.len());
        for (to, from) in self.words.iter().zip(other.words) {
            to.set(from.get());
        }
    }
}

/// A private page of its holder.
#[derive(Debug)]
pub(in crate::page) struct PageCopy(Box<[Cell<u64>]>);

impl PageCopy {
    /// Creates a page of zeros.
    pub(in crate::page) fn zeros(page_bytes: usize) -> Self {
        Self((0..page_bytes / WORD_BYTES).map(|_| Cell::new(0)).collect())
    }

    pub(in crate::page) fn page(&self) -> Page<'_, Cell<u64>> {
        Page::new(&self.0)
    }
}

/// Returns a word of a byte string, as if zeros followed it.
fn word_of(bytes: &[u8], number: usize) -> u64 {
    let rest = bytes.get(number * WORD_BYTES..).unwrap_or(&[]);
    match rest.first_chunk::<WORD_BYTES>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => {
            let mut chunk = [0; WORD_BYTES];
            chunk[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(chunk)
        }
    }
}

/// Destination for bytes copied from a page.
pub(in crate::page) trait ByteSink {
    fn append(&mut self, bytes: &[u8]);
}

impl ByteSink for Vec<u8> {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl ByteSink for Buffer {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<A: smallvec::Array<Item = u8>> ByteSink for SmallVec<A> {
    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
