//! Pages made anew from others: the halves of a split, and what two become in a merge.
//!
//! New fences share another prefix, so heads and cells are other ones: every entry is written again.

use std::cell::Cell;
use std::ops::Range;

use super::entry::tail_words;
use super::header::common_prefix;
use super::{
    ENTRIES_AT, ENTRY_WORDS, Format, KeyBytes, Page, PageCopy, PageWord, Slot, Suffix, WORD_BYTES,
};
use crate::rid::TableId;

/// Where a page is split: the entries from one on go to its new right sibling, whose range begins at
/// the separator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::page) struct SplitPoint {
    pub(in crate::page) from: usize,
    pub(in crate::page) separator: KeyBytes,
}

/// Entries that an append moves at most.
const MAX_MOVED_TO_APPEND: usize = 3;
/// Of the room of a merged page, so much is left free: it is not to be split again at once.
const MERGED_MOST: (usize, usize) = (3, 4);

impl<W: PageWord> Page<'_, W> {
    /// Words for entries, cells and fences.
    fn capacity(self) -> usize {
        self.len() - ENTRIES_AT
    }

    /// Words that entries and cells take.
    pub(in crate::page) fn used_words(self) -> usize {
        let free = self.gap_words() + self.freed() + self.fence_words();
        self.capacity().saturating_sub(free)
    }

    /// Whether so little is on the page that it is to look for a neighbour to merge with.
    pub(in crate::page) fn is_sparse(self) -> bool {
        self.used_words() <= self.capacity() / 2
    }

    /// Whether there is nothing on the page that another could not lead to as well: no slot, no child but the first.
    pub(in crate::page) fn has_nothing(self) -> bool {
        self.count() <= usize::from(self.level() > 0)
    }

    /// Whether so little is on the page that it is worth to load a neighbour to merge it with. Not at each entry that goes: the
    /// neighbours may be full.
    pub(in crate::page) fn is_nearly_empty(self) -> bool {
        let is_due = self.has_nothing() || self.count().is_power_of_two();
        is_due && self.used_words() <= self.capacity() / 8
    }

    /// Words that an entry takes on a page whose keys share so many bytes.
    fn entry_words(self, place: usize, prefix: usize) -> usize {
        let entry = self.entry(place);
        let value = if self.level() == 0 { entry.inline_bytes().div_ceil(WORD_BYTES) } else { 0 };
        ENTRY_WORDS + tail_words(entry.key_bytes(), prefix) + value
    }

    /// Words that some of the entries take on a page with these fences.
    fn words_between(self, places: Range<usize>, low: &[u8], high: Option<&[u8]>) -> usize {
        let prefix = prefix_between(low, high);
        places.map(|place| self.entry_words(place, prefix)).sum()
    }

    /// Whether both parts fit on a page each, with what is reserved for their entries.
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

    /// Whether some of the entries fit on a page with these fences.
    pub(in crate::page) fn fits_between(
        self,
        places: Range<usize>,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> bool {
        self.words_between(places, low, high) + fences_words(low, high) <= self.capacity()
    }

    /// The shortest key that separates the entry at a place from the one before.
    pub(in crate::page) fn separator_before(self, place: usize) -> KeyBytes {
        separator(&self.key(place - 1), &self.key(place))
    }

    /// Words that are reserved for an entry of a leaf.
    fn reserved_words(self, place: usize, reserved: &impl Fn(&[u8]) -> usize) -> usize {
        if self.level() == 0 { reserved(&self.key(place)).div_ceil(WORD_BYTES) } else { 0 }
    }

    /// Where a leaf is split to make room for `words` words in a slot of `key`. When the key comes after
    /// all others, the right part is as small as can be: loading in key order fills its pages. `reserved`
    /// says how many bytes are to be kept free for the record of a key: they go with it.
    pub(in crate::page) fn leaf_split_point(
        self,
        key: &[u8],
        slot: Slot,
        words: usize,
        reserved: &impl Fn(&[u8]) -> usize,
    ) -> SplitPoint {
        let count = self.count();
        let (place, is_there) = match slot {
            Slot::At(place) => (place, true),
            Slot::Before(place) => (place, false),
        };
        // The entries as they will be, whose keys and words these are.
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
        // Splits before entry `number` as they will be.
        let point = |number: usize| SplitPoint {
            from: if is_new(number) { place } else { old(number) },
            separator: separator(&key_of(number - 1), &key_of(number)),
        };
        if !is_there && place == count {
            // The new fence may be what has no room: then an entry or two go with the key.
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
        // By what is there now; that fits (`can_always_be_split`).
        let from = middle_of(count, old_words);
        let separator = separator(&self.key(from - 1), &self.key(from));
        SplitPoint { from, separator }
    }

    /// Where an inner page is split that has no room for a separator within the range of the child in
    /// whose range `key` is.
    pub(in crate::page) fn inner_split_point(self, key: &[u8]) -> SplitPoint {
        let (count, prefix) = (self.count(), self.prefix_bytes());
        let place = self.child_place(self.shape(), &Suffix::new(key, prefix));
        assert!(count > 2, "an inner page has room for three children");
        let point = |from: usize| SplitPoint { from, separator: self.key(from) };
        let append = point(count - 1);
        if place == count - 1 && self.can_be_split_at(&append, &|_: &[u8]| 0) {
            return append;
        }
        point(middle_of(count, |number| self.entry_words(number, prefix)))
    }

    /// Makes this page the part of `source` between two fences. It is made in private first: of a
    /// resident page each word is written once, and none that stays.
    pub(in crate::page) fn become_part(
        self,
        source: Page<'_, Cell<u64>>,
        places: Range<usize>,
        format: &Format<'_>,
    ) {
        let part = PageCopy::zeros(self.bytes());
        part.page().fill(source, places, format);
        self.copy_from(part.page());
    }

    fn fill(self, source: Page<'_, Cell<u64>>, places: Range<usize>, format: &Format<'_>) {
        self.format(format);
        self.set_bulk_epoch(source.bulk_epoch());
        self.append(source, places);
    }

    /// Appends some of the entries of `source`, whose level this page has.
    fn append(self, source: Page<'_, Cell<u64>>, places: Range<usize>) {
        let first = places.start;
        for place in places {
            let (entry, end) = (source.entry(place), self.count());
            if self.level() > 0 {
                // The first separator of a page stands for its low fence.
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

    /// Whether what is on two neighbours, and what is reserved there, fits on one page, and leaves room.
    pub(in crate::page) fn can_be_merged_with(self, right: Self, reserved_bytes: usize) -> bool {
        let marked = [self.bulk_epoch(), right.bulk_epoch()];
        if marked[0] != marked[1] && !marked.contains(&0) {
            // Marks on one page are those of one bulk operation.
            return false;
        }
        let (low, high, between) = (self.low_fence(), right.high_fence(), right.low_fence());
        let high = high.as_deref();
        // The first separator of the right one becomes a whole key.
        let is_inner = self.level() > 0;
        let whole =
            if is_inner { tail_words(between.len(), prefix_between(&low, high)) } else { 0 };
        let words = self.words_between(0..self.count(), &low, high)
            + right.words_between(0..right.count(), &low, high)
            + whole
            + reserved_bytes.div_ceil(WORD_BYTES);
        // What is empty goes wherever it fits.
        let either_empty = self.has_nothing() || right.has_nothing();
        let (part, of) = MERGED_MOST;
        words + fences_words(&low, high) <= self.capacity()
            && (either_empty || words * of <= self.capacity() * part)
    }

    /// Takes all of the right neighbour's entries and its range.
    pub(in crate::page) fn absorb(self, right: Self) {
        let (mine, theirs) = (self.copy(), right.copy());
        let (mine, theirs) = (mine.page(), theirs.page());
        let high = theirs.high_fence();
        let format = Format {
            level: mine.level(),
            page: mine.number(),
            table: mine.table(),
            low: &mine.low_fence(),
            high: high.as_deref(),
        };
        let both = PageCopy::zeros(self.bytes());
        both.page().fill(mine, 0..mine.count(), &format);
        both.page().append(theirs, 0..theirs.count());
        // That of the one that has marked slots, or of both.
        both.page().set_bulk_epoch(mine.bulk_epoch().max(theirs.bulk_epoch()));
        self.copy_from(both.page());
    }

    /// What a new page with another number and range between the fences of this one is told.
    pub(in crate::page) fn part<'k>(
        self,
        page: u64,
        low: &'k [u8],
        high: Option<&'k [u8]>,
    ) -> Format<'k> {
        let table: TableId = self.table();
        Format { level: self.level(), page, table, low, high }
    }
}

/// Bytes that all keys between two fences begin with.
pub(super) fn prefix_between(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| common_prefix(low, high))
}

/// Words that two fences take.
fn fences_words(low: &[u8], high: Option<&[u8]>) -> usize {
    let words = |fence: &[u8]| fence.len().div_ceil(WORD_BYTES).max(1);
    words(low) + high.map_or(0, words)
}

/// Of so many entries, the one from which on they take at most half of the words; neither the first nor
/// past the last.
fn middle_of(count: usize, words: impl Fn(usize) -> usize) -> usize {
    let all: usize = (0..count).map(&words).sum();
    let (mut sum, mut number) = (0, 0);
    while number < count && 2 * sum + words(number) <= all {
        sum += words(number);
        number += 1;
    }
    number.clamp(1, count - 1)
}

/// The shortest key above `left` that is not above `right`.
fn separator(left: &[u8], right: &[u8]) -> KeyBytes {
    assert!(left < right, "entries are sorted");
    KeyBytes::from_slice(&right[..=common_prefix(left, right)])
}
