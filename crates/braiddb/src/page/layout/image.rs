//! Page images: the on-disk form of pages.
//!
//! An image has the page's bytes with a checksum. It omits state that exists only in memory, and
//! has zeros between entries and cells (`docs/format.md`). Freed words among the cells are copied
//! unchanged.

use super::{ENTRIES_AT, ENTRY_WORDS, KeyBytes, Page, PageKind, PageWord, SlotFlags, WORD_BYTES};

/// Bytes at the start that the checksum does not cover: the checksum field.
const CHECKSUM_BYTES: usize = 4;

/// Damage of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::page) enum PageDamage {
    #[error("its checksum is {found:#010x}, not {expected:#010x}")]
    Checksum { expected: u32, found: u32 },
    #[error("it is an older image of the page: its checksum is {found:#010x}")]
    OlderImage { found: u32 },
    #[error("its header has page number {found}, not {expected}")]
    AnotherPage { expected: u64, found: u64 },
    #[error("it is of no known kind")]
    Kind,
    #[error("its entries, cells and fences are out of bounds")]
    Bounds,
}

/// Returns the checksum field of an image.
pub(in crate::page) fn image_checksum(image: &[u8]) -> u32 {
    u32::from_le_bytes(*image.first_chunk().expect("images are as long as pages"))
}

impl<W: PageWord> Page<'_, W> {
    /// Copies the page's image to `out`, which has the length of the page, and returns its
    /// checksum. If the page may be changing, the image is meaningless until validated.
    pub(in crate::page) fn write_image(self, out: &mut [u8]) -> u32 {
        assert_eq!(out.len(), self.bytes());
        let gap = ENTRIES_AT + self.count() * ENTRY_WORDS..self.heap_start();
        for (number, bytes) in out.chunks_exact_mut(WORD_BYTES).enumerate() {
            let word = if gap.contains(&number) { 0 } else { self.word(number) };
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        if self.level() == 0 {
            for place in 0..self.count() {
                let entry = self.entry(place);
                let stays = entry.with_flags(entry.flags().without(SlotFlags::VERSIONED));
                let start = (ENTRIES_AT + place * ENTRY_WORDS + 1) * WORD_BYTES;
                out[start..start + WORD_BYTES].copy_from_slice(&stays.0.to_le_bytes());
            }
        }
        let checksum = crc32c::crc32c(&out[CHECKSUM_BYTES..]);
        out[..CHECKSUM_BYTES].copy_from_slice(&checksum.to_le_bytes());
        checksum
    }

    /// Fills this page from an image of page `number`.
    ///
    /// # Errors
    /// When the image is damaged, or belongs to another page; then the contents of this page are
    /// meaningless.
    pub(in crate::page) fn read_image(self, image: &[u8], number: u64) -> Result<(), PageDamage> {
        assert_eq!(image.len(), self.bytes());
        for (at, bytes) in image.as_chunks::<WORD_BYTES>().0.iter().enumerate() {
            self.set_word(at, u64::from_le_bytes(*bytes));
        }
        let (expected, found) = (crc32c::crc32c(&image[CHECKSUM_BYTES..]), self.checksum());
        if expected != found {
            return Err(PageDamage::Checksum { expected, found });
        }
        if self.number() != number {
            return Err(PageDamage::AnotherPage { expected: number, found: self.number() });
        }
        if self.kind() != Some(PageKind::of_level(self.level())) {
            return Err(PageDamage::Kind);
        }
        self.clear_checksum();
        if self.is_in_bounds() { Ok(()) } else { Err(PageDamage::Bounds) }
    }

    /// Checks the order of a leaf's keys and the flags of its slots. Returns the first problem.
    pub(in crate::page) fn find_disorder(self) -> Option<&'static str> {
        let mut last: Option<KeyBytes> = None;
        for place in 0..self.count() {
            let (key, flags) = (self.key(place), self.flags(place));
            if !self.may_hold(&key) {
                return Some("a key is not between its fences");
            }
            if last.as_ref().is_some_and(|last| *last >= key) {
                return Some("its keys are not in order");
            }
            if flags.has(SlotFlags::DELETED) || flags.is_marked() || self.bulk_epoch() != 0 {
                return Some("it has an uncommitted or deleted record");
            }
            last = Some(key);
        }
        None
    }

    /// Returns whether entries, cells and fences are within the page and their sizes add up.
    fn is_in_bounds(self) -> bool {
        let heap = self.heap_start()..=self.len();
        let entries_end = ENTRIES_AT + self.count() * ENTRY_WORDS;
        let inside = |cell: usize, words: usize| heap.contains(&cell) && cell + words <= self.len();
        let (mut taken, mut all_inside) = (0, true);
        let cells =
            (0..self.count()).map(|place| (self.entry(place).cell(), self.cell_words(place)));
        for (cell, words) in cells.chain(self.fence_cells()) {
            taken += words;
            all_inside &= words == 0 || inside(cell, words);
        }
        let heap_words = self.len().saturating_sub(self.heap_start());
        all_inside && entries_end <= self.heap_start() && taken + self.freed() == heap_words
    }
}

#[cfg(all(test, not(loom)))]
impl<W: PageWord> Page<'_, W> {
    /// Panics if the page violates an invariant.
    pub(in crate::page) fn check(self) {
        assert!(self.is_in_bounds(), "cells add up");
        assert_eq!(self.kind(), Some(PageKind::of_level(self.level())));
        let (low, high) = (self.low_fence(), self.high_fence());
        let prefix = high.as_ref().map_or(0, |high| super::header::common_prefix(&low, high));
        assert_eq!(self.prefix_bytes(), prefix);
        let first = usize::from(self.level() > 0);
        let keys: Vec<_> = (first..self.count()).map(|place| self.key(place)).collect();
        assert!(keys.is_sorted_by(|left, right| left < right), "sorted and distinct");
        for (place, key) in (first..).zip(&keys) {
            assert!(self.may_hold(key), "within the fences");
            assert_eq!(self.lower_bound(self.shape(), key), (place, true), "a search finds it");
        }
        let mut cells: Vec<_> = (0..self.count())
            .map(|place| (self.entry(place).cell(), self.cell_words(place)))
            .chain(self.fence_cells())
            .filter(|(_, words)| *words > 0)
            .collect();
        cells.sort_unstable();
        let apart = |pair: &[(usize, usize)]| pair[0].0 + pair[0].1 <= pair[1].0;
        assert!(cells.windows(2).all(apart), "no two cells overlap");
    }
}
