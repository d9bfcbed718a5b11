//! What can go wrong with the log, said so that a user knows where and what to do.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Lsn;
use crate::io::DirectoryError;

/// A failure of the log or of the files around it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused a call.
    #[error(
        "cannot {action} {path}{place}: {cause}{advice}",
        path = path.display(), place = place(*offset), advice = advice(cause)
    )]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// At which of its bytes; 0 if at none.
        offset: u64,
        /// What the operating system said.
        cause: Arc<std::io::Error>,
    },
    /// The log could not be extended. Nothing was written, and nothing is lost: what needs the space
    /// is refused, reads go on, and so does everything else once the cause is gone.
    #[error(
        "the log cannot grow: cannot {action} {path}: {cause}; commits are refused until {remedy}",
        path = path.display(), remedy = remedy(cause)
    )]
    CannotGrow {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the operating system said.
        cause: Arc<std::io::Error>,
    },
    /// A checkpoint could not be written, as the disk has no room for it. The one before, and the log, stay as they are:
    /// nothing is lost, and the database goes on.
    #[error(
        "a checkpoint cannot be written: cannot {action} {path}{place}: {cause}; it takes about {needed} bytes, and the \
         disk has {available}: free {missing} bytes at least, of other files, or delete records, then compact again",
        path = path.display(), place = place(*offset), missing = needed.saturating_sub(*available).max(1)
    )]
    NoRoomForCheckpoint {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// At which of its bytes; 0 if at its beginning, or at none.
        offset: u64,
        /// Bytes that the checkpoint takes, about.
        needed: u64,
        /// Bytes that the disk has for it once what was written of it is removed, with what is held back; a user's
        /// share of the disk may be less.
        available: u64,
        /// What the operating system said.
        cause: Arc<std::io::Error>,
    },
    /// Bytes that were durable are not what was written.
    #[error(
        "the log is damaged in {path} at offset {offset}: {reason}; \
         restore this file, or the database, from a backup",
        path = path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A page of a paged table is not what was written.
    #[error(
        "a page of a paged table is damaged in {path} at offset {offset}: {reason}; \
         close the database and open it again, which brings back what was logged since the newest checkpoint, and if the page \
         is damaged then too, restore the database from a backup",
        path = path.display()
    )]
    DamagedPage {
        /// The damaged file.
        path: PathBuf,
        /// Where in it, in bytes.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
    /// A value of a paged table that is too long for a page is not whole.
    #[error(
        "a value of {bytes} bytes in a paged table is not whole: a piece of it is missing on its page; \
         close the database and open it again, which brings it back from checkpoint and log"
    )]
    ValueNotWhole {
        /// Bytes that it has.
        bytes: usize,
    },
    /// The directory does not hold a database.
    #[error("{path} does not hold a database: {reason}", path = path.display())]
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// A backup cannot be made in a directory.
    #[error(
        "{path} cannot take a backup: {reason}; name a directory that is new or empty, outside of the database's",
        path = path.display()
    )]
    BackupTarget {
        /// The directory.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The database was written by another version of the engine.
    #[error(
        "{path} has format version {found}, this engine reads versions up to {expected}: \
         open it with the engine that wrote it",
        path = path.display()
    )]
    WrongVersion {
        /// The file that says so.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest that this engine reads.
        expected: u32,
    },
    /// The database is open already, in this process or another.
    #[error(
        "the database in {path} is already open, here or in another process; close it there first",
        path = path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// What was read when a database was opened only to be read is not there any more: compaction freed it. Nothing
    /// that was read is wrong.
    #[error(
        "{path} was freed or used anew by the process that writes to the database, after this one opened it to \
         read; open it again, which shows the database as it is then",
        path = path.display()
    )]
    Outdated {
        /// The file.
        path: PathBuf,
    },
    /// A size no log can have.
    #[error("{what} of {bytes} bytes is too large or too small: {limit}")]
    Size {
        /// Of what.
        what: &'static str,
        /// The size asked for.
        bytes: u64,
        /// What is allowed.
        limit: String,
    },
}

/// Where in a file something failed, if anywhere.
fn place(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at offset {offset}") }
}

/// What to do when the operating system refused a call.
fn advice(cause: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; make room, then open the database again"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "; mount the file system writable, then open the database again"
        }
        ErrorKind::PermissionDenied => "; see to the permissions, then open the database again",
        ErrorKind::NotADirectory => "; a part of this path is a file: name another place",
        _ if matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            "; raise the limit of open files (ulimit -n, LimitNOFILE), or let the program close some"
        }
        _ if cause.raw_os_error() == Some(libc::EIO) => {
            "; see to the disk, then open the database again"
        }
        _ => "",
    }
}

/// What has to happen before a log that could not be extended can be.
fn remedy(cause: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "there is room on the file system: make some, or delete records and compact"
        }
        ErrorKind::ReadOnlyFilesystem => "the file system is mounted writable",
        ErrorKind::PermissionDenied => "the permissions allow it",
        ErrorKind::IsADirectory | ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => {
            "what has the name is moved away"
        }
        _ if matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            "more files may be open (ulimit -n, LimitNOFILE), or the program closes some"
        }
        _ => "the cause is gone",
    }
}

/// Whether a disk, or its user's share, is full.
pub(super) fn says_full(cause: &std::io::Error) -> bool {
    matches!(cause.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl LogError {
    /// That the log could not be extended, for this reason.
    pub(super) fn cannot_grow(reason: Self) -> Self {
        match reason {
            Self::Io { action, path, cause, .. } => Self::CannotGrow { action, path, cause },
            other => other,
        }
    }

    /// That a checkpoint of `needed` bytes could not be written, for this reason, if that is a full disk.
    pub(crate) fn no_room_for_checkpoint(&self, needed: u64, available: u64) -> Self {
        match self {
            Self::Io { action, path, offset, cause } if says_full(cause) => {
                let (path, cause) = (path.clone(), cause.clone());
                let (action, offset) = (*action, *offset);
                Self::NoRoomForCheckpoint { action, path, offset, needed, available, cause }
            }
            other => other.clone(),
        }
    }

    /// Whether there was no room on the disk, or within its user's share.
    ///
    /// ```
    /// use braiddb::{Database, Error};
    ///
    /// fn tell(db: &Database, error: &Error) -> String {
    ///     match error {
    ///         Error::Log(log) if log.is_full() => "the disk is full: free some room".to_owned(),
    ///         error => error.to_string(),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { cause, .. }
            | Self::CannotGrow { cause, .. }
            | Self::NoRoomForCheckpoint { cause, .. } => says_full(cause),
            _ => false,
        }
    }

    /// Whether something is not what was written.
    pub(crate) fn is_corrupt(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    pub(crate) fn io(
        action: &'static str,
        path: &Path,
        offset: u64,
        cause: std::io::Error,
    ) -> Self {
        Self::Io { action, path: path.to_owned(), offset, cause: Arc::new(cause) }
    }

    pub(super) fn corrupt(place: (PathBuf, u64), lsn: Lsn, reason: impl std::fmt::Display) -> Self {
        let (path, offset) = place;
        Self::Corrupt { path, offset, reason: format!("{reason} (LSN {lsn})") }
    }
}

impl From<DirectoryError> for LogError {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::AlreadyOpen(path) => Self::Locked { path },
            DirectoryError::Missing(path) => {
                Self::NotADatabase { path, reason: "there is no such directory".into() }
            }
            DirectoryError::Io { action, path, source } => {
                Self::Io { action, path, offset: 0, cause: source }
            }
        }
    }
}
