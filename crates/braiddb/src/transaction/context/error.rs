//! Errors of operations and commits.

use std::sync::Arc;

use crate::index::MAX_KEY_BYTES;
use crate::log::{LogError, Lsn};
use crate::page::PageError;
use crate::record::{EncodedKey, Records, TableFull};
use crate::rid::TableId;
use crate::sched::BlocksWorker;
use crate::transaction::sets::read_set::NamedKeys;
use crate::types::{DecodeError, Key, TableKey};
use crate::version::MAX_VALUE_BYTES;

/// The failure of an operation on a transaction, or of its commit.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum OperationError {
    /// Another transaction wrote the record first; this one must abort, and may be retried. Names
    /// the record if the caller asked for names.
    #[error("another transaction wrote the record first")]
    Conflict(Option<Box<NamedKeys>>),
    /// A record that the transaction read has changed; it is aborted, and may be retried.
    #[error("another transaction changed what this one read")]
    NotSerializable(Box<NamedKeys>),
    /// A starved transaction has the priority token; this one is aborted, and may be retried.
    #[error("a starved transaction commits alone")]
    YieldedToPriority,
    /// A bulk operation is changing the table; the transaction must abort, and may be retried.
    #[error("a bulk operation changes table {0:?}")]
    BulkUnderWay(Arc<str>, TableId),
    #[error("a write of a bulk operation was dropped before it was complete")]
    BulkGivenUp,
    #[error("a rollback to a savepoint was dropped before it was complete")]
    RollbackGivenUp,
    #[error("the application of row writes was dropped or failed before it was complete")]
    ApplyGivenUp,
    #[error("bulk operations have no savepoints")]
    BulkSavepoint,
    /// Versions of paged tables that the transaction wrote exceed their limit.
    #[error("the transaction has {} bytes of versions: the limit is {} bytes", .0.bytes, .0.limit)]
    VersionBytes(Box<TooLong>),
    #[error("the transaction is read-only")]
    ReadOnly,
    #[error("the database was opened read-only")]
    ReadOnlyDatabase,
    #[error("writes to the database are restricted to {}", .0.writer)]
    RestrictedWrite(Box<RestrictedWrite>),
    #[error("the savepoint belongs to another transaction, or is undone")]
    SavepointOver,
    #[error("a scan cannot change its direction after it has begun")]
    ScanBegun,
    #[error("the key exists already")]
    KeyExists(Box<RecordKey>),
    #[error("no record has this key")]
    KeyNotFound(Box<RecordKey>),
    #[error("a key of {0} bytes is too long: the limit is {MAX_KEY_BYTES} bytes")]
    KeyTooLong(usize),
    #[error("a value of {0} bytes is too long: the limit is {MAX_VALUE_BYTES} bytes")]
    ValueTooLong(usize),
    /// A key does not fit on a page of its table.
    #[error(
        "a key of {} bytes is too long for a paged table: the limit is {} bytes",
        .0.bytes, .0.limit
    )]
    TooLongForPage(Box<TooLong>),
    /// A page frame or page id could not be allocated.
    #[error(transparent)]
    Pages(Box<PageError>),
    #[error(transparent)]
    TableFull(Box<TableFull>),
    /// A write would give a second record a key of a unique index.
    #[error("another record has the same key in a unique index")]
    UniqueViolation(Box<UniqueViolation>),
    /// An error of a secondary index.
    #[error(transparent)]
    Index(#[from] Box<IndexError>),
    /// The key function of an index panicked.
    #[error("code of the caller panicked: {0}")]
    Panicked(Box<str>),
    /// A stored value is not of the type that an index decodes.
    #[error(transparent)]
    Decode(Box<DecodeError>),
    #[error("the database has no log")]
    Unlogged,
    #[error("another checkpoint, compaction, backup or check is running")]
    CheckpointUnderWay,
    #[error("the worker has too many open transactions")]
    Overloaded,
    /// The executor that polls the operation blocks the worker for which the operation waits.
    #[error("the operation would wait for the thread that polls it")]
    WouldBlock,
    /// The log failed after the commit had reserved its LSN; the commit may be durable or not.
    #[error("the log failed before the commit at LSN {lsn} was known to be durable: {cause}")]
    CommitUnknown { lsn: Lsn, cause: Arc<LogError> },
    /// The log could not be extended; nothing was written, and the operation may be retried.
    #[error(transparent)]
    Refused(Arc<LogError>),
    /// The log could not be extended for a transaction that only deletes. After upkeep has freed
    /// disk space, the operation may be retried.
    #[error(transparent)]
    NoRoomToDelete(Arc<LogError>),
    /// The log failed; no transaction can commit anymore.
    #[error("the log has failed: {0}")]
    Log(Arc<LogError>),
    /// A record or page could not be read from disk, or a file other than the log not be written.
    #[error("storage failed: {0}")]
    Storage(Arc<LogError>),
}

/// A length and the limit that it exceeds: of a key on a page, or of a transaction's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
}

/// A table that a transaction was to write, and the only caller that may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestrictedWrite {
    pub(crate) table: String,
    pub(crate) writer: String,
}

/// A table and a key that a write found or missed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordKey {
    /// Name of the table.
    pub table: String,
    /// The key.
    pub key: EncodedKey,
}

impl RecordKey {
    pub(in crate::transaction) fn boxed(table: &Records, key: &[u8]) -> Box<Self> {
        Box::new(Self { table: table.name().to_string(), key: table.encoded_key(key) })
    }

    /// Decodes the key as this type.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let seats: Table<(u64, String), u64> = db.create_table("seats").await?;
    ///         let seat = (7, "B".to_owned());
    ///         db.insert(&seats, &seat, &1).await?;
    ///         match db.insert(&seats, &seat, &2).await {
    ///             Err(Error::KeyExists(taken)) => assert_eq!(taken.key_as::<(u64, String)>()?, seat),
    ///             other => panic!("{other:?}"),
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the bytes encode no such key.
    pub fn key_as<K: TableKey + ?Sized>(&self) -> Result<K::Decoded, DecodeError> {
        K::decode_key(&self.key)
    }
}

/// A key of a unique index that a second record was about to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueViolation {
    /// Name of the table.
    pub table: String,
    /// Name of the index.
    pub index: String,
    /// The key in the index, encoded as a part of a tuple.
    pub key: EncodedKey,
}

impl UniqueViolation {
    /// Decodes the key in the index as this type.
    ///
    /// ```
    /// use braiddb::{Database, Error, IndexOptions, Options, Table, block_on};
    ///
    /// fn main() -> Result<(), Error> {
    ///     block_on(async {
    ///         let db = Database::in_memory(Options::default().workers(1))?;
    ///         let users: Table<u64, str> = db.create_table("users").await?;
    ///         let unique = IndexOptions::default().unique(true);
    ///         db.index::<str, _, _, _>(&users, "by_name", unique, |name, keys| keys.push(name))
    ///             .await?;
    ///         db.insert(&users, &1, "ada").await?;
    ///         match db.insert(&users, &2, "ada").await {
    ///             Err(Error::UniqueViolation(taken)) => assert_eq!(taken.key_as::<str>()?, "ada"),
    ///             other => panic!("{other:?}"),
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// An error if the bytes encode no such key.
    pub fn key_as<S: Key + ?Sized>(&self) -> Result<S::Owned, DecodeError> {
        match S::decode_part(&self.key)? {
            (key, []) => Ok(key),
            _ => Err(DecodeError::new(S::type_name())),
        }
    }
}

/// Failure of a secondary index. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// No index has this name, or it was dropped.
    #[error("index {index:?} of table {table:?} does not exist; create it first")]
    NotFound {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
    },
    /// The program wrote to a table before it attached one of its indexes.
    #[error(
        "index {index:?} of table {table:?} is not attached, so the table cannot be written; call \
         Database::index with its key function, or Database::drop_index"
    )]
    Detached {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
    },
    /// The index was created with other options, another version or another type of keys.
    #[error(
        "index {index:?} of table {table:?} is {stored}, but {requested} was requested; drop the \
         index and create it again, or request the stored definition"
    )]
    Mismatch {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
        /// Definition of the stored index.
        stored: String,
        /// Definition that was requested.
        requested: String,
    },
    /// A single record was requested by a key of an index that is not unique.
    #[error("index {index:?} of table {table:?} is not unique; scan it instead")]
    NotUnique {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
    },
    /// Two records have the same key in a unique index that is being created.
    #[error(
        "index {index:?} of table {table:?} cannot be unique because the records {first} and \
         {second} both have the key {key}; change one of them, or create the index without unique",
        first = records[0], second = records[1]
    )]
    DuplicateKey {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
        /// The key in the index, encoded as a part of a tuple: [`Key::decode_part`] decodes it.
        key: EncodedKey,
        /// Encoded keys of the two records: [`Key::decode`] decodes them.
        records: Box<[EncodedKey; 2]>,
    },
    /// The key function returned other keys than before for the same value. The transaction cannot
    /// commit.
    #[error(
        "the key function of index {index:?} of table {table:?} returned other keys than before \
         for the same value; correct the function, and create the index again with another version"
    )]
    Inconsistent {
        /// Name of the table.
        table: String,
        /// Name of the index.
        index: String,
    },
}

/// Every operation returns one through several layers of futures, so rare payloads are boxed.
const _: () = assert!(size_of::<OperationError>() <= 24);

impl From<BlocksWorker> for OperationError {
    fn from(_: BlocksWorker) -> Self {
        Self::WouldBlock
    }
}

impl From<UniqueViolation> for OperationError {
    fn from(violation: UniqueViolation) -> Self {
        Self::UniqueViolation(Box::new(violation))
    }
}

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
    /// Returns `true` if the disk is full.
    pub(crate) fn is_disk_full(&self) -> bool {
        let (Self::Refused(error) | Self::NoRoomToDelete(error) | Self::Storage(error)) = self
        else {
            return false;
        };
        error.is_full()
    }

    /// Returns `true` if a piece of a value that spans several pages is missing.
    pub(crate) fn is_value_not_whole(&self) -> bool {
        matches!(self, Self::Storage(error) if matches!(**error, LogError::ValueNotWhole { .. }))
    }

    /// Returns `true` if a page is damaged.
    pub(crate) fn is_damaged_page(&self) -> bool {
        matches!(self, Self::Storage(error) if matches!(**error, LogError::DamagedPage { .. }))
    }

    /// Creates the error of a failed read, or of a failed write to a file other than the log.
    pub(crate) fn storage(error: LogError) -> Self {
        Self::Storage(Arc::new(error))
    }
}
