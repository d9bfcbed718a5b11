//! The database's directory, for what stands beside the log in it.

use std::path::Path;
use std::sync::Arc;

use super::identity::read_header;
use super::segment::Segments;
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, File};

/// The directory of an open log.
#[derive(Clone, Debug)]
pub(crate) struct LogFiles(Arc<Segments>);

impl LogFiles {
    pub(super) fn new(segments: Arc<Segments>) -> Self {
        Self(segments)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.0.directory.path()
    }

    /// The names in the directory, sorted.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn list(&self) -> Result<Vec<String>, LogError> {
        Ok(self.0.directory.list()?)
    }

    /// Makes the names in the directory durable, with a blocking call.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn sync_directory(&self) -> Result<(), LogError> {
        Ok(self.0.directory.sync()?)
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
