//! Writes of new images for a listing, a few runs of places at a time.
//!
//! A leaf gets its listed place when the write of its image begins. The checkpoint is published only
//! after all writes have succeeded. If a write fails, the listing is dropped, and its places become
//! free when their writes end.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{ListedLeaf, Listing};
use crate::io::AlignedBuffer;
use crate::latch::LatchVersion;
use crate::log::LogError;
use crate::page::error::PageError;
use crate::page::layout::{Page, PageWord, StoredOnPage};
use crate::page::map::DiskPlace;
use crate::page::space::PageSpace;
use crate::page::write_back::Images;
use crate::page::zone::RUN_SLOTS;
use crate::sync::oneshot;

/// An image that must be written.
#[derive(Debug)]
struct PendingImage {
    /// Position of its leaf in the list.
    position: usize,
    image: Vec<u8>,
    checksum: u32,
    /// Frame and version of the page, if the image equals the page at that version.
    page: Option<(u32, LatchVersion)>,
}

/// An image that is being written. Its page had not changed when the write began.
#[derive(Debug)]
struct ImageOfPage {
    /// Number of its place in the run.
    number: usize,
    frame: u32,
    version: LatchVersion,
    place: DiskPlace,
    stored: StoredOnPage,
}

/// A run of images that is being written.
#[derive(Debug)]
struct RunInFlight {
    images: Arc<Images>,
    pages: Vec<ImageOfPage>,
    done: oneshot::Receiver<Result<(), LogError>>,
}

/// Images of a walk that wait to be written, and those that are being written.
#[derive(Debug, Default)]
pub(super) struct ImageWrites {
    pending: Vec<PendingImage>,
    in_flight: VecDeque<RunInFlight>,
}

impl ImageWrites {
    /// Returns the number of images that wait to be written.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Adds an image of a page whose leaf will be at `position` of the list. `from` has the frame and
    /// version of the page, if the image equals it. Returns the image's checksum.
    pub(super) fn push<W: PageWord>(
        &mut self,
        page: Page<'_, W>,
        position: usize,
        from: Option<(u32, LatchVersion)>,
    ) -> u32 {
        let mut image = vec![0; page.bytes()];
        let checksum = page.write_image(&mut image);
        self.pending.push(PendingImage { position, image, checksum, page: from });
        checksum
    }

    /// Begins to write the images that wait, and sets the places of their leaves. Lets at most
    /// `max_writes` runs be written at the same time.
    ///
    /// # Errors
    /// When no place is available, or a write failed.
    pub(super) async fn begin(
        &mut self,
        listing: &mut Listing,
        out: &mut [ListedLeaf],
        max_writes: usize,
    ) -> Result<(), PageError> {
        let (space, zones) = (listing.space.clone(), listing.zones().clone());
        let slot_bytes = zones.slot_bytes();
        while !self.pending.is_empty() {
            // An ended write may free the place that the next one takes.
            self.finish(&space, max_writes - 1).await?;
            let run = zones.take(self.pending.len().min(RUN_SLOTS))?;
            let (count, mut pages) = (run.len(), Vec::new());
            let mut bytes = AlignedBuffer::zeroed(count * slot_bytes);
            let slots = bytes.chunks_mut(slot_bytes);
            for (number, (one, slot)) in self.pending.drain(..count).zip(slots).enumerate() {
                slot[..one.image.len()].copy_from_slice(&one.image);
                let leaf = &mut out[one.position];
                leaf.place = DiskPlace::new(run.slot(number), one.checksum, true);
                zones.list(run.slot(number), true);
                let (place, stored) = (leaf.place, leaf.stored);
                pages.extend(one.page.map(|(frame, version)| ImageOfPage {
                    number,
                    frame,
                    version,
                    place,
                    stored,
                }));
            }
            let images = Arc::new(Images::new(bytes, run));
            let (end, done) = oneshot::channel();
            images.run().write_then(images.clone(), move |written| _ = end.send(written));
            self.in_flight.push_back(RunInFlight { images, pages, done });
            listing.images += count as u64;
        }
        Ok(())
    }

    /// Waits until at most `left` runs are being written.
    ///
    /// # Errors
    /// When a write failed.
    pub(super) async fn finish(&mut self, space: &PageSpace, left: usize) -> Result<(), PageError> {
        while self.in_flight.len() > left
            && let Some(RunInFlight { images, pages, done }) = self.in_flight.pop_front()
        {
            done.await.unwrap_or_else(|oneshot::Canceled| Err(images.run().was_given_up()))?;
            for ImageOfPage { number, frame, version, place, stored } in pages {
                // The page has not changed, because its latch version never recurs.
                if let Ok(mut latched) = space.frame(frame).acquire(version) {
                    images.run().keep(number);
                    space.set_written(&mut latched, place, stored);
                }
            }
        }
        Ok(())
    }

    /// Waits until all writes have ended, and leaves the pages dirty.
    pub(super) async fn give_up(&mut self) {
        while let Some(RunInFlight { done, .. }) = self.in_flight.pop_front() {
            _ = done.await;
        }
    }
}
