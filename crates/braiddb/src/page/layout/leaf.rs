//! Leaves: slots with a key, a value and flags.

use super::entry::{EntryWord, SlotFlags, head_of, tail_words};
use super::{ENTRY_WORDS, Page, PageWord, Sink, WORD_BYTES, word_of};

/// Where a key is in a leaf, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Slot {
    /// It has the slot at this place.
    At(usize),
    /// It has none, and would come before the one at this place.
    Before(usize),
}

impl Slot {
    /// From what a search answers.
    #[inline(always)]
    pub(in crate::page) fn from_bound((place, equal): (usize, bool)) -> Self {
        if equal { Self::At(place) } else { Self::Before(place) }
    }
}

/// How many records are in the slots of a leaf, and what their keys and cells take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredOnPage {
    pub(crate) records: u16,
    pub(crate) bytes: u16,
}

impl StoredOnPage {
    /// In one word.
    pub(in crate::page) fn word(self) -> u32 {
        u32::from(self.records) | u32::from(self.bytes) << u16::BITS
    }

    pub(in crate::page) fn from_word(word: u32) -> Self {
        Self { records: word as u16, bytes: (word >> u16::BITS) as u16 }
    }
}

impl<W: PageWord> Page<'_, W> {
    /// What is in the slots of a leaf; nothing is in those of an inner page.
    pub(in crate::page) fn stored(self) -> StoredOnPage {
        let mut stored = StoredOnPage::default();
        if self.level() == 0 {
            for place in (0..self.count()).filter(|place| self.is_record(*place)) {
                let bytes = self.key_bytes(place) + self.cell_bytes(place);
                // A page that is being changed may say anything.
                stored.records = stored.records.saturating_add(1);
                stored.bytes = stored.bytes.saturating_add(bytes.min(usize::from(u16::MAX)) as u16);
            }
        }
        stored
    }

    /// Whether a slot has a record. One that a bulk operation deleted counts until its mark is taken off: it may be what is
    /// committed.
    pub(in crate::page) fn is_record(self, place: usize) -> bool {
        let flags = self.flags(place);
        !flags.has(SlotFlags::DELETED) || flags.has(SlotFlags::BULK_DELETED)
    }

    /// Words that the slot of a key takes with a value.
    pub(in crate::page) fn slot_words(self, key: &[u8], value_bytes: usize) -> usize {
        let tail = tail_words(key.len(), self.prefix_bytes());
        ENTRY_WORDS + tail + value_bytes.div_ceil(WORD_BYTES)
    }

    /// Whether there is room for a slot with a value of so many bytes, or for such a value in a slot that
    /// is there, besides bytes that are reserved.
    pub(in crate::page) fn has_room(
        self,
        slot: Slot,
        key: &[u8],
        value_bytes: usize,
        reserved_bytes: usize,
    ) -> bool {
        let before = match slot {
            Slot::At(place) => ENTRY_WORDS + self.cell_words(place),
            Slot::Before(_) => 0,
        };
        let more = self.slot_words(key, value_bytes).saturating_sub(before);
        more == 0 || more * WORD_BYTES + reserved_bytes <= self.free_bytes()
    }

    /// The slot of a key.
    pub(in crate::page) fn find(self, key: &[u8]) -> Slot {
        Slot::from_bound(self.lower_bound(self.shape(), key))
    }

    pub(in crate::page) fn flags(self, place: usize) -> SlotFlags {
        self.entry(place).flags()
    }

    pub(in crate::page) fn set_flags(self, place: usize, flags: SlotFlags) {
        self.set_entry(place, self.entry(place).with_flags(flags));
    }

    /// Bytes of a slot's key.
    pub(in crate::page) fn key_bytes(self, place: usize) -> usize {
        self.entry(place).key_bytes()
    }

    /// Bytes of a slot's value; of one that is elsewhere, not those of its cell.
    pub(in crate::page) fn value_bytes(self, place: usize) -> usize {
        self.entry(place).value_bytes()
    }

    /// Appends what the cell of a slot has of its value to `out`.
    #[inline]
    pub(in crate::page) fn copy_value(self, place: usize, out: &mut impl Sink) {
        let entry = self.entry(place);
        let start = entry.cell() + entry.tail_words(self.prefix_bytes());
        self.copy_bytes(start, entry.inline_bytes(), out);
    }

    /// Bytes that the cell of a slot has of its value.
    pub(in crate::page) fn cell_bytes(self, place: usize) -> usize {
        self.entry(place).inline_bytes()
    }

    /// Inserts a slot.
    ///
    /// # Panics
    /// If the page has no room, or the value has another length than the flags say.
    #[cfg(test)]
    pub(in crate::page) fn insert(self, place: usize, key: &[u8], value: &[u8], flags: SlotFlags) {
        self.insert_cell(place, key, (value, value.len()), flags);
    }

    /// Inserts a slot with what its cell is to have of the value, and the length of the whole.
    ///
    /// # Panics
    /// If the page has no room, or the cell has another length than the flags say.
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

    /// Inserts a slot whose value's words `value` tells.
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
            // The entry's own words come out of the gap too.
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

    /// Gives a slot another value: in place, if it takes no more words than the one before.
    ///
    /// # Panics
    /// If the page has no room for one that takes more.
    #[cfg(test)]
    pub(in crate::page) fn overwrite(self, place: usize, value: &[u8], flags: SlotFlags) {
        self.overwrite_cell(place, (value, value.len()), flags);
    }

    /// Replaces the value of a slot, given the part in its cell and the length of the whole: in
    /// place, if the new value takes no more words than the old one.
    ///
    /// # Panics
    /// If the page has no room for one that takes more, or the cell has another length than the flags say.
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
            // While cells move together this one is one of them, and as long as it was.
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

    /// Frees the cell of a slot and makes the gap so many words wide; the slot's own cell is void then.
    fn widen_gap_for(self, place: usize, words: usize) {
        self.free_cell(self.cell_words(place));
        // No value, and so long a key as its head: no cell that would move.
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

/// Checks that a cell has as many bytes as the slot's flags say.
fn check_cell(cell: &[u8], value_bytes: usize, flags: SlotFlags) {
    let expected = if flags.has(SlotFlags::OVERFLOW) { WORD_BYTES } else { value_bytes };
    assert_eq!(cell.len(), expected, "a slot says what its cell has");
}
