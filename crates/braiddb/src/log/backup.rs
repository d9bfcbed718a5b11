//! Copy of a database into another directory.

use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;

use super::files::LogFiles;
use super::segment::{HEADER_BYTES, Segments};
use super::{LogError, Lsn};
use crate::io::{AlignedBuffer, Directory, File, LOCK_NAME, OpenMode, SECTOR_BYTES};

const COPY_BYTES: usize = 1 << 20;

/// Copies the bytes in `range` from one file to another, and makes the copy durable. Returns the
/// number of copied bytes.
pub(super) fn copy(from: &File, to: &File, range: Range<u64>) -> Result<u64, LogError> {
    let done = copy_part(from, to, range)?;
    to.sync().map_err(|error| LogError::io("sync", to.path(), 0, error))?;
    Ok(done)
}

fn copy_part(from: &File, to: &File, range: Range<u64>) -> Result<u64, LogError> {
    let mut buffer = AlignedBuffer::zeroed(COPY_BYTES);
    let mut done = range.start;
    while done < range.end {
        let piece = (range.end - done).min(COPY_BYTES as u64) as usize;
        let read = from.read_at(&mut buffer[..piece], done);
        let read = read.map_err(|error| LogError::io("read", from.path(), done, error))?;
        if read == 0 {
            break;
        }
        let written = to.write_all_at(&buffer[..read], done);
        written.map_err(|error| LogError::io("write", to.path(), done, error))?;
        done += read as u64;
    }
    Ok(done - range.start)
}

/// A copy of the directory in progress.
pub(crate) struct DirectoryCopy<'c>(&'c Directory);

impl DirectoryCopy<'_> {
    /// Copies parts of a file to the same offsets of a file with the same name, and makes them
    /// durable. Returns the number of copied bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn file(
        &self,
        from: &File,
        name: &str,
        parts: impl Iterator<Item = Range<u64>>,
    ) -> Result<u64, LogError> {
        let to = self.0.open_file(name, OpenMode::Emptied)?;
        let mut bytes = 0;
        for part in parts {
            bytes += copy_part(from, &to, part)?;
        }
        to.sync().map_err(|error| LogError::io("sync", to.path(), 0, error))?;
        Ok(bytes)
    }
}

impl Segments {
    /// Copies the segments up to `until`, followed by zeros, into another directory. Returns the
    /// number of copied bytes.
    fn copy_to(&self, target: &Directory, until: Lsn) -> Result<u64, LogError> {
        let (mut bytes, end) = (0, self.end());
        for (index, file) in self.files_now() {
            let start = self.start(index);
            if start >= until && index > 0 {
                break;
            }
            let copied = target.open_file(&self.name(index), OpenMode::Emptied)?;
            // The copy gets the current length of the file, because the log, which may be small,
            // continues in the copy as it would here. The current header may state a larger size by
            // now.
            let length = (end.0 - start.0).min(self.segment_bytes());
            let header = self.identity.segment_header(start, length);
            copied
                .allocate(HEADER_BYTES + length)
                .and_then(|()| copied.write_all_at(&header, 0))
                .map_err(|error| LogError::io("create", copied.path(), 0, error))?;
            let most = HEADER_BYTES + (until.0 - start.0).min(self.segment_bytes());
            // A log that another process writes may end within a sector.
            let rest = most % SECTOR_BYTES as u64;
            if rest > 0 {
                let (mut sector, at) = (AlignedBuffer::zeroed(SECTOR_BYTES), most - rest);
                let read = file.read_exact_at(&mut sector, at);
                read.map_err(|error| LogError::io("read", file.path(), at, error))?;
                sector[rest as usize..].fill(0);
                let written = copied.write_all_at(&sector, at);
                written.map_err(|error| LogError::io("write", copied.path(), at, error))?;
            }
            bytes += HEADER_BYTES + rest + copy(&file, &copied, HEADER_BYTES..most - rest)?;
        }
        Ok(bytes)
    }
}

impl LogFiles {
    /// Copies the database into an empty directory, with blocking calls: the log up to `until`, the
    /// file of the checkpoint, and the files that `others` copies. Nothing may be freed in between,
    /// unless `check` finds that, in the completed copy. Returns the number of copied bytes.
    ///
    /// # Errors
    /// Errors of the operating system; `Locked`; `BackupTarget` if the directory is not empty, or
    /// lies within the database's directory; the errors of `check`. The copy is removed unless it
    /// could not be written.
    pub(crate) fn copy_to(
        &self,
        directory: &Path,
        checkpoint: Option<&File>,
        until: Lsn,
        others: impl FnOnce(&DirectoryCopy<'_>) -> Result<u64, LogError>,
        check: impl FnOnce(&Path) -> Result<(), LogError>,
    ) -> Result<u64, LogError> {
        let refuse = |reason: &str| {
            let reason = reason.to_owned();
            Err(LogError::BackupTarget { path: directory.into(), reason })
        };
        if directory.exists() && !directory.is_dir() {
            return refuse("it is a file");
        }
        let (absolute, own) = (std::path::absolute(directory), self.segments().directory.path());
        // Resolves symbolic links in the existing part of the path.
        let there = absolute.ok().and_then(|absolute| {
            absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok())
        });
        if there.zip(own.canonicalize().ok()).is_some_and(|(there, own)| there.starts_with(own)) {
            return refuse("it is the database's own directory, or within it");
        }
        let target = Directory::open(directory, true)?;
        if target.list()?.iter().any(|name| name != LOCK_NAME) {
            return refuse("it is not empty");
        }
        let copied = self.copy_files_to(&target, checkpoint, until, others);
        let copied = copied.and_then(|bytes| check(target.path()).map(|()| bytes));
        copied.map_err(|error| error.of_backup(target.path())).inspect_err(|error| {
            if !matches!(error, LogError::IncompleteBackup { .. }) {
                // `braid.meta` is the first, so that the rest is no database.
                let names = target.list().unwrap_or_default();
                names.iter().filter(|name| *name != LOCK_NAME).for_each(|name| {
                    _ = target.remove(name);
                });
            }
        })
    }

    fn copy_files_to(
        &self,
        target: &Directory,
        checkpoint: Option<&File>,
        until: Lsn,
        others: impl FnOnce(&DirectoryCopy<'_>) -> Result<u64, LogError>,
    ) -> Result<u64, LogError> {
        let mut bytes = self.segments().copy_to(target, until)?;
        if let Some(source) = checkpoint {
            let name = source.path().file_name().and_then(OsStr::to_str);
            let name = name.expect("files are opened by names that are text");
            bytes += copy(source, &target.open_file(name, OpenMode::Emptied)?, 0..u64::MAX)?;
        }
        bytes += others(&DirectoryCopy(target))?;
        target.sync()?;
        // Written last: with it, the directory contains a database.
        self.segments().identity.write(target, self.segments().version())?;
        Ok(bytes)
    }
}
