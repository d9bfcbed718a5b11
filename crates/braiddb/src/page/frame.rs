//! Frames: resident pages and their state in memory.
//!
//! A frame is one cache line that is never unmapped, and the version of its latch never decreases.
//! The frame with number `n` has its page at position `n` of a separate array. Frames are reused
//! for other pages. A reader that reaches a frame by a page id therefore takes the latch's version
//! and checks that the frame still holds that page. At the end it validates the version.
//!
//! Invariants:
//!
//! - The page id, the shape, the place and the mapping table of a frame change only under its
//!   latch.
//! - A free frame holds page 0. Only the task that has taken a free frame latches it. Every other
//!   task latches a frame under a version at which it has seen its page's id there.

use std::ops::Deref;

use super::layout::{Page, PageShape};
use super::map::{DiskPlace, PageId};
use crate::latch::{Latch, LatchGuard, LatchVersion, Restart};
use crate::memory::Zero;
use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::statistic;

/// State of a resident page.
#[derive(Debug)]
#[repr(C, align(64))]
pub(in crate::page) struct Frame {
    pub(in crate::page) latch: Latch,
    /// Id of the page in this frame; 0 if the frame is empty.
    page: AtomicU64,
    /// Address of the page's mapping table of versions (`versions`); 0 if the page has none.
    mapping: AtomicU64,
    /// Copy of the page's shape, which saves a reader one cache miss.
    shape: AtomicU64,
    /// Whether the page is dirty (`DIRTY`), and whether a checkpoint may have to write an image of it
    /// (`COUNTED`).
    state: AtomicU64,
    /// Free bytes of the page that are reserved to undo uncommitted changes.
    reserved_bytes: AtomicU64,
    /// Word of the place of the newest image; 0 if no image exists. The image equals the page while
    /// the page is clean.
    place: AtomicU64,
    /// Relaxed, all accesses: `USED` is a hint. `BEING_WRITTEN` is set by one writer only and does
    /// not publish any state of the page.
    marks: AtomicU64,
}

/// The page has a change that no image contains.
const DIRTY: u64 = 1;
/// The page is dirty or has a mapping table, and is counted in [`ImageDemand`].
const COUNTED: u64 = 2;

/// Number of images that a checkpoint may have to write: of resident pages that are dirty or have
/// versions. Relaxed, all accesses: a page is counted under its latch, and the sum is a statistic.
#[derive(Debug, Default)]
pub(in crate::page) struct ImageDemand {
    needed: statistic::AtomicU64,
    /// Only grows: pages that became dirty, and images of pages that still need another one.
    demanded: statistic::AtomicU64,
}

impl ImageDemand {
    /// Returns the number of resident pages of which a checkpoint may have to write an image.
    pub(super) fn needed(&self) -> u64 {
        // Relaxed: a statistic.
        self.needed.load(statistic::Ordering::Relaxed)
    }

    /// Returns a number that grows with each page that becomes dirty, and with each image that a
    /// page with versions takes without needing one less.
    pub(super) fn demanded(&self) -> u64 {
        // Relaxed: a statistic.
        self.demanded.load(statistic::Ordering::Relaxed)
    }

    fn add(&self) {
        // Relaxed: a statistic.
        self.needed.fetch_add(1, statistic::Ordering::Relaxed);
    }

    fn remove(&self) {
        // Relaxed: a statistic.
        self.needed.fetch_sub(1, statistic::Ordering::Relaxed);
    }

    fn demand(&self) {
        // Relaxed: a statistic.
        self.demanded.fetch_add(1, statistic::Ordering::Relaxed);
    }
}

/// The page was accessed since the clock hand last passed it.
const USED: u64 = 1;
/// An image of the page is being written.
const BEING_WRITTEN: u64 = 2;

const _: () = assert!(cfg!(loom) || size_of::<Frame>() == 64, "a frame is a line");

// SAFETY: the fields are atomic words and a latch, which is a word. All zeros are a free latch and
// an empty frame.
unsafe impl Zero for Frame {
    #[cfg(loom)]
    fn zero() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            latch: Latch::zero(),
            page: zero(),
            mapping: zero(),
            shape: zero(),
            state: zero(),
            reserved_bytes: zero(),
            place: zero(),
            marks: zero(),
        }
    }
}

impl Frame {
    /// Returns whether the frame holds a page. A hint, while others may change that.
    pub(super) fn holds_page(&self) -> bool {
        // Relaxed: a hint.
        self.page.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the page is dirty: it has changes that no image contains. A hint, while
    /// others may change that.
    pub(super) fn is_dirty(&self) -> bool {
        // Relaxed: a hint, unless the caller validates it with the page's version.
        self.state.load(Ordering::Relaxed) & DIRTY != 0
    }

    /// Marks the page as recently used.
    #[inline(always)]
    pub(super) fn note_use(&self) {
        // A set mark is not stored again, so the cache line stays shared.
        if self.marks.load(Ordering::Relaxed) & USED == 0 {
            self.marks.fetch_or(USED, Ordering::Relaxed);
        }
    }

    /// Clears the mark of recent use and returns whether it was set.
    pub(super) fn take_use(&self) -> bool {
        let used = self.marks.load(Ordering::Relaxed) & USED != 0;
        if used {
            self.marks.fetch_and(!USED, Ordering::Relaxed);
        }
        used
    }

    /// Returns whether the page was used since the last call of [`Self::take_use`].
    pub(super) fn is_used(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & USED != 0
    }

    /// Marks the page as being written. Returns `false` if the mark was already set.
    pub(super) fn begin_writing(&self) -> bool {
        self.marks.fetch_or(BEING_WRITTEN, Ordering::Relaxed) & BEING_WRITTEN == 0
    }

    /// Removes the mark that the caller has set.
    pub(super) fn end_writing(&self) {
        self.marks.fetch_and(!BEING_WRITTEN, Ordering::Relaxed);
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & BEING_WRITTEN != 0
    }
}

/// A frame with its page. The frame may be reused for another page at any time.
#[derive(Clone, Copy, Debug)]
pub(in crate::page) struct ResidentPage<'s> {
    /// Number of the frame.
    pub(in crate::page) number: u32,
    pub(in crate::page) frame: &'s Frame,
    pub(in crate::page) page: Page<'s>,
    /// Images that checkpoints of the space may have to write.
    pub(super) images: &'s ImageDemand,
}

impl<'s> ResidentPage<'s> {
    /// Returns the latch version under which the frame holds page `id`.
    #[inline(always)]
    pub(in crate::page) fn version(self, id: PageId) -> Result<LatchVersion, Restart> {
        let version = self.frame.latch.version()?;
        // Relaxed: not older than the version (Acquire), and validated with it.
        let held = self.frame.page.load(Ordering::Relaxed);
        let is_it = held == id.number() || is_planted(Bug::PageNotCheckedAfterFault);
        if is_it { Ok(version) } else { Err(Restart) }
    }

    /// Returns the id of the page in the frame, if the frame holds one. Meaningless until
    /// validated, unless latched.
    pub(in crate::page) fn held(self) -> Option<PageId> {
        // Relaxed: validated, or latched.
        let number = self.frame.page.load(Ordering::Relaxed);
        (number != 0).then(|| PageId::new(number))
    }

    /// Returns an error if the frame has changed since `version` was taken.
    #[inline(always)]
    pub(in crate::page) fn validate(self, version: LatchVersion) -> Result<(), Restart> {
        self.frame.latch.validate(version)
    }

    /// Returns the properties of the page that a search reads first. Meaningless until validated,
    /// unless latched.
    #[inline(always)]
    pub(in crate::page) fn shape(self) -> PageShape {
        // Relaxed: validated, or latched.
        PageShape::from_word(self.frame.shape.load(Ordering::Relaxed))
    }

    /// Returns the word that points to the page's mapping table of versions.
    #[inline(always)]
    pub(in crate::page) fn mapping(self) -> u64 {
        // Acquire pairs with the Release in `set_mapping`: the mapping table is initialised even
        // for a reader whose validation will fail.
        self.frame.mapping.load(Ordering::Acquire)
    }

    /// Returns whether everything on the page is committed and visible to all transactions: it has
    /// no version chains and no marks of a bulk operation. Meaningless until validated, unless
    /// latched.
    pub(in crate::page) fn is_settled(self) -> bool {
        self.mapping() == 0 && self.page.bulk_epoch() == 0
    }

    /// Returns whether a checkpoint may list an image of the page in its current state. Meaningless
    /// until validated, unless latched.
    pub(in crate::page) fn may_be_listed(self) -> bool {
        self.is_settled() || is_planted(Bug::UnsettledImageListed)
    }

    /// Returns the free bytes that are reserved for undoing changes.
    pub(in crate::page) fn reserved_bytes(self) -> usize {
        // Relaxed: validated, or latched.
        self.frame.reserved_bytes.load(Ordering::Relaxed) as usize
    }

    /// Latches the frame if it has not changed since `version` was taken.
    pub(in crate::page) fn acquire(
        self,
        version: LatchVersion,
    ) -> Result<LatchedPage<'s>, Restart> {
        let latched = self.frame.latch.acquire(version)?;
        Ok(LatchedPage { resident: self, latched, is_changed: false })
    }
}

/// A page that the holder may change exclusively: its latch is held until this is dropped.
#[derive(Debug)]
#[must_use]
pub(in crate::page) struct LatchedPage<'s> {
    resident: ResidentPage<'s>,
    latched: LatchGuard<'s>,
    is_changed: bool,
}

impl<'s> LatchedPage<'s> {
    /// Returns the frame with its page.
    pub(in crate::page) fn resident(&self) -> ResidentPage<'s> {
        self.resident
    }

    /// Announces a change of the page or of its frame's mapping table. Readers of the previous
    /// version restart, and the page becomes dirty.
    pub(in crate::page) fn changed(&mut self) {
        self.raise_version();
        if !self.frame.is_dirty() {
            self.images.demand();
            self.set_state(DIRTY);
        }
    }

    /// Sets whether the page is dirty, and counts it if it is, or has versions.
    fn set_state(&self, dirty: u64) {
        // Relaxed, all: latched.
        let is_needed = dirty != 0 || self.frame.mapping.load(Ordering::Relaxed) != 0;
        match (self.frame.state.load(Ordering::Relaxed) & COUNTED != 0, is_needed) {
            (false, true) => self.images.add(),
            (true, false) => self.images.remove(),
            _ => {}
        }
        let counted = if is_needed { COUNTED } else { 0 };
        self.frame.state.store(dirty | counted, Ordering::Relaxed);
    }

    /// Makes readers of the previous version restart.
    pub(in crate::page) fn raise_version(&mut self) {
        if !self.is_changed {
            self.is_changed = true;
            self.latched.changed();
        }
    }

    /// Returns the version that the page has after its latch is released, if nothing else changes
    /// it before.
    pub(in crate::page) fn version_after(&self) -> LatchVersion {
        self.latched.version_after()
    }

    /// Detaches the mapping table from the frame of a page that is about to be evicted.
    pub(in crate::page) fn take_mapping(&mut self) -> u64 {
        self.raise_version();
        let word = self.mapping();
        self.set_mapping(0);
        word
    }

    /// Returns the place of the newest image.
    pub(in crate::page) fn place(&self) -> Option<DiskPlace> {
        // Relaxed: latched.
        DiskPlace::from_word(self.frame.place.load(Ordering::Relaxed))
    }

    /// Records that the image at `place` equals the page. Returns the place of the previous image.
    pub(in crate::page) fn set_written(&mut self, place: DiskPlace) -> Option<DiskPlace> {
        let before = self.place();
        // Relaxed: latched.
        self.frame.place.store(place.word(), Ordering::Relaxed);
        self.set_state(0);
        if self.mapping() != 0 {
            self.images.demand();
        }
        before
    }

    /// Sets the frame's mapping table.
    pub(in crate::page) fn set_mapping(&self, word: u64) {
        assert!(self.is_changed);
        // Release pairs with the Acquire in `mapping`.
        self.frame.mapping.store(word, Ordering::Release);
        self.set_state(if self.frame.is_dirty() { DIRTY } else { 0 });
    }

    /// Takes the place of an image that is outdated, because the page is dirty.
    pub(in crate::page) fn take_outdated(&self) -> Option<DiskPlace> {
        let outdated = self.place().filter(|_| self.frame.is_dirty())?;
        // Relaxed: latched.
        self.frame.place.store(0, Ordering::Relaxed);
        Some(outdated)
    }

    pub(in crate::page) fn set_reserved_bytes(&self, bytes: usize) {
        // Relaxed: latched.
        self.frame.reserved_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the id of the page in the frame.
    pub(in crate::page) fn id(&self) -> PageId {
        // Relaxed: latched.
        PageId::new(self.frame.page.load(Ordering::Relaxed))
    }

    /// Assigns a new page to the empty frame.
    pub(super) fn hold(&mut self, id: PageId) {
        // Relaxed, here and below: latched.
        assert_eq!(self.frame.page.load(Ordering::Relaxed), 0, "the frame is free");
        self.changed();
        self.frame.page.store(id.number(), Ordering::Relaxed);
        self.frame.note_use();
    }

    /// Assigns a page to the empty frame, before the page is read from its image.
    pub(super) fn hold_image(&mut self, id: PageId, place: DiskPlace) {
        // Relaxed, here and below: latched.
        assert_eq!(self.frame.page.load(Ordering::Relaxed), 0, "the frame is free");
        self.raise_version();
        self.frame.page.store(id.number(), Ordering::Relaxed);
        self.frame.place.store(place.word(), Ordering::Relaxed);
        self.frame.note_use();
    }

    /// Empties the frame, which has no mapping table any more.
    pub(super) fn empty(mut self) {
        self.raise_version();
        assert_eq!(self.mapping(), 0, "versions have moved away");
        // Relaxed, all: latched.
        self.frame.page.store(0, Ordering::Relaxed);
        self.set_state(0);
        self.frame.reserved_bytes.store(0, Ordering::Relaxed);
        self.frame.place.store(0, Ordering::Relaxed);
    }
}

impl<'s> Deref for LatchedPage<'s> {
    type Target = ResidentPage<'s>;

    #[inline(always)]
    fn deref(&self) -> &ResidentPage<'s> {
        &self.resident
    }
}

impl Drop for LatchedPage<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            // Relaxed: the latch is held until after this.
            self.frame.shape.store(self.page.shape().word(), Ordering::Relaxed);
        }
    }
}
