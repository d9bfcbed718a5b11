//! A space of pages of one size: their map, their frames, and where the frames' pages lie.

use std::sync::Arc;

use super::error::{Interrupted, PageError};
use super::frame::{Frame, LatchedPage, ResidentPage};
use super::layout::{self, Page, WORD_BYTES};
use super::map::{PageId, PageMap, Whereabouts};
use crate::latch::Restart;
use crate::memory::Reserved;
use crate::sync::SegQueue;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Pages of one size, of any number of trees.
#[derive(Debug)]
pub(crate) struct PageSpace {
    page_words: usize,
    pub(in crate::page) map: PageMap,
    frames: Reserved<Frame>,
    /// The page of frame `n` is the `n`th run of as many words as a page has.
    words: Reserved<AtomicU64>,
    /// The least number of a frame that was never taken, and those that are free again.
    next_frame: AtomicU64,
    free_frames: SegQueue<u32>,
    /// The number of the last cut; the first has number 1.
    cut: AtomicU64,
}

impl PageSpace {
    /// A space of pages of `page_bytes`, of which so many may be in memory, and so many exist.
    ///
    /// # Errors
    /// [`PageError::NoMemory`], when the operating system has no addresses for them.
    pub(crate) fn new(page_bytes: usize, frames: u32, pages: u64) -> Result<Arc<Self>, PageError> {
        assert!(layout::is_page_size(page_bytes));
        let page_words = page_bytes / WORD_BYTES;
        let no_memory = |error: std::io::Error| PageError::NoMemory {
            frames,
            page_bytes,
            reason: error.to_string(),
        };
        Ok(Arc::new(Self {
            page_words,
            map: PageMap::new(pages).map_err(no_memory)?,
            frames: Reserved::new(frames as usize).map_err(no_memory)?,
            words: Reserved::new(frames as usize * page_words).map_err(no_memory)?,
            next_frame: AtomicU64::new(0),
            free_frames: SegQueue::new(),
            cut: AtomicU64::new(1),
        }))
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_words * WORD_BYTES
    }

    /// Bytes of memory that its frames take: those that hold pages, and those that did; theirs is kept for pages to
    /// come.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // Relaxed: a statistic.
        let taken = self.next_frame.load(Ordering::Relaxed).min(self.frames.count() as u64);
        taken * (self.page_bytes() + size_of::<Frame>()) as u64
    }

    /// The number of the last cut.
    pub(in crate::page) fn cut(&self) -> u64 {
        // Acquire pairs with the Release of whoever raises it.
        self.cut.load(Ordering::Acquire)
    }

    #[cfg(test)]
    pub(in crate::page) fn raise_cut(&self) {
        // Release pairs with the Acquire in `cut`.
        self.cut.fetch_add(1, Ordering::Release);
    }

    /// A frame with its page.
    #[inline(always)]
    pub(in crate::page) fn frame(&self, number: u32) -> ResidentPage<'_> {
        let words = self.words.run(number as usize * self.page_words, self.page_words);
        let frame = self.frames.at(number as usize);
        ResidentPage { number, frame, page: Page::of_words(words) }
    }

    /// The frame that a page is in, or was a moment ago.
    #[inline(always)]
    pub(in crate::page) fn resident(&self, id: PageId) -> Result<ResidentPage<'_>, Restart> {
        match self.map.get(id) {
            Whereabouts::Frame(number) => Ok(self.frame(number)),
            Whereabouts::Free => Err(Restart),
        }
    }

    /// Takes a page id and a frame for a new page; never while anything is latched.
    pub(in crate::page) fn take(&self) -> Result<NewPage<'_>, Interrupted> {
        let frame = self.take_frame().ok_or(Interrupted::OutOfFrames)?;
        let Some(id) = self.map.take() else {
            self.free_frames.push(frame);
            return Err(Interrupted::OutOfPageIds);
        };
        Ok(NewPage { space: self, id, frame, is_used: false })
    }

    fn take_frame(&self) -> Option<u32> {
        if let Some(frame) = self.free_frames.pop() {
            return Some(frame);
        }
        let limit = self.frames.count() as u64;
        // Relaxed, both: only uniqueness matters.
        if self.next_frame.load(Ordering::Relaxed) >= limit {
            return None;
        }
        let number = self.next_frame.fetch_add(1, Ordering::Relaxed);
        (number < limit).then_some(number as u32)
    }

    /// Takes a page out of the space, to which nothing leads any more, and on whose frame nothing hangs.
    pub(in crate::page) fn free(&self, page: LatchedPage<'_>) {
        let (id, number) = (page.id(), page.number);
        self.map.set(id, Whereabouts::Free);
        page.empty();
        self.free_frames.push(number);
        self.map.give_back(id);
    }

    /// What to tell a caller that can go on only when there is more room.
    pub(in crate::page) fn error(&self, interrupted: Interrupted) -> Option<PageError> {
        match interrupted {
            Interrupted::Restart => None,
            Interrupted::OutOfFrames => {
                let frames = self.frames.count() as u64;
                Some(PageError::OutOfFrames { frames, page_bytes: self.page_bytes() })
            }
            Interrupted::OutOfPageIds => Some(PageError::OutOfPageIds),
        }
    }

    /// Frames that hold a page, while nobody changes that.
    #[cfg(test)]
    pub(in crate::page) fn frames_in_use(&self) -> u64 {
        let frames = (0..self.frames.count()).filter(|number| self.frames.at(*number).holds_page());
        frames.count() as u64
    }
}

/// A page id and a frame for it, taken before anything is latched; given back if they are not used.
#[derive(Debug)]
pub(in crate::page) struct NewPage<'s> {
    space: &'s PageSpace,
    id: PageId,
    frame: u32,
    is_used: bool,
}

impl<'s> NewPage<'s> {
    pub(in crate::page) fn id(&self) -> PageId {
        self.id
    }

    /// Makes them a page, latched, that the map leads to; nothing else does yet. `cut` as in
    /// [`LatchedPage::changed`].
    pub(in crate::page) fn into_latched(mut self, cut: u64) -> LatchedPage<'s> {
        self.is_used = true;
        let frame = self.space.frame(self.frame);
        // The frame is free, so nobody latches it: who comes by an old way finds another page id.
        let version = frame.frame.latch.version().expect("frames are never obsolete");
        let mut latched = frame.acquire(version).expect("nobody else latches a free frame");
        latched.hold(self.id, cut);
        self.space.map.set(self.id, Whereabouts::Frame(self.frame));
        latched
    }
}

impl Drop for NewPage<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.space.free_frames.push(self.frame);
            self.space.map.give_back(self.id);
        }
    }
}
