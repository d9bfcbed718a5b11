//! The database's directory, for what stands beside the log in it.

use std::sync::Arc;

use super::identity::read_header;
use super::reader::Window;
use super::segment::Segments;
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, File, OpenMode};

/// The directory of an open log.
#[derive(Clone, Debug)]
pub(crate) struct LogFiles(Arc<Segments>);

impl LogFiles {
    pub(super) fn new(segments: Arc<Segments>) -> Self {
        Self(segments)
    }

    /// The names in the directory, sorted.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn list(&self) -> Result<Vec<String>, LogError> {
        Ok(self.0.directory.list()?)
    }

    /// Opens a file of the directory.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn open(&self, name: &str, mode: OpenMode) -> Result<File, LogError> {
        Ok(self.0.directory.open_file(name, mode)?)
    }

    /// Gives a file another name, taking it from the file that has it.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), LogError> {
        Ok(self.0.directory.rename(from, to)?)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LogError> {
        Ok(self.0.directory.remove(name)?)
    }

    /// Makes the names in the directory durable, with a blocking call.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn sync_directory(&self) -> Result<(), LogError> {
        Ok(self.0.directory.sync()?)
    }

    /// Checks every block of the log, from its start, or if that was freed from `from` on, where a
    /// block starts, to `until`, which is durable, with blocking calls; returns how many there are.
    ///
    /// # Errors
    /// The operating system's; `Corrupt` at the first position without a whole block.
    pub(crate) fn check_blocks(&self, from: Lsn, until: Lsn) -> Result<u64, LogError> {
        let mut window = Window::new(self.0.clone());
        let whole = self.0.check_from(Lsn::FIRST).is_ok();
        let (mut at, mut blocks) = (if whole { Lsn::FIRST } else { from.max(Lsn::FIRST) }, 0);
        while at < until {
            let Some(block) = window.block(at)? else {
                let reason = "no whole block is here, but the log goes on";
                return Err(LogError::corrupt(self.0.place(at), at, reason));
            };
            at = block.end;
            blocks += 1;
        }
        Ok(blocks)
    }

    /// Bytes of one segment of the log.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.0.segment_bytes()
    }

    /// The segment that a position is in.
    pub(crate) fn segment_of(&self, lsn: Lsn) -> u64 {
        self.0.index(lsn)
    }

    /// The segments whose every position is before `lsn`.
    pub(crate) fn segments_before(&self, lsn: Lsn) -> Vec<u64> {
        self.0.whole_before(lsn)
    }

    /// Whether the segment of a position is there.
    pub(crate) fn has(&self, lsn: Lsn) -> bool {
        self.0.locate(lsn).is_some()
    }

    /// Frees segments that nothing leads to.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn remove_segments(&self, segments: &[u64]) -> Result<(), LogError> {
        for index in segments {
            self.0.remove(*index)?;
        }
        self.sync_directory()
    }

    /// The first sector of a file of this database: its kind, where in the log it belongs, and two
    /// numbers of its own.
    pub(crate) fn header_sector(&self, magic: [u8; 8], lsn: Lsn, own: [u64; 2]) -> AlignedBuffer {
        self.0.identity.sector(magic, lsn.0, own)
    }

    /// Reads and checks such a sector; returns the file's own numbers.
    ///
    /// # Errors
    /// The operating system's; `Corrupt`, `WrongVersion`.
    pub(crate) fn read_header_sector(
        &self,
        file: &File,
        magic: [u8; 8],
        lsn: Lsn,
    ) -> Result<[u64; 2], LogError> {
        let header = read_header(file, magic)?;
        self.0.identity.check(&header, file, lsn)?;
        Ok(header.own.map(|number| number.get()))
    }
}
