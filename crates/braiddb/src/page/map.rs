//! Page map: one word per page, from its id to its location.
//!
//! | bits | meaning |
//! |---|---|
//! | all 0 | free: no page has this id |
//! | 0 to 1: 01 | resident; the higher bits are the frame number |
//! | 0 to 1: 10 | being loaded (`fault`) |
//! | 0 to 1: 11 | on disk; next 21 bits of the image's checksum, 1 bit for *settled*, and 40 bits for the slot number |
//!
//! A word changes from *resident* to *on disk* under the frame's latch (`evict`). It changes from
//! *on disk* to *loading*, and from *loading* to any other state, under the lock of the page's
//! loads (`fault`).
//!
//! A second array has the number of records of each page's newest image, and of their bytes.
//!
//! Ids of freed pages are reused immediately. A reader that follows an outdated id therefore checks
//! the page id in the frame, and the level, table and fences on the page.

use super::layout::{PAGE_ID_LIMIT, StoredOnPage};
use crate::memory::Reserved;
use crate::sync::SegQueue;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Number of a page for the page's lifetime. 0 is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageId(u64);

impl PageId {
    /// Creates the page id with this number. A number read from a page that is being changed may
    /// have any value.
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

/// Location of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum PageLocation {
    /// No page has this id.
    Free,
    /// Resident in the frame with this number.
    Frame(u32),
    /// Being loaded into a frame.
    Loading,
    /// On disk.
    OnDisk(DiskPlace),
}

/// A place on disk, with a part of the checksum of its image. The checksum distinguishes the image
/// from older images of the same page.
///
/// An image is *settled* if everything on it is committed and visible to all transactions. Only
/// settled images may be listed by a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DiskPlace {
    /// Slot number among all zones.
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
/// Maximum number of slots.
pub(in crate::page) const SLOT_LIMIT: u64 = 1 << (64 - SLOT_SHIFT);

impl DiskPlace {
    /// Creates the place of an image with this checksum.
    pub(in crate::page) fn new(slot: u64, checksum: u32, is_settled: bool) -> Self {
        assert!(slot < SLOT_LIMIT);
        Self { slot, check: checksum >> (u32::BITS - CHECK_BITS), is_settled }
    }

    /// Returns whether an image with this checksum may be the one at this place.
    pub(in crate::page) fn may_be(self, checksum: u32) -> bool {
        self.check == checksum >> (u32::BITS - CHECK_BITS)
    }

    /// Returns whether the image is settled.
    pub(in crate::page) fn is_settled(self) -> bool {
        self.is_settled
    }

    /// Encodes the place in one word, which is never 0.
    pub(crate) fn word(self) -> u64 {
        let settled = if self.is_settled { SETTLED } else { 0 };
        self.slot << SLOT_SHIFT | settled | u64::from(self.check) << TAG_BITS | ON_DISK
    }

    /// Decodes a place; `None` for word 0.
    pub(in crate::page) fn from_word(word: u64) -> Option<Self> {
        let check = (word >> TAG_BITS & ((1 << CHECK_BITS) - 1)) as u32;
        let (slot, is_settled) = (word >> SLOT_SHIFT, word & SETTLED != 0);
        (word != 0).then_some(Self { slot, check, is_settled })
    }

    /// Decodes a place from a word read from a file. Returns `None` unless it is the place of a
    /// settled image.
    pub(in crate::page) fn from_file(word: u64) -> Option<Self> {
        let place = Self::from_word(word)?;
        (word & TAG == ON_DISK && place.is_settled).then_some(place)
    }
}

impl PageLocation {
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

/// Words of all pages, and the list of free ids.
#[derive(Debug)]
pub(in crate::page) struct PageMap {
    words: Reserved<AtomicU64>,
    /// Contents of the newest image of each page: 16 bits for the number of records, and 16 for
    /// their bytes.
    stored: Reserved<AtomicU32>,
    /// Lowest id that was never taken.
    next: AtomicU64,
    free: SegQueue<PageId>,
}

impl PageMap {
    /// Creates a map of at most `page_ids` page ids.
    ///
    /// # Errors
    /// The operating system's error, when it cannot reserve address space.
    pub(in crate::page) fn new(page_ids: u64) -> std::io::Result<Self> {
        assert!(page_ids < PAGE_ID_LIMIT);
        let count = page_ids as usize + 1;
        let (words, stored) = (Reserved::new(count)?, Reserved::new(count)?);
        Ok(Self { words, stored, next: AtomicU64::new(1), free: SegQueue::new() })
    }

    /// Takes a free id for a new page.
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

    /// Returns the bytes of the words that were ever used.
    pub(in crate::page) fn memory_bytes(&self) -> u64 {
        // Relaxed: a statistic here.
        let words = self.next.load(Ordering::Relaxed).min(self.words.count() as u64);
        words * (size_of::<AtomicU64>() + size_of::<AtomicU32>()) as u64
    }

    /// Frees the id of a page that has no location.
    pub(in crate::page) fn release(&self, id: PageId) {
        assert_eq!(self.get(id), PageLocation::Free);
        self.free.push(id);
    }

    /// Returns the approximate number of pages.
    pub(in crate::page) fn pages(&self) -> u64 {
        // Relaxed: an estimate. It includes ids that are taken but not assigned to a page yet.
        let taken = self.next.load(Ordering::Relaxed).min(self.words.count() as u64) - 1;
        taken.saturating_sub(self.free.len() as u64)
    }

    #[inline(always)]
    fn word(&self, id: PageId) -> &AtomicU64 {
        let number = id.0 as usize;
        // An id from a page that is being changed may have any value; word 0 is always free.
        self.words.at(if number < self.words.count() { number } else { 0 })
    }

    /// Returns the word's address, for a prefetch.
    #[inline(always)]
    pub(in crate::page) fn pointer(&self, id: PageId) -> *const AtomicU64 {
        self.word(id)
    }

    /// Returns the location of a page.
    #[inline(always)]
    pub(in crate::page) fn get(&self, id: PageId) -> PageLocation {
        // Acquire pairs with the Release in `set`: a reader that finds a frame finds it filled.
        PageLocation::from_word(self.word(id).load(Ordering::Acquire))
    }

    /// Sets the location of a page. The caller holds the lock that the module documentation names,
    /// or owns the page exclusively.
    pub(in crate::page) fn set(&self, id: PageId, whereabouts: PageLocation) {
        assert!(id.0 != 0 && id.0 < self.words.count() as u64);
        // Release pairs with the Acquire in `get`.
        self.word(id).store(whereabouts.word(), Ordering::Release);
    }

    /// Returns the contents of the newest image of a page. The caller ensures that the image is not
    /// replaced during the call.
    pub(in crate::page) fn stored(&self, id: PageId) -> StoredOnPage {
        // Acquire pairs with the Release in `set_stored`, and keeps the caller's later loads after
        // this one.
        StoredOnPage::from_word(self.stored.at(id.0 as usize).load(Ordering::Acquire))
    }

    /// Sets the contents of the newest image of a page. The caller owns the page exclusively or has
    /// it latched.
    pub(in crate::page) fn set_stored(&self, id: PageId, stored: StoredOnPage) {
        // Release pairs with the Acquire in `stored`.
        self.stored.at(id.0 as usize).store(stored.word(), Ordering::Release);
    }

    /// Returns an id above all ids that were taken so far.
    pub(in crate::page) fn limit(&self) -> u64 {
        // Relaxed: ids that the caller has learned of from another thread are below the result.
        self.next.load(Ordering::Relaxed)
    }
}

/// Operations of the single thread that opens the database.
impl PageMap {
    /// Reserves the ids below `limit`. Returns `false` if the map has fewer ids.
    pub(in crate::page) fn reserve_below(&self, limit: u64) -> bool {
        let fits = limit <= self.words.count() as u64;
        if fits {
            // Relaxed: one thread.
            self.next.fetch_max(limit, Ordering::Relaxed);
        }
        fits
    }

    /// Assigns a place to a page without a location. Returns `false` if the page has one, or its id
    /// was not reserved.
    pub(in crate::page) fn claim(
        &self,
        id: PageId,
        place: DiskPlace,
        stored: StoredOnPage,
    ) -> bool {
        let is_new = id.0 != 0 && id.0 < self.limit() && self.get(id) == PageLocation::Free;
        if is_new {
            self.set_stored(id, stored);
            self.set(id, PageLocation::OnDisk(place));
        }
        is_new
    }

    /// Frees the reserved ids below `limit` that no page has.
    pub(in crate::page) fn free_unclaimed(&self, limit: u64) {
        let ids = (1..limit).map(PageId);
        ids.filter(|id| self.get(*id) == PageLocation::Free).for_each(|id| self.free.push(id));
    }
}
