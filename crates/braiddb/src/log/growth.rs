//! The last file, as far as it is there: a small log has a small one.
//!
//! The file of a database's first segment is made with [`INITIAL_FILE_BYTES`] of log and made twice as long whenever
//! the log needs more, until it is a whole segment; all others are made whole. So what a database takes on
//! disk is in proportion to what was logged, and a log of many segments is as if there were no such thing.
//! A file is made longer as a segment is made: before any block is admitted there, with its space, durably.
//!
//! Invariant: a file is at least as long as its header says, whatever crashes, and no block is admitted past
//! that. So the length is durable before the header says it, and the header before the log goes on there. A
//! crash between the two leaves a file that is longer than its header says: what is more of it means nothing,
//! and counts as not there. A file that is shorter was cut short, which is an error.

use std::sync::Arc;

use super::segment::{HEADER_BYTES, Segments};
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, File};
use crate::sync::atomic::Ordering;

/// Bytes of log in the file of a database's first segment when it is made.
pub(super) const INITIAL_FILE_BYTES: u64 = if cfg!(braid_simulation) { 8 << 10 } else { 256 << 10 };

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
        if index == 0 { INITIAL_FILE_BYTES.min(self.segment_bytes()) } else { self.segment_bytes() }
    }

    /// Bytes from the end of the last file to the end of its segment.
    pub(super) fn missing_bytes(&self) -> u64 {
        let end = self.end();
        end.0.next_multiple_of(self.segment_bytes()) - end.0
    }

    /// Bytes of log that are on disk from a position to the end of its segment.
    pub(super) fn rest_on_disk(&self, lsn: Lsn) -> u64 {
        self.rest(lsn).min(self.end().0.saturating_sub(lsn.0))
    }

    /// Where the first file, which is not a whole segment, is to end next.
    fn longer(&self) -> Lsn {
        Lsn((2 * self.end().0).min(self.segment_bytes()))
    }

    /// The header of the first segment when its file has `end` bytes of log, durably.
    pub(super) fn header_of_length(&self, end: Lsn) -> AlignedBuffer {
        self.identity.segment_header(self.start(0), end.0)
    }

    /// Bytes of disk that the next extension takes.
    pub(super) fn next_bytes(&self) -> u64 {
        match self.missing_bytes() {
            0 => self.file_bytes(),
            _ => self.longer().0 - self.end().0,
        }
    }

    /// Makes the first file longer, which is not a whole segment; not yet durably. Where it ends then.
    ///
    /// # Errors
    /// The operating system's; the file is at least as long as its header says then.
    pub(super) fn lengthen(&self) -> Result<(Arc<File>, Lsn), LogError> {
        let (last, file) = self.last().expect("the last segment is never freed");
        assert_eq!(last, 0, "files of later segments are made whole");
        let to = self.longer();
        let length = |end: Lsn| HEADER_BYTES + end.0;
        if let Err(error) = file.allocate(length(to)) {
            // What was allocated of it, if anything, is given back; nothing of the log is there.
            _ = file.truncate(length(self.end()));
            let error = self.cannot_grow_by(to.0 - self.end().0, error);
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
            let durable = file.sync();
            let said = durable.and_then(|()| file.write_all_at(&self.header_of_length(to), 0));
            said.and_then(|()| file.sync())
                .map_err(|error| LogError::io("extend", file.path(), 0, error))?;
            self.set_end(to);
        }
        Ok(())
    }
}
