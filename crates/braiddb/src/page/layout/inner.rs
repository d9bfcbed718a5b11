//! Inner pages: separators and children.
//!
//! Child `i` has the keys from separator `i` up to, but excluding, separator `i + 1`. Separator 0
//! represents the low fence. It is stored in a shorter form that compares as less than every key of
//! the page.

use super::entry::{EntryWord, head_of, tail_words};
use super::search::KeySuffix;
use super::{ENTRIES_AT, ENTRY_WORDS, Page, PageShape, PageWord, WORD_BYTES};

impl<W: PageWord> Page<'_, W> {
    /// Returns the child at a place.
    #[inline(always)]
    pub(in crate::page) fn child(self, place: usize) -> u64 {
        self.entry(place).child()
    }

    /// Returns the place of the child whose range contains a key, searching a group of entries.
    #[inline(always)]
    pub(in crate::page) fn child_place(self, shape: PageShape, key: &KeySuffix<'_>) -> usize {
        match self.lower_bound_in(self.group(shape, key), shape, key) {
            (place, true) => place,
            // The result is 0 here only for a page that is being changed.
            (place, false) => place.saturating_sub(1),
        }
    }

    /// Returns the number of words of a separator's entry and cell.
    pub(in crate::page) fn separator_words(self, separator: &[u8]) -> usize {
        ENTRY_WORDS + tail_words(separator.len(), self.prefix_bytes())
    }

    /// Returns whether the page has room for a separator.
    pub(in crate::page) fn has_room_for_separator(self, separator: &[u8]) -> bool {
        self.gap_words() + self.freed() >= self.separator_words(separator)
    }

    /// Inserts a child whose range begins at `separator`. For place 0 the separator is ignored.
    ///
    /// # Panics
    /// If the page has no room.
    pub(in crate::page) fn insert_child(self, place: usize, separator: &[u8], child: u64) {
        let prefix = self.prefix_bytes();
        assert!(self.level() > 0);
        // Not shorter than the prefix, so that its suffix is empty.
        let (suffix, key_bytes): (&[u8], usize) = match place {
            0 => (&[], prefix),
            _ => (&separator[prefix..], separator.len()),
        };
        let tail = tail_words(key_bytes, prefix);
        self.widen_gap(ENTRY_WORDS + tail);
        let cell = self.take_cell(tail);
        self.open_entry(place);
        self.write_tail(cell, suffix);
        self.set_head(place, head_of(suffix));
        self.set_entry(place, EntryWord::inner(cell, key_bytes, child));
        self.refresh_hints();
    }

    /// Removes a child other than the first; its range is added to the previous child's.
    pub(in crate::page) fn remove_child(self, place: usize) {
        assert!(place > 0 && self.level() > 0);
        self.free_cell(self.cell_words(place));
        self.close_entry(place);
    }
}

/// Upper bound of the words that children need on a new inner page.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::page) struct ChildrenWords(usize);

impl ChildrenWords {
    /// Adds a child whose range begins at a separator.
    pub(in crate::page) fn add(&mut self, separator: &[u8]) {
        self.0 += ENTRY_WORDS + tail_words(separator.len(), 0);
    }

    /// Returns whether a page with a range from `low` to `high` has room for another child. One
    /// eighth of the page is left free for later splits.
    pub(in crate::page) fn have_room(self, page_bytes: usize, low: &[u8], high: &[u8]) -> bool {
        let fence = |key: &[u8]| key.len().div_ceil(WORD_BYTES).max(1);
        let capacity = page_bytes / WORD_BYTES - ENTRIES_AT;
        let words = self.0 + ENTRY_WORDS + tail_words(high.len(), 0) + fence(low) + 2 * fence(high);
        words <= capacity - capacity / 8
    }
}
