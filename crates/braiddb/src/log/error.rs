//! Failures of the log and of the files and directories around it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Lsn;
use crate::io::DirectoryError;

/// A failure of the log or of the files around it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused a call on a file.
    #[error(
        "cannot {action} {path}{place}: {cause}{advice}",
        path = path.display(), place = place(*offset), advice = advice(cause)
    )]
    Io {
        /// Call that was refused.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Offset in the file, in bytes; 0 if the call has none.
        offset: u64,
        /// Error of the operating system.
        cause: Arc<std::io::Error>,
    },
    /// The log could not be extended. Nothing was written and nothing is lost: the database refuses
    /// commits that need space and serves reads, and accepts commits when the cause is removed.
    #[error(
        "the log cannot grow: cannot {action} {path}: {cause}; commits are refused until {remedy}",
        path = path.display(), remedy = remedy(cause)
    )]
    CannotGrow {
        /// Call that was refused.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        cause: Arc<std::io::Error>,
    },
    /// The disk has no space for a checkpoint. The previous checkpoint and the log are unchanged:
    /// nothing is lost, and the database continues.
    #[error(
        "a checkpoint cannot be written: cannot {action} {path}{place}: {cause}; it needs about \
         {needed} bytes and {available} are available, so free at least {missing} bytes of other \
         files, or delete records, then compact again",
        path = path.display(), place = place(*offset),
        missing = needed.saturating_sub(*available).max(1)
    )]
    NoRoomForCheckpoint {
        /// Call that was refused.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Offset in the file, in bytes; 0 if the call has none.
        offset: u64,
        /// Approximate size of the checkpoint, in bytes.
        needed: u64,
        /// Bytes that the disk has for it, including the reserve and the unfinished checkpoint; the
        /// user's quota may be smaller.
        available: u64,
        /// Error of the operating system.
        cause: Arc<std::io::Error>,
    },
    /// Bytes of a file are not those that were written and durable.
    #[error(
        "{path} is damaged at offset {offset}: {reason}; restore this file, or the database, from \
         a backup",
        path = path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// The damage.
        reason: String,
    },
    /// The bytes of a page of a paged table are not those that were written.
    #[error(
        "a page of a paged table in {path} is damaged at offset {offset}: {reason}; close the \
         database and open it again, which recovers pages that were logged since the newest \
         checkpoint, and otherwise restore the database from a backup",
        path = path.display()
    )]
    DamagedPage {
        /// The damaged file.
        path: PathBuf,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// The damage.
        reason: String,
    },
    /// A piece of a value that spans several pages of a paged table is missing.
    #[error(
        "a value of {bytes} bytes in a paged table is incomplete because one of its pages lacks \
         its piece; close the database and open it again, which recovers the value"
    )]
    ValueNotWhole {
        /// Length of the value, in bytes.
        bytes: usize,
    },
    /// The directory does not hold a database.
    #[error(
        "{path} does not hold a database: {reason}; name another directory",
        path = path.display()
    )]
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// Difference from a directory of a database.
        reason: String,
    },
    /// The directory cannot take a backup.
    #[error(
        "{path} cannot take a backup: {reason}; name a new or empty directory outside the \
         database's directory",
        path = path.display()
    )]
    BackupTarget {
        /// The directory.
        path: PathBuf,
        /// Reason for the refusal.
        reason: String,
    },
    /// A newer version of the engine wrote the database.
    #[error(
        "{path} has format version {found}, and this engine reads versions up to {expected}; open \
         it with the engine that wrote it",
        path = path.display()
    )]
    WrongVersion {
        /// File that records the version.
        path: PathBuf,
        /// Format version of the file.
        found: u32,
        /// Newest format version that this engine reads.
        expected: u32,
    },
    /// The database is already open, in this process or another.
    #[error(
        "the database in {path} is already open, in this process or another; close it there first",
        path = path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A writer has freed or reused a file that a read-only database needs. Everything that was
    /// read is right.
    #[error(
        "the process that writes to the database has freed or reused {path} since this process \
         opened the database read-only; open it again, which shows a newer state",
        path = path.display()
    )]
    Outdated {
        /// The file.
        path: PathBuf,
    },
    /// A log segment or log ring cannot have this size.
    #[error("{what} cannot have {bytes} bytes; the size must be {limit}")]
    Size {
        /// The log segment or log ring.
        what: &'static str,
        /// Requested size.
        bytes: u64,
        /// Sizes that are allowed.
        limit: String,
    },
}

/// Offset of a failed call, for a message.
fn place(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at offset {offset}") }
}

/// Remedy for a call that the operating system refused.
fn advice(cause: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; free disk space, then open the database again"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "; mount the file system writable, then open the database again"
        }
        ErrorKind::PermissionDenied => "; correct the permissions, then open the database again",
        ErrorKind::NotADirectory => "; a part of this path is a file: name another directory",
        _ if matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            "; raise the limit of open files (ulimit -n, LimitNOFILE), or close other files"
        }
        _ if cause.raw_os_error() == Some(libc::EIO) => {
            "; check the disk, then open the database again"
        }
        _ => "; remove the cause, then open the database again",
    }
}

/// Condition under which a log that could not be extended can grow again.
fn remedy(cause: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match cause.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "the file system has space: free some, or delete records and compact"
        }
        ErrorKind::ReadOnlyFilesystem => "the file system is mounted writable",
        ErrorKind::PermissionDenied => "the permissions allow it",
        ErrorKind::IsADirectory | ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => {
            "the file or directory of this name is moved away"
        }
        _ if matches!(cause.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            "the limit of open files is raised (ulimit -n, LimitNOFILE), or other files are closed"
        }
        _ => "the cause is removed",
    }
}

/// Returns `true` if the disk or the user's quota is full.
pub(super) fn says_full(cause: &std::io::Error) -> bool {
    matches!(cause.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl LogError {
    /// Creates the error of a log that could not be extended.
    pub(super) fn cannot_grow(reason: Self) -> Self {
        match reason {
            Self::Io { action, path, cause, .. } => Self::CannotGrow { action, path, cause },
            other => other,
        }
    }

    /// Creates the error of a checkpoint of `needed` bytes if the disk is full; otherwise returns
    /// this error.
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

    /// Returns `true` if the disk or the user's quota was full.
    ///
    /// ```
    /// use braiddb::Error;
    ///
    /// fn message(error: &Error) -> String {
    ///     match error.log_error() {
    ///         Some(log) if log.is_full() => "the disk is full: free some space".to_owned(),
    ///         _ => error.to_string(),
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

    /// Returns `true` if a file other than a page file is damaged.
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
                Self::NotADatabase { path, reason: "no such directory exists".into() }
            }
            DirectoryError::Io { action, path, source } => {
                Self::Io { action, path, offset: 0, cause: source }
            }
        }
    }
}
