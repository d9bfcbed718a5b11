//! Check of the images that a checkpoint lists. Each image must be intact, belong to the page and
//! range with which it is listed, and have committed contents only.

use std::path::Path;

use super::LeafFromFile;
use crate::io::{AlignedBuffer, File, SECTOR_BYTES};
use crate::log::{LogError, LogFiles};
use crate::page::large::LargeValues;
use crate::page::layout::{PageCopy, image_checksum};
use crate::page::map::DiskPlace;
use crate::page::zone;
use crate::rid::TableId;

/// Check of the images of one tree, in key order, with blocking calls.
#[derive(Debug)]
pub(crate) struct ImageCheck {
    files: LogFiles,
    table: TableId,
    page_bytes: usize,
    /// The most recently read zone, with its number.
    zone: Option<(u64, File)>,
    /// The last image and its slot; its range must end where the next one's begins.
    last: Option<(PageCopy, u64)>,
}

impl ImageCheck {
    /// Creates a check of the leaves of a table, or of the pieces of its large values.
    pub(crate) fn new(files: &LogFiles, table: TableId, pieces: bool, page_bytes: usize) -> Self {
        let table = if pieces { LargeValues::pieces_of(table) } else { table };
        Self { files: files.clone(), table, page_bytes, zone: None, last: None }
    }

    /// Checks the image of the next leaf.
    ///
    /// # Errors
    /// Errors of the operating system; and damage of this image, or of the range of the last one.
    pub(crate) fn check(&mut self, leaf: &LeafFromFile<'_>) -> Result<(), LogError> {
        self.end_range(Some(leaf.low))?;
        let Some(place) = DiskPlace::from_file(leaf.place) else {
            let reason = "the place of a leaf makes no sense".to_owned();
            let path = self.files.directory().path().into();
            return Err(LogError::Corrupt { path, offset: 0, reason });
        };
        let image = self.read(place.slot)?;
        let copy = PageCopy::zeros(self.page_bytes);
        let page = copy.page();
        let read = page.read_image(&image[..self.page_bytes], leaf.page);
        let wrong = match read {
            Err(damage) => Some(damage.to_string()),
            Ok(()) if !place.may_be(image_checksum(&image)) => {
                Some("it is a different image of the page than the checkpoint lists".to_owned())
            }
            Ok(()) if page.table() != self.table => Some("it belongs to another table".to_owned()),
            Ok(()) if page.level() != 0 => Some("it is not a leaf".to_owned()),
            Ok(()) if page.low_fence()[..] != *leaf.low => {
                Some("its key range does not begin at the key that the checkpoint lists".to_owned())
            }
            Ok(()) if page.stored() != leaf.stored => {
                Some("its number or bytes of records differ from the checkpoint".to_owned())
            }
            Ok(()) => page.find_disorder().map(str::to_owned),
        };
        match wrong {
            Some(reason) => Err(self.damaged(place.slot, reason)),
            None => {
                self.last = Some((copy, place.slot));
                Ok(())
            }
        }
    }

    /// Checks that the range of the last image is unbounded.
    ///
    /// # Errors
    /// The damage of the last image.
    pub(crate) fn finish(mut self) -> Result<(), LogError> {
        self.end_range(None)
    }

    fn end_range(&mut self, high: Option<&[u8]>) -> Result<(), LogError> {
        let Some((page, slot)) = self.last.take() else { return Ok(()) };
        match page.page().high_fence().as_deref() == high {
            true => Ok(()),
            false => {
                let reason = "its key range does not end where the next leaf begins".to_owned();
                Err(self.damaged(slot, reason))
            }
        }
    }

    fn read(&mut self, slot: u64) -> Result<AlignedBuffer, LogError> {
        let slot_bytes = self.page_bytes.next_multiple_of(SECTOR_BYTES);
        let (number, offset) = zone::locate(slot, slot_bytes);
        if self.zone.as_ref().is_none_or(|(open, _)| *open != number) {
            self.zone = Some((number, zone::open_zone(&self.files, number)?));
        }
        let (_, file) = self.zone.as_ref().expect("opened above");
        let mut image = AlignedBuffer::zeroed(slot_bytes);
        let failed = |path: &Path, error| LogError::io("read a page from", path, offset, error);
        file.read_exact_at(&mut image, offset).map_err(|error| failed(file.path(), error))?;
        Ok(image)
    }

    fn damaged(&self, slot: u64, reason: String) -> LogError {
        let (number, offset) = zone::locate(slot, self.page_bytes.next_multiple_of(SECTOR_BYTES));
        let path = self.files.directory().path().join(zone::zone_name(number as usize));
        LogError::DamagedPage { path, offset, reason, is_in_checkpoint: true }
    }
}
