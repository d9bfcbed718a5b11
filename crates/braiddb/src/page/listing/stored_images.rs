//! Images of pages on disk that a checkpoint lists, of a database that this process does not have
//! open.

use std::sync::Arc;

use super::LeafFromFile;
use crate::log::{DirectoryCopy, LogError, WeakLogFiles};
use crate::page::map::DiskPlace;
use crate::page::zone::Zones;

/// The images that a checkpoint lists. Their files are open.
#[derive(Debug)]
pub(crate) struct StoredImages(Arc<Zones>);

impl StoredImages {
    /// Opens the files of a read-only directory.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn open(files: WeakLogFiles, page_bytes: usize) -> Result<Self, LogError> {
        let zones = Zones::new(files, page_bytes);
        zones.open_existing()?;
        Ok(Self(zones))
    }

    /// Adds the image of a leaf. Returns `false` if its place is in no file, or was added already.
    pub(crate) fn add(&self, leaf: &LeafFromFile<'_>) -> bool {
        DiskPlace::from_file(leaf.place).is_some_and(|place| self.0.claim(place.slot))
    }

    /// Copies the images into another directory, with blocking calls. Returns the copied bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn copy_to(&self, copy: &DirectoryCopy<'_>) -> Result<u64, LogError> {
        self.0.copy_to(copy)
    }
}
