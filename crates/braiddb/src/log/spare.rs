//! Spare files: the files of freed segments, kept for reuse as new ones. A flush into space that
//! was written before causes no work in the file system.
//!
//! A spare file becomes another segment when its header is rewritten by one durable write of a
//! sector, which disks write atomically. Its name stays, so no flush has to wait for the file
//! system's journal.
//!
//! Invariant: a spare's header and contents are those of its former segment. If a crash restores
//! it, it is that segment, which nothing references.

use super::segment::Segments;
use super::segment_file::SegmentFile;
use super::{LogError, Lsn};
use crate::planted::{Bug, is_planted};

impl Segments {
    /// Frees an unreferenced segment. Its file is kept, unless a spare file exists already and the
    /// log has `most` files, or the reserve needs its space. Returns `false` if the segment is
    /// held; `tail` is the current end of the log.
    pub(super) fn free(&self, index: u64, tail: Lsn, most: u64) -> Result<bool, LogError> {
        let retire = |index| self.retire(index);
        let retired = self.retention.retire_unheld(index, tail, |lsn| self.index(lsn), retire);
        let Some(mut segment) = retired else { return Ok(false) };
        let enough = self.spares.count() > 0 && self.files_on_disk() >= most;
        if enough || !self.reserve.is_whole() {
            let name = segment.name();
            drop(segment);
            if !is_planted(Bug::FreedSegmentLeft) {
                self.directory.remove(&name)?;
            }
            // If the reserve cannot be restored yet, the next extension of the log tries again.
            _ = self.reclaim_reserve();
        } else {
            segment.written = true;
            self.spares.add(segment);
        }
        self.extent.resume();
        Ok(true)
    }

    /// Takes a spare file for another segment. Files that a read-only database still reads as their
    /// former segments are removed instead; readers with an open descriptor can continue.
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
            tracing::warn!("cannot remove an unused file; the next compaction removes it: {error}");
        }
    }

    /// Removes one spare file. Returns `false` if none exists.
    pub(super) fn remove_spare(&self) -> bool {
        let spare = self.spares.take();
        if let Some(spare) = &spare {
            self.remove_file_of(spare);
        }
        spare.is_some()
    }

    /// Removes all spare files.
    pub(super) fn remove_spares(&self) {
        while self.remove_spare() {}
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        self.remove_spares();
    }
}
