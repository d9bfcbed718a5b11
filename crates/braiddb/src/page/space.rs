//! Page space: pages of one size with their map, their frames, and the zones for evicted pages.

use std::sync::Arc;

use super::error::{Interrupted, PageError};
use super::eviction_clock::EvictionClock;
use super::failed_writes::FailedWrites;
use super::frame::{Frame, ImageDemand, LatchedPage, ResidentPage};
use super::frame_pool::{FramePool, FramePoolActivity};
use super::layout::{self, Page, WORD_BYTES};
use super::loads::PageLoads;
use super::map::{PageId, PageLocation, PageMap};
use super::versions::{Mapping, Orphans};
use super::zone::{HoleSearch, Zones};
use crate::log::{DirectoryCopy, LogError, WeakLogFiles};
use crate::memory::{MemoryCounters, Reserved};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{ModelMutex, statistic};

/// Bounds of [`PageSpace::image_step`].
const MIN_IMAGE_STEP: u64 = 8;
const MAX_IMAGE_STEP: u64 = if cfg!(any(test, braid_simulation)) { 32 } else { 1024 };

/// Pages of one size, of any number of trees.
#[derive(Debug)]
pub(crate) struct PageSpace {
    page_words: usize,
    pub(in crate::page) map: PageMap,
    frames: Reserved<Frame>,
    /// Page contents: the page of frame `n` is the `n`th run of words of the size of a page.
    words: Reserved<AtomicU64>,
    /// Number of leading frames whose pages the operating system may not merge into huge pages.
    kept_small: AtomicU64,
    pub(super) pager: ModelMutex<EvictionClock>,
    /// Free frames, and counters of the activities that may free more.
    pub(super) frame_pool: FramePool,
    pub(super) loads: PageLoads,
    pub(super) orphans: Orphans,
    /// Pages of dropped trees that must be freed.
    pub(super) to_free: ModelMutex<Vec<PagesToFree>>,
    /// Zones for evicted pages; without zones all pages stay resident.
    pub(super) zones: Option<Arc<Zones>>,
    pub(super) failed_writes: FailedWrites,
    /// Error of the last zone sync that failed, if any.
    pub(super) failed_sync: ModelMutex<Option<PageError>>,
    pub(super) counters: PageCounters,
    images: ImageDemand,
}

/// Pages of a dropped tree that must be freed, together with all pages below them.
#[derive(Debug)]
pub(super) struct PagesToFree {
    /// Page ids with their levels.
    pub(super) pages: Vec<(PageId, u8)>,
    /// Counters of the mapping tables on their frames, which must outlive these.
    pub(super) _memory: Option<Arc<MemoryCounters>>,
}

/// Counters of page operations of a space.
#[derive(Debug, Default)]
pub(super) struct PageCounters {
    pub(super) loaded: statistic::AtomicU64,
    pub(super) evicted: statistic::AtomicU64,
    /// Inner pages among them.
    pub(super) inner_loaded: statistic::AtomicU64,
    pub(super) inner_evicted: statistic::AtomicU64,
    pub(super) written: statistic::AtomicU64,
    pub(super) writes: statistic::AtomicU64,
    /// Frames that were needed while all frames with memory held pages, since the last
    /// [`PageSpace::take_wanted`].
    pub(super) wanted: statistic::AtomicU64,
}

/// Fill level of a page space, and counters of its operations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PageSpaceStats {
    pub(crate) page_bytes: u64,
    /// Maximum number of resident pages.
    pub(crate) frames: u64,
    /// Number of resident pages, and how many of them are dirty.
    pub(crate) resident: u64,
    pub(crate) dirty: u64,
    /// Number of pages with version chains that are not resident.
    pub(crate) orphaned: u64,
    /// Number of pages loaded.
    pub(crate) loaded: u64,
    /// Number of pages evicted.
    pub(crate) evicted: u64,
    /// Number of inner pages among them.
    pub(crate) inner_loaded: u64,
    pub(crate) inner_evicted: u64,
    /// Number of images written, and number of write operations.
    pub(crate) written: u64,
    pub(crate) writes: u64,
    /// Bytes of pages on disk, and of the disk blocks of their files.
    pub(crate) zone_bytes: u64,
    pub(crate) file_bytes: u64,
}

impl PageSpace {
    /// Creates a space of at most `pages` pages of `page_bytes`, of which at most `frames` are
    /// resident. Pages that are not resident are in zones next to the log. Without `files` all
    /// pages stay resident.
    ///
    /// # Errors
    /// [`PageError::NoMemory`], when the operating system cannot reserve address space; and errors
    /// of opening existing zones.
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

    /// Creates a space with these zones.
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
            pager: ModelMutex::new(EvictionClock::default()),
            frame_pool: FramePool::new(frames),
            loads: PageLoads::new(),
            orphans: Orphans::new(),
            to_free: ModelMutex::new(Vec::new()),
            zones,
            failed_writes: FailedWrites::new(),
            failed_sync: ModelMutex::new(None),
            counters: PageCounters::default(),
            images: ImageDemand::default(),
        }))
    }

    /// Returns the bytes that a frame takes, including its page.
    pub(crate) fn frame_bytes(page_bytes: usize) -> u64 {
        (page_bytes + size_of::<Frame>()) as u64
    }

    /// Returns the page size in bytes.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_words * WORD_BYTES
    }

    /// Returns the bytes of all frames with memory, including their pages. Free frames keep their
    /// memory unless the limit is exceeded.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.frame_pool.with_memory().0 * Self::frame_bytes(self.page_bytes())
    }

    /// Returns the memory that eviction does not reduce: the map's words, and the headers of parked
    /// frames.
    pub(crate) fn fixed_bytes(&self) -> u64 {
        self.map.memory_bytes() + self.frame_pool.parked() * size_of::<Frame>() as u64
    }

    /// Limits the memory of frames to `bytes`. [`Self::shrink`] returns the excess to the operating
    /// system.
    pub(crate) fn set_memory_limit(&self, bytes: u64) {
        let frames = (bytes / Self::frame_bytes(self.page_bytes())).min(self.frames());
        self.frame_pool.set_limit(frames as u32);
    }

    /// Returns the number of frames that were needed while all frames with memory held pages, since
    /// [`Self::take_wanted`].
    pub(crate) fn wanted(&self) -> u64 {
        // Relaxed: a statistic.
        self.counters.wanted.load(statistic::Ordering::Relaxed)
    }

    /// Returns and resets that number.
    pub(crate) fn take_wanted(&self) -> u64 {
        // Relaxed: a statistic.
        self.counters.wanted.swap(0, statistic::Ordering::Relaxed)
    }

    /// Returns the maximum number of pages that an operation may prefetch at the same time.
    pub(crate) fn max_prefetched_pages(&self) -> usize {
        /// The remaining frames are for the current needs of operations.
        const PREFETCH_DIVISOR: u64 = 8;
        let (_, limit) = self.frame_pool.with_memory();
        (limit / PREFETCH_DIVISOR) as usize
    }

    /// Returns the number of ended activities that may allow more evictions.
    pub(crate) fn ended(&self) -> u64 {
        self.frame_pool.ended()
    }

    /// Returns whether frames have more memory than the limit allows.
    pub(crate) fn has_surplus(&self) -> bool {
        self.frame_pool.has_surplus()
    }

    /// Returns the memory of an empty frame that the caller owns to the operating system.
    pub(super) fn park(&self, number: u32) {
        // Relaxed: a number that only grows; a task that sees an older one repeats the call.
        if self.kept_small.load(Ordering::Relaxed) <= u64::from(number) {
            // Covers all frames taken so far, so that the call is rare and frames taken later use
            // huge pages.
            let taken = self.frames_taken() as usize;
            let words = self.words.keep_small(taken * self.page_words);
            self.kept_small.fetch_max((words / self.page_words) as u64, Ordering::Relaxed);
        }
        self.words.discard(number as usize * self.page_words, self.page_words);
        self.frame_pool.park(number);
    }

    /// Returns the total number of frames.
    pub(super) fn frames(&self) -> u64 {
        self.frames.count() as u64
    }

    /// Returns the number of frames that were ever taken; the others hold no page.
    pub(super) fn frames_taken(&self) -> u64 {
        self.frame_pool.frames_taken()
    }

    /// Returns the fill level and the counters. Examines all frames.
    pub(crate) fn stats(&self) -> PageSpaceStats {
        let (mut resident, mut dirty) = (0, 0);
        for number in 0..self.frames_taken() {
            let frame = self.frames.at(number as usize);
            resident += u64::from(frame.holds_page());
            dirty += u64::from(frame.holds_page() && frame.is_dirty());
        }
        // Relaxed: statistics.
        let counted = |counter: &statistic::AtomicU64| counter.load(statistic::Ordering::Relaxed);
        let (zone_bytes, file_bytes) = self.zones.as_ref().map_or((0, 0), |zones| zones.bytes());
        PageSpaceStats {
            page_bytes: self.page_bytes() as u64,
            frames: self.frame_pool.with_memory().1,
            resident,
            dirty,
            orphaned: self.orphans.count(),
            loaded: counted(&self.counters.loaded),
            evicted: counted(&self.counters.evicted),
            inner_loaded: counted(&self.counters.inner_loaded),
            inner_evicted: counted(&self.counters.inner_evicted),
            written: counted(&self.counters.written),
            writes: counted(&self.counters.writes),
            zone_bytes,
            file_bytes,
        }
    }

    /// Returns the number of images that a checkpoint may have to write now: of pages that are dirty
    /// or have versions.
    pub(crate) fn images_needed(&self) -> u64 {
        self.images.needed() + self.orphans.count()
    }

    /// Returns a number that grows by at least as much as the images that checkpoints need.
    #[inline(always)]
    pub(crate) fn images_demanded(&self) -> u64 {
        self.images.demanded()
    }

    /// Returns whether pages with versions must stay resident, because the disk reserve is not
    /// complete. Their images take places without reducing the images that the next checkpoint
    /// needs.
    pub(super) fn keeps_versions_resident(&self) -> bool {
        self.zones.as_ref().is_some_and(|zones| zones.lacks_reserve())
    }

    /// Returns the number of pages that may become dirty before the disk space for images is
    /// adjusted again: twice this number is reserved.
    pub(crate) fn image_step(&self) -> u64 {
        (self.map.pages() / 2).clamp(MIN_IMAGE_STEP, MAX_IMAGE_STEP)
    }

    /// Returns the growth of the zones in bytes for the images of the next checkpoint, if `more`
    /// images are demanded before. Each takes a place, and then the place of the page's earlier
    /// image is free, unless the newest checkpoint lists it. So later checkpoints need no more than
    /// this.
    pub(crate) fn missing_images(&self, more: u64) -> u64 {
        let Some(zones) = &self.zones else { return 0 };
        let [_, free] = zones.places();
        (self.images_needed() + more).saturating_sub(free) * zones.slot_bytes() as u64
    }

    /// Returns the approximate bytes of the zone files.
    pub(crate) fn zone_file_bytes(&self) -> u64 {
        let bytes =
            |zones: &Arc<Zones>| zones.places().iter().sum::<u64>() * zones.slot_bytes() as u64;
        self.zones.as_ref().map_or(0, bytes)
    }

    /// Returns free extents inside the zone files to the file system, as far as they exceed the
    /// images of the next checkpoint. Returns the freed bytes; `None` when nothing is left to do.
    pub(crate) fn release_holes(&self, from: &mut HoleSearch) -> Option<u64> {
        let keep = self.images_needed() + 2 * self.image_step();
        self.zones.as_ref()?.release_holes(from, keep)
    }

    /// Copies the images that the published checkpoint lists into another directory, with blocking
    /// calls. No other checkpoint may be published during the call. Returns the copied bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn copy_images_to(&self, copy: &DirectoryCopy<'_>) -> Result<u64, LogError> {
        self.zones.as_ref().map_or(Ok(0), |zones| zones.copy_to(copy))
    }

    /// Returns whether pages can be evicted.
    pub(crate) fn may_leave(&self) -> bool {
        self.zones.is_some()
    }

    /// Returns whether a page write failed recently, for example because the disk is full.
    pub(crate) fn has_failed_lately(&self) -> bool {
        self.failed_writes.are_recent()
    }

    /// Returns once whether a page write failed on a full disk after others succeeded. A checkpoint
    /// makes room: it frees the images that only the previous one listed, and the log.
    pub(crate) fn take_disk_full(&self) -> bool {
        self.failed_writes.take_disk_full()
    }

    /// Removes the zone files. No page may be in use any more.
    pub(crate) fn remove_zones(&self) {
        self.zones.iter().for_each(|zones| zones.remove());
    }

    /// Returns a frame with its page.
    #[inline(always)]
    pub(in crate::page) fn frame(&self, number: u32) -> ResidentPage<'_> {
        let words = self.words.run(number as usize * self.page_words, self.page_words);
        let frame = self.frames.at(number as usize);
        ResidentPage { number, frame, page: Page::of_words(words), images: &self.images }
    }

    /// Returns the frame in which a page is, or recently was.
    #[inline(always)]
    pub(in crate::page) fn resident(&self, id: PageId) -> Result<ResidentPage<'_>, Interrupted> {
        match self.map.get(id) {
            PageLocation::Frame(number) => Ok(self.frame(number)),
            PageLocation::Free => Err(Interrupted::Restart),
            PageLocation::Loading | PageLocation::OnDisk(_) => Err(Interrupted::Absent(id)),
        }
    }

    /// Takes a page id and a frame for a new page. The caller needs `needed` frames in total and
    /// must hold no latch.
    pub(in crate::page) fn take(&self, needed: usize) -> Result<NewPage<'_>, Interrupted> {
        let frame = self.take_frame().ok_or(Interrupted::OutOfFrames { needed })?;
        let id = self.map.take().ok_or(Interrupted::OutOfPageIds)?;
        Ok(NewPage { id: Some(id), frame })
    }

    /// Takes a free frame, if one exists.
    pub(super) fn take_frame(&self) -> Option<FreeFrame<'_>> {
        let (number, in_progress) = self.frame_pool.take()?;
        Some(FreeFrame { space: self, number: Some(number), _under_way: in_progress })
    }

    /// Frees an unreachable page whose frame has no mapping table.
    pub(in crate::page) fn free(&self, page: LatchedPage<'_>) {
        let (id, number, place) = (page.id(), page.number, page.place());
        let in_progress = self.frame_pool.begin();
        self.map.set(id, PageLocation::Free);
        page.empty();
        drop(FreeFrame { space: self, number: Some(number), _under_way: in_progress });
        self.map.release(id);
        if let (Some(zones), Some(place)) = (&self.zones, place) {
            zones.free(place.slot);
        }
    }

    /// Empties a frame whose page was evicted or never published.
    pub(super) fn empty(&self, page: LatchedPage<'_>) -> FreeFrame<'_> {
        let (number, in_progress) = (page.number, self.frame_pool.begin());
        page.empty();
        FreeFrame { space: self, number: Some(number), _under_way: in_progress }
    }

    /// Returns the error for a caller that cannot continue without more room. Returns `None` if it
    /// can continue, possibly after waiting.
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

    /// Returns the number of frames that hold a page. The pages must not change during the call.
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
        // SAFETY: all trees are dropped. A tree whose pages were all freed has no mapping table
        // left. The remaining mapping tables belong to trees on the `to_free` list, which keeps
        // their memory counters.
        let free = |word| unsafe { Mapping::free(word) };
        for number in 0..self.frames_taken() {
            free(self.frame(number as u32).mapping());
        }
        self.orphans.take_all(free);
    }
}

/// An empty frame that its holder owns; it returns to the pool if it is not used.
#[derive(Debug)]
pub(in crate::page) struct FreeFrame<'s> {
    space: &'s PageSpace,
    /// `None` after use.
    number: Option<u32>,
    /// Dropped last, so that a waiter for a frame finds this frame free or its page published.
    _under_way: FramePoolActivity<'s>,
}

impl<'s> FreeFrame<'s> {
    /// Latches the frame, to be filled.
    pub(super) fn latch(&self) -> LatchedPage<'s> {
        let frame = self.space.frame(self.number.expect("not used yet"));
        // The frame is free, so no other task latches it: a task with an outdated reference finds
        // another page id.
        let version = frame.frame.latch.version().expect("frames are never obsolete");
        frame.acquire(version).expect("no other task latches a free frame")
    }

    /// Records that the frame holds a page.
    pub(super) fn used(mut self) {
        self.number = None;
    }
}

impl Drop for FreeFrame<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            match self.space.frame_pool.has_surplus() {
                true => self.space.park(number),
                false => self.space.frame_pool.release(number),
            }
        }
    }
}

/// A page id and a frame for it, taken before any latch; both are released if they are not used.
#[derive(Debug)]
pub(in crate::page) struct NewPage<'s> {
    /// `None` after use.
    id: Option<PageId>,
    frame: FreeFrame<'s>,
}

impl<'s> NewPage<'s> {
    pub(in crate::page) fn id(&self) -> PageId {
        self.id.expect("not used yet")
    }

    /// Creates the page, latched. Only the map references it so far.
    pub(in crate::page) fn into_latched(mut self) -> LatchedPage<'s> {
        let id = self.id.take().expect("used once");
        let mut latched = self.frame.latch();
        latched.hold(id);
        self.frame.space.map.set(id, PageLocation::Frame(latched.number));
        self.frame.number = None;
        latched
    }
}

impl Drop for NewPage<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.frame.space.map.release(id);
        }
    }
}
