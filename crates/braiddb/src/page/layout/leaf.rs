//! Leaf pages: slots with a key, a value and flags.

use std::ops::Range;

use super::entry::{EntryWord, SlotFlags, head_of, tail_words};
use super::{ByteSink, ENTRIES_AT, ENTRY_WORDS, Page, PageWord, WORD_BYTES, word_of};

/// Position of a key in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum KeySlot {
    /// The key has the slot at this place.
    At(usize),
    /// The key has no slot; its slot would be inserted at this place.
    Before(usize),
}

impl KeySlot {
    /// Converts the result of a search.
    #[inline(always)]
    pub(in crate::page) fn from_bound((place, equal): (usize, bool)) -> Self {
        if equal { Self::At(place) } else { Self::Before(place) }
    }
}

/// Number of records in the slots of a leaf, and the bytes of their keys and cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredOnPage {
    pub(crate) records: u16,
    pub(crate) bytes: u16,
}

impl StoredOnPage {
    /// Encodes both numbers in one word.
    pub(in crate::page) fn word(self) -> u32 {
        u32::from(self.records) | u32::from(self.bytes) << u16::BITS
    }

    pub(in crate::page) fn from_word(word: u32) -> Self {
        Self { records: word as u16, bytes: (word >> u16::BITS) as u16 }
    }
}

/// Some slots of a leaf, for a reader of several. Meaningless until validated.
#[derive(Debug)]
pub(in crate::page) struct LeafSlots<'p, W> {
    page: Page<'p, W>,
    entries: &'p [[W; ENTRY_WORDS]],
    /// Place of the first entry.
    first: usize,
    /// Length of the prefix that all keys of the page share, and its first bytes.
    prefix_bytes: usize,
    prefix_head: u64,
    /// Position of a key's head behind the prefix.
    shift: u32,
    /// Maximum length of a key whose bytes are in the prefix's and the key's head.
    max_short_bytes: usize,
}

/// One of [`LeafSlots`].
#[derive(Debug)]
pub(in crate::page) struct LeafSlot<'s, 'p, W> {
    slots: &'s LeafSlots<'p, W>,
    words: &'p [W; ENTRY_WORDS],
    head: u64,
    entry: EntryWord,
}

impl<W> Clone for LeafSlot<'_, '_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for LeafSlot<'_, '_, W> {}

impl<'p, W: PageWord> LeafSlots<'p, W> {
    /// Returns the slots, in key order.
    #[inline(always)]
    pub(in crate::page) fn iter(&self) -> impl DoubleEndedIterator<Item = LeafSlot<'_, 'p, W>> {
        self.entries.iter().map(|words| {
            let [head, word] = words;
            LeafSlot { slots: self, words, head: head.get(), entry: EntryWord(word.get()) }
        })
    }
}

impl<'p, W: PageWord> LeafSlot<'_, 'p, W> {
    #[inline(always)]
    pub(in crate::page) fn flags(&self) -> SlotFlags {
        self.entry.flags()
    }

    /// Returns the bytes of a key of at most eight bytes, padded with zeros, and their number. `None`
    /// for other keys, and for those that begin with a prefix of eight bytes.
    #[inline(always)]
    pub(in crate::page) fn short_key(&self) -> Option<([u8; WORD_BYTES], usize)> {
        let (slots, bytes) = (self.slots, self.entry.key_bytes());
        if bytes > slots.max_short_bytes {
            return None;
        }
        let key = slots.prefix_head | self.head >> slots.shift;
        Some((key.to_be_bytes(), bytes))
    }

    /// Appends the key to `out`.
    pub(in crate::page) fn copy_key(&self, out: &mut impl ByteSink) {
        let first = self.slots.entries.as_ptr().addr();
        let place = (std::ptr::from_ref(self.words).addr() - first) / size_of_val(self.words);
        self.slots.page.copy_key(self.slots.first + place, out);
    }

    /// Returns the words of the value and its length in bytes; `None` if they are not within the page,
    /// which is then being changed.
    #[inline(always)]
    pub(in crate::page) fn value_words(&self) -> Option<(&'p [W], usize)> {
        // The cell has no part of a short key.
        let tail = match self.short_key() {
            Some(_) => 0,
            None => tail_words_of(self.entry, self.slots.prefix_bytes),
        };
        let (start, bytes) = (self.entry.cell() + tail, self.entry.value_bytes());
        #[expect(clippy::manual_div_ceil, reason = "fewer instructions; no overflow")]
        let words = (bytes + WORD_BYTES - 1) / WORD_BYTES;
        Some((self.slots.page.words.get(start..start + words)?, bytes))
    }
}

/// Returns the number of words of a cell for the key. Separate from the code for short keys.
#[inline(never)]
fn tail_words_of(entry: EntryWord, prefix_bytes: usize) -> usize {
    entry.tail_words(prefix_bytes)
}

impl<'p, W: PageWord> Page<'p, W> {
    /// Returns the number and bytes of a leaf's records; zero for an inner page.
    pub(in crate::page) fn stored(self) -> StoredOnPage {
        let mut stored = StoredOnPage::default();
        if self.level() == 0 {
            for place in (0..self.count()).filter(|place| self.is_record(*place)) {
                let bytes = self.key_bytes(place) + self.cell_bytes(place);
                // A page that is being changed may have any contents.
                stored.records = stored.records.saturating_add(1);
                stored.bytes = stored.bytes.saturating_add(bytes.min(usize::from(u16::MAX)) as u16);
            }
        }
        stored
    }

    /// Returns whether a slot has a record. A slot that a bulk operation deleted counts until its
    /// mark is removed, because its before-image may be the committed value.
    pub(in crate::page) fn is_record(self, place: usize) -> bool {
        let flags = self.flags(place);
        !flags.has(SlotFlags::DELETED) || flags.has(SlotFlags::BULK_DELETED)
    }

    /// Returns the number of words of a slot with this key and value length.
    pub(in crate::page) fn slot_words(self, key: &[u8], value_bytes: usize) -> usize {
        let tail = tail_words(key.len(), self.prefix_bytes());
        ENTRY_WORDS + tail + value_bytes.div_ceil(WORD_BYTES)
    }

    /// Returns whether a new or existing slot has room for a value of this length, in addition to
    /// the reserved bytes.
    pub(in crate::page) fn has_room(
        self,
        slot: KeySlot,
        key: &[u8],
        value_bytes: usize,
        reserved_bytes: usize,
    ) -> bool {
        let before = match slot {
            KeySlot::At(place) => ENTRY_WORDS + self.cell_words(place),
            KeySlot::Before(_) => 0,
        };
        let more = self.slot_words(key, value_bytes).saturating_sub(before);
        more == 0 || more * WORD_BYTES + reserved_bytes <= self.free_bytes()
    }

    /// Returns the slot of a key.
    pub(in crate::page) fn find(self, key: &[u8]) -> KeySlot {
        KeySlot::from_bound(self.lower_bound(self.shape(), key))
    }

    pub(in crate::page) fn flags(self, place: usize) -> SlotFlags {
        self.entry(place).flags()
    }

    pub(in crate::page) fn set_flags(self, place: usize, flags: SlotFlags) {
        self.set_entry(place, self.entry(place).with_flags(flags));
    }

    /// Returns the length of a slot's key.
    pub(in crate::page) fn key_bytes(self, place: usize) -> usize {
        self.entry(place).key_bytes()
    }

    /// Returns the length of a slot's value. For a value stored elsewhere, this is not the length
    /// of its cell.
    pub(in crate::page) fn value_bytes(self, place: usize) -> usize {
        self.entry(place).value_bytes()
    }

    /// Appends the value part of a slot's cell to `out`.
    #[inline]
    pub(in crate::page) fn copy_value(self, place: usize, out: &mut impl ByteSink) {
        let entry = self.entry(place);
        let start = entry.cell() + entry.tail_words(self.prefix_bytes());
        self.copy_bytes(start, entry.inline_bytes(), out);
    }

    /// Returns the slots at some places; `None` if the page has none there. Reads what they have in
    /// common once.
    pub(in crate::page) fn slots(self, places: Range<usize>) -> Option<LeafSlots<'p, W>> {
        let bytes = self.prefix_bytes();
        let mut prefix = super::KeyBytes::new();
        if bytes > 0 {
            let (cell, _) = self.fence_cells().next().unwrap_or_default();
            self.copy_bytes(cell, bytes, &mut prefix);
        }
        let words = ENTRY_WORDS * places.start..ENTRY_WORDS * places.end;
        let (entries, _) = self.words.get(ENTRIES_AT..)?.get(words)?.as_chunks();
        Some(LeafSlots {
            page: self,
            entries,
            first: places.start,
            prefix_bytes: bytes,
            prefix_head: word_of(&prefix, 0).swap_bytes(),
            shift: 8 * bytes as u32 % u64::BITS,
            max_short_bytes: if bytes < WORD_BYTES { WORD_BYTES } else { 0 },
        })
    }

    /// Returns the length of the value part of a slot's cell.
    pub(in crate::page) fn cell_bytes(self, place: usize) -> usize {
        self.entry(place).inline_bytes()
    }

    /// Inserts a slot.
    ///
    /// # Panics
    /// If the page has no room, or the value's length does not match the flags.
    #[cfg(test)]
    pub(in crate::page) fn insert(self, place: usize, key: &[u8], value: &[u8], flags: SlotFlags) {
        self.insert_cell(place, key, (value, value.len()), flags);
    }

    /// Inserts a slot from the bytes of its cell and the length of the whole value.
    ///
    /// # Panics
    /// If the page has no room, or the cell's length does not match the flags.
    pub(in crate::page) fn insert_cell(
        self,
        place: usize,
        key: &[u8],
        (cell, value_bytes): (&[u8], usize),
        flags: SlotFlags,
    ) {
        check_cell(cell, value_bytes, flags);
        self.insert_words(place, key, value_bytes, flags, |number| word_of(cell, number));
    }

    /// Inserts a slot; `value` returns the value's words by index.
    pub(super) fn insert_words(
        self,
        place: usize,
        key: &[u8],
        value_bytes: usize,
        flags: SlotFlags,
        value: impl Fn(usize) -> u64,
    ) {
        let prefix = self.prefix_bytes();
        assert!(key.len() >= prefix && self.level() == 0, "a key of this leaf");
        let tail = tail_words(key.len(), prefix);
        let entry = EntryWord::leaf(0, key.len(), value_bytes, flags);
        let value_words = entry.inline_bytes().div_ceil(WORD_BYTES);
        self.widen_gap(ENTRY_WORDS + tail + value_words);
        let cell = {
            // The entry's words are taken from the gap too.
            let cell = self.take_cell(tail + value_words);
            self.open_entry(place);
            cell
        };
        self.write_tail(cell, &key[prefix..]);
        for number in 0..value_words {
            self.set_word(cell + tail + number, value(number));
        }
        self.set_head(place, head_of(&key[prefix..]));
        self.set_entry(place, entry.with_cell(cell));
        self.refresh_hints();
    }

    /// Replaces the value of a slot, in place if it needs no more words.
    ///
    /// # Panics
    /// If the page has no room for a longer value.
    #[cfg(test)]
    pub(in crate::page) fn overwrite(self, place: usize, value: &[u8], flags: SlotFlags) {
        self.overwrite_cell(place, (value, value.len()), flags);
    }

    /// Replaces the value of a slot, from the bytes of its cell and the length of the whole value.
    ///
    /// # Panics
    /// If the page has no room for a longer value, or the cell's length does not match the flags.
    pub(in crate::page) fn overwrite_cell(
        self,
        place: usize,
        (value, value_bytes): (&[u8], usize),
        flags: SlotFlags,
    ) {
        check_cell(value, value_bytes, flags);
        let tail = self.entry(place).tail_words(self.prefix_bytes());
        let before = self.entry(place).inline_bytes().div_ceil(WORD_BYTES);
        let words = value.len().div_ceil(WORD_BYTES);
        if words > before {
            let mut rest = super::KeyBytes::new();
            self.copy_bytes(self.entry(place).cell(), tail * WORD_BYTES, &mut rest);
            // If the cells are compacted, this cell must not be moved with its old length.
            self.widen_gap_for(place, tail + words);
            let cell = self.take_cell(tail + words);
            self.write_bytes(cell, &rest);
            self.set_entry(place, self.entry(place).with_cell(cell));
        } else {
            self.free_cell(before - words);
        }
        let entry = self.entry(place);
        let cell = if tail + words == 0 { 0 } else { entry.cell() };
        self.set_entry(place, EntryWord::leaf(cell, entry.key_bytes(), value_bytes, flags));
        self.write_bytes(cell + tail, value);
    }

    /// Frees the cell of a slot and widens the gap to `words` words. The slot has no valid cell
    /// afterwards.
    fn widen_gap_for(self, place: usize, words: usize) {
        self.free_cell(self.cell_words(place));
        // No value, and a key no longer than its head, so compaction moves no cell for it.
        let entry = self.entry(place);
        let key_bytes = entry.key_bytes().min(self.prefix_bytes());
        self.set_entry(place, EntryWord::leaf(0, key_bytes, 0, SlotFlags::NONE));
        self.widen_gap(words);
        self.set_entry(place, entry.with_cell(0));
    }

    /// Removes a slot.
    pub(in crate::page) fn remove(self, place: usize) {
        self.free_cell(self.cell_words(place));
        self.close_entry(place);
    }
}

/// Checks that a cell's length matches the slot's flags.
fn check_cell(cell: &[u8], value_bytes: usize, flags: SlotFlags) {
    let expected = if flags.has(SlotFlags::OVERFLOW) { WORD_BYTES } else { value_bytes };
    assert_eq!(cell.len(), expected, "the cell's length matches the flags");
}
