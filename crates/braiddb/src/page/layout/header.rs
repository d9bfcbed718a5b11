//! Page header: its fields, their positions, and the fences.

use std::mem::offset_of;

use super::{ByteSink, ENTRIES_AT, ENTRY_WORDS, KeyBytes, Page, PageWord, WORD_BYTES};
use crate::rid::TableId;

/// Header in the on-disk format, with little-endian numbers. It defines the positions of the
/// fields, which are read and written word by word.
#[repr(C)]
struct PageHeader {
    /// Checksum of all following bytes of an image; 0 in memory.
    crc32c: u32,
    kind: u8,
    /// Leaves are level 0.
    level: u8,
    /// Number of entries.
    count: u16,
    page: u64,
    table: u32,
    /// First word of the lowest cell.
    heap_start: u16,
    /// Number of words above `heap_start` that belong to no cell.
    freed: u16,
    zero: u64,
    bulk_epoch: u64,
    low_fence: Fence,
    high_fence: Fence,
    /// Length of the common prefix of all keys on the page.
    prefix_bytes: u16,
    reserved: [u16; 7],
}

/// A key in a separate cell. Word 0 means no fence: then the low fence is below all keys, and the
/// high fence above all keys.
#[repr(C)]
struct Fence {
    word: u16,
    bytes: u16,
}

pub(super) const HEADER_WORDS: usize = size_of::<PageHeader>() / WORD_BYTES;

const _: () = {
    assert!(size_of::<PageHeader>() == 64, "the header is one cache line");
    assert!(offset_of!(PageHeader, kind) == 4);
    assert!(offset_of!(PageHeader, level) == 5);
    assert!(offset_of!(PageHeader, count) == 6);
    assert!(offset_of!(PageHeader, page) == 8);
    assert!(offset_of!(PageHeader, table) == 16);
    assert!(offset_of!(PageHeader, heap_start) == 20);
    assert!(offset_of!(PageHeader, freed) == 22);
    assert!(offset_of!(PageHeader, zero) == 24);
    assert!(offset_of!(PageHeader, bulk_epoch) == 32);
    assert!(offset_of!(PageHeader, low_fence) == 40);
    assert!(offset_of!(PageHeader, high_fence) == 44);
    assert!(offset_of!(PageHeader, prefix_bytes) == 48);
    assert!(offset_of!(PageHeader, reserved) + size_of::<[u16; 7]>() == 64, "no padding");
};

/// Position of a field: its word, and its bits in that word.
#[derive(Clone, Copy)]
struct HeaderField {
    word: usize,
    shift: u32,
    mask: u64,
}

impl HeaderField {
    const fn new(offset: usize, bytes: usize) -> Self {
        assert!(offset / WORD_BYTES == (offset + bytes - 1) / WORD_BYTES, "it is within one word");
        let shift = (offset % WORD_BYTES) as u32 * 8;
        Self { word: offset / WORD_BYTES, shift, mask: u64::MAX >> (64 - bytes * 8) }
    }
}

const CRC: HeaderField = HeaderField::new(offset_of!(PageHeader, crc32c), 4);
const KIND: HeaderField = HeaderField::new(offset_of!(PageHeader, kind), 1);
const LEVEL: HeaderField = HeaderField::new(offset_of!(PageHeader, level), 1);
const COUNT: HeaderField = HeaderField::new(offset_of!(PageHeader, count), 2);
const PAGE: HeaderField = HeaderField::new(offset_of!(PageHeader, page), 8);
const TABLE: HeaderField = HeaderField::new(offset_of!(PageHeader, table), 4);
const HEAP_START: HeaderField = HeaderField::new(offset_of!(PageHeader, heap_start), 2);
const FREED: HeaderField = HeaderField::new(offset_of!(PageHeader, freed), 2);
const BULK_EPOCH: HeaderField = HeaderField::new(offset_of!(PageHeader, bulk_epoch), 8);
const LOW: HeaderField = HeaderField::new(offset_of!(PageHeader, low_fence), 4);
const HIGH: HeaderField = HeaderField::new(offset_of!(PageHeader, high_fence), 4);
const PREFIX: HeaderField = HeaderField::new(offset_of!(PageHeader, prefix_bytes), 2);

/// Kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::page) enum PageKind {
    Leaf = 1,
    Inner = 2,
}

impl PageKind {
    /// Returns the kind with this number.
    pub(in crate::page) fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Leaf),
            2 => Some(Self::Inner),
            _ => None,
        }
    }

    /// Returns the kind of pages of a level.
    pub(in crate::page) fn of_level(level: u8) -> Self {
        if level == 0 { Self::Leaf } else { Self::Inner }
    }
}

/// Properties of a new page.
#[derive(Clone, Copy, Debug)]
pub(in crate::page) struct PageFormat<'k> {
    pub(in crate::page) level: u8,
    /// Number of the page.
    pub(in crate::page) page: u64,
    pub(in crate::page) table: TableId,
    /// Lowest key of the page's range.
    pub(in crate::page) low: &'k [u8],
    /// Lowest key above the page's range; `None` if the range is unbounded.
    pub(in crate::page) high: Option<&'k [u8]>,
}

/// Properties of a page that a search reads first, in one word, so that a frame can have a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) struct PageShape {
    pub(in crate::page) count: usize,
    pub(in crate::page) prefix_bytes: usize,
    pub(in crate::page) level: u8,
}

impl PageShape {
    /// Encodes the shape in one word: 16 bits for the number of entries, 16 for the prefix length,
    /// 8 for the level.
    #[inline(always)]
    pub(in crate::page) fn word(self) -> u64 {
        self.count as u64 | (self.prefix_bytes as u64) << 16 | u64::from(self.level) << 32
    }

    #[inline(always)]
    pub(in crate::page) fn from_word(word: u64) -> Self {
        Self {
            count: (word & 0xffff) as usize,
            prefix_bytes: (word >> 16 & 0xffff) as usize,
            level: (word >> 32) as u8,
        }
    }
}

impl<W: PageWord> Page<'_, W> {
    #[inline(always)]
    fn field(self, field: HeaderField) -> u64 {
        self.word(field.word) >> field.shift & field.mask
    }

    fn set_field(self, field: HeaderField, value: u64) {
        assert!(value <= field.mask);
        let word = self.word(field.word) & !(field.mask << field.shift);
        self.set_word(field.word, word | value << field.shift);
    }

    /// Initializes an empty page.
    pub(in crate::page) fn format(self, format: &PageFormat<'_>) {
        for number in 0..ENTRIES_AT {
            self.set_word(number, 0);
        }
        self.set_field(KIND, PageKind::of_level(format.level) as u64);
        self.set_field(LEVEL, u64::from(format.level));
        self.set_field(PAGE, format.page);
        self.set_field(TABLE, u64::from(format.table.0));
        self.set_field(HEAP_START, self.len() as u64);
        let low = self.write_fence(format.low);
        self.set_field(LOW, low);
        let high = format.high.map_or(0, |high| {
            assert!(format.low < high, "a page has a range");
            self.write_fence(high)
        });
        self.set_field(HIGH, high);
        let common = |high: &[u8]| common_prefix(format.low, high);
        self.set_field(PREFIX, format.high.map_or(0, common) as u64);
        self.refresh_hints();
    }

    /// Writes a fence into a new cell, and returns its header field.
    fn write_fence(self, key: &[u8]) -> u64 {
        // The empty key is the low fence of the first page. It has a cell too, because word 0 means
        // no fence.
        let cell = self.take_cell(key.len().div_ceil(WORD_BYTES).max(1));
        self.set_word(cell, 0);
        self.write_bytes(cell, key);
        cell as u64 | (key.len() as u64) << 16
    }

    /// Appends the low fence to `out`.
    pub(in crate::page) fn copy_low_fence(self, out: &mut impl ByteSink) {
        let fence = self.field(LOW);
        self.copy_bytes((fence & 0xffff) as usize, (fence >> 16) as usize, out);
    }

    /// Returns the low fence: the lowest key of the page's range.
    pub(in crate::page) fn low_fence(self) -> KeyBytes {
        let mut key = KeyBytes::new();
        self.copy_low_fence(&mut key);
        key
    }

    /// Returns the high fence: the lowest key above the page's range; `None` if the range is
    /// unbounded.
    pub(in crate::page) fn high_fence(self) -> Option<KeyBytes> {
        let fence = self.field(HIGH);
        (fence & 0xffff != 0).then(|| {
            let mut key = KeyBytes::new();
            self.copy_bytes((fence & 0xffff) as usize, (fence >> 16) as usize, &mut key);
            key
        })
    }

    /// Returns the number of words of the fences' cells.
    pub(super) fn fence_words(self) -> usize {
        [LOW, HIGH]
            .into_iter()
            .map(|fence| self.field(fence))
            .filter(|fence| fence & 0xffff != 0)
            .map(|fence| ((fence >> 16) as usize).div_ceil(WORD_BYTES).max(1))
            .sum()
    }

    /// Returns the positions of the fences' cells and their lengths in words.
    pub(super) fn fence_cells(self) -> impl Iterator<Item = (usize, usize)> {
        [LOW, HIGH].into_iter().filter_map(move |fence| {
            let fence = self.field(fence);
            let words = ((fence >> 16) as usize).div_ceil(WORD_BYTES).max(1);
            (fence & 0xffff != 0).then_some(((fence & 0xffff) as usize, words))
        })
    }

    /// Moves the fences' cells from their positions in `old`, a copy of the page, to new ones.
    pub(super) fn move_fences<V: PageWord>(self, old: Page<'_, V>) {
        for fence in [LOW, HIGH] {
            let before = old.field(fence);
            if before & 0xffff == 0 {
                continue;
            }
            let words = ((before >> 16) as usize).div_ceil(WORD_BYTES).max(1);
            let cell = self.take_cell(words);
            for number in 0..words {
                self.set_word(cell + number, old.word((before & 0xffff) as usize + number));
            }
            self.set_field(fence, before & !0xffff | cell as u64);
        }
    }

    /// Returns whether `key` is within the fences.
    pub(in crate::page) fn may_hold(self, key: &[u8]) -> bool {
        self.low_fence().as_slice() <= key
            && self.high_fence().is_none_or(|high| key < high.as_slice())
    }

    /// Returns the properties of the page that a search reads first.
    #[inline(always)]
    pub(in crate::page) fn shape(self) -> PageShape {
        PageShape {
            count: self.count(),
            prefix_bytes: self.prefix_bytes(),
            level: self.field(LEVEL) as u8,
        }
    }

    /// Returns the number of entries.
    #[inline(always)]
    pub(in crate::page) fn count(self) -> usize {
        (self.field(COUNT) as usize).min((self.len() - ENTRIES_AT) / ENTRY_WORDS)
    }

    pub(super) fn set_count(self, count: usize) {
        self.set_field(COUNT, count as u64);
    }

    #[inline(always)]
    pub(in crate::page) fn prefix_bytes(self) -> usize {
        self.field(PREFIX) as usize
    }

    /// Returns the kind of the page; `None` if it is not a page of a tree.
    pub(in crate::page) fn kind(self) -> Option<PageKind> {
        PageKind::from_number(self.field(KIND))
    }

    pub(in crate::page) fn level(self) -> u8 {
        self.field(LEVEL) as u8
    }

    pub(in crate::page) fn table(self) -> TableId {
        TableId(self.field(TABLE) as u32)
    }

    /// Returns the page's number.
    pub(in crate::page) fn number(self) -> u64 {
        self.field(PAGE)
    }

    pub(in crate::page) fn set_number(self, page: u64) {
        self.set_field(PAGE, page);
    }

    /// Returns the epoch of the bulk operation that marked slots of the page (`page/bulk`); 0 if no
    /// slot is marked.
    #[inline(always)]
    pub(in crate::page) fn bulk_epoch(self) -> u64 {
        self.field(BULK_EPOCH)
    }

    pub(in crate::page) fn set_bulk_epoch(self, epoch: u64) {
        self.set_field(BULK_EPOCH, epoch);
    }

    pub(super) fn checksum(self) -> u32 {
        self.field(CRC) as u32
    }

    pub(super) fn clear_checksum(self) {
        self.set_field(CRC, 0);
    }

    /// Returns the first word of the lowest cell.
    pub(super) fn heap_start(self) -> usize {
        self.field(HEAP_START) as usize
    }

    pub(super) fn set_heap_start(self, word: usize) {
        self.set_field(HEAP_START, word as u64);
    }

    /// Returns the number of words above the lowest cell's start that belong to no cell.
    pub(super) fn freed(self) -> usize {
        self.field(FREED) as usize
    }

    pub(super) fn set_freed(self, words: usize) {
        self.set_field(FREED, words as u64);
    }
}

/// Returns the length of the common prefix of two keys.
pub(in crate::page) fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}
