//! Entries of a page: key heads, entry words, and the cells that they reference.
//!
//! | bits of the word | leaf | inner page |
//! |---|---|---|
//! | 0 to 12 | the cell's first word; 0: no cell | the same |
//! | 13 to 24 | bytes of the whole key | the same |
//! | 25 to 49, 25 to 63 | bytes of the value | the child's page id |
//! | 50 to 54 | flags of the slot | |
//!
//! A cell has the key's bytes beyond its head, padded to whole words, then the value.

use super::{
    ByteSink, ENTRIES_AT, ENTRY_WORDS, HEAD_BYTES, HINTS, KeyBytes, Page, PageWord, WORD_BYTES,
};
use super::{header, word_of};

pub(super) const OFFSET_BITS: u32 = 13;
pub(super) const KEY_BITS: u32 = 12;
const KEY_SHIFT: u32 = OFFSET_BITS;
const REST_SHIFT: u32 = OFFSET_BITS + KEY_BITS;
const VALUE_BITS: u32 = 25;
const FLAGS_SHIFT: u32 = REST_SHIFT + VALUE_BITS;
const CHILD_BITS: u32 = 64 - REST_SHIFT;

/// Upper bound of page ids.
pub(in crate::page) const PAGE_ID_LIMIT: u64 = 1 << CHILD_BITS;

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Flags of a leaf's slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::page) struct SlotFlags(u8);

impl SlotFlags {
    pub(in crate::page) const NONE: Self = Self(0);
    /// The record is deleted; the slot stays for transactions that still see the record.
    pub(in crate::page) const DELETED: Self = Self(1);
    /// The cell has the number of the value, which is stored elsewhere.
    pub(in crate::page) const OVERFLOW: Self = Self(2);
    /// A bulk operation wrote the value. The record did not exist before, unless the slot also has
    /// `BULK_DELETED`.
    pub(in crate::page) const BULK_CREATED: Self = Self(4);
    /// A bulk operation deleted or replaced the record's value; the cell has the before-image.
    pub(in crate::page) const BULK_DELETED: Self = Self(8);
    /// A change may exist in memory; never set in an image.
    pub(in crate::page) const VERSIONED: Self = Self(16);
    /// Marks of a bulk operation.
    const BULK: Self = Self(Self::BULK_CREATED.0 | Self::BULK_DELETED.0);
    const ALL: u8 = 31;

    pub(in crate::page) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 == flag.0
    }

    /// Returns whether the slot has no record, or the cell has no value but its number.
    #[inline(always)]
    pub(in crate::page) fn has_no_value(self) -> bool {
        self.0 & (Self::DELETED.0 | Self::OVERFLOW.0) != 0
    }

    /// Returns whether a bulk operation has marked the slot.
    #[inline(always)]
    pub(in crate::page) fn is_marked(self) -> bool {
        self.0 & Self::BULK.0 != 0
    }

    /// Returns whether the cell has two values: the result of a bulk operation, and the
    /// before-image.
    #[inline(always)]
    pub(in crate::page) fn is_pair(self) -> bool {
        self.has(Self::BULK)
    }

    /// Returns the flags without the marks of bulk operations.
    pub(in crate::page) fn unmarked(self) -> Self {
        self.without(Self::BULK)
    }

    pub(in crate::page) fn with(self, flag: Self) -> Self {
        Self(self.0 | flag.0)
    }

    pub(in crate::page) fn without(self, flag: Self) -> Self {
        Self(self.0 & !flag.0)
    }
}

/// Second word of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryWord(pub(super) u64);

impl EntryWord {
    pub(super) fn leaf(
        cell: usize,
        key_bytes: usize,
        value_bytes: usize,
        flags: SlotFlags,
    ) -> Self {
        assert!(value_bytes as u64 <= mask(VALUE_BITS));
        let rest = (value_bytes as u64) << REST_SHIFT | u64::from(flags.0) << FLAGS_SHIFT;
        Self::common(cell, key_bytes).with_rest(rest)
    }

    pub(super) fn inner(cell: usize, key_bytes: usize, child: u64) -> Self {
        assert!(child < PAGE_ID_LIMIT);
        Self::common(cell, key_bytes).with_rest(child << REST_SHIFT)
    }

    fn common(cell: usize, key_bytes: usize) -> Self {
        assert!(cell as u64 <= mask(OFFSET_BITS) && key_bytes as u64 <= mask(KEY_BITS));
        Self(cell as u64 | (key_bytes as u64) << KEY_SHIFT)
    }

    fn with_rest(self, rest: u64) -> Self {
        Self(self.0 & mask(REST_SHIFT) | rest)
    }

    pub(super) fn with_cell(self, cell: usize) -> Self {
        assert!(cell as u64 <= mask(OFFSET_BITS));
        Self(self.0 & !mask(OFFSET_BITS) | cell as u64)
    }

    pub(super) fn with_flags(self, flags: SlotFlags) -> Self {
        let all = u64::from(SlotFlags::ALL) << FLAGS_SHIFT;
        Self(self.0 & !all | u64::from(flags.0) << FLAGS_SHIFT)
    }

    #[inline(always)]
    pub(super) fn cell(self) -> usize {
        (self.0 & mask(OFFSET_BITS)) as usize
    }

    #[inline(always)]
    pub(super) fn key_bytes(self) -> usize {
        (self.0 >> KEY_SHIFT & mask(KEY_BITS)) as usize
    }

    #[inline(always)]
    pub(super) fn value_bytes(self) -> usize {
        (self.0 >> REST_SHIFT & mask(VALUE_BITS)) as usize
    }

    /// Returns the number of bytes in the cell for the value.
    #[inline(always)]
    pub(super) fn inline_bytes(self) -> usize {
        if self.flags().has(SlotFlags::OVERFLOW) { WORD_BYTES } else { self.value_bytes() }
    }

    #[inline(always)]
    pub(super) fn flags(self) -> SlotFlags {
        SlotFlags((self.0 >> FLAGS_SHIFT) as u8 & SlotFlags::ALL)
    }

    #[inline(always)]
    pub(super) fn child(self) -> u64 {
        self.0 >> REST_SHIFT
    }

    /// Returns the number of words of the cell for the key's tail, on a page with this prefix
    /// length.
    #[inline(always)]
    pub(super) fn tail_words(self, prefix_bytes: usize) -> usize {
        tail_words(self.key_bytes(), prefix_bytes)
    }
}

/// Returns the number of words for a key's bytes beyond its head.
#[inline(always)]
pub(super) fn tail_words(key_bytes: usize, prefix_bytes: usize) -> usize {
    key_bytes.saturating_sub(prefix_bytes + HEAD_BYTES).div_ceil(WORD_BYTES)
}

/// Returns the head of a key without its prefix.
#[inline(always)]
pub(super) fn head_of(suffix: &[u8]) -> u64 {
    word_of(suffix, 0).swap_bytes()
}

impl<'p, W: PageWord> Page<'p, W> {
    #[inline(always)]
    pub(super) fn head(self, place: usize) -> u64 {
        self.word(ENTRIES_AT + place * ENTRY_WORDS)
    }

    #[inline(always)]
    pub(super) fn entry(self, place: usize) -> EntryWord {
        EntryWord(self.word(ENTRIES_AT + place * ENTRY_WORDS + 1))
    }

    pub(super) fn set_head(self, place: usize, head: u64) {
        self.set_word(ENTRIES_AT + place * ENTRY_WORDS, head);
    }

    pub(super) fn set_entry(self, place: usize, word: EntryWord) {
        self.set_word(ENTRIES_AT + place * ENTRY_WORDS + 1, word.0);
    }

    /// Returns the address of an entry's cache line, for a prefetch.
    #[inline(always)]
    pub(in crate::page) fn entry_line(self, place: usize) -> *const W {
        self.at(ENTRIES_AT + place * ENTRY_WORDS)
    }

    /// Returns the address of the first cache line of an entry's cell, for a prefetch.
    #[inline(always)]
    pub(in crate::page) fn cell_line(self, place: usize) -> *const W {
        self.at(self.entry(place).cell())
    }

    /// Opens a gap for a new entry at a place.
    pub(super) fn open_entry(self, place: usize) {
        let count = self.count();
        assert!(place <= count);
        for from in (place..count).rev() {
            self.set_head(from + 1, self.head(from));
            self.set_entry(from + 1, self.entry(from));
        }
        self.set_count(count + 1);
    }

    /// Removes the entry at a place; the caller frees its cell.
    pub(super) fn close_entry(self, place: usize) {
        let count = self.count();
        assert!(place < count);
        for from in place + 1..count {
            self.set_head(from - 1, self.head(from));
            self.set_entry(from - 1, self.entry(from));
        }
        self.set_count(count - 1);
        self.refresh_hints();
    }

    /// Recomputes the hints.
    pub(super) fn refresh_hints(self) {
        let count = self.count();
        let stride = stride(count);
        let hint = |number: usize| match number * stride {
            place if place < count => self.head(place) >> 32,
            _ => u64::from(u32::MAX),
        };
        for pair in 0..HINTS / 2 {
            let both = hint(2 * pair) | hint(2 * pair + 1) << 32;
            self.set_word(header::HEADER_WORDS + pair, both);
        }
    }

    /// Returns the number of words between entries and cells.
    pub(super) fn gap_words(self) -> usize {
        self.heap_start().saturating_sub(ENTRIES_AT + self.count() * ENTRY_WORDS)
    }

    /// Returns the number of free bytes, including freed cells.
    pub(in crate::page) fn free_bytes(self) -> usize {
        (self.gap_words() + self.freed()) * WORD_BYTES
    }

    /// Allocates words for a cell, from the gap.
    pub(super) fn take_cell(self, words: usize) -> usize {
        if words == 0 {
            return 0;
        }
        assert!(words <= self.gap_words(), "the caller has made room");
        let start = self.heap_start() - words;
        self.set_heap_start(start);
        start
    }

    /// Frees words of a cell.
    pub(super) fn free_cell(self, words: usize) {
        self.set_freed(self.freed() + words);
    }

    /// Returns the number of words of an entry's cell.
    pub(super) fn cell_words(self, place: usize) -> usize {
        let entry = self.entry(place);
        let tail = entry.tail_words(self.prefix_bytes());
        let leaf = self.level() == 0;
        tail + if leaf { entry.inline_bytes().div_ceil(WORD_BYTES) } else { 0 }
    }

    /// Widens the gap to at least `words` words. Compacts the cells if necessary.
    ///
    /// # Panics
    /// If fewer words are free.
    pub(super) fn widen_gap(self, words: usize) {
        if self.gap_words() >= words {
            return;
        }
        assert!(self.gap_words() + self.freed() >= words, "the caller has checked the free words");
        let old = self.copy();
        let old = old.page();
        self.set_heap_start(self.len());
        self.set_freed(0);
        self.move_fences(old);
        for place in 0..self.count() {
            let (entry, words) = (old.entry(place), old.cell_words(place));
            let cell = self.take_cell(words);
            for number in 0..words {
                self.set_word(cell + number, old.word(entry.cell() + number));
            }
            self.set_entry(place, entry.with_cell(cell));
        }
    }

    /// Writes a key's bytes beyond its head into a cell.
    pub(super) fn write_tail(self, cell: usize, suffix: &[u8]) {
        self.write_bytes(cell, suffix.get(HEAD_BYTES..).unwrap_or(&[]));
    }

    /// Appends the key of an entry to `out`.
    pub(in crate::page) fn copy_key(self, place: usize, out: &mut impl ByteSink) {
        let (entry, prefix) = (self.entry(place), self.prefix_bytes());
        let prefix = prefix.min(entry.key_bytes());
        if prefix > 0 {
            let (cell, _) = self.fence_cells().next().unwrap_or_default();
            self.copy_bytes(cell, prefix, out);
        }
        let suffix = entry.key_bytes() - prefix;
        out.append(&self.head(place).to_be_bytes()[..suffix.min(HEAD_BYTES)]);
        if suffix > HEAD_BYTES {
            self.copy_bytes(entry.cell(), suffix - HEAD_BYTES, out);
        }
    }

    /// Returns the key of an entry.
    pub(in crate::page) fn key(self, place: usize) -> KeyBytes {
        let mut key = KeyBytes::new();
        self.copy_key(place, &mut key);
        key
    }
}

/// Returns the number of entries between two hints.
#[inline(always)]
pub(super) fn stride(count: usize) -> usize {
    count.div_ceil(HINTS).max(1)
}
