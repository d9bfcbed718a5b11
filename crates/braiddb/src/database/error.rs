//! The error type of the public API.

mod contended;
mod convert;
mod details;
mod kind;
mod missing_table;
mod misuse;
#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::Arc;

use crate::log::LogError;
use crate::types::DecodeError;

pub use crate::transaction::{IndexError, RecordKey, UniqueViolation};
pub use contended::Contended;
pub use details::{BusyWith, ChangesError, MemoryLimit, TransactionEnd};
pub use kind::ErrorKind;
pub use missing_table::MissingTable;
pub use misuse::{Misuse, TypeMismatch};

/// A failed call, grouped by what the caller can do about it; see [`Error::kind`].
///
/// An error other than [`Error::CommitUnknown`] and [`Error::Failed`] means that the transaction
/// wrote nothing: it is aborted, or its write did not happen.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction wrote a record first that this one was about to write, or the engine
    /// aborted this one so that a starved transaction could commit.
    ///
    /// Written: nothing. Remedy: run the transaction again later.
    #[error(
        "the transaction gave up after {}: {}; run it again later",
        count(*attempts), conflict(record)
    )]
    Conflict {
        /// Number of attempts that failed.
        attempts: u32,
        /// The record of the last attempt's conflict, or all records of a table whose index
        /// was created after the attempt began; `None` if a starved transaction was the reason.
        record: Option<Box<Contended>>,
    },
    /// Another transaction changed a record after this one read it and before it committed.
    ///
    /// Written: nothing. Remedy: run the transaction again later, read less in each transaction,
    /// or use [`Isolation::Snapshot`](crate::Isolation) where write skew does no harm.
    #[error(
        "the transaction gave up after {}: other transactions changed {read} after it was read; \
         run it again later, or read less in each transaction",
        count(*attempts)
    )]
    NotSerializable {
        /// Number of attempts that failed.
        attempts: u32,
        /// Records that the last attempt read and that have changed.
        read: Box<Contended>,
    },
    /// Another operation uses the table or the files exclusively.
    ///
    /// Written: nothing. Remedy: call again when the other operation has finished.
    #[error(transparent)]
    Busy(#[from] BusyWith),
    /// A worker has as many open transactions as `max_open` allows, or under
    /// [`Overload::Shed`](crate::Overload) more transactions that wait for storage than
    /// `cold_width` allows.
    ///
    /// Written: nothing. Remedy: try again later, or raise these options.
    #[error(
        "a worker has too many transactions that are open or wait for storage; try again later, or \
         raise max_open or cold_width"
    )]
    Overloaded,

    /// An insert found a record with the same key.
    ///
    /// Written: nothing. Remedy: call `put` or `update` to change the record.
    #[error(
        "table {:?} already has a record with the key {}; call put or update to change it",
        .0.table, .0.key
    )]
    KeyExists(Box<RecordKey>),
    /// An update found no record with the key. A program that needs a record which `get` did not
    /// find can return [`Table::key_not_found`](crate::Table::key_not_found).
    ///
    /// Written: nothing. Remedy: call `put` or `insert` to create the record.
    #[error(
        "table {:?} has no record with the key {}; call put or insert to create it",
        .0.table, .0.key
    )]
    KeyNotFound(Box<RecordKey>),
    /// A write gives a second record the same key in a unique index.
    ///
    /// Written: nothing, and the transaction can continue. Remedy: change the value, or delete the
    /// other record.
    #[error(
        "another record has the key {} in the unique index {:?} of table {:?}; change the value, or \
         delete the other record",
        .0.key, .0.index, .0.table
    )]
    UniqueViolation(Box<UniqueViolation>),
    /// No table has this name.
    ///
    /// Written: nothing. Remedy: create the table, or correct the name.
    #[error("{0}")]
    TableNotFound(Box<MissingTable>),
    /// A table of this name exists already.
    ///
    /// Written: nothing. Remedy: open the table, or choose another name.
    #[error("table {0:?} already exists; open it, or choose another name")]
    TableExists(String),
    /// Options contradict each other or the machine.
    ///
    /// Written: nothing. Remedy: correct the option that the message names.
    #[error("the options are invalid: {0}")]
    Options(String),
    /// The directory cannot be used as requested: it holds no database, is open elsewhere, has
    /// another format version, or cannot take a backup.
    ///
    /// Written: nothing. Remedy: correct the path, or close the database elsewhere.
    #[error(transparent)]
    Directory(Arc<LogError>),
    /// An index is missing, detached, defined differently, or contradicts its records.
    ///
    /// Written: nothing. Remedy: see [`IndexError`].
    #[error(transparent)]
    Index(Box<IndexError>),
    /// A change feed cannot begin or continue, or a change slot is missing or exists already.
    ///
    /// Written: nothing. Remedy: see [`ChangesError`].
    #[error(transparent)]
    Changes(#[from] ChangesError),
    /// The program calls the database in a way that cannot succeed.
    ///
    /// Written: nothing. Remedy: correct the call; see [`Misuse`].
    #[error(transparent)]
    Misuse(#[from] Misuse),
    /// Code of the caller panicked inside the database: a transaction's closure, a source's input
    /// or reply, an observer of the opening, or an index's key function.
    ///
    /// Written: nothing of the transaction or the write that ran the code; a source ends. Remedy:
    /// correct the code that panicked.
    #[error("code of the caller panicked inside the database: {0}; correct the code that panicked")]
    Panicked(String),

    /// A file or a page is damaged: its bytes are not those that were written.
    ///
    /// Written: nothing. Remedy: open the database again if the message asks for it, otherwise
    /// restore the file or the database from a backup.
    #[error(transparent)]
    Corrupt(Arc<LogError>),
    /// Stored bytes are not an encoding of the table's key or value type.
    ///
    /// Written: nothing. Remedy: read the table with the types that wrote it, or check the
    /// database for damage with [`Database::check`](crate::Database::check).
    #[error(
        "stored bytes cannot be decoded: {0}; read the table with the types that wrote it, or \
         check the database for damage"
    )]
    Decode(#[from] DecodeError),

    /// The disk, or the user's quota, is full.
    ///
    /// Written: nothing; the database continues to serve reads, and accepts writes when space is
    /// available again. Remedy: free space. Deletions, checkpoints and compaction use reserved
    /// space: delete records in transactions that do nothing else, then call
    /// [`Database::compact`](crate::Database::compact). [`Database::run`](crate::Database::run)
    /// frees space and retries a deletion itself. An interactive transaction does not: after
    /// this error, call `compact` and begin another one.
    #[error(transparent)]
    DiskFull(Arc<LogError>),
    /// The memory limit of a transaction, of page frames or of the machine is reached.
    ///
    /// Written: nothing; a transaction that exceeds `version_bytes` cannot commit. Remedy: raise
    /// the limit that the message names, or do less in one transaction.
    #[error(transparent)]
    MemoryFull(Box<MemoryLimit>),
    /// The operating system refused to read, write or create a file or a thread.
    ///
    /// Written: nothing. After [`LogError::CannotGrow`] the database continues, and accepts writes
    /// when the cause is removed. After another failure of the log it accepts no more writes.
    /// Remedy: remove the cause, then open the database again.
    #[error(transparent)]
    Io(Arc<LogError>),

    /// The log failed after the transaction's commit was placed in it and before the commit was
    /// known to be durable.
    ///
    /// Written: either the whole transaction or nothing of it. Remedy: remove the cause, open the
    /// database again, and read what the transaction wrote. Do not run it again unread.
    #[error(
        "the commit at LSN {lsn} may be durable or not: the log failed before the commit was known \
         to be durable ({cause}); open the database again, and read what the transaction wrote"
    )]
    CommitUnknown {
        /// Position of the commit in the log, if it is durable.
        lsn: u64,
        /// Failure of the log.
        cause: Arc<LogError>,
    },

    /// The transaction has ended: it committed, aborted, failed earlier, or was open too long.
    ///
    /// Written: nothing by this call. Remedy: begin another transaction.
    #[error(transparent)]
    TransactionEnded(#[from] TransactionEnd),
    /// A writer has freed or reused a file that this read-only database needs, or changes its
    /// files too often; see [`Options::read_only`](crate::Options::read_only).
    ///
    /// Written: nothing; everything that was read is right. Remedy: open the database again.
    #[error(transparent)]
    Outdated(Arc<LogError>),
    /// The database is closed or closing.
    ///
    /// Written: nothing. Remedy: open the database again.
    #[error("the database is closed; open it again")]
    Closed,
    /// The engine stopped because one of its internal invariants does not hold. It neither commits
    /// nor reads anymore.
    ///
    /// Written: every acknowledged transaction, as after a crash; a transaction whose commit was
    /// pending may be durable too. Remedy: open the database again, which recovers it, and report
    /// the message as a bug.
    #[error(
        "the engine stopped after an internal error: {message}; open the database again, and \
         report this message as a bug"
    )]
    Failed {
        /// Message of the engine's panic.
        message: String,
    },
}

impl Error {
    /// Returns what the caller can do about this error.
    ///
    /// ```
    /// use braiddb::{Error, ErrorKind, MissingTable};
    ///
    /// /// The status code of a service's answer.
    /// fn status(error: &Error) -> u16 {
    ///     match error.kind() {
    ///         ErrorKind::Retry | ErrorKind::Ended => 503,
    ///         ErrorKind::Call => 400,
    ///         ErrorKind::Machine => 507,
    ///         _ => 500,
    ///     }
    /// }
    /// assert_eq!(status(&MissingTable::new("drafts").into()), 400);
    /// assert_eq!(status(&Error::Overloaded), 503);
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Conflict { .. }
            | Error::NotSerializable { .. }
            | Error::Busy(_)
            | Error::Overloaded => ErrorKind::Retry,
            Error::KeyExists(_)
            | Error::KeyNotFound(_)
            | Error::UniqueViolation(_)
            | Error::TableNotFound(_)
            | Error::TableExists(_)
            | Error::Options(_)
            | Error::Directory(_)
            | Error::Index(_)
            | Error::Changes(_)
            | Error::Misuse(_)
            | Error::Panicked(_) => ErrorKind::Call,
            Error::Corrupt(_) | Error::Decode(_) => ErrorKind::Data,
            Error::DiskFull(_) | Error::MemoryFull(_) | Error::Io(_) => ErrorKind::Machine,
            Error::CommitUnknown { .. } => ErrorKind::Unknown,
            Error::TransactionEnded(_)
            | Error::Outdated(_)
            | Error::Closed
            | Error::Failed { .. } => ErrorKind::Ended,
        }
    }

    /// Returns `true` if the same call may succeed later without any change: the kind is
    /// [`ErrorKind::Retry`].
    ///
    /// ```
    /// assert!(braiddb::Error::Conflict { attempts: 1, record: None }.is_retryable());
    /// assert!(!braiddb::Error::Closed.is_retryable());
    /// ```
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.kind() == ErrorKind::Retry
    }

    /// Returns the failure of a file or directory that this error reports or was caused by.
    ///
    /// ```
    /// use braiddb::{Database, LogError, Options};
    ///
    /// let directory = tempfile::tempdir().unwrap();
    /// let db = Database::open(directory.path(), Options::default().workers(1)).unwrap();
    /// let second = Database::open(directory.path(), Options::default().workers(1)).unwrap_err();
    /// assert!(matches!(second.log_error(), Some(LogError::Locked { .. })));
    /// db.close().unwrap();
    /// ```
    #[must_use]
    pub fn log_error(&self) -> Option<&LogError> {
        match self {
            Error::Directory(error)
            | Error::Corrupt(error)
            | Error::DiskFull(error)
            | Error::Io(error)
            | Error::Outdated(error)
            | Error::CommitUnknown { cause: error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Number of attempts, for a message.
fn count(attempts: u32) -> String {
    format!("{attempts} attempt{}", if attempts == 1 { "" } else { "s" })
}

/// Reason of a conflict, for a message.
fn conflict(record: &Option<Box<Contended>>) -> String {
    match record {
        Some(record) => format!("another transaction wrote {record} first"),
        None => "the engine aborted it so that a starved transaction could commit".to_owned(),
    }
}

/// A result whose error is [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
