//! Listings: the image of each leaf of a tree that a checkpoint references, in key order.
//!
//! A listing is fuzzy, like the checkpoint. It is built leaf by leaf (`walk`), and each leaf is
//! listed in its state at one moment. If the leaf's image is current and settled, its place is
//! listed; otherwise a new image is written. New images omit changes that are undecided at that
//! time (`committed`). An omitted change can commit only after the checkpoint began, so it is
//! replayed from the log. So recovery restores the last committed value of each key, regardless of
//! the order in which pages were written.
//!
//! Trees change during a listing. That is safe, because each listed leaf begins where the previous
//! one ended. If a merged leaf now begins below that key, only a part of it is written. Inner pages
//! are not listed; they are rebuilt when the database is opened (`load`).
//!
//! Invariants:
//!
//! - The ranges of the listed leaves are adjacent, without gaps. Each image has exactly its leaf's
//!   range, under an id that no other listed leaf has.
//! - A listed place is not overwritten until a checkpoint that does not list it is published.

mod check;
mod committed;
#[cfg(all(test, not(loom)))]
mod committed_tests;
mod image_writes;
#[cfg(test)]
mod images;
mod load;
#[cfg(all(test, loom))]
mod model;
mod stored_images;
#[cfg(all(test, not(loom)))]
mod tests;
mod walk;

use std::sync::Arc;

pub(crate) use check::ImageCheck;
pub(crate) use load::{LeafFromFile, LoadError, TreeLoader};
pub(crate) use stored_images::StoredImages;
pub(crate) use walk::LeafWalk;

use super::error::PageError;
use super::layout::{KeyBytes, StoredOnPage};
use super::map::{DiskPlace, PageId};
use super::space::PageSpace;
use super::zone::Zones;
use crate::io::File;
use crate::log::LogError;

/// A leaf as a checkpoint lists it.
#[derive(Clone, Debug)]
pub(crate) struct ListedLeaf {
    /// Lowest key of its range, which ends at the next leaf's lowest key.
    pub(crate) low: KeyBytes,
    pub(crate) page: PageId,
    pub(crate) place: DiskPlace,
    pub(crate) stored: StoredOnPage,
}

#[cfg(test)]
impl ListedLeaf {
    /// Creates a leaf that is identified by a number.
    pub(crate) fn numbered(low: KeyBytes, number: u64) -> Self {
        let (page, place) = (PageId::new(number), DiskPlace::new(number * 3, number as u32, true));
        let stored = StoredOnPage { records: number as u16, bytes: 7 };
        Self { low, page, place, stored }
    }
}

/// Leaves that a checkpoint in progress lists, of all trees of a space. If this is dropped before
/// the checkpoint is published, the places of the previous checkpoint stay in use.
#[derive(Debug)]
pub(crate) struct Listing {
    space: Arc<PageSpace>,
    /// Bit map of the page ids that are listed.
    ids: Vec<u64>,
    /// Temporary ids for images of parts of pages.
    made_up: Vec<PageId>,
    images: u64,
    stage: ListingStage,
}

/// Progress of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListingStage {
    BeingWritten,
    /// After a crash, either this checkpoint or the previous one may have the name.
    Named,
    Published,
}

const WORD_BITS: usize = u64::BITS as usize;

impl Listing {
    /// Starts an empty listing; only one may exist at a time.
    ///
    /// # Errors
    /// When syncing a zone failed earlier, because the zone's contents are not reliable then.
    pub(crate) fn begin(space: Arc<PageSpace>) -> Result<Self, PageError> {
        if let Some(error) = space.failed_sync.lock().clone() {
            return Err(error);
        }
        Ok(Self {
            space,
            ids: Vec::new(),
            made_up: Vec::new(),
            images: 0,
            stage: ListingStage::BeingWritten,
        })
    }

    fn zones(&self) -> &Arc<Zones> {
        self.space.zones.as_ref().expect("a database with checkpoints has zones")
    }

    /// Returns the page size in bytes.
    pub(crate) fn page_bytes(&self) -> usize {
        self.space.page_bytes()
    }

    fn has(&self, id: PageId) -> bool {
        let number = id.number() as usize;
        self.ids.get(number / WORD_BITS).is_some_and(|word| word >> (number % WORD_BITS) & 1 != 0)
    }

    fn add(&mut self, id: PageId) {
        assert!(!self.has(id), "an id is listed once");
        let number = id.number() as usize;
        if self.ids.len() <= number / WORD_BITS {
            self.ids.resize(number / WORD_BITS + 1, 0);
        }
        self.ids[number / WORD_BITS] |= 1 << (number % WORD_BITS);
    }

    /// Returns an id that is not listed, and that no page gets until this listing is dropped.
    fn make_up_id(&mut self) -> Result<PageId, PageError> {
        loop {
            let id = self.space.map.take().ok_or(PageError::OutOfPageIds)?;
            // Listed ids are kept too, so that they are not taken again.
            self.made_up.push(id);
            if !self.has(id) {
                return Ok(id);
            }
        }
    }

    /// Returns an id above all listed ids.
    pub(crate) fn id_limit(&self) -> u64 {
        self.space.map.limit()
    }

    /// Returns the number of images written for the listing.
    pub(crate) fn images(&self) -> u64 {
        self.images
    }

    /// Returns the files that must be synced before the checkpoint is published.
    pub(crate) fn files_to_sync(&self) -> Vec<Arc<File>> {
        self.zones().take_unsynced()
    }

    /// Records a failed sync. Images may be lost although they can still be read, so no further
    /// checkpoint is written.
    pub(crate) fn note_failed_sync(&self, error: LogError) -> PageError {
        self.space.failed_sync.lock().get_or_insert(error.into()).clone()
    }

    /// Records that the checkpoint is about to be renamed to its final name.
    pub(crate) fn note_named(&mut self) {
        self.stage = ListingStage::Named;
    }

    /// Records that the checkpoint durably has its final name.
    pub(crate) fn publish(mut self) {
        self.stage = ListingStage::Published;
        self.zones().publish(false);
        self.zones().release();
        self.space.failed_writes.end_delay();
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        match self.stage {
            ListingStage::BeingWritten => self.zones().abandon(),
            // The places of both checkpoints are kept.
            ListingStage::Named => self.zones().publish(true),
            ListingStage::Published => {}
        }
        for id in self.made_up.drain(..) {
            self.space.map.release(id);
        }
    }
}
