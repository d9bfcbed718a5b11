//! Writing pages back, out of place: images go to a run of free places, and when that is done, those pages leave that
//! are as they were when they were copied.
//!
//! Invariants: the place of an image is known to nobody before the image is written, so no page is loaded from a place
//! that is still being written; and a page leaves only if its latch's version is the one it was copied under,
//! so no change is lost that came meanwhile, and a frame that holds another page by now is left alone.
//! The write itself holds images and places until it is over, whatever becomes of the task.

use std::sync::Arc;

use super::error::PageError;
use super::evict::Batch;
use super::map::Place;
use super::space::{FreeFrame, PageSpace};
use super::zone::Run;
use crate::io::AlignedBuffer;
use crate::planted::{Bug, is_planted};
use crate::sync::statistic::Ordering;

/// Images on their way to a run of places.
#[derive(Debug)]
pub(super) struct Images {
    bytes: AlignedBuffer,
    run: Run,
}

impl AsRef<[u8]> for Images {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PageSpace {
    /// Writes images of pages, and lets those leave that have not changed meanwhile; the frame of one of them, if
    /// there is one. The others' are free.
    ///
    /// # Errors
    /// When there is no place for them, or they cannot be written. Then all pages are as before.
    pub(super) async fn write_back<'s>(
        &'s self,
        batch: Batch<'s>,
    ) -> Result<Option<FreeFrame<'s>>, PageError> {
        let zones = self.zones.as_ref().expect("there is one if pages are to leave");
        let run = zones.take(batch.pages.len())?;
        let slot_bytes = zones.slot_bytes();
        let mut bytes = AlignedBuffer::zeroed(run.len() * slot_bytes);
        let mut checksums = Vec::with_capacity(run.len());
        for ((page, version), slot) in batch.pages.iter().zip(bytes.chunks_mut(slot_bytes)) {
            let checksum = page.page.write_image(&mut slot[..self.page_bytes()]);
            // What was copied of a page that has changed meanwhile means nothing, and is nobody's.
            checksums.push(page.validate(*version).is_ok().then_some(checksum));
        }
        if checksums.iter().all(Option::is_none) {
            return Ok(None);
        }
        let images = Arc::new(Images { bytes, run });
        let early = is_planted(Bug::PlaceBeforeImage);
        let left = early.then(|| self.leave_unchanged(&batch, &checksums, &images.run));
        images.run.write(images.clone()).await?;
        // Relaxed, both: statistics.
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.written.fetch_add(checksums.len() as u64, Ordering::Relaxed);
        Ok(left.unwrap_or_else(|| self.leave_unchanged(&batch, &checksums, &images.run)))
    }

    /// Lets those pages leave that are as they were when they were copied to a run, where they are now; the frame of one
    /// of them. `checksums` are those of their images; none of what was copied while it changed.
    fn leave_unchanged<'s>(
        &'s self,
        batch: &Batch<'s>,
        checksums: &[Option<u32>],
        run: &Run,
    ) -> Option<FreeFrame<'s>> {
        let mut frame = None;
        for (number, ((page, version), checksum)) in batch.pages.iter().zip(checksums).enumerate() {
            let Some(checksum) = checksum else { continue };
            let version = match page.frame.latch.version() {
                Ok(now) if is_planted(Bug::PageLeavesThoughChanged) && page.held().is_some() => now,
                _ => *version,
            };
            // Unchanged, for its version never comes back.
            let Ok(mut latched) = page.acquire(version) else { continue };
            let place = Place::new(run.keep(number), *checksum);
            if let Some(before) = latched.set_written(place) {
                self.zones.as_ref().expect("pages leave").free(before.slot);
            }
            let free = self.leave(latched, place);
            frame.get_or_insert(free);
        }
        frame
    }
}
