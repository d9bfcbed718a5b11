//! Writing pages back, out of place: images go to a run of free places, and when that is done, those pages leave that
//! are as they were when they were copied.
//!
//! A write runs detached (`sched/storage.rs`): it finishes even if every operation that waits for it is dropped.
//!
//! Invariants: the place of an image is known to nobody before the image is written, so no page is loaded from a place
//! that is still being written; and a page leaves only if its latch's version is the one it was copied under,
//! so no change is lost that came meanwhile, and a frame that holds another page by now is left alone.
//! Pages of a batch are marked as being written until it is dropped, which is under way from before they were.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::PageError;
use super::frame::LatchedPage;
use super::layout::StoredOnPage;
use super::map::DiskPlace;
use super::space::PageSpace;
use super::zone::Run;
use crate::io::AlignedBuffer;
use crate::latch::LatchVersion;
use crate::log::LogError;
use crate::planted::{Bug, is_planted};
use crate::sync::statistic::Ordering;
use crate::sync::{ModelMutex, clock};

/// Images on their way to a run of places.
#[derive(Debug)]
pub(super) struct Images {
    bytes: AlignedBuffer,
    run: Run,
}

impl Images {
    /// Images, one for each place of the run.
    pub(super) fn new(bytes: AlignedBuffer, run: Run) -> Self {
        Self { bytes, run }
    }

    pub(super) fn run(&self) -> &Run {
        &self.run
    }
}

impl AsRef<[u8]> for Images {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What is known of an image that was copied from its page.
#[derive(Clone, Copy, Debug)]
struct CopiedImage {
    checksum: u32,
    is_settled: bool,
    stored: StoredOnPage,
}

/// Dirty pages that are written together; marked as being written until this is dropped.
#[derive(Debug)]
pub(super) struct WriteBatch {
    space: Arc<PageSpace>,
    /// Their frames, and the versions under which they are written.
    pages: Vec<(u32, LatchVersion)>,
    outcome: WriteOutcome,
}

/// What has come of a write, once it is over.
#[derive(Clone, Debug)]
pub(super) struct WriteOutcome(Arc<ModelMutex<Option<Result<(), PageError>>>>);

impl WriteOutcome {
    pub(super) fn get(&self) -> Option<Result<(), PageError>> {
        self.0.lock().clone()
    }
}

/// How long the memory budget has no pages written after a write of pages has failed.
const HOLD_OFF: Duration = Duration::from_secs(1);

/// When a write of pages last failed, if none has succeeded since.
#[derive(Debug)]
pub(super) struct FailedWrites(ModelMutex<Option<Instant>>);

impl FailedWrites {
    pub(super) fn new() -> Self {
        Self(ModelMutex::new(None))
    }

    fn note(&self, error: &PageError) {
        if self.0.lock().replace(clock::now()).is_none() {
            tracing::warn!(
                "pages of paged tables cannot be written, and stay in memory whatever the memory budget says: {error}"
            );
        }
    }

    fn note_success(&self) {
        *self.0.lock() = None;
    }

    /// Whether one failed a short while ago. What happens in a simulation must not depend on time: there, whether one failed and
    /// none has succeeded since.
    pub(super) fn are_recent(&self) -> bool {
        self.0.lock().is_some_and(|last| cfg!(braid_simulation) || clock::now() < last + HOLD_OFF)
    }
}

impl WriteBatch {
    /// No pages yet; `None` if there are enough writes under way.
    pub(super) fn new(space: Arc<PageSpace>) -> Option<Self> {
        if !space.transit.begin_write() {
            return None;
        }
        let outcome = WriteOutcome(Arc::new(ModelMutex::new(None)));
        Some(Self { space, pages: Vec::new(), outcome })
    }

    /// Adds a page, which the caller has marked.
    pub(super) fn push(&mut self, frame: u32, version: LatchVersion) {
        self.space.transit.add_page_written();
        self.pages.push((frame, version));
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Begins to write images of the pages; those leave then that have not changed meanwhile, and were of no use. What
    /// comes of it is told before frames are free, and before those look again who wait for some.
    ///
    /// # Errors
    /// When there is no place for them. Then all pages are as before.
    pub(super) fn write(self) -> Result<WriteOutcome, PageError> {
        let space = self.space.clone();
        let zones = space.zones.as_ref().expect("there is one if pages are to leave");
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
            // What was copied of a page that has changed meanwhile means nothing.
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

    /// Lets those pages leave that are as they were when they were copied to a run, where they are now, and were of no
    /// use meanwhile; those that were are clean. `copied` are their images; none of what was copied while it
    /// changed.
    fn leave_unchanged(&self, copied: &[Option<CopiedImage>], run: &Run) {
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
            // Unchanged, for its version never comes back.
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
    /// Notes that the image in `place`, which has so much, is a page as it is, and gives up the place of the image before.
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
        // Last: who waits then finds the pages not marked any more.
        self.space.transit.end_write(self.pages.len());
    }
}
