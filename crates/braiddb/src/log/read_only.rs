//! A read-only log, while another process may write to it.
//!
//! The reader locks nothing against that process, and changes nothing on disk. The table lists the
//! writer's actions, and why every read is still correct:
//!
//! | action of the writer | the reader |
//! |---|---|
//! | appends blocks | reads the blocks that are complete when it reaches the end: a prefix of all commits |
//! | appends a block after the reader read that position, and then blocks that the reader reads | reads the position once more before it reports damage |
//! | creates new segments | reads only the segments that it found |
//! | removes the file of a freed segment | continues to read it while the file is open |
//! | reuses such a file for another segment | detects it by the file's header, which is written before anything else in the file; a check of the header follows each read |
//! | writes a checkpoint, removes the older one | reads the checkpoint that it has open, and the log from there |
//!
//! The reader holds a shared lock on its files (`io::descriptors`). A writer removes a locked file
//! instead of reusing it. A reader therefore loses a segment only if it cannot keep its file open,
//! or if the file system has no locks.
//!
//! The writer reuses nothing that its newest checkpoint references: neither segments nor places of
//! pages. So what a reader finds damaged is damaged, unless a newer checkpoint exists than the one
//! that the reader loaded ([`LogFiles::is_superseded`]), or the damaged segment has the valid header
//! of another one.
//!
//! Invariant: data returned from a segment's file was read before its header named another segment.
//! The header is durable before the log continues in the file, so the data belongs to this segment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::LogFiles;
use super::location;
use super::options::LogOptions;
use super::segment::{HEADER_BYTES, Segments};
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, Directory, File, LOCK_NAME, OpenMode, SECTOR_BYTES};
use crate::sched;
use crate::sync::OnceLock;

/// The source of a read-only log.
#[derive(Debug)]
pub(super) struct ReadOnlySource {
    pub(super) segments: Arc<Segments>,
    /// The end that was found.
    end: OnceLock<Lsn>,
}

impl ReadOnlySource {
    pub(super) fn new(segments: Arc<Segments>) -> Self {
        Self { segments, end: OnceLock::new() }
    }

    pub(super) fn end(&self) -> Lsn {
        *self.end.get().expect("the log is resumed only after it was read")
    }

    pub(super) fn set_end(&self, end: Lsn) {
        self.end.set(end).expect("a log is read once");
    }
}

/// The contents of all file headers in a directory. If two states are equal, no segment was
/// created, freed or reused in between, and no checkpoint was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DirectoryState(Vec<(String, Option<Vec<u8>>)>);

impl DirectoryState {
    /// Reads the current state, as far as it can be read.
    pub(crate) fn read(options: &LogOptions) -> Result<Self, LogError> {
        let directory = open_directory(options)?;
        // Excludes the lock file: files are opened with a lock here, and a writer that opens the
        // database does not wait for that lock.
        let is_read = |name: &String| location::is_own(name) && name != LOCK_NAME;
        let names = directory.list()?.into_iter().filter(is_read);
        let header = |name: &str| {
            let file = directory.open_file(name, OpenMode::Existing).ok()?;
            let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES);
            file.read_exact_at(&mut sector, 0).ok()?;
            Some(sector.to_vec())
        };
        Ok(Self(names.map(|name| (name.clone(), header(&name))).collect()))
    }
}

/// Opens the directory of an existing database.
pub(super) fn open_directory(options: &LogOptions) -> Result<Directory, LogError> {
    Ok(match &options.disk {
        Some(disk) => Directory::open_simulated_read_only(disk)?,
        None => {
            location::check(&options.directory, false)?;
            Directory::open_read_only(&options.directory)?
        }
    })
}

impl LogFiles {
    /// Records, for a read-only log, that the newest checkpoint in the directory is about to be
    /// loaded, or that none exists.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn note_loaded_checkpoint(&self) -> Result<(), LogError> {
        let segments = self.segments();
        let newest = segments.newest_checkpoint()?;
        segments.loaded_checkpoint.set(newest).expect("a log is recovered once");
        Ok(())
    }

    /// Returns whether the log is read-only and the directory has a newer checkpoint than the one
    /// loaded. Only then the writer may have reused what the reader reads.
    pub(crate) fn is_superseded(&self) -> bool {
        self.segments().is_superseded()
    }

    /// Checks, for a read-only log, that every segment's file still belongs to the segment.
    ///
    /// # Errors
    /// `Outdated`; errors of the operating system.
    pub(crate) fn check_current(&self) -> Result<(), LogError> {
        let segments = self.segments();
        if !segments.read_only {
            return Ok(());
        }
        for (index, file) in segments.files_now() {
            let mut sector = AlignedBuffer::zeroed(SECTOR_BYTES);
            if let Err(error) = file.read_exact_at(&mut sector, 0) {
                return Err(segments.unreadable(file.path(), 0, error));
            }
            segments.check_header(sector, &file, segments.start(index))?;
        }
        Ok(())
    }
}

impl Segments {
    /// Checks, after a read from the file of the segment at `lsn`, that the file still belonged to
    /// that segment.
    ///
    /// # Errors
    /// `Outdated`; errors of the device.
    pub(super) async fn check_current(&self, file: &Arc<File>, lsn: Lsn) -> Result<(), LogError> {
        if !self.read_only {
            return Ok(());
        }
        let sector = AlignedBuffer::zeroed(SECTOR_BYTES);
        let (result, sector) = sched::read(file.clone(), 0, sector).await;
        match result {
            Ok(read) if read == HEADER_BYTES as usize => {
                self.check_header(sector, file, self.start(self.index(lsn)))
            }
            Ok(_) => Err(LogError::Outdated { path: file.path().into() }),
            Err(error) => Err(self.unreadable(file.path(), 0, error)),
        }
    }

    fn check_header(&self, sector: AlignedBuffer, file: &File, start: Lsn) -> Result<(), LogError> {
        let path: PathBuf = file.path().into();
        match self.identity.read_start(sector, &path) {
            Ok(found) if found == start => Ok(()),
            Err(damage) if !self.is_superseded() => Err(damage),
            _ => Err(LogError::Outdated { path }),
        }
    }

    fn newest_checkpoint(&self) -> Result<Option<String>, LogError> {
        Ok(self.directory.list()?.into_iter().filter(|name| location::is_checkpoint(name)).max())
    }

    fn is_superseded(&self) -> bool {
        // A directory that cannot be listed cannot be read by a new opening either, which reports
        // the cause.
        let is_newest = |loaded: &Option<String>| {
            self.newest_checkpoint().is_ok_and(|newest| newest == *loaded)
        };
        self.read_only && !self.loaded_checkpoint.get().is_some_and(is_newest)
    }

    /// Returns the error for a file that could not be read. In a read-only log, the writer may have
    /// removed or replaced it.
    pub(super) fn unreadable(&self, path: &Path, offset: u64, error: std::io::Error) -> LogError {
        use std::io::ErrorKind::{NotFound, Other};
        if matches!(error.kind(), NotFound | Other) && self.is_superseded() {
            return LogError::Outdated { path: path.into() };
        }
        LogError::io("read", path, offset, error)
    }
}
