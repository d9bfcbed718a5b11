//! A log that is only read, while another process may write to it.
//!
//! Nothing is locked against that process, and nothing on disk is changed. What it may do meanwhile, and why
//! nothing wrong is read:
//!
//! | it | the reader |
//! |---|---|
//! | appends blocks | reads those that are whole where it comes to the end: a prefix of all commits |
//! | appended a block after its place was read, and then others that were read | looks at the place once more before it calls that damage |
//! | makes new segments | reads as far as those reach that it found |
//! | removes the file of a segment that was freed | goes on reading it, as long as it has it open |
//! | makes such a file another segment | sees that by the file's header, which is written before anything else in it; each read is followed by a look at the header |
//! | writes a checkpoint, removes the older one | reads the one that it has open, and the log from there on |
//!
//! A reader's files are locked shared (`io::descriptors`), and a file that is so locked is not made another segment, but
//! removed; so a reader loses a segment only if it cannot keep its file open, or if the file system has no locks.
//!
//! Invariant: what is returned from a segment's file was read before its header said that it is another one. As that
//! header is durable before the log goes on in the file, it is what was written to this segment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::LogFiles;
use super::location;
use super::reader::LogReader;
use super::segment::{HEADER_BYTES, Segments};
use super::{Log, LogError, LogOptions, Lsn};
use crate::io::{AlignedBuffer, Directory, File, LOCK_NAME, OpenMode, SECTOR_BYTES};
use crate::sched;
use crate::sync::OnceLock;

/// What a log that is only read comes from.
#[derive(Debug)]
pub(super) struct ReadOnlySource {
    pub(super) segments: Arc<Segments>,
    /// Where it was found to end.
    end: OnceLock<Lsn>,
}

impl ReadOnlySource {
    pub(super) fn end(&self) -> Lsn {
        *self.end.get().expect("nothing is asked before all is read")
    }

    pub(super) fn set_end(&self, end: Lsn) {
        self.end.set(end).expect("a log is read once");
    }
}

/// What a directory's files say that they are; if two are equal, no segment was made, freed or used anew in between, and
/// no checkpoint written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DirectoryState(Vec<(String, Option<Vec<u8>>)>);

impl DirectoryState {
    /// What it is now, as far as it can be read.
    pub(crate) fn read(options: &LogOptions) -> Result<Self, LogError> {
        let directory = open_directory(options)?;
        // Not the lock: files are opened locked here, and a writer that opens the database does not wait for it.
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

fn open_directory(options: &LogOptions) -> Result<Directory, LogError> {
    Ok(match &options.disk {
        Some(disk) => Directory::open_simulated_read_only(disk)?,
        None => {
            location::check(&options.directory, false)?;
            Directory::open_read_only(&options.directory)?
        }
    })
}

impl Log {
    /// Opens a database's log, to be only read; nothing is written, created or locked. Everything must be read from
    /// the reader, and then [`Log::resume_at`] its end. Afterwards the log is only a clock.
    ///
    /// # Errors
    /// `NotADatabase`; `Corrupt`, `WrongVersion`; the operating system's. While another process writes, any of these may
    /// be due to that: see [`DirectoryState`].
    pub(crate) fn open_read_only(options: &LogOptions) -> Result<(Self, LogReader), LogError> {
        let segments = Arc::new(Segments::open_read_only(open_directory(options)?)?);
        let reader = LogReader::new(segments.clone());
        let source = Some(Box::new(ReadOnlySource { segments, end: OnceLock::new() }));
        Ok((Self { source, ..Self::volatile(options.workers) }, reader))
    }

    /// The directory of the log, which is written or only read; `None` if there is neither.
    pub(crate) fn readable_files(&self) -> Option<LogFiles> {
        self.segments().map(|segments| LogFiles::new(segments.clone()))
    }

    /// Everything before is on disk, and was there when the log was opened if it is only read.
    pub(crate) fn readable_until(&self) -> Lsn {
        self.source.as_ref().map_or_else(|| self.durable(), |source| source.end())
    }
}

impl LogFiles {
    /// Checks that every segment's file is still that of the segment, if the log is only read.
    ///
    /// # Errors
    /// `Outdated`; the operating system's.
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
    /// Checks, after a read from the file of the segment that `lsn` is in, that it was still that segment's.
    ///
    /// # Errors
    /// `Outdated`; the device's.
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
        match self.identity.is_header_of(sector, &path, start) {
            true => Ok(()),
            false => Err(LogError::Outdated { path }),
        }
    }

    /// That a file could not be read: if the log is only read, it may be gone, or another file be in its place.
    pub(super) fn unreadable(&self, path: &Path, offset: u64, error: std::io::Error) -> LogError {
        use std::io::ErrorKind::{NotFound, Other};
        if self.read_only && matches!(error.kind(), NotFound | Other) {
            return LogError::Outdated { path: path.into() };
        }
        LogError::io("read", path, offset, error)
    }
}
