//! Files of freed segments, kept to become new ones: a flush into space that was written before
//! costs the file system nothing.
//!
//! Such a file becomes another segment when its header says so, which is one durable write of what disks
//! write as a whole. Its name stays, so no flush has to wait for the file system's journal.
//!
//! Invariant: a spare's header, and all else in it, is that of the segment it was. So what a crash brings
//! back is that segment, to which nothing leads.

use crate::sync::Mutex;

use super::segment::{SegmentFile, Segments};
use super::{LogError, Lsn};

/// The files that are kept.
#[derive(Debug, Default)]
pub(super) struct Spares(Mutex<Vec<SegmentFile>>);

impl Spares {
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Closes their files, and leaves them where they are.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }

    /// One of them, to become a segment once it has its header.
    pub(super) fn take(&self) -> Option<SegmentFile> {
        self.0.lock().pop()
    }
}

impl Segments {
    /// Frees a segment that nothing leads to; its file is kept unless one is already and the log
    /// takes `most` files, or its space is needed for the reserve. `false` if somebody holds it; `tail` is where the log ends
    /// now.
    pub(super) fn free(&self, index: u64, tail: Lsn, most: u64) -> Result<bool, LogError> {
        let Some(mut segment) = self.retire_unheld(index, tail) else { return Ok(false) };
        let enough = self.spares.count() > 0 && self.files_on_disk() >= most;
        if enough || !self.reserve.is_whole() {
            let name = segment.name();
            drop(segment);
            self.directory.remove(&name)?;
            // If it cannot be taken back yet, that is tried again when the log is to be extended.
            _ = self.reclaim_reserve();
        } else {
            segment.written = true;
            self.spares.0.lock().push(segment);
        }
        self.extent.resume();
        Ok(true)
    }

    /// One of the files that are kept, to become another segment. Those that are being read as what they were, of a
    /// database that is open to be read only, are removed instead: who has them open goes on reading them.
    pub(super) fn take_unread_spare(&self) -> Option<SegmentFile> {
        loop {
            let spare = self.spares.take()?;
            if !spare.file.is_read_elsewhere() {
                return Some(spare);
            }
            self.remove_file_of(&spare);
        }
    }

    fn remove_file_of(&self, spare: &SegmentFile) {
        if let Err(error) = self.directory.remove(&spare.name()) {
            tracing::warn!("a file of no use is left until the log is compacted: {error}");
        }
    }

    /// Removes one of the files that are kept; `false` if there is none.
    pub(super) fn remove_spare(&self) -> bool {
        let spare = self.spares.take();
        if let Some(spare) = &spare {
            self.remove_file_of(spare);
        }
        spare.is_some()
    }

    /// Removes all of them.
    pub(super) fn remove_spares(&self) {
        while self.remove_spare() {}
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        self.remove_spares();
    }
}
