//! Check of the images that a checkpoint lists. Each image must be intact, belong to the page and
//! range with which it is listed, and have committed contents only.

use std::io::ErrorKind;

use super::LeafFromFile;
use crate::io::{AlignedBuffer, File, SECTOR_BYTES};
use crate::log::{LogError, LogFiles};
use crate::page::large::LargeValues;
use crate::page::layout::{PageCopy, image_checksum};
use crate::page::map::DiskPlace;
use crate::page::zone;
use crate::rid::TableId;

/// Maximum number of places that are read at once.
const MAX_PLACES_READ: u64 = 64;

/// Check of the images of one tree, in key order, with blocking calls.
#[derive(Debug)]
pub(crate) struct ImageCheck {
    files: LogFiles,
    table: TableId,
    page_bytes: usize,
    /// The most recently read zone, with its number.
    zone: Option<(u64, File)>,
    /// The first slot that was read last, the number of slots, and their images.
    read: (u64, u64, AlignedBuffer),
    /// The last image and its slot; its range must end where the next one's begins.
    last: Option<(PageCopy, u64)>,
}

impl ImageCheck {
    /// Creates a check of the leaves of a table, or of the pieces of its large values.
    pub(crate) fn new(files: &LogFiles, table: TableId, pieces: bool, page_bytes: usize) -> Self {
        let table = if pieces { LargeValues::pieces_of(table) } else { table };
        let read = (0, 0, AlignedBuffer::zeroed(0));
        Self { files: files.clone(), table, page_bytes, zone: None, read, last: None }
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
        let page_bytes = self.page_bytes;
        let image = self.image(place.slot)?;
        let copy = PageCopy::zeros(page_bytes);
        let page = copy.page();
        let read = page.read_image(&image[..page_bytes], leaf.page);
        let checksum = image_checksum(image);
        let wrong = match read {
            Err(damage) => Some(damage.to_string()),
            Ok(()) if !place.may_be(checksum) => {
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

    /// Returns the image at a slot. As long as slots follow each other, twice as many are read each
    /// time, because a call for each page would take most of the time.
    fn image(&mut self, slot: u64) -> Result<&[u8], LogError> {
        let slot_bytes = self.page_bytes.next_multiple_of(SECTOR_BYTES);
        let (first, count, _) = self.read;
        if !(first..first + count).contains(&slot) {
            let follows = count > 0 && slot == first + count;
            let count = if follows { (2 * count).min(MAX_PLACES_READ) } else { 1 };
            // If a place behind this one cannot be read, it is not this one that is reported.
            match self.read(slot, count, slot_bytes) {
                Err(_) if count > 1 => self.read(slot, 1, slot_bytes)?,
                read => read?,
            }
        }
        let (first, _, images) = &self.read;
        Ok(&images[(slot - first) as usize * slot_bytes..][..slot_bytes])
    }

    /// Reads slots, fewer at the end of their file.
    fn read(&mut self, slot: u64, count: u64, slot_bytes: usize) -> Result<(), LogError> {
        let (number, offset) = zone::locate(slot, slot_bytes);
        if self.zone.as_ref().is_none_or(|(open, _)| *open != number) {
            self.zone = Some((number, zone::open_zone(&self.files, number)?));
        }
        let (_, file) = self.zone.as_ref().expect("opened above");
        let mut images = AlignedBuffer::zeroed(count as usize * slot_bytes);
        let failed = |error| LogError::io("read a page from", file.path(), offset, error);
        let whole = file.read_at(&mut images, offset).map_err(failed)? / slot_bytes;
        if whole == 0 {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        }
        self.read = (slot, whole as u64, images);
        Ok(())
    }

    fn damaged(&self, slot: u64, reason: String) -> LogError {
        let (number, offset) = zone::locate(slot, self.page_bytes.next_multiple_of(SECTOR_BYTES));
        let path = self.files.directory().path().join(zone::zone_name(number as usize));
        LogError::DamagedPage { path, offset, reason, is_in_checkpoint: true }
    }
}
