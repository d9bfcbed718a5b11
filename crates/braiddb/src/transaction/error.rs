//! Errors of operations and commits.

use std::sync::Arc;

use super::read_set::NamedKeys;
use crate::index::MAX_KEY_BYTES;
use crate::log::{LogError, Lsn};
use crate::page::PageError;
use crate::record::{EncodedKey, TableFull};
use crate::rid::TableId;
use crate::types::DecodeError;
use crate::version::MAX_VALUE_BYTES;

/// The failure of an operation on a transaction, or of its commit.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum OperationError {
    /// Another transaction wrote the record first. The transaction must abort, and may be retried.
    /// Names the record, if conflicts are to name their records.
    #[error("another transaction wrote the record first")]
    Conflict(Option<Box<NamedKeys>>),
    /// Another transaction changed what this one read. This one is aborted, and may be retried.
    #[error("another transaction changed what this one read")]
    NotSerializable(Box<NamedKeys>),
    /// Another transaction holds the priority token. This one is aborted, and may be retried.
    #[error("another transaction holds the priority token")]
    TurnedAway,
    /// A bulk operation holds the table. The transaction must abort, and may be retried.
    #[error("a bulk operation is changing table {0:?}")]
    BulkUnderWay(Arc<str>, TableId),
    #[error("a write of a bulk operation was not completed")]
    BulkGivenUp,
    #[error("a bulk operation has no savepoints")]
    BulkSavepoint,
    /// The transaction has too many bytes of versions on paged tables.
    #[error("the transaction has {} bytes of versions: the limit is {} bytes", .0.bytes, .0.limit)]
    VersionBytes(Box<TooLong>),
    #[error("the transaction is read-only")]
    ReadOnly,
    #[error("the database was opened read-only")]
    ReadOnlyDatabase,
    #[error("the savepoint belongs to another transaction, or an earlier one was rolled back to")]
    SavepointOver,
    #[error("a scan cannot change direction after its first record")]
    ScanBegun,
    #[error("the key exists already")]
    KeyExists,
    #[error("no record has this key")]
    KeyNotFound,
    #[error("a key of {0} bytes is too long: the limit is {MAX_KEY_BYTES} bytes")]
    KeyTooLong(usize),
    #[error("a value of {0} bytes is too long: the limit is {MAX_VALUE_BYTES} bytes")]
    ValueTooLong(usize),
    /// A key does not fit on a page of its table; gives its length and the limit.
    #[error("a key of {} bytes is too long for a paged table: the limit is {} bytes", .0.bytes, .0.limit)]
    TooLongForPage(Box<TooLong>),
    /// Pages of a table could not be allocated or read.
    #[error(transparent)]
    Pages(Box<PageError>),
    #[error(transparent)]
    TableFull(Box<TableFull>),
    /// An error of a secondary index.
    #[error(transparent)]
    Index(#[from] Box<IndexError>),
    /// The key function of an index panicked.
    #[error("user code panicked: {0}")]
    Panicked(Box<str>),
    /// A stored value could not be decoded as an index expects.
    #[error(transparent)]
    Decode(Box<DecodeError>),
    #[error("a record is not in the log")]
    Unlogged,
    #[error("a checkpoint is being written already")]
    CheckpointUnderWay,
    #[error("the worker has too many operations in progress")]
    Overloaded,
    /// The log failed after the commit had drawn its LSN: the commit may or may not be on disk.
    #[error("the log failed before the commit at LSN {lsn} was known to be durable: {cause}")]
    CommitUnknown { lsn: Lsn, cause: Arc<LogError> },
    /// The log could not be extended. The affected write did not happen, and may be retried.
    #[error(transparent)]
    Refused(Arc<LogError>),
    /// The log failed: nothing can be committed any more.
    #[error("the log has failed: {0}")]
    Log(Arc<LogError>),
    /// Storage could not be read, or a file other than the log could not be written.
    #[error("storage failed: {0}")]
    Storage(Arc<LogError>),
}

/// An exceeded size limit: of a key on a page, or of the versions of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
}

/// An error of a secondary index.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum IndexError {
    /// A write would give a second record the same key in a unique index.
    #[error("another record has the same key in the unique index {index:?} of table {table:?}")]
    UniqueViolation { table: String, index: String, key: EncodedKey },
    #[error("the index {index:?} of table {table:?} is not attached")]
    IndexDetached { table: String, index: String },
    #[error("table {table:?} has no index {index:?}")]
    IndexNotFound { table: String, index: String },
    /// The key function of an index returned keys that differ from those in the index.
    #[error(
        "the key function of index {index:?} of table {table:?} returned keys that differ from the index"
    )]
    IndexInconsistent { table: String, index: String },
    /// Two records have the same key in a unique index that is being built.
    #[error("two records have the same key in the unique index {index:?} of table {table:?}")]
    DuplicateKey { table: String, index: String, key: EncodedKey, records: Box<[EncodedKey; 2]> },
}

/// Every operation returns this type through several layers of futures, so rare variants are boxed.
const _: () = assert!(size_of::<OperationError>() <= 24);

impl From<IndexError> for OperationError {
    fn from(error: IndexError) -> Self {
        Self::Index(Box::new(error))
    }
}

impl From<PageError> for OperationError {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Storage(error) => Self::Storage(error),
            error => Self::Pages(Box::new(error)),
        }
    }
}

impl From<TableFull> for OperationError {
    fn from(error: TableFull) -> Self {
        Self::TableFull(Box::new(error))
    }
}

impl From<DecodeError> for OperationError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(Box::new(error))
    }
}

impl OperationError {
    /// Returns whether the disk was full.
    pub(crate) fn is_disk_full(&self) -> bool {
        matches!(self, Self::Refused(error) | Self::Storage(error) if error.is_full())
    }

    /// Returns whether a piece of a large value is missing.
    pub(crate) fn is_value_not_whole(&self) -> bool {
        matches!(self, Self::Storage(error) if matches!(**error, LogError::ValueNotWhole { .. }))
    }

    /// Returns whether a page is damaged.
    pub(crate) fn is_damaged_page(&self) -> bool {
        matches!(self, Self::Storage(error) if matches!(**error, LogError::DamagedPage { .. }))
    }

    /// Wraps an error of reading storage, or of a file other than the log.
    pub(crate) fn storage(error: LogError) -> Self {
        Self::Storage(Arc::new(error))
    }
}
