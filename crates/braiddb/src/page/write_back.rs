//! Write-back: dirty pages are written out of place and then evicted.
//!
//! Images are written to a run of free places. After the write, the pages that have not changed
//! since they were copied are evicted. A write runs detached (`sched/transfers.rs`), so it finishes
//! even if every operation that waits for it is dropped.
//!
//! Invariants:
//!
//! - The place of an image is published only after the image is written, so no page is loaded from
//!   a place that is still being written.
//! - A page is evicted only if its latch still has the version under which it was copied. No
//!   concurrent change is lost, and a frame that was reused for another page is left alone.
//! - Pages of a batch are marked as being written until the batch is dropped. The batch counts as
//!   in flight before its first page is marked.

use std::sync::Arc;

use super::error::PageError;
use super::frame::LatchedPage;
use super::layout::StoredOnPage;
use super::map::DiskPlace;
use super::space::PageSpace;
use super::zone::PlaceRun;
use crate::io::AlignedBuffer;
use crate::latch::LatchVersion;
use crate::log::LogError;
use crate::planted::{Bug, is_planted};
use crate::sync::ModelMutex;
use crate::sync::statistic::Ordering;

/// Page images that are being written to a run of places.
#[derive(Debug)]
pub(super) struct Images {
    bytes: AlignedBuffer,
    run: PlaceRun,
}

impl Images {
    /// Creates the images, one for each place of the run.
    pub(super) fn new(bytes: AlignedBuffer, run: PlaceRun) -> Self {
        Self { bytes, run }
    }

    pub(super) fn run(&self) -> &PlaceRun {
        &self.run
    }
}

impl AsRef<[u8]> for Images {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Properties of an image that was copied from its page.
#[derive(Clone, Copy, Debug)]
struct CopiedImage {
    checksum: u32,
    is_settled: bool,
    stored: StoredOnPage,
}

/// Dirty pages that are written together. They are marked as being written until this is dropped.
#[derive(Debug)]
pub(super) struct WriteBatch {
    space: Arc<PageSpace>,
    /// Frames of the pages, and the latch versions under which they are written.
    pages: Vec<(u32, LatchVersion)>,
    outcome: WriteOutcome,
}

/// Outcome of a write, set at its end.
#[derive(Clone, Debug)]
pub(super) struct WriteOutcome(Arc<ModelMutex<Option<Result<(), PageError>>>>);

impl WriteOutcome {
    pub(super) fn get(&self) -> Option<Result<(), PageError>> {
        self.0.lock().clone()
    }
}

impl WriteBatch {
    /// Creates an empty batch. Returns `None` if the maximum number of writes is in flight.
    pub(super) fn new(space: Arc<PageSpace>) -> Option<Self> {
        if !space.frame_pool.begin_write() {
            return None;
        }
        let outcome = WriteOutcome(Arc::new(ModelMutex::new(None)));
        Some(Self { space, pages: Vec::new(), outcome })
    }

    /// Adds a page, which the caller has marked.
    pub(super) fn push(&mut self, frame: u32, version: LatchVersion) {
        self.space.frame_pool.add_page_written();
        self.pages.push((frame, version));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Starts to write images of the pages. After the write, pages that were neither changed nor
    /// used in the interim are evicted. The outcome is set before frames are freed and waiters
    /// wake.
    ///
    /// # Errors
    /// When no place is free. Then all pages are unchanged.
    pub(super) fn write(self) -> Result<WriteOutcome, PageError> {
        let space = self.space.clone();
        let zones = space.zones.as_ref().expect("pages are evicted only with zones");
        let outcome = self.outcome.clone();
        let run = zones.take(self.pages.len()).map_err(|error| self.failed(error))?;
        let slot_bytes = zones.slot_bytes();
        let mut bytes = AlignedBuffer::zeroed(run.len() * slot_bytes);
        let mut copied = Vec::with_capacity(run.len());
        for ((number, version), slot) in self.pages.iter().zip(bytes.chunks_mut(slot_bytes)) {
            let page = space.frame(*number);
            let is_settled = page.may_be_listed();
            let checksum = page.page.write_image(&mut slot[..space.page_bytes()]);
            let image = CopiedImage { checksum, is_settled, stored: page.page.stored() };
            // A copy is invalid if its page has changed during the copy.
            copied.push(page.validate(*version).is_ok().then_some(image));
        }
        if copied.iter().all(Option::is_none) {
            drop(self);
            return Ok(outcome);
        }
        let images = Arc::new(Images { bytes, run });
        let early = is_planted(Bug::PlaceBeforeImage);
        if early {
            self.leave_unchanged(&copied, &images.run);
        }
        images.clone().run.write_then(images.clone(), move |written| {
            if let Err(error) = written {
                *self.outcome.0.lock() = Some(Err(self.failed(error)));
                return;
            }
            self.space.failed_writes.note_success();
            // Relaxed, both: statistics.
            let counters = &self.space.counters;
            counters.writes.fetch_add(1, Ordering::Relaxed);
            counters.written.fetch_add(copied.len() as u64, Ordering::Relaxed);
            if !early {
                self.leave_unchanged(&copied, &images.run);
            }
        });
        Ok(outcome)
    }

    fn failed(&self, error: LogError) -> PageError {
        let error = error.into();
        self.space.failed_writes.note(&error);
        error
    }

    /// Records the new places of pages that have not changed since they were copied, and evicts
    /// those that were not used. Used pages stay resident and are clean. `copied` has the images,
    /// and `None` for each page that changed while it was copied.
    fn leave_unchanged(&self, copied: &[Option<CopiedImage>], run: &PlaceRun) {
        let pager = self.space.pager.lock();
        for (number, ((frame, version), image)) in self.pages.iter().zip(copied).enumerate() {
            let Some(image) = image else { continue };
            let page = self.space.frame(*frame);
            let version = match page.frame.latch.version_now() {
                Some(now) if is_planted(Bug::PageLeavesThoughChanged) && page.held().is_some() => {
                    now
                }
                _ => *version,
            };
            // The page has not changed, because its latch version never recurs.
            let Ok(mut latched) = page.acquire(version) else { continue };
            let place = DiskPlace::new(run.keep(number), image.checksum, image.is_settled);
            self.space.set_written(&mut latched, place, image.stored);
            if !pager.holds(latched.id()) && !latched.frame.take_use() {
                drop(self.space.leave(latched, place));
            }
        }
    }
}

impl PageSpace {
    /// Records that the image at `place`, with contents `stored`, equals the page. Frees the place
    /// of the previous image.
    pub(super) fn set_written(
        &self,
        page: &mut LatchedPage<'_>,
        place: DiskPlace,
        stored: StoredOnPage,
    ) {
        self.map.set_stored(page.id(), stored);
        if let Some(before) = page.set_written(place) {
            self.zones.as_ref().expect("pages are written").free(before.slot);
        }
    }
}

impl Drop for WriteBatch {
    fn drop(&mut self) {
        self.outcome.0.lock().get_or_insert(Ok(()));
        for (number, _) in &self.pages {
            self.space.frame(*number).frame.end_writing();
        }
        // Last, so that a waiter finds the pages not marked any more.
        self.space.frame_pool.end_write(self.pages.len());
    }
}
