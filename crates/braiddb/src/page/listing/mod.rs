//! Listings: which image a checkpoint has of each leaf of a tree, in the order of keys.
//!
//! A listing is fuzzy, as a checkpoint is. It is made leaf by leaf (`walk`), each as it is at one moment: the image in its place, if
//! that is the leaf as it is, and settled; else one that is written for it. What is undecided then is not in such an image
//! (`committed`): if it is committed, then after the checkpoint began, and so it is replayed. So from the log, and no matter in
//! which order pages were written, each key comes to be what it is by the last word on it.
//!
//! Trees change meanwhile. That does not matter, as each leaf begins where the one before ended: of a leaf that reaches further
//! down by then, a part is written. Inner pages are not listed: they are made anew when the database is opened (`load`).
//!
//! Invariants: the ranges of the leaves that are listed follow one another without a gap, and each image is of a page whose range is
//! that, under an id that no other leaf is listed with. A place that is listed is not written to until a checkpoint without it is published.

mod check;
mod committed;
#[cfg(all(test, not(loom)))]
mod committed_tests;
#[cfg(test)]
mod images;
mod load;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
mod walk;

use std::sync::Arc;

pub(crate) use check::ImageCheck;
pub(crate) use load::{Listed, LoadError, TreeLoader};
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
    /// The least key that it may have; it has all up to the next one's.
    pub(crate) low: KeyBytes,
    pub(crate) page: PageId,
    pub(crate) place: DiskPlace,
    pub(crate) stored: StoredOnPage,
}

#[cfg(test)]
impl ListedLeaf {
    /// One that is told from others by a number.
    pub(crate) fn numbered(low: KeyBytes, number: u64) -> Self {
        let (page, place) = (PageId::new(number), DiskPlace::new(number * 3, number as u32, true));
        let stored = StoredOnPage { records: number as u16, bytes: 7 };
        Self { low, page, place, stored }
    }
}

/// What a checkpoint that is being written lists, of all trees of a space. If it is dropped before it is published, the
/// checkpoint before stays the one whose places are kept.
#[derive(Debug)]
pub(crate) struct Listing {
    space: Arc<PageSpace>,
    /// A bit for each page id, that is set if a leaf is listed with it.
    ids: Vec<u64>,
    /// Ids of no page, for images that are those of parts of pages.
    made_up: Vec<PageId>,
    images: u64,
    stage: Stage,
}

/// How far a listing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    BeingWritten,
    /// The checkpoint may have its name after a crash, or the one before.
    Named,
    Published,
}

const WORD_BITS: usize = u64::BITS as usize;

impl Listing {
    /// None yet; there is one at a time.
    ///
    /// # Errors
    /// When a zone could not be made durable earlier: what is in it is not to be trusted then.
    pub(crate) fn begin(space: Arc<PageSpace>) -> Result<Self, PageError> {
        if let Some(error) = space.failed_sync.lock().clone() {
            return Err(error);
        }
        Ok(Self {
            space,
            ids: Vec::new(),
            made_up: Vec::new(),
            images: 0,
            stage: Stage::BeingWritten,
        })
    }

    fn zones(&self) -> &Arc<Zones> {
        self.space.zones.as_ref().expect("there are some where there are checkpoints")
    }

    /// Bytes of a page.
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

    /// An id that is not listed, and is no page's until this is dropped.
    fn make_up_id(&mut self) -> Result<PageId, PageError> {
        loop {
            let id = self.space.map.take().ok_or(PageError::OutOfPageIds)?;
            // Those that are listed are kept, too, so that they are not met again.
            self.made_up.push(id);
            if !self.has(id) {
                return Ok(id);
            }
        }
    }

    /// An id above all that are listed.
    pub(crate) fn id_limit(&self) -> u64 {
        self.space.map.limit()
    }

    /// Images that were written for it.
    pub(crate) fn images(&self) -> u64 {
        self.images
    }

    /// Files that are to be made durable before it is published.
    pub(crate) fn files_to_sync(&self) -> Vec<Arc<File>> {
        self.zones().take_unsynced()
    }

    /// Notes that a file could not be made durable: its images may be lost though they can be read, so there are no more checkpoints.
    pub(crate) fn note_failed_sync(&self, error: LogError) -> PageError {
        self.space.failed_sync.lock().get_or_insert(error.into()).clone()
    }

    /// The checkpoint is about to get its name.
    pub(crate) fn note_named(&mut self) {
        self.stage = Stage::Named;
    }

    /// The checkpoint has its name, durably.
    pub(crate) fn publish(mut self) {
        self.stage = Stage::Published;
        self.zones().publish(false);
        self.zones().give_back();
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        match self.stage {
            Stage::BeingWritten => self.zones().abandon(),
            // What both lead to is kept.
            Stage::Named => self.zones().publish(true),
            Stage::Published => {}
        }
        for id in self.made_up.drain(..) {
            self.space.map.give_back(id);
        }
    }
}
