//! Growth of the first segment's file: a small log has a small file.
//!
//! The file of a database's first segment starts with [`INITIAL_FILE_BYTES`] of log, and doubles whenever
//! the log needs more, until it is a whole segment. All other segments are created with their full
//! size. The disk space of a database is thus proportional to the logged data, while a log of many
//! segments is unaffected. A file is extended like a segment is created: durably and with its
//! space, before any block is admitted there.
//!
//! Invariant: across every crash, a file is at least as long as its header states, and no block is
//! admitted beyond that length. The length is therefore durable before the header states it, and
//! the header is durable before the log continues there. A crash between these steps leaves a file
//! longer than its header states; the excess is ignored. A file shorter than its header states was
//! truncated, which is an error.

use std::sync::Arc;

use super::segment::{HEADER_BYTES, Segments};
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, File, SECTOR_BYTES};
use crate::sync::atomic::Ordering;

/// Bytes of log in a new first segment's file.
pub(super) const INITIAL_FILE_BYTES: u64 = if cfg!(braid_simulation) { 8 << 10 } else { 256 << 10 };

/// Returns the disk space for `bytes` of a file in the smallest parts that a fragmented disk has. The
/// file system needs some for its list of the parts, and for the name.
fn with_metadata(bytes: u64) -> u64 {
    bytes + bytes / 128 + 2 * SECTOR_BYTES as u64
}

impl Segments {
    /// Returns the end of the last file.
    pub(super) fn end(&self) -> Lsn {
        // Acquire pairs with the Release in `set_end`: the file has this length.
        Lsn(self.end.load(Ordering::Acquire))
    }

    /// Sets the end of the last file. Called by the worker that prepares space, or before the
    /// workers start.
    pub(super) fn set_end(&self, end: Lsn) {
        // Release pairs with the Acquire in `end`.
        self.end.store(end.0, Ordering::Release);
    }

    /// Returns the bytes of log in the file of a new segment.
    pub(super) fn bytes_when_made(&self, index: u64) -> u64 {
        if index == 0 { INITIAL_FILE_BYTES.min(self.segment_bytes()) } else { self.segment_bytes() }
    }

    /// Returns the bytes from the end of the last file to the end of its segment.
    pub(super) fn missing_bytes(&self) -> u64 {
        let end = self.end();
        end.0.next_multiple_of(self.segment_bytes()) - end.0
    }

    /// Returns the bytes of log on disk from a position to the end of its segment.
    pub(super) fn rest_on_disk(&self, lsn: Lsn) -> u64 {
        self.rest(lsn).min(self.end().0.saturating_sub(lsn.0))
    }

    /// Returns the next end of the first file while it is not a whole segment.
    fn longer(&self) -> Lsn {
        Lsn((2 * self.end().0).min(self.segment_bytes()))
    }

    /// Returns the header of the first segment for a file that durably has `end` bytes of log.
    pub(super) fn header_of_length(&self, end: Lsn) -> AlignedBuffer {
        self.identity.segment_header(self.start(0), end.0)
    }

    /// Returns the disk space of the next extension in bytes, metadata of the file system included.
    pub(super) fn next_bytes(&self) -> u64 {
        match self.missing_bytes() {
            0 => self.file_space(),
            _ => with_metadata(self.longer().0 - self.end().0),
        }
    }

    /// Returns the disk space of `missing_bytes`, metadata of the file system included.
    pub(super) fn missing_space(&self) -> u64 {
        match self.missing_bytes() {
            0 => 0,
            bytes => with_metadata(bytes),
        }
    }

    /// Returns the disk space of a segment's file in bytes, metadata of the file system included.
    pub(super) fn file_space(&self) -> u64 {
        with_metadata(self.file_bytes())
    }

    /// Extends the first file, which is not a whole segment. The extension is not durable yet.
    /// Returns the file and its new end.
    ///
    /// # Errors
    /// Errors of the operating system; the file is then at least as long as its header states.
    pub(super) fn lengthen(&self) -> Result<(Arc<File>, Lsn), LogError> {
        let (last, file) = self.last().expect("the last segment is never freed");
        assert_eq!(last, 0, "files of later segments are made whole");
        let to = self.longer();
        let length = |end: Lsn| HEADER_BYTES + end.0;
        if let Err(error) = file.allocate(length(to)) {
            // Frees a partial allocation, which contains no log.
            _ = file.truncate(length(self.end()));
            let error = self.cannot_grow_by(to.0 - self.end().0, error);
            return Err(LogError::io("extend", file.path(), length(self.end()), error));
        }
        Ok((file, to))
    }

    /// Extends the log on disk at least to `end`, with blocking calls.
    pub(super) fn extend_now(&self, end: Lsn) -> Result<(), LogError> {
        while self.end() < end {
            if self.missing_bytes() == 0 {
                self.create_now(self.index(self.end()))?;
                continue;
            }
            let (file, to) = self.lengthen()?;
            let durable = file.sync();
            let said = durable.and_then(|()| file.write_all_at(&self.header_of_length(to), 0));
            said.and_then(|()| file.sync())
                .map_err(|error| LogError::io("extend", file.path(), 0, error))?;
            self.set_end(to);
        }
        Ok(())
    }
}
