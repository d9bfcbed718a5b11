//! Errors of the log. Each message states the place of the failure and the remedy.

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
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The byte offset in the file; 0 if the operation has none.
        offset: u64,
        /// The error of the operating system.
        cause: Arc<std::io::Error>,
    },
    /// The log could not be extended. Nothing was written, and nothing is lost. Operations that
    /// need the space fail; reads continue. Writes succeed again once the cause is removed.
    #[error(
        "the log cannot grow: cannot {action} {path}: {cause}; commits are refused until {remedy}",
        path = path.display(), remedy = remedy(cause)
    )]
    CannotGrow {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: Arc<std::io::Error>,
    },
    /// A checkpoint could not be written because the disk is full. The previous checkpoint and the
    /// log are unchanged: nothing is lost, and the database continues to run.
    #[error(
        "a checkpoint cannot be written: cannot {action} {path}{place}: {cause}; it needs about \
         {needed} bytes and {available} are available{remedy}, then compact again",
        path = path.display(), place = place(*offset),
        remedy = checkpoint_remedy(*needed, *available)
    )]
    NoRoomForCheckpoint {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The byte offset in the file; 0 at its beginning, or if the operation has none.
        offset: u64,
        /// Approximate size of the checkpoint in bytes.
        needed: u64,
        /// Disk space available to the checkpoint in bytes, after its partial file is removed,
        /// including the reserve. The user's quota may be lower.
        available: u64,
        /// The error of the operating system.
        cause: Arc<std::io::Error>,
    },
    /// A backup is incomplete. The database itself is unaffected.
    #[error(
        "the backup is incomplete: cannot {action} {path}{place}: {cause}; remove the incomplete \
         copy, {remedy}, and back up again; the database itself is unaffected",
        path = path.display(), place = place(*offset), remedy = backup_remedy(cause)
    )]
    IncompleteBackup {
        /// The operation that failed.
        action: &'static str,
        /// The file of the copy.
        path: PathBuf,
        /// The byte offset in the file; 0 if the operation has none.
        offset: u64,
        /// The error of the operating system.
        cause: Arc<std::io::Error>,
    },
    /// Durable bytes of the log are damaged.
    #[error(
        "{path} is damaged at offset {offset}: {reason}; restore this file, or the database, from \
         a backup",
        path = path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// The byte offset in the file.
        offset: u64,
        /// A description of the damage.
        reason: String,
    },
    /// A page of a paged table is damaged.
    #[error(
        "a page of a paged table in {path} is damaged at offset {offset}: {reason}; {remedy}",
        path = path.display(), remedy = page_remedy(*is_in_checkpoint)
    )]
    DamagedPage {
        /// The damaged file.
        path: PathBuf,
        /// The byte offset in the file.
        offset: u64,
        /// A description of the damage.
        reason: String,
        /// True if the newest checkpoint lists this image of the page. Then opening the database
        /// again reads the same image. Otherwise the log has all records of the page.
        is_in_checkpoint: bool,
    },
    /// A large value of a paged table is incomplete.
    #[error(
        "a value of {bytes} bytes in a paged table is incomplete because one of its pages lacks \
         its piece; close the database and open it for writing, which recovers the value from the \
         log, and check the database (`braid check`), which names damaged files"
    )]
    ValueNotWhole {
        /// The size of the value in bytes.
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
        /// A description of the missing part.
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
        /// The reason.
        reason: String,
    },
    /// A version of the engine with another format wrote the database.
    #[error(
        "{path} has format version {found}, and Braid {braid} reads versions 1 to {expected}; open \
         it with the version of Braid that wrote it, or move its tables from there with braid \
         export and braid import",
        braid = env!("CARGO_PKG_VERSION"),
        path = path.display()
    )]
    WrongVersion {
        /// The file with the version number.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version that this engine reads.
        expected: u32,
    },
    /// The database is already open, in this process or another one.
    #[error(
        "the database in {path} is already open, in this process or another; close it there first",
        path = path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// Data of a database that was opened read-only no longer exists, because compaction in the
    /// writing process freed it. Earlier reads returned correct data.
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
        /// The object with this size.
        what: &'static str,
        /// The requested size in bytes.
        bytes: u64,
        /// The allowed sizes.
        limit: String,
    },
}

/// Describes the position of a failure in a file, if known.
fn place(offset: u64) -> String {
    if offset == 0 { String::new() } else { format!(" at offset {offset}") }
}

/// Returns the remedy for an error of the operating system.
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

/// Returns the remedy for a damaged page.
fn page_remedy(is_in_checkpoint: bool) -> &'static str {
    match is_in_checkpoint {
        true => "restore the database from a backup",
        false => "close the database and open it again, which recovers the page from the log",
    }
}

/// Returns the condition under which the log can be extended again.
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

/// Returns the remedy for a checkpoint that found no space. No size is named if other files took the
/// space only for a moment.
fn checkpoint_remedy(needed: u64, available: u64) -> String {
    match needed.saturating_sub(available) {
        0 => " now, so wait a moment".to_owned(),
        missing => format!(", so free at least {missing} bytes of other files, or delete records"),
    }
}

/// Returns the remedy for a backup that could not be written.
fn backup_remedy(cause: &std::io::Error) -> &'static str {
    match says_full(cause) {
        true => "free space there or name a directory on another disk",
        false => "remove the cause or name another directory",
    }
}

/// Returns whether the error reports a full disk or an exhausted quota.
pub(super) fn says_full(cause: &std::io::Error) -> bool {
    matches!(cause.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl LogError {
    /// Creates the error for a log that could not be extended.
    pub(super) fn cannot_grow(reason: Self) -> Self {
        match reason {
            Self::Io { action, path, cause, .. } => Self::CannotGrow { action, path, cause },
            other => other,
        }
    }

    /// Creates the error for a backup to `target`, if a file there could not be written.
    pub(super) fn of_backup(self, target: &Path) -> Self {
        match self {
            Self::Io { action, path, offset, cause } if path.starts_with(target) => {
                Self::IncompleteBackup { action, path, offset, cause }
            }
            other => other,
        }
    }

    /// Creates the error for a checkpoint of `needed` bytes, if the cause is a full disk.
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

    /// Returns whether the disk is full, or the user's quota is exhausted.
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
            | Self::IncompleteBackup { cause, .. }
            | Self::CannotGrow { cause, .. }
            | Self::NoRoomForCheckpoint { cause, .. } => says_full(cause),
            _ => false,
        }
    }

    /// Returns whether the error reports damaged data.
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
