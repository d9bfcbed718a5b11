//! The map: one word a page, from its id to where it is.
//!
//! | bits | meaning |
//! |---|---|
//! | all 0 | free: no page has this id |
//! | 0 to 1: 01 | in memory; above, the number of the frame |
//! | 0 to 1: 10 | being loaded (`fault`) |
//! | 0 to 1: 11 | on disk; above, 21 bits of the image's checksum, a bit that is set if the image is *settled*, then 40 bits for the number of the place |
//!
//! A word goes from *in memory* to *on disk* under the frame's latch (`evict`), and from there to *loading* and on
//! under the lock of its page's loads (`fault`).
//!
//! Beside each word are the numbers of records, and of their bytes, that the page's newest image has.
//!
//! Ids of pages that are gone are used again at once: whoever follows an id it read earlier meets the
//! frame's page id, and the page's own level, table and fences.

use super::layout::{PAGE_ID_LIMIT, StoredOnPage};
use crate::memory::Reserved;
use crate::sync::SegQueue;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of a page, for its life. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageId(u64);

impl PageId {
    /// The page id with this number. Read from a page that is being changed, it may be any.
    #[inline(always)]
    pub(in crate::page) fn new(number: u64) -> Self {
        debug_assert!(number < PAGE_ID_LIMIT);
        Self(number)
    }

    #[inline(always)]
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Whereabouts {
    /// Nowhere: no page has this id.
    Free,
    /// In the frame with this number.
    Frame(u32),
    /// On the way to a frame.
    Loading,
    /// On disk.
    OnDisk(DiskPlace),
}

/// A place on disk, and which image is there: a part of its checksum tells it from older ones of the same page.
///
/// An image is *settled* if all that is on it is committed, and seen by everybody: then a checkpoint may lead to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskPlace {
    /// The number of the place among all of the zones.
    pub(in crate::page) slot: u64,
    check: u32,
    is_settled: bool,
}

const RESIDENT: u64 = 1;
const LOADING: u64 = 2;
const ON_DISK: u64 = 3;
const TAG_BITS: u32 = 2;
const TAG: u64 = (1 << TAG_BITS) - 1;
const CHECK_BITS: u32 = 21;
const SETTLED: u64 = 1 << (TAG_BITS + CHECK_BITS);
const SLOT_SHIFT: u32 = TAG_BITS + CHECK_BITS + 1;
/// Places there can be.
pub(in crate::page) const SLOT_LIMIT: u64 = 1 << (64 - SLOT_SHIFT);

impl DiskPlace {
    /// That of an image with this checksum.
    pub(in crate::page) fn new(slot: u64, checksum: u32, is_settled: bool) -> Self {
        assert!(slot < SLOT_LIMIT);
        Self { slot, check: checksum >> (u32::BITS - CHECK_BITS), is_settled }
    }

    /// Whether an image with this checksum may be the one.
    pub(in crate::page) fn may_be(self, checksum: u32) -> bool {
        self.check == checksum >> (u32::BITS - CHECK_BITS)
    }

    /// Whether the image is settled.
    pub(in crate::page) fn is_settled(self) -> bool {
        self.is_settled
    }

    /// In one word, which is never 0.
    pub(crate) fn word(self) -> u64 {
        let settled = if self.is_settled { SETTLED } else { 0 };
        self.slot << SLOT_SHIFT | settled | u64::from(self.check) << TAG_BITS | ON_DISK
    }

    /// The place of such a word; none of 0.
    pub(in crate::page) fn from_word(word: u64) -> Option<Self> {
        let check = (word >> TAG_BITS & ((1 << CHECK_BITS) - 1)) as u32;
        let (slot, is_settled) = (word >> SLOT_SHIFT, word & SETTLED != 0);
        (word != 0).then_some(Self { slot, check, is_settled })
    }

    /// The place of a word that a file says is one's of a settled image.
    pub(in crate::page) fn from_file(word: u64) -> Option<Self> {
        let place = Self::from_word(word)?;
        (word & TAG == ON_DISK && place.is_settled).then_some(place)
    }
}

impl Whereabouts {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        match word & TAG {
            RESIDENT => Self::Frame((word >> TAG_BITS) as u32),
            LOADING => Self::Loading,
            ON_DISK => DiskPlace::from_word(word).map_or(Self::Free, Self::OnDisk),
            _ => Self::Free,
        }
    }

    fn word(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Frame(number) => u64::from(number) << TAG_BITS | RESIDENT,
            Self::Loading => LOADING,
            Self::OnDisk(place) => place.word(),
        }
    }
}

/// The words, and which ids are free.
#[derive(Debug)]
pub(in crate::page) struct PageMap {
    words: Reserved<AtomicU64>,
    /// What the newest image of each page has: 16 bits for the number of its records, and 16 for that of their bytes.
    stored: Reserved<AtomicU32>,
    /// The least id that was never taken.
    next: AtomicU64,
    free: SegQueue<PageId>,
}

impl PageMap {
    /// A map of so many page ids at most.
    ///
    /// # Errors
    /// The operating system's, when it has no addresses for them.
    pub(in crate::page) fn new(page_ids: u64) -> std::io::Result<Self> {
        assert!(page_ids < PAGE_ID_LIMIT);
        let count = page_ids as usize + 1;
        let (words, stored) = (Reserved::new(count)?, Reserved::new(count)?);
        Ok(Self { words, stored, next: AtomicU64::new(1), free: SegQueue::new() })
    }

    /// A page id that is free, for a new page.
    pub(in crate::page) fn take(&self) -> Option<PageId> {
        if let Some(id) = self.free.pop() {
            return Some(id);
        }
        let limit = self.words.count() as u64;
        // Relaxed: only uniqueness matters. The check before keeps the counter near the limit.
        if self.next.load(Ordering::Relaxed) >= limit {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < limit).then_some(PageId(number))
    }

    /// Bytes of the words that were of use once.
    pub(in crate::page) fn memory_bytes(&self) -> u64 {
        // Relaxed: a statistic here.
        let words = self.next.load(Ordering::Relaxed).min(self.words.count() as u64);
        words * (size_of::<AtomicU64>() + size_of::<AtomicU32>()) as u64
    }

    /// Gives back the id of a page that is nowhere.
    pub(in crate::page) fn give_back(&self, id: PageId) {
        assert_eq!(self.get(id), Whereabouts::Free);
        self.free.push(id);
    }

    /// Pages there are, about.
    pub(in crate::page) fn pages(&self) -> u64 {
        // Relaxed: an estimate. Ids that are between two pages are counted with them.
        let taken = self.next.load(Ordering::Relaxed).min(self.words.count() as u64) - 1;
        taken.saturating_sub(self.free.len() as u64)
    }

    #[inline(always)]
    fn word(&self, id: PageId) -> &AtomicU64 {
        let number = id.0 as usize;
        // An id from a page that is being changed may be any; word 0 is always free.
        self.words.at(if number < self.words.count() { number } else { 0 })
    }

    /// The word's address, to be prefetched.
    #[inline(always)]
    pub(in crate::page) fn pointer(&self, id: PageId) -> *const AtomicU64 {
        self.word(id)
    }

    /// Where the page is.
    #[inline(always)]
    pub(in crate::page) fn get(&self, id: PageId) -> Whereabouts {
        // Acquire pairs with the Release in `set`: who finds a frame finds it filled.
        Whereabouts::from_word(self.word(id).load(Ordering::Acquire))
    }

    /// Says where the page is; under what the head of this file says, or by who has the page alone.
    pub(in crate::page) fn set(&self, id: PageId, whereabouts: Whereabouts) {
        assert!(id.0 != 0 && id.0 < self.words.count() as u64);
        // Release pairs with the Acquire in `get`.
        self.word(id).store(whereabouts.word(), Ordering::Release);
    }

    /// What the newest image of a page has; to be looked at while it is known which that is.
    pub(in crate::page) fn stored(&self, id: PageId) -> StoredOnPage {
        // Acquire pairs with the Release in `set_stored`, and keeps what is looked at next behind it.
        StoredOnPage::from_word(self.stored.at(id.0 as usize).load(Ordering::Acquire))
    }

    /// Notes what the newest image of a page has; by who has the page alone, or latched.
    pub(in crate::page) fn set_stored(&self, id: PageId, stored: StoredOnPage) {
        // Release pairs with the Acquire in `stored`.
        self.stored.at(id.0 as usize).store(stored.word(), Ordering::Release);
    }

    /// An id above all that were taken so far.
    pub(in crate::page) fn limit(&self) -> u64 {
        // Relaxed: what was taken by whom the caller has heard of is below.
        self.next.load(Ordering::Relaxed)
    }
}

/// While the database is opened, by one thread.
impl PageMap {
    /// Sees to it that ids below `limit` are not taken; `false` if there are not so many.
    pub(in crate::page) fn reserve_below(&self, limit: u64) -> bool {
        let fits = limit <= self.words.count() as u64;
        if fits {
            // Relaxed: one thread.
            self.next.fetch_max(limit, Ordering::Relaxed);
        }
        fits
    }

    /// Gives a page that has no place yet this one; `false` if it has one, or its id was not reserved.
    pub(in crate::page) fn claim(
        &self,
        id: PageId,
        place: DiskPlace,
        stored: StoredOnPage,
    ) -> bool {
        let is_new = id.0 != 0 && id.0 < self.limit() && self.get(id) == Whereabouts::Free;
        if is_new {
            self.set_stored(id, stored);
            self.set(id, Whereabouts::OnDisk(place));
        }
        is_new
    }

    /// Frees ids below `limit`, which were reserved, that no page has.
    pub(in crate::page) fn free_unclaimed(&self, limit: u64) {
        let ids = (1..limit).map(PageId);
        ids.filter(|id| self.get(*id) == Whereabouts::Free).for_each(|id| self.free.push(id));
    }
}
