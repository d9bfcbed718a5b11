//! Search within a page.

use std::cmp::Ordering as Order;
use std::ops::Range;

use super::entry::{head_of, stride};
use super::{ENTRIES_AT, ENTRY_WORDS, HEAD_BYTES, HINTS, Page, PageShape, PageWord, WORD_BYTES};
use super::{header, word_of};

/// A key without the common prefix of a page's keys.
#[derive(Clone, Copy, Debug)]
pub(in crate::page) struct KeySuffix<'k> {
    head: u64,
    bytes: &'k [u8],
}

impl<'k> KeySuffix<'k> {
    /// Removes the prefix from a key.
    #[inline(always)]
    pub(in crate::page) fn new(key: &'k [u8], prefix_bytes: usize) -> Self {
        let bytes = key.get(prefix_bytes..).unwrap_or(&[]);
        Self { head: head_of(bytes), bytes }
    }
}

impl<W: PageWord> Page<'_, W> {
    /// Uses the hints to return a range of entries that contains the first entry whose key is at
    /// least the searched key, or ends before it.
    #[inline(always)]
    pub(in crate::page) fn group(self, shape: PageShape, key: &KeySuffix<'_>) -> Range<usize> {
        let searched = key.head >> 32;
        let below = self.hints_before(|hint| hint < searched);
        // Few keys have the same hint as another key.
        let not_above = match below < HINTS && self.hint(below) == searched {
            true => self.hints_before(|hint| hint <= searched),
            false => below,
        };
        let count = shape.count.min((self.len() - ENTRIES_AT) / ENTRY_WORDS);
        let stride = stride(count);
        let end = (not_above * stride).min(count);
        (below.saturating_sub(1) * stride).min(end)..end
    }

    /// Returns the number of hints that are before a position in their order.
    #[inline(always)]
    fn hints_before(self, is_before: impl Fn(u64) -> bool) -> usize {
        let (mut number, mut step) = (0, HINTS / 2);
        while step > 0 {
            number += if is_before(self.hint(number + step - 1)) { step } else { 0 };
            step /= 2;
        }
        number + usize::from(is_before(self.hint(number)))
    }

    #[inline(always)]
    fn hint(self, number: usize) -> u64 {
        let both = self.word(header::HEADER_WORDS + number / 2);
        both >> (u32::BITS as usize * (number % 2)) & u64::from(u32::MAX)
    }

    /// Returns the first entry of a group whose key is at least the searched key, or the group's
    /// end. The second result is `true` if the keys are equal.
    #[inline(always)]
    pub(in crate::page) fn lower_bound_in(
        self,
        group: Range<usize>,
        shape: PageShape,
        key: &KeySuffix<'_>,
    ) -> (usize, bool) {
        let (mut low, mut high) = (group.start, group.end);
        while low < high {
            let middle = (low + high) / 2;
            match self.compare(middle, shape, key) {
                Order::Less => low = middle + 1,
                Order::Greater => high = middle,
                Order::Equal => return (middle, true),
            }
        }
        (low, false)
    }

    /// Returns the first entry whose key is at least `key`, or the number of entries. The second
    /// result is `true` if the keys are equal.
    #[inline]
    pub(in crate::page) fn lower_bound(self, shape: PageShape, key: &[u8]) -> (usize, bool) {
        let suffix = KeySuffix::new(key, shape.prefix_bytes);
        self.lower_bound_in(self.group(shape, &suffix), shape, &suffix)
    }

    /// Compares the key of an entry with the searched key.
    #[inline(always)]
    fn compare(self, place: usize, shape: PageShape, key: &KeySuffix<'_>) -> Order {
        self.head(place).cmp(&key.head).then_with(|| self.compare_rest(place, shape, key))
    }

    /// Compares two keys with equal heads. If one of them ends within its head, it is a prefix of
    /// the other except for zeros, so their lengths decide.
    fn compare_rest(self, place: usize, shape: PageShape, key: &KeySuffix<'_>) -> Order {
        let entry = self.entry(place);
        let bytes = entry.key_bytes().saturating_sub(shape.prefix_bytes);
        let lengths = bytes.cmp(&key.bytes.len());
        if bytes <= HEAD_BYTES || key.bytes.len() <= HEAD_BYTES {
            return lengths;
        }
        let tail = &key.bytes[HEAD_BYTES..];
        let (mine, other) =
            ((bytes - HEAD_BYTES).div_ceil(WORD_BYTES), tail.len().div_ceil(WORD_BYTES));
        for number in 0..mine.max(other) {
            // The last word of a tail is padded with zeros, and words beyond it count as zero.
            let left = if number < mine { self.word(entry.cell() + number) } else { 0 };
            let right = word_of(tail, number);
            if left != right {
                return left.swap_bytes().cmp(&right.swap_bytes());
            }
        }
        lengths
    }
}
