//! The places of one zone: whose each is.
//!
//! A place is *live* if it is a page's, or being written; and a checkpoint may lead to it: the one that is *published*, or the
//! *next*, which is being written. It is free if none of that is so.
//!
//! A place that was taken once has room on the disk, even if it is free, until that is given back.
//!
//! Invariant: `free` is the number of places that are free, and `backed` that of those among them that have room; no word before `regions_from` has a whole region that is free,
//! and none before `places_from` any place.

use std::ops::Range;

/// Places of a zone.
pub(in crate::page) const SLOTS: u64 = 1 << 16;
const WORD_SLOTS: u64 = u64::BITS as u64;
pub(super) const WORDS: usize = (SLOTS / WORD_SLOTS) as usize;
/// Places of a region; the most that a run has.
pub(in crate::page) const RUN_SLOTS: usize = 16;
const REGION: u64 = (1 << RUN_SLOTS) - 1;
const REGIONS_PER_WORD: u32 = u64::BITS / RUN_SLOTS as u32;

/// What a place is taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenBy {
    /// A page, or a write.
    Live,
    /// The checkpoint that is published.
    Published,
    /// The one that is being written.
    Next,
}

const KINDS: usize = 3;
/// Behind those kinds: it has room on the disk.
const BACKED: usize = KINDS;

/// Which places are taken, a bit for each.
#[derive(Debug)]
pub(super) struct Places {
    taken: Box<[[u64; KINDS + 1]; WORDS]>,
    free: u64,
    backed: u64,
    regions_from: usize,
    places_from: usize,
}

impl Places {
    /// All are free.
    pub(super) fn new() -> Self {
        let taken = vec![[0; KINDS + 1]; WORDS].try_into().expect("as long");
        Self { taken, free: SLOTS, backed: 0, regions_from: 0, places_from: 0 }
    }

    /// How many are free.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// How many of them have room on the disk.
    pub(super) fn backed(&self) -> u64 {
        self.backed
    }

    fn free_word(&self, word: usize) -> u64 {
        let [live, published, next, _] = self.taken[word];
        !(live | published | next)
    }

    /// Whether a place is taken by this.
    pub(super) fn is(&self, place: u64, by: TakenBy) -> bool {
        let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
        self.taken[word][by as usize] & bit != 0
    }

    /// Whether any place is taken by this.
    pub(super) fn has_any(&self, by: TakenBy) -> bool {
        self.taken.iter().any(|word| word[by as usize] != 0)
    }

    /// The places that are taken by this, as runs of places that follow one another.
    pub(super) fn runs_of(&self, by: TakenBy) -> Vec<Range<u64>> {
        let mut runs = Vec::<Range<u64>>::new();
        for place in (0..SLOTS).filter(|place| self.is(*place, by)) {
            match runs.last_mut() {
                Some(run) if run.end == place => run.end += 1,
                _ => runs.push(place..place + 1),
            }
        }
        runs
    }

    /// Says whether a place is taken by this.
    pub(super) fn set(&mut self, place: u64, by: TakenBy, is: bool) {
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
            self.backed -= u64::from(self.taken[word][BACKED] & bit != 0);
            self.taken[word][BACKED] |= bit;
        } else if before == 0 && after != 0 {
            self.free += 1;
            self.backed += 1;
            self.note_free(word);
        }
    }

    /// The place behind the last one that is taken; and behind the last one that has room on the disk.
    pub(super) fn ends(&self) -> (u64, u64) {
        let behind_last = |bits: &dyn Fn(usize) -> u64| {
            let word = (0..WORDS).rev().find(|word| bits(*word) != 0);
            word.map_or(0, |word| {
                (word as u64 + 1) * WORD_SLOTS - u64::from(bits(word).leading_zeros())
            })
        };
        (behind_last(&|word| !self.free_word(word)), behind_last(&|word| self.taken[word][BACKED]))
    }

    /// These places have room on the disk.
    pub(super) fn note_backed(&mut self, places: Range<u64>) {
        for place in places.start..places.end.min(SLOTS) {
            let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
            if self.taken[word][BACKED] & bit == 0 {
                self.taken[word][BACKED] |= bit;
                self.backed += u64::from(self.free_word(word) & bit != 0);
            }
        }
    }

    /// The room on the disk was given back of these places, none of which is taken.
    pub(super) fn note_given_back(&mut self, places: Range<u64>) {
        for place in places {
            let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
            if self.taken[word][BACKED] & bit != 0 {
                self.taken[word][BACKED] &= !bit;
                self.backed -= u64::from(self.free_word(word) & bit != 0);
            }
        }
    }

    /// The first places in a row of a word that are free and have room, if they are `least` or more, or else the next ones.
    pub(super) fn backed_in_word(&self, word: usize, least: u32) -> Option<Range<u64>> {
        let mut left = self.free_word(word) & self.taken[word][BACKED];
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

    /// The next checkpoint is published. Places that the one before leads to are kept, or not.
    pub(super) fn publish(&mut self, keeps: bool) {
        self.replace(|[_, published, next, _]| [if keeps { *published | *next } else { *next }, 0]);
    }

    /// There will be no such checkpoint.
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
            self.backed += u64::from((free & self.taken[word][BACKED]).count_ones());
        }
        (self.regions_from, self.places_from) = (0, 0);
    }

    /// The first place of a region in which nothing is.
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

    /// The first free place, and how many are free from there on, of `most`, in one word.
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

    /// The same, of places that have room on the disk.
    pub(super) fn backed_run(&self, most: u64) -> Option<(u64, u64)> {
        (self.places_from..WORDS).find_map(|number| {
            let word = self.free_word(number) & self.taken[number][BACKED];
            let start = word.trailing_zeros();
            let count = u64::from((word.checked_shr(start)?).trailing_ones()).min(most);
            Some((number as u64 * WORD_SLOTS + u64::from(start), count))
        })
    }
}
