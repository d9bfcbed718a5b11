//! Places of one zone, and what takes each of them.
//!
//! A place is *live* if a page or a write uses it. The *published* checkpoint may list it, and so
//! may the *next* one, which is being written. A place is free if none of these applies.
//!
//! A place that was ever taken has disk blocks until they are deallocated, even while it is free.
//!
//! Invariants:
//!
//! - `free` is the number of free places, and `backed` the number of free places with disk blocks.
//! - No word before `regions_from` has a completely free region, and none before `places_from` has
//!   a free place.

use std::ops::Range;

/// Number of places in a zone.
pub(in crate::page) const SLOTS: u64 = 1 << 16;
pub(super) const WORD_SLOTS: u64 = u64::BITS as u64;
pub(super) const WORDS: usize = (SLOTS / WORD_SLOTS) as usize;
/// Number of places in a region, and the maximum length of a run.
pub(in crate::page) const RUN_SLOTS: usize = 16;
const REGION: u64 = (1 << RUN_SLOTS) - 1;
const REGIONS_PER_WORD: u32 = u64::BITS / RUN_SLOTS as u32;

/// User of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceUser {
    /// A page or a write.
    Live,
    /// The published checkpoint.
    Published,
    /// The checkpoint that is being written.
    Next,
}

const KINDS: usize = 3;
/// Index after those kinds: the place has disk blocks.
const BACKED_INDEX: usize = KINDS;

/// Bit maps of taken places.
#[derive(Debug)]
pub(super) struct Places {
    taken: Box<[[u64; KINDS + 1]; WORDS]>,
    free: u64,
    backed: u64,
    regions_from: usize,
    places_from: usize,
}

impl Places {
    /// Creates places that are all free.
    pub(super) fn new() -> Self {
        let taken = vec![[0; KINDS + 1]; WORDS].try_into().expect("as long");
        Self { taken, free: SLOTS, backed: 0, regions_from: 0, places_from: 0 }
    }

    /// Returns the number of free places.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Returns the number of free places with disk blocks.
    pub(super) fn backed(&self) -> u64 {
        self.backed
    }

    fn free_word(&self, word: usize) -> u64 {
        let [live, published, next, _] = self.taken[word];
        !(live | published | next)
    }

    /// Returns whether `by` takes a place.
    pub(super) fn is(&self, place: u64, by: PlaceUser) -> bool {
        let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
        self.taken[word][by as usize] & bit != 0
    }

    /// Returns whether `by` takes any place.
    pub(super) fn has_any(&self, by: PlaceUser) -> bool {
        self.taken.iter().any(|word| word[by as usize] != 0)
    }

    /// Returns the places that `by` takes, as ranges of adjacent places.
    pub(super) fn runs_of(&self, by: PlaceUser) -> Vec<Range<u64>> {
        let mut runs = Vec::<Range<u64>>::new();
        for place in (0..SLOTS).filter(|place| self.is(*place, by)) {
            match runs.last_mut() {
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            }
        }
        runs
    }

    /// Records whether `by` takes a place.
    pub(super) fn set(&mut self, place: u64, by: PlaceUser, is: bool) {
        let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
        let before = self.free_word(word) & bit;
        let bits = &mut self.taken[word][by as usize];
        if is {
            *bits |= bit
        } else {
            *bits &= !bit
        }
        let after = self.free_word(word) & bit;
        if before != 0 && after == 0 {
            self.free -= 1;
            self.backed -= u64::from(self.taken[word][BACKED_INDEX] & bit != 0);
            self.taken[word][BACKED_INDEX] |= bit;
        } else if before == 0 && after != 0 {
            self.free += 1;
            self.backed += u64::from(self.taken[word][BACKED_INDEX] & bit != 0);
            self.note_free(word);
        }
    }

    /// Returns the end of the last taken place, and of the last place with disk blocks.
    pub(super) fn ends(&self) -> (u64, u64) {
        let behind_last = |bits: &dyn Fn(usize) -> u64| {
            let word = (0..WORDS).rev().find(|word| bits(*word) != 0);
            word.map_or(0, |word| {
                (word as u64 + 1) * WORD_SLOTS - u64::from(bits(word).leading_zeros())
            })
        };
        (
            behind_last(&|word| !self.free_word(word)),
            behind_last(&|word| self.taken[word][BACKED_INDEX]),
        )
    }

    /// Records that these places have disk blocks.
    pub(super) fn note_backed(&mut self, places: Range<u64>) {
        for place in places.start..places.end.min(SLOTS) {
            let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
            if self.taken[word][BACKED_INDEX] & bit == 0 {
                self.taken[word][BACKED_INDEX] |= bit;
                self.backed += u64::from(self.free_word(word) & bit != 0);
            }
        }
    }

    /// Returns whether a place has disk blocks. A place that is taken counts as having them, until
    /// the write to it fails.
    pub(super) fn is_backed(&self, place: u64) -> bool {
        let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
        self.taken[word][BACKED_INDEX] & bit != 0
    }

    /// Records that these places have no disk blocks: they were deallocated, or the disk had no
    /// space for them.
    pub(super) fn note_released(&mut self, places: Range<u64>) {
        for place in places {
            let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
            if self.taken[word][BACKED_INDEX] & bit != 0 {
                self.taken[word][BACKED_INDEX] &= !bit;
                self.backed -= u64::from(self.free_word(word) & bit != 0);
            }
        }
    }

    /// Returns the first range of at least `least` adjacent free places with disk blocks in a word.
    pub(super) fn backed_in_word(&self, word: usize, least: u32) -> Option<Range<u64>> {
        let mut left = self.free_word(word) & self.taken[word][BACKED_INDEX];
        while left != 0 {
            let start = left.trailing_zeros();
            let count = (left >> start).trailing_ones();
            if count >= least {
                let first = word as u64 * WORD_SLOTS + u64::from(start);
                return Some(first..first + u64::from(count));
            }
            left &= u64::MAX.checked_shl(start + count).unwrap_or(0);
        }
        None
    }

    fn note_free(&mut self, word: usize) {
        self.regions_from = self.regions_from.min(word);
        self.places_from = self.places_from.min(word);
    }

    /// Makes the next checkpoint the published one. If `keeps` is true, the places of the previous
    /// one stay taken.
    pub(super) fn publish(&mut self, keeps: bool) {
        self.replace(|[_, published, next, _]| [if keeps { *published | *next } else { *next }, 0]);
    }

    /// Discards the next checkpoint.
    pub(super) fn abandon(&mut self) {
        self.replace(|[_, published, ..]| [*published, 0]);
    }

    fn replace(&mut self, with: impl Fn(&[u64; KINDS + 1]) -> [u64; 2]) {
        (self.free, self.backed) = (0, 0);
        for word in 0..WORDS {
            let [published, next] = with(&self.taken[word]);
            self.taken[word][1..KINDS].copy_from_slice(&[published, next]);
            let free = self.free_word(word);
            self.free += u64::from(free.count_ones());
            self.backed += u64::from((free & self.taken[word][BACKED_INDEX]).count_ones());
        }
        (self.regions_from, self.places_from) = (0, 0);
    }

    /// Returns the first place of a completely free region.
    pub(super) fn free_region(&mut self) -> Option<u64> {
        while self.regions_from < WORDS {
            let word = self.free_word(self.regions_from);
            for number in 0..REGIONS_PER_WORD {
                let shift = number * RUN_SLOTS as u32;
                if word >> shift & REGION == REGION {
                    return Some(self.regions_from as u64 * WORD_SLOTS + u64::from(shift));
                }
            }
            self.regions_from += 1;
        }
        None
    }

    /// Returns whether all places of the region that begins at `place` have disk blocks.
    pub(super) fn is_region_backed(&self, place: u64) -> bool {
        let backed = self.taken[(place / WORD_SLOTS) as usize][BACKED_INDEX];
        backed >> (place % WORD_SLOTS) & REGION == REGION
    }

    /// Returns the first free place and the number of free places from there, at most `most`,
    /// within one word.
    pub(super) fn free_run(&mut self, most: u64) -> Option<(u64, u64)> {
        while self.places_from < WORDS {
            let word = self.free_word(self.places_from);
            if word != 0 {
                let start = word.trailing_zeros();
                let count = u64::from((word >> start).trailing_ones()).min(most);
                return Some((self.places_from as u64 * WORD_SLOTS + u64::from(start), count));
            }
            self.places_from += 1;
        }
        None
    }

    /// Like [`Self::free_run`], for places with disk blocks.
    pub(super) fn backed_run(&self, most: u64) -> Option<(u64, u64)> {
        (self.places_from..WORDS).find_map(|number| {
            let word = self.free_word(number) & self.taken[number][BACKED_INDEX];
            let start = word.trailing_zeros();
            let count = u64::from((word.checked_shr(start)?).trailing_ones()).min(most);
            Some((number as u64 * WORD_SLOTS + u64::from(start), count))
        })
    }
}
