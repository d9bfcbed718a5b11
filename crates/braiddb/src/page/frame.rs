//! Frames: where pages are while they are in memory, and what is known of them there.
//!
//! A frame is a line that is never unmapped and whose latch's version never goes back; its page lies in
//! another array, at the frame's number. Frames are used again for other pages. So whoever has come to
//! a frame by a page id takes the latch's version, looks whether the frame still holds that page, and
//! validates the version in the end.
//!
//! Invariants: the page id, the shape, the place and what hangs on the frame change only while it is latched. A
//! free frame holds page 0, so nobody latches it but who has taken it: whoever latches a frame has seen its page's
//! id under the version that it latches with.

use std::ops::Deref;

use super::layout::{Page, Shape};
use super::map::{DiskPlace, PageId};
use crate::latch::{Latch, LatchVersion, Latched, Restart};
use crate::memory::Zero;
use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicU64, Ordering};

/// What is known of a page in memory.
#[derive(Debug)]
#[repr(C, align(64))]
pub(in crate::page) struct Frame {
    pub(in crate::page) latch: Latch,
    /// The page it holds; 0: none.
    page: AtomicU64,
    /// What leads to the page's versions (`versions`); 0: it has none.
    mapping: AtomicU64,
    /// The page's shape, a line sooner.
    shape: AtomicU64,
    /// 1: there is a change that no image has.
    dirty: AtomicU64,
    /// Bytes of the page that are kept free so that what is undecided can be undone.
    reserved_bytes: AtomicU64,
    /// The word of the place of the newest image; 0: there is none. It is the page itself while it is not dirty.
    place: AtomicU64,
    /// Relaxed, all accesses: hints, but for the mark of writers, of whom one alone sets it, and which tells
    /// nothing of the page.
    marks: AtomicU64,
}

/// The page was looked at since the clock's hand last came by.
const USED: u64 = 1;
/// An image of the page is being written.
const BEING_WRITTEN: u64 = 2;

const _: () = assert!(cfg!(loom) || size_of::<Frame>() == 64, "a frame is a line");

// SAFETY: words and a latch, which is one; of all zeros the latch is free and the frame empty.
unsafe impl Zero for Frame {
    #[cfg(loom)]
    fn zero() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            latch: Latch::zero(),
            page: zero(),
            mapping: zero(),
            shape: zero(),
            dirty: zero(),
            reserved_bytes: zero(),
            place: zero(),
            marks: zero(),
        }
    }
}

impl Frame {
    /// Whether it holds a page. A hint, while others may change that.
    pub(super) fn holds_page(&self) -> bool {
        // Relaxed: a hint.
        self.page.load(Ordering::Relaxed) != 0
    }

    /// Whether the page has changes that no image has. A hint, as above.
    pub(super) fn is_dirty(&self) -> bool {
        // Relaxed: a hint, unless it is validated with the page's version.
        self.dirty.load(Ordering::Relaxed) != 0
    }

    /// Notes that the page is of use.
    #[inline(always)]
    pub(super) fn note_use(&self) {
        // Not stored if it is there: the line stays shared.
        if self.marks.load(Ordering::Relaxed) & USED == 0 {
            self.marks.fetch_or(USED, Ordering::Relaxed);
        }
    }

    /// Whether the page was of use since the last call.
    pub(super) fn take_use(&self) -> bool {
        let used = self.marks.load(Ordering::Relaxed) & USED != 0;
        if used {
            self.marks.fetch_and(!USED, Ordering::Relaxed);
        }
        used
    }

    /// Whether the page was of use since the last call of [`Self::take_use`].
    pub(super) fn is_used(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & USED != 0
    }

    /// Marks an image of the page as being written; `false` if one is already.
    pub(super) fn begin_writing(&self) -> bool {
        self.marks.fetch_or(BEING_WRITTEN, Ordering::Relaxed) & BEING_WRITTEN == 0
    }

    /// Takes back the mark that the caller has set.
    pub(super) fn end_writing(&self) {
        self.marks.fetch_and(!BEING_WRITTEN, Ordering::Relaxed);
    }

    pub(super) fn is_being_written(&self) -> bool {
        self.marks.load(Ordering::Relaxed) & BEING_WRITTEN != 0
    }
}

/// A frame with its page, which may hold another one by now.
#[derive(Clone, Copy, Debug)]
pub(in crate::page) struct ResidentPage<'s> {
    /// The frame's number.
    pub(in crate::page) number: u32,
    pub(in crate::page) frame: &'s Frame,
    pub(in crate::page) page: Page<'s>,
}

impl<'s> ResidentPage<'s> {
    /// The version under which the frame holds page `id`.
    #[inline(always)]
    pub(in crate::page) fn version(self, id: PageId) -> Result<LatchVersion, Restart> {
        let version = self.frame.latch.version()?;
        // Relaxed: not older than the version (Acquire), and validated with it.
        let held = self.frame.page.load(Ordering::Relaxed);
        let is_it = held == id.number() || is_planted(Bug::PageNotCheckedAfterFault);
        if is_it { Ok(version) } else { Err(Restart) }
    }

    /// The page id that the frame holds, if it holds one. Means nothing until validated, unless latched.
    pub(in crate::page) fn held(self) -> Option<PageId> {
        // Relaxed: validated, or latched.
        let number = self.frame.page.load(Ordering::Relaxed);
        (number != 0).then(|| PageId::new(number))
    }

    /// Whether nothing has changed since `version` was taken.
    #[inline(always)]
    pub(in crate::page) fn validate(self, version: LatchVersion) -> Result<(), Restart> {
        self.frame.latch.validate(version)
    }

    /// What a search needs to know first. Means nothing until validated, unless latched.
    #[inline(always)]
    pub(in crate::page) fn shape(self) -> Shape {
        // Relaxed: validated, or latched.
        Shape::from_word(self.frame.shape.load(Ordering::Relaxed))
    }

    /// What leads to the page's versions.
    #[inline(always)]
    pub(in crate::page) fn mapping(self) -> u64 {
        // Acquire pairs with the Release in `set_mapping`: what it leads to is initialised even for a
        // reader that will fail its validation.
        self.frame.mapping.load(Ordering::Acquire)
    }

    /// Whether all that is on the page is committed, and seen by everybody: nothing leads to versions, and no bulk operation
    /// has marked it. Means nothing until validated, unless latched.
    pub(in crate::page) fn is_settled(self) -> bool {
        self.mapping() == 0 && self.page.bulk_epoch() == 0
    }

    /// Whether a checkpoint may have an image of the page as it is. Means nothing until validated, unless latched.
    pub(in crate::page) fn may_be_listed(self) -> bool {
        self.is_settled() || is_planted(Bug::UnsettledImageListed)
    }

    /// Bytes that are kept free.
    pub(in crate::page) fn reserved_bytes(self) -> usize {
        // Relaxed: validated, or latched.
        self.frame.reserved_bytes.load(Ordering::Relaxed) as usize
    }

    /// Latches the frame if nothing has changed since `version` was taken.
    pub(in crate::page) fn acquire(
        self,
        version: LatchVersion,
    ) -> Result<LatchedPage<'s>, Restart> {
        let latched = self.frame.latch.acquire(version)?;
        Ok(LatchedPage { resident: self, latched, is_changed: false })
    }
}

/// A page that nobody else changes: its latch is held until this is dropped.
#[derive(Debug)]
#[must_use]
pub(in crate::page) struct LatchedPage<'s> {
    resident: ResidentPage<'s>,
    latched: Latched<'s>,
    is_changed: bool,
}

impl<'s> LatchedPage<'s> {
    /// The frame with its page.
    pub(in crate::page) fn resident(&self) -> ResidentPage<'s> {
        self.resident
    }

    /// The page, or what hangs on its frame, is about to change: readers of the version before will
    /// start again, and no image has the change.
    pub(in crate::page) fn changed(&mut self) {
        self.raise_version();
        // Relaxed, both: latched.
        if self.frame.dirty.load(Ordering::Relaxed) == 0 {
            self.frame.dirty.store(1, Ordering::Relaxed);
        }
    }

    /// Readers of the version before will start again.
    pub(in crate::page) fn raise_version(&mut self) {
        if !self.is_changed {
            self.is_changed = true;
            self.latched.changed();
        }
    }

    /// The version that the page will have when its latch is let go of, if nothing else is done to it before.
    pub(in crate::page) fn version_after(&self) -> LatchVersion {
        self.latched.version_after()
    }

    /// Takes off what hangs on the frame, of a page that is about to leave.
    pub(in crate::page) fn take_mapping(&mut self) -> u64 {
        self.raise_version();
        let word = self.mapping();
        self.set_mapping(0);
        word
    }

    /// The place of the newest image.
    pub(in crate::page) fn place(&self) -> Option<DiskPlace> {
        // Relaxed: latched.
        DiskPlace::from_word(self.frame.place.load(Ordering::Relaxed))
    }

    /// Notes that the image in `place` is the page as it is; the place of the image before.
    pub(in crate::page) fn set_written(&mut self, place: DiskPlace) -> Option<DiskPlace> {
        let before = self.place();
        // Relaxed, both: latched.
        self.frame.place.store(place.word(), Ordering::Relaxed);
        self.frame.dirty.store(0, Ordering::Relaxed);
        before
    }

    /// Hangs something else on the frame.
    pub(in crate::page) fn set_mapping(&self, word: u64) {
        assert!(self.is_changed);
        // Release pairs with the Acquire in `mapping`.
        self.frame.mapping.store(word, Ordering::Release);
    }

    pub(in crate::page) fn set_reserved_bytes(&self, bytes: usize) {
        // Relaxed: latched.
        self.frame.reserved_bytes.store(bytes as u64, Ordering::Relaxed);
    }

    /// The page id the frame holds.
    pub(in crate::page) fn id(&self) -> PageId {
        // Relaxed: latched.
        PageId::new(self.frame.page.load(Ordering::Relaxed))
    }

    /// Makes the empty frame that of a page.
    pub(super) fn hold(&mut self, id: PageId) {
        // Relaxed, here and below: latched.
        assert_eq!(self.frame.page.load(Ordering::Relaxed), 0, "the frame is free");
        self.changed();
        self.frame.page.store(id.number(), Ordering::Relaxed);
        self.frame.note_use();
    }

    /// Makes the empty frame that of a page that is about to be read from an image.
    pub(super) fn hold_image(&mut self, id: PageId, place: DiskPlace) {
        // Relaxed, here and below: latched.
        assert_eq!(self.frame.page.load(Ordering::Relaxed), 0, "the frame is free");
        self.raise_version();
        self.frame.page.store(id.number(), Ordering::Relaxed);
        self.frame.place.store(place.word(), Ordering::Relaxed);
        self.frame.note_use();
    }

    /// Empties the frame; nothing hangs on it any more.
    pub(super) fn empty(mut self) {
        self.raise_version();
        assert_eq!(self.mapping(), 0, "versions have moved away");
        // Relaxed, all: latched.
        self.frame.page.store(0, Ordering::Relaxed);
        self.frame.dirty.store(0, Ordering::Relaxed);
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
            // Relaxed: latched until after this.
            self.frame.shape.store(self.page.shape().word(), Ordering::Relaxed);
        }
    }
}
