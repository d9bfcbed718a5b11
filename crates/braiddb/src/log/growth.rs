//! The last file, as far as it is there: a small log has a small one.
//!
//! The file of a database's first segment is made with [`FIRST_BYTES`] of log and made twice as long whenever
//! the log needs more, until it is a whole segment; all others are made whole. So what a database takes on
//! disk is in proportion to what was logged, and a log of many segments is as if there were no such thing.
//! A file is made longer as a segment is made: before any block is admitted there, with its space, durably.
//!
//! A crash may leave the files of segments that the log has not come to yet shorter than they were made. So
//! a file that is short is right where the log ends before it does; then it is made longer again. Where the log
//! goes on after it, it was cut short, which is an error. How far the log goes is known from what is in the
//! files and from the newest checkpoint: of a last file that was cut short after both, nothing tells.

use std::sync::Arc;

use super::segment::{HEADER_BYTES, Segments};
use super::{LogError, Lsn};
use crate::io::{File, SECTOR_BYTES};
use crate::sync::atomic::Ordering;

/// Bytes of log in the file of a database's first segment when it is made.
pub(super) const FIRST_BYTES: u64 = if cfg!(braid_simulation) { 8 << 10 } else { 256 << 10 };

impl Segments {
    /// Where the last file ends.
    pub(super) fn end(&self) -> Lsn {
        // Acquire pairs with the Release in `set_end`: the file is as long.
        Lsn(self.end.load(Ordering::Acquire))
    }

    /// Says where the last file ends. Called by the worker that prepares, or before there are workers.
    pub(super) fn set_end(&self, end: Lsn) {
        // Release pairs with the Acquire in `end`.
        self.end.store(end.0, Ordering::Release);
    }

    /// Bytes of log in the file of a segment that is made.
    pub(super) fn bytes_when_made(&self, index: u64) -> u64 {
        if index == 0 { FIRST_BYTES.min(self.segment_bytes()) } else { self.segment_bytes() }
    }

    /// Bytes from the end of the last file to the end of its segment.
    pub(super) fn missing_bytes(&self) -> u64 {
        let end = self.end();
        // The file may have nothing but its header.
        let next = self
            .last()
            .map_or(self.index(Lsn(end.0.next_multiple_of(self.segment_bytes()))), |(last, _)| {
                last + 1
            });
        self.start(next).0 - end.0
    }

    /// Bytes of log that are on disk from a position to the end of its segment.
    pub(super) fn rest_on_disk(&self, lsn: Lsn) -> u64 {
        self.rest(lsn).min(self.end().0.saturating_sub(lsn.0))
    }

    /// Notes how long a file is that was found.
    pub(super) fn note_length(&self, index: u64, file: &File) -> Result<(), LogError> {
        let length = file.length();
        let length = length.map_err(|error| LogError::io("look at", file.path(), 0, error))?;
        let sectors = length.saturating_sub(HEADER_BYTES) / SECTOR_BYTES as u64;
        let bytes = (sectors * SECTOR_BYTES as u64).min(self.segment_bytes());
        if bytes < self.segment_bytes() {
            self.short.lock().insert(index, bytes);
        }
        let end = self.start(index).0 + bytes;
        // Relaxed: nobody else has it yet.
        self.end.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    /// Makes files whole that a crash left short, where the log ends at `end`; all but the last, which is made
    /// longer when the log comes to need it.
    ///
    /// # Errors
    /// `Corrupt` if a file ends before the log does, or before the segment does if the log goes on after it; the
    /// operating system's.
    pub(super) fn mend_short(&self, end: Lsn) -> Result<(), LogError> {
        let (last, _) = self.last_file();
        // Whole sectors are written.
        let written = end.0 / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
        for (index, found) in std::mem::take(&mut *self.short.lock()) {
            // Freed already, if it is not there.
            let Some(file) = self.file(index) else { continue };
            if self.start(index).0 + found < written.min(self.start(index + 1).0) {
                let reason = "the file of this segment ends here, and the log goes on after it: it \
                              was cut short";
                let place = (file.path().into(), HEADER_BYTES + found);
                return Err(LogError::corrupt(place, end, reason));
            }
            if index != last {
                let failed = |error| LogError::io("make room in", file.path(), 0, error);
                file.allocate(self.file_bytes()).and_then(|()| file.sync()).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn last_file(&self) -> (u64, Arc<File>) {
        self.last().expect("the last segment is never freed")
    }

    /// Where the last file is to end next: past `self.end()`, in the same segment.
    fn longer(&self) -> Lsn {
        let (last, _) = self.last_file();
        let start = self.start(last).0;
        let whole = self.segment_bytes();
        let bytes = match last {
            0 => (2 * (self.end().0 - start)).clamp(FIRST_BYTES.min(whole), whole),
            _ => whole,
        };
        Lsn(start + bytes)
    }

    /// Bytes of disk that the next extension takes.
    pub(super) fn next_bytes(&self) -> u64 {
        match self.missing_bytes() {
            0 => self.file_bytes(),
            _ => self.longer().0 - self.end().0,
        }
    }

    /// Makes the last file longer, which is not a whole segment; not yet durably. Where it ends then.
    ///
    /// # Errors
    /// The operating system's; the file is as long as before then.
    pub(super) fn lengthen(&self) -> Result<(Arc<File>, Lsn), LogError> {
        let ((last, file), to) = (self.last_file(), self.longer());
        let length = |end: Lsn| HEADER_BYTES + end.0 - self.start(last).0;
        if let Err(error) = file.allocate(length(to)) {
            // What was allocated of it, if anything, is given back; nothing of the log is there.
            _ = file.truncate(length(self.end()));
            return Err(LogError::io("extend", file.path(), length(self.end()), error));
        }
        Ok((file, to))
    }

    /// Makes the log reach at least to `end` on disk, with blocking calls.
    pub(super) fn extend_now(&self, end: Lsn) -> Result<(), LogError> {
        while self.end() < end {
            if self.missing_bytes() == 0 {
                self.create_now(self.index(self.end()))?;
                continue;
            }
            let (file, to) = self.lengthen()?;
            file.sync().map_err(|error| LogError::io("sync", file.path(), 0, error))?;
            self.set_end(to);
        }
        Ok(())
    }
}
