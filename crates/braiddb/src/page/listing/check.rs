//! Checking the images that a checkpoint leads to: that each is whole, is of the page and the range that it is listed with, and has
//! only what is committed.

use std::path::Path;

use super::Listed;
use crate::io::{AlignedBuffer, File, SECTOR_BYTES};
use crate::log::{LogError, LogFiles};
use crate::page::large::LargeValues;
use crate::page::layout::{PageCopy, image_checksum};
use crate::page::map::DiskPlace;
use crate::page::zone;
use crate::rid::TableId;

/// A check of the images of one tree, in the order of keys. With blocking calls.
#[derive(Debug)]
pub(crate) struct ImageCheck {
    files: LogFiles,
    table: TableId,
    page_bytes: usize,
    /// The zone that was read last, and its number.
    zone: Option<(u64, File)>,
    /// The last image, whose range ends where the next one's begins, and where it is.
    last: Option<(PageCopy, u64)>,
}

impl ImageCheck {
    /// A check of the leaves of a table, or of its large values' pieces.
    pub(crate) fn new(files: &LogFiles, table: TableId, pieces: bool, page_bytes: usize) -> Self {
        let table = if pieces { LargeValues::pieces_of(table) } else { table };
        Self { files: files.clone(), table, page_bytes, zone: None, last: None }
    }

    /// Checks the image of the next leaf.
    ///
    /// # Errors
    /// The operating system's; what is wrong with it, or with the range of the last one.
    pub(crate) fn check(&mut self, leaf: &Listed<'_>) -> Result<(), LogError> {
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
                Some("it is another image of the page than the checkpoint leads to".to_owned())
            }
            Ok(()) if page.table() != self.table => Some("it is of another table".to_owned()),
            Ok(()) if page.level() != 0 => Some("it is not of a leaf".to_owned()),
            Ok(()) if page.low_fence()[..] != *leaf.low => {
                Some("its keys do not begin where the checkpoint says".to_owned())
            }
            Ok(()) if page.stored() != leaf.stored => {
                Some("it has more or fewer records than the checkpoint says".to_owned())
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

    /// Checks that the last image has all keys from its first one on.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn finish(mut self) -> Result<(), LogError> {
        self.end_range(None)
    }

    fn end_range(&mut self, high: Option<&[u8]>) -> Result<(), LogError> {
        let Some((page, slot)) = self.last.take() else { return Ok(()) };
        match page.page().high_fence().as_deref() == high {
            true => Ok(()),
            false => {
                let reason = "its keys do not end where those of the next leaf begin".to_owned();
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
        LogError::DamagedPage { path, offset, reason }
    }
}
