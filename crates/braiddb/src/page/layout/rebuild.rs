//! Rebuilding of pages: the two halves of a split, and the result of a merge.
//!
//! New fences have a different common prefix, so heads and cells differ too, and every entry is
//! rewritten.

use std::cell::Cell;
use std::ops::Range;

use super::entry::tail_words;
use super::header::common_prefix;
use super::{
    ENTRIES_AT, ENTRY_WORDS, KeyBytes, KeySlot, KeySuffix, Page, PageCopy, PageFormat, PageWord,
    WORD_BYTES,
};
use crate::rid::TableId;

/// Split point of a page: entries from `from` upwards move to the new right sibling, whose range
/// begins at the separator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::page) struct SplitPoint {
    pub(in crate::page) from: usize,
    pub(in crate::page) separator: KeyBytes,
}

/// Maximum number of entries that a split for an append moves.
const MAX_MOVED_TO_APPEND: usize = 3;
/// Maximum fill of a merged page, so that it is not split again soon.
const MAX_MERGED_FILL: (usize, usize) = (3, 4);

impl<W: PageWord> Page<'_, W> {
    /// Returns the number of words for entries, cells and fences.
    fn capacity(self) -> usize {
        self.len() - ENTRIES_AT
    }

    /// Returns the number of words that entries and cells use.
    pub(in crate::page) fn used_words(self) -> usize {
        let free = self.gap_words() + self.freed() + self.fence_words();
        self.capacity().saturating_sub(free)
    }

    /// Returns whether the page is sparse enough to look for a neighbour to merge with.
    pub(in crate::page) fn is_sparse(self) -> bool {
        self.used_words() <= self.capacity() / 2
    }

    /// Returns whether the page can be removed without moving entries: it has no slot, or no child
    /// except the first.
    pub(in crate::page) fn has_nothing(self) -> bool {
        self.count() <= usize::from(self.level() > 0)
    }

    /// Returns whether the page is so empty that loading a neighbour for a merge is worthwhile. Not
    /// true after each removal, because the neighbours may be full.
    pub(in crate::page) fn is_nearly_empty(self) -> bool {
        let is_due = self.has_nothing() || self.count().is_power_of_two();
        is_due && self.used_words() <= self.capacity() / 8
    }

    /// Returns the number of words of an entry on a page with this prefix length.
    fn entry_words(self, place: usize, prefix: usize) -> usize {
        let entry = self.entry(place);
        let value = if self.level() == 0 { entry.inline_bytes().div_ceil(WORD_BYTES) } else { 0 };
        ENTRY_WORDS + tail_words(entry.key_bytes(), prefix) + value
    }

    /// Returns the number of words of some entries on a page with these fences.
    fn words_between(self, places: Range<usize>, low: &[u8], high: Option<&[u8]>) -> usize {
        let prefix = prefix_between(low, high);
        places.map(|place| self.entry_words(place, prefix)).sum()
    }

    /// Returns whether each part fits on a page, including the bytes reserved for its records.
    fn can_be_split_at(self, point: &SplitPoint, reserved: &impl Fn(&[u8]) -> usize) -> bool {
        let (low, high) = (self.low_fence(), self.high_fence());
        let fits = |places: Range<usize>, low: &[u8], high: Option<&[u8]>| {
            let reserved: usize =
                places.clone().map(|place| self.reserved_words(place, reserved)).sum();
            let words = self.words_between(places, low, high) + fences_words(low, high);
            words + reserved <= self.capacity()
        };
        fits(0..point.from, &low, Some(&point.separator))
            && fits(point.from..self.count(), &point.separator, high.as_deref())
    }

    /// Returns whether some of the entries fit on a page with these fences.
    pub(in crate::page) fn fits_between(
        self,
        places: Range<usize>,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> bool {
        self.words_between(places, low, high) + fences_words(low, high) <= self.capacity()
    }

    /// Returns the shortest key that separates the entry at a place from the previous one.
    pub(in crate::page) fn separator_before(self, place: usize) -> KeyBytes {
        separator(&self.key(place - 1), &self.key(place))
    }

    /// Returns the number of words reserved for an entry of a leaf.
    fn reserved_words(self, place: usize, reserved: &impl Fn(&[u8]) -> usize) -> usize {
        if self.level() == 0 { reserved(&self.key(place)).div_ceil(WORD_BYTES) } else { 0 }
    }

    /// Returns the split point of a leaf that needs room for `words` words in a slot of `key`. If
    /// the key is above all others, the right part is as small as possible, so that loading in key
    /// order fills its pages. `reserved` returns the bytes reserved for a key's record, which move
    /// with it.
    pub(in crate::page) fn leaf_split_point(
        self,
        key: &[u8],
        slot: KeySlot,
        words: usize,
        reserved: &impl Fn(&[u8]) -> usize,
    ) -> SplitPoint {
        let count = self.count();
        let (place, is_there) = match slot {
            KeySlot::At(place) => (place, true),
            KeySlot::Before(place) => (place, false),
        };
        // Keys and words of the entries after the insertion.
        let all = count + usize::from(!is_there);
        assert!(all > 1, "a page has room for one entry of any size");
        let is_new = |number: usize| !is_there && number == place;
        let old = |number: usize| number - usize::from(!is_there && number > place);
        let prefix = self.prefix_bytes();
        let old_words =
            |place: usize| self.entry_words(place, prefix) + self.reserved_words(place, reserved);
        let words_of = |number: usize| match number {
            number if is_new(number) => words,
            number if number == place => words.max(old_words(number)),
            number => old_words(old(number)),
        };
        let key_of = |number: usize| match number {
            number if is_new(number) => KeyBytes::from_slice(key),
            number => self.key(old(number)),
        };
        // Splits before entry `number` of the entries after the insertion.
        let point = |number: usize| SplitPoint {
            from: if is_new(number) { place } else { old(number) },
            separator: separator(&key_of(number - 1), &key_of(number)),
        };
        if !is_there && place == count {
            // If the new fence does not fit, one or two more entries move with the key.
            let least = count.saturating_sub(MAX_MOVED_TO_APPEND).max(1);
            let mut appends = (least..=count).rev().map(point);
            if let Some(append) = appends.find(|append| self.can_be_split_at(append, reserved)) {
                return append;
            }
        }
        let middle = point(middle_of(all, words_of));
        if self.can_be_split_at(&middle, reserved) {
            return middle;
        }
        // Splits by the present entries; that fits (`can_always_be_split`).
        let from = middle_of(count, old_words);
        let separator = separator(&self.key(from - 1), &self.key(from));
        SplitPoint { from, separator }
    }

    /// Returns the split point of an inner page that lacks room for a separator within the range of
    /// the child that contains `key`.
    pub(in crate::page) fn inner_split_point(self, key: &[u8]) -> SplitPoint {
        let (count, prefix) = (self.count(), self.prefix_bytes());
        let place = self.child_place(self.shape(), &KeySuffix::new(key, prefix));
        assert!(count > 2, "an inner page has room for three children");
        let point = |from: usize| SplitPoint { from, separator: self.key(from) };
        let append = point(count - 1);
        if place == count - 1 && self.can_be_split_at(&append, &|_: &[u8]| 0) {
            return append;
        }
        point(middle_of(count, |number| self.entry_words(number, prefix)))
    }

    /// Overwrites this page with the part of `source` between two fences. The part is built in a
    /// private copy first, so each word of a resident page is written at most once.
    pub(in crate::page) fn become_part(
        self,
        source: Page<'_, Cell<u64>>,
        places: Range<usize>,
        format: &PageFormat<'_>,
    ) {
        let part = PageCopy::zeros(self.bytes());
        part.page().fill(source, places, format);
        self.copy_from(part.page());
    }

    fn fill(self, source: Page<'_, Cell<u64>>, places: Range<usize>, format: &PageFormat<'_>) {
        self.format(format);
        self.set_bulk_epoch(source.bulk_epoch());
        self.append(source, places);
    }

    /// Appends some of the entries of `source`, which has the same level.
    fn append(self, source: Page<'_, Cell<u64>>, places: Range<usize>) {
        let first = places.start;
        for place in places {
            let (entry, end) = (source.entry(place), self.count());
            if self.level() > 0 {
                // The first separator of a page represents its low fence.
                let key = if place == first { source.low_fence() } else { source.key(place) };
                self.insert_child(end, &key, entry.child());
                continue;
            }
            let value = entry.cell() + entry.tail_words(source.prefix_bytes());
            let (key, flags) = (source.key(place), entry.flags());
            self.insert_words(end, &key, entry.value_bytes(), flags, |number| {
                source.word(value + number)
            });
        }
    }

    /// Returns whether the entries of two neighbours and their reserved bytes fit on one page and
    /// leave it partly free.
    pub(in crate::page) fn can_be_merged_with(self, right: Self, reserved_bytes: usize) -> bool {
        let marked = [self.bulk_epoch(), right.bulk_epoch()];
        if marked[0] != marked[1] && !marked.contains(&0) {
            // All marks on a page belong to one bulk operation.
            return false;
        }
        let (low, high, between) = (self.low_fence(), right.high_fence(), right.low_fence());
        let high = high.as_deref();
        // The first separator of the right page becomes a whole key.
        let is_inner = self.level() > 0;
        let whole =
            if is_inner { tail_words(between.len(), prefix_between(&low, high)) } else { 0 };
        let words = self.words_between(0..self.count(), &low, high)
            + right.words_between(0..right.count(), &low, high)
            + whole
            + reserved_bytes.div_ceil(WORD_BYTES);
        // An empty page is merged even if the result is full.
        let either_empty = self.has_nothing() || right.has_nothing();
        let (part, of) = MAX_MERGED_FILL;
        words + fences_words(&low, high) <= self.capacity()
            && (either_empty || words * of <= self.capacity() * part)
    }

    /// Takes over all entries of the right neighbour, and its range.
    pub(in crate::page) fn absorb(self, right: Self) {
        let (mine, theirs) = (self.copy(), right.copy());
        let (mine, theirs) = (mine.page(), theirs.page());
        let high = theirs.high_fence();
        let format = PageFormat {
            level: mine.level(),
            page: mine.number(),
            table: mine.table(),
            low: &mine.low_fence(),
            high: high.as_deref(),
        };
        let both = PageCopy::zeros(self.bytes());
        both.page().fill(mine, 0..mine.count(), &format);
        both.page().append(theirs, 0..theirs.count());
        // At most one epoch is involved: pages without marks have epoch 0.
        both.page().set_bulk_epoch(mine.bulk_epoch().max(theirs.bulk_epoch()));
        self.copy_from(both.page());
    }

    /// Returns the format of a new page with another number and a range within this page's fences.
    pub(in crate::page) fn part<'k>(
        self,
        page: u64,
        low: &'k [u8],
        high: Option<&'k [u8]>,
    ) -> PageFormat<'k> {
        let table: TableId = self.table();
        PageFormat { level: self.level(), page, table, low, high }
    }
}

/// Returns the length of the common prefix of all keys between two fences.
pub(super) fn prefix_between(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| common_prefix(low, high))
}

/// Returns the number of words of two fences.
fn fences_words(low: &[u8], high: Option<&[u8]>) -> usize {
    let words = |fence: &[u8]| fence.len().div_ceil(WORD_BYTES).max(1);
    words(low) + high.map_or(0, words)
}

/// Returns the first entry from which the remaining entries take at most half of the words; never
/// the first or past the last.
fn middle_of(count: usize, words: impl Fn(usize) -> usize) -> usize {
    let all: usize = (0..count).map(&words).sum();
    let (mut sum, mut number) = (0, 0);
    while number < count && 2 * sum + words(number) <= all {
        sum += words(number);
        number += 1;
    }
    number.clamp(1, count - 1)
}

/// Returns the shortest key above `left` that is at most `right`.
fn separator(left: &[u8], right: &[u8]) -> KeyBytes {
    assert!(left < right, "entries are sorted");
    KeyBytes::from_slice(&right[..=common_prefix(left, right)])
}
