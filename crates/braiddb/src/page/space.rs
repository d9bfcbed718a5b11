//! A space of pages of one size: their map, their frames, where the frames' pages lie, and the zones to which pages
//! go that leave memory.

use std::sync::Arc;

use super::error::{Interrupted, PageError};
use super::evict::Pager;
use super::fault::Loads;
use super::frame::{Frame, LatchedPage, ResidentPage};
use super::frame_pool::{Transit, UnderWay};
use super::layout::{self, Page, WORD_BYTES};
use super::map::{PageId, PageMap, Whereabouts};
use super::tree::PagesToFree;
use super::versions::{Mapping, Orphans};
use super::write_back::FailedWrites;
use super::zone::{HolesFrom, Zones};
use crate::log::{DirectoryCopy, LogError, WeakLogFiles};
use crate::memory::Reserved;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{ModelMutex, statistic};

/// Pages of one size, of any number of trees.
#[derive(Debug)]
pub(crate) struct PageSpace {
    page_words: usize,
    pub(in crate::page) map: PageMap,
    frames: Reserved<Frame>,
    /// The page of frame `n` is the `n`th run of as many words as a page has.
    words: Reserved<AtomicU64>,
    /// Of the first frames, so many, the pages may not be made parts of large pages of the operating system's.
    kept_small: AtomicU64,
    pub(super) pager: ModelMutex<Pager>,
    /// Free frames, and what is under way that brings about more.
    pub(super) transit: Transit,
    pub(super) loads: Loads,
    pub(super) orphans: Orphans,
    /// What is to be given back of trees that nobody uses any more.
    pub(super) to_free: ModelMutex<Vec<PagesToFree>>,
    /// Where pages go that leave memory; without, all stay.
    pub(super) zones: Option<Arc<Zones>>,
    pub(super) failed_writes: FailedWrites,
    /// Why a zone could not be made durable, if one could not.
    pub(super) failed_sync: ModelMutex<Option<PageError>>,
    pub(super) counters: PageCounters,
}

/// What was done with the pages of a space.
#[derive(Debug, Default)]
pub(super) struct PageCounters {
    pub(super) loaded: statistic::AtomicU64,
    pub(super) evicted: statistic::AtomicU64,
    /// Of these, inner pages.
    pub(super) inner_loaded: statistic::AtomicU64,
    pub(super) inner_evicted: statistic::AtomicU64,
    pub(super) written: statistic::AtomicU64,
    pub(super) writes: statistic::AtomicU64,
    /// Frames that were needed when all that may have memory held pages, since that was last taken notice of.
    pub(super) wanted: statistic::AtomicU64,
}

/// How full a space of pages is, and what was done with them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageStats {
    pub(crate) page_bytes: u64,
    /// Pages that may be in memory.
    pub(crate) frames: u64,
    /// Pages in memory, and how many of them have changes that are in no image.
    pub(crate) resident: u64,
    pub(crate) dirty: u64,
    /// Pages that are not in memory, of whose records there are versions.
    pub(crate) orphaned: u64,
    /// Pages that were loaded.
    pub(crate) loaded: u64,
    /// Pages that left memory.
    pub(crate) evicted: u64,
    /// Of these, inner pages.
    pub(crate) inner_loaded: u64,
    pub(crate) inner_evicted: u64,
    /// Images that were written, and in how many pieces.
    pub(crate) written: u64,
    pub(crate) writes: u64,
    /// Bytes on disk that belong to pages.
    pub(crate) zone_bytes: u64,
}

impl PageSpace {
    /// A space of pages of `page_bytes`, of which so many may be in memory, and so many exist; those that are not in
    /// memory are in zones beside the log, or all stay.
    ///
    /// # Errors
    /// [`PageError::NoMemory`], when the operating system has no addresses for them; what it says of zones that there are.
    pub(crate) fn new(
        page_bytes: usize,
        frames: u32,
        pages: u64,
        files: Option<WeakLogFiles>,
    ) -> Result<Arc<Self>, PageError> {
        let zones = files.map(|files| Zones::new(files, page_bytes));
        if let Some(zones) = &zones {
            zones.open_existing()?;
        }
        Self::with_zones(page_bytes, frames, pages, zones)
    }

    /// The same, with these zones.
    pub(super) fn with_zones(
        page_bytes: usize,
        frames: u32,
        pages: u64,
        zones: Option<Arc<Zones>>,
    ) -> Result<Arc<Self>, PageError> {
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
            kept_small: AtomicU64::new(0),
            pager: ModelMutex::new(Pager::default()),
            transit: Transit::new(frames),
            loads: Loads::new(),
            orphans: Orphans::new(),
            to_free: ModelMutex::new(Vec::new()),
            zones,
            failed_writes: FailedWrites::new(),
            failed_sync: ModelMutex::new(None),
            counters: PageCounters::default(),
        }))
    }

    /// Bytes that a frame takes with a page of so many bytes.
    pub(crate) fn frame_bytes(page_bytes: usize) -> u64 {
        (page_bytes + size_of::<Frame>()) as u64
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_words * WORD_BYTES
    }

    /// Bytes of memory that frames take with their pages: those that hold pages, and those that did; theirs is kept for pages to
    /// come, unless more take memory than may.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.transit.with_memory().0 * Self::frame_bytes(self.page_bytes())
    }

    /// Bytes of memory that it takes besides, whatever leaves: the map's words, and frames whose pages' memory was given back.
    pub(crate) fn fixed_bytes(&self) -> u64 {
        self.map.memory_bytes() + self.transit.parked() * size_of::<Frame>() as u64
    }

    /// Lets its frames take so many bytes of memory. More than the limit are given back by [`Self::shrink`].
    pub(crate) fn set_memory_limit(&self, bytes: u64) {
        let frames = (bytes / Self::frame_bytes(self.page_bytes())).min(self.frames());
        self.transit.set_limit(frames as u32);
    }

    /// Frames that were needed when all that may have memory held pages, since [`Self::take_wanted`].
    pub(crate) fn wanted(&self) -> u64 {
        // Relaxed: a statistic.
        self.counters.wanted.load(statistic::Ordering::Relaxed)
    }

    /// The same, taken notice of.
    pub(crate) fn take_wanted(&self) -> u64 {
        // Relaxed: a statistic.
        self.counters.wanted.swap(0, statistic::Ordering::Relaxed)
    }

    /// Pages that an operation may bring to memory at once before it needs them.
    pub(crate) fn most_ahead(&self) -> usize {
        /// The rest is for what others need.
        const PART: u64 = 8;
        let (_, limit) = self.transit.with_memory();
        (limit / PART) as usize
    }

    /// How much has ended that was under way and may let more pages leave.
    pub(crate) fn ended(&self) -> u64 {
        self.transit.ended()
    }

    /// Whether frames have more memory than they may.
    pub(crate) fn has_surplus(&self) -> bool {
        self.transit.has_surplus()
    }

    /// Gives the memory of a frame back that is the caller's, and holds no page.
    pub(super) fn park(&self, number: u32) {
        // Relaxed: a number that only grows; who sees an older one does it once more.
        if self.kept_small.load(Ordering::Relaxed) <= u64::from(number) {
            // All that were taken so far at once: so it is done seldom, and what is taken later is on large pages.
            let taken = self.frames_taken() as usize;
            let words = self.words.keep_small(taken * self.page_words);
            self.kept_small.fetch_max((words / self.page_words) as u64, Ordering::Relaxed);
        }
        self.words.discard(number as usize * self.page_words, self.page_words);
        self.transit.park(number);
    }

    /// Frames there are.
    pub(super) fn frames(&self) -> u64 {
        self.frames.count() as u64
    }

    /// Frames that were taken once; the others hold no page.
    pub(super) fn frames_taken(&self) -> u64 {
        self.transit.frames_taken()
    }

    /// How full it is, and what was done. Looks at all frames.
    pub(crate) fn stats(&self) -> PageStats {
        let (mut resident, mut dirty) = (0, 0);
        for number in 0..self.frames_taken() {
            let frame = self.frames.at(number as usize);
            resident += u64::from(frame.holds_page());
            dirty += u64::from(frame.holds_page() && frame.is_dirty());
        }
        // Relaxed: statistics.
        let counted = |counter: &statistic::AtomicU64| counter.load(statistic::Ordering::Relaxed);
        PageStats {
            page_bytes: self.page_bytes() as u64,
            frames: self.transit.with_memory().1,
            resident,
            dirty,
            orphaned: self.orphans.count(),
            loaded: counted(&self.counters.loaded),
            evicted: counted(&self.counters.evicted),
            inner_loaded: counted(&self.counters.inner_loaded),
            inner_evicted: counted(&self.counters.inner_evicted),
            written: counted(&self.counters.written),
            writes: counted(&self.counters.writes),
            zone_bytes: self.zones.as_ref().map_or(0, |zones| zones.bytes()),
        }
    }

    /// Bytes that zones grow by, at most, for the images of the next checkpoint; and for those of the one after it. All pages that
    /// may be in memory may have changed, and so many bytes of others may come to be before.
    pub(crate) fn images_of_checkpoints(&self, more: u64) -> [u64; 2] {
        let Some(zones) = &self.zones else { return [0; 2] };
        let (_, frames) = self.transit.with_memory();
        let [taken, free] = zones.places();
        let more = more.div_ceil(self.page_bytes() as u64);
        let pages = self.map.pages();
        let changed = frames.min(pages) + more;
        let next = changed.saturating_sub(free);
        // Then each page has one place, and what the newest checkpoint leads to is free as well.
        let free = (taken + free + next).saturating_sub(pages + more);
        let after = changed.saturating_sub(free);
        [next, after].map(|images| images * zones.slot_bytes() as u64)
    }

    /// Bytes of the files that pages are in, about.
    pub(crate) fn zone_file_bytes(&self) -> u64 {
        let bytes =
            |zones: &Arc<Zones>| zones.places().iter().sum::<u64>() * zones.slot_bytes() as u64;
        self.zones.as_ref().map_or(0, bytes)
    }

    /// Gives some of the room back that lies free inside the files, and is more than the images of all pages take, and returns how
    /// many bytes; `None` if nothing is left to be done.
    pub(crate) fn give_back_between(&self, from: &mut HolesFrom) -> Option<u64> {
        self.zones.as_ref()?.give_back_between(from, self.map.pages())
    }

    /// Copies the images that the published checkpoint leads to into another directory, with blocking calls, while no other is
    /// published; returns how many bytes these are.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn copy_images_to(&self, copy: &DirectoryCopy<'_>) -> Result<u64, LogError> {
        self.zones.as_ref().map_or(Ok(0), |zones| zones.copy_to(copy))
    }

    /// Whether pages have somewhere to go.
    pub(crate) fn may_leave(&self) -> bool {
        self.zones.is_some()
    }

    /// Whether images could not be written a short while ago, as on a full disk.
    pub(crate) fn has_failed_lately(&self) -> bool {
        self.failed_writes.are_recent()
    }

    /// Removes the files of pages that are not in memory, when nobody uses any page any more.
    pub(crate) fn remove_zones(&self) {
        self.zones.iter().for_each(|zones| zones.remove());
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
    pub(in crate::page) fn resident(&self, id: PageId) -> Result<ResidentPage<'_>, Interrupted> {
        match self.map.get(id) {
            Whereabouts::Frame(number) => Ok(self.frame(number)),
            Whereabouts::Free => Err(Interrupted::Restart),
            Whereabouts::Loading | Whereabouts::OnDisk(_) => Err(Interrupted::Absent(id)),
        }
    }

    /// Takes a page id and a frame for a new page, one of `needed`; never while anything is latched.
    pub(in crate::page) fn take(&self, needed: usize) -> Result<NewPage<'_>, Interrupted> {
        let frame = self.take_frame().ok_or(Interrupted::OutOfFrames { needed })?;
        let id = self.map.take().ok_or(Interrupted::OutOfPageIds)?;
        Ok(NewPage { id: Some(id), frame })
    }

    /// A free frame, if there is one.
    pub(super) fn take_frame(&self) -> Option<FreeFrame<'_>> {
        let (number, under_way) = self.transit.take()?;
        Some(FreeFrame { space: self, number: Some(number), _under_way: under_way })
    }

    /// Takes a page out of the space, to which nothing leads any more, and on whose frame nothing hangs.
    pub(in crate::page) fn free(&self, page: LatchedPage<'_>) {
        let (id, number, place) = (page.id(), page.number, page.place());
        let under_way = self.transit.begin();
        self.map.set(id, Whereabouts::Free);
        page.empty();
        drop(FreeFrame { space: self, number: Some(number), _under_way: under_way });
        self.map.give_back(id);
        if let (Some(zones), Some(place)) = (&self.zones, place) {
            zones.free(place.slot);
        }
    }

    /// Empties a frame whose page has left memory, or never came to be there.
    pub(super) fn empty(&self, page: LatchedPage<'_>) -> FreeFrame<'_> {
        let (number, under_way) = (page.number, self.transit.begin());
        page.empty();
        FreeFrame { space: self, number: Some(number), _under_way: under_way }
    }

    /// What to tell a caller that can go on only when there is more room; `None` if it can go on by itself, perhaps
    /// after waiting.
    pub(in crate::page) fn error(&self, interrupted: Interrupted) -> Option<PageError> {
        match interrupted {
            Interrupted::Restart | Interrupted::Absent(_) => None,
            Interrupted::OutOfFrames { .. } if self.zones.is_some() => None,
            Interrupted::OutOfFrames { .. } => Some(self.out_of_frames()),
            Interrupted::OutOfPageIds => Some(PageError::OutOfPageIds),
        }
    }

    pub(super) fn contended(&self) -> PageError {
        PageError::Contended { frames: self.frames(), page_bytes: self.page_bytes() }
    }

    pub(super) fn out_of_frames(&self) -> PageError {
        PageError::OutOfFrames { frames: self.frames(), page_bytes: self.page_bytes() }
    }

    /// Frames that hold a page, while nobody changes that.
    #[cfg(test)]
    pub(in crate::page) fn frames_in_use(&self) -> u64 {
        let frames = (0..self.frames.count()).filter(|number| self.frames.at(*number).holds_page());
        frames.count() as u64
    }
}

impl Drop for PageSpace {
    fn drop(&mut self) {
        if self.to_free.lock().is_empty() {
            return;
        }
        // SAFETY: all trees are gone; of those that gave all of their pages back, nothing hangs anywhere; what does is of
        // those whose pages are on the list, which keeps what counts it.
        let free = |word| unsafe { Mapping::free(word) };
        for number in 0..self.frames_taken() {
            free(self.frame(number as u32).mapping());
        }
        self.orphans.take_all(free);
    }
}

/// A frame that holds no page, and is the holder's; given back if it is not used.
#[derive(Debug)]
pub(in crate::page) struct FreeFrame<'s> {
    space: &'s PageSpace,
    /// None once it is used.
    number: Option<u32>,
    /// Dropped last: who waits for a frame then finds this one, or the page that it holds.
    _under_way: UnderWay<'s>,
}

impl<'s> FreeFrame<'s> {
    /// Latches the frame, to be filled.
    pub(super) fn latch(&self) -> LatchedPage<'s> {
        let frame = self.space.frame(self.number.expect("not used yet"));
        // The frame is free, so nobody latches it: who comes by an old way finds another page id.
        let version = frame.frame.latch.version().expect("frames are never obsolete");
        frame.acquire(version).expect("nobody else latches a free frame")
    }

    /// The frame holds a page now.
    pub(super) fn used(mut self) {
        self.number = None;
    }
}

impl Drop for FreeFrame<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            match self.space.transit.has_surplus() {
                true => self.space.park(number),
                false => self.space.transit.give_back(number),
            }
        }
    }
}

/// A page id and a frame for it, taken before anything is latched; given back if they are not used.
#[derive(Debug)]
pub(in crate::page) struct NewPage<'s> {
    /// None once it is used.
    id: Option<PageId>,
    frame: FreeFrame<'s>,
}

impl<'s> NewPage<'s> {
    pub(in crate::page) fn id(&self) -> PageId {
        self.id.expect("not used yet")
    }

    /// Makes them a page, latched, that the map leads to; nothing else does yet.
    pub(in crate::page) fn into_latched(mut self) -> LatchedPage<'s> {
        let id = self.id.take().expect("used once");
        let mut latched = self.frame.latch();
        latched.hold(id);
        self.frame.space.map.set(id, Whereabouts::Frame(latched.number));
        self.frame.number = None;
        latched
    }
}

impl Drop for NewPage<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.frame.space.map.give_back(id);
        }
    }
}
