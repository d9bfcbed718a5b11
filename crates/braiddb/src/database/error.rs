//! What can go wrong, as the user sees it.

use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::changes::TokenError;
use crate::log::LogError;
use crate::record::{EncodedKey, ShowKey};
use crate::transaction::{IndexError, NamedKeys, OperationError, TooLong};
use crate::types::{DecodeError, EncodeError};

/// Any failure of the database: what went wrong, where, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction wrote a record this one needed, in every attempt; or one that others had kept from
    /// committing for long was let past.
    #[error("gave up after {attempts} attempts: {}", conflict(.record))]
    Conflict {
        /// How often the transaction was tried.
        attempts: u32,
        /// The record that the last attempt was to write; none if that was not what kept it from committing.
        record: Option<Box<Contended>>,
    },
    /// What the transaction read was changed by others before it could commit, in every attempt. Read
    /// less, in shorter transactions, or where write skew does no harm run it under
    /// [`Isolation::Snapshot`](crate::Isolation).
    #[error(
        "gave up after {attempts} attempts: other transactions changed what was read of {read}"
    )]
    NotSerializable {
        /// How often the transaction was tried.
        attempts: u32,
        /// What the last attempt had read that was changed.
        read: Box<Contended>,
    },
    /// A bulk operation ([`Database::run_bulk`](crate::Database::run_bulk)) has a table that the transaction was to write, in
    /// every attempt.
    #[error(
        "a bulk operation changes table {table:?}, and others may only read it meanwhile; try again when it is over"
    )]
    BulkUnderWay {
        /// The table's name.
        table: String,
    },
    /// A transaction took more memory for versions of paged tables than it may. It cannot commit.
    #[error(
        "the transaction has changed so much of paged tables that its versions take {bytes} bytes of memory, and the \
         limit is {limit}: use Database::run_bulk for changes of this size, or raise Tuning::version_bytes"
    )]
    VersionBytes {
        /// Bytes that they took.
        bytes: u64,
        /// [`Tuning::version_bytes`](crate::Tuning::version_bytes).
        limit: u64,
    },
    /// A bulk operation lists a table that is in memory.
    #[error(
        "table {0:?} is in memory, and bulk operations are on paged tables: write it in transactions of Database::run, or \
         make it with TableOptions::paged"
    )]
    NotPaged(String),
    /// A bulk operation did what it cannot, and is to be run again without.
    #[error("a bulk operation is taken back as a whole: {0}")]
    InBulk(&'static str),
    /// A transaction that was begun as read-only is to write.
    #[error("the transaction is read-only; run it without RunOptions::read_only to write")]
    ReadOnly,
    /// A database that was opened to be only read is to be changed.
    #[error(
        "the database was opened to be only read; open it without Options::read_only to change it, once no other \
         process has it open"
    )]
    ReadOnlyDatabase,
    /// A transaction cannot be rolled back to a savepoint.
    #[error(
        "the savepoint is not one of this transaction's, or an earlier one was rolled back to since; make \
         another"
    )]
    SavepointOver,
    /// `insert` met a record with the same key.
    #[error("the key exists already; use put or update to change its record")]
    KeyExists,
    /// `update` met no record with the key.
    #[error("no record has this key; use put or insert to make one")]
    KeyNotFound,
    /// The encoded key is longer than the limit.
    #[error("a key of {bytes} bytes is too long: the limit is {limit} bytes")]
    KeyTooLong {
        /// Bytes of the encoded key.
        bytes: usize,
        /// Most bytes a key may have.
        limit: usize,
    },
    /// The encoded value is longer than the limit.
    #[error("a value of {bytes} bytes is too long: the limit is {limit} bytes")]
    ValueTooLong {
        /// Bytes of the encoded value.
        bytes: usize,
        /// Most bytes a value may have.
        limit: usize,
    },
    /// A value could not be encoded.
    #[error("the value cannot be encoded: {0}")]
    Encode(#[from] EncodeError),
    /// Stored bytes are not what the table's type says.
    #[error("stored bytes do not decode: {0}")]
    Decode(#[from] DecodeError),
    /// The table holds as many records as a table can.
    #[error("the table is full: {0}")]
    TableFull(String),
    /// `create_table` met a table of the same name.
    #[error("table {0:?} exists already; open it instead")]
    TableExists(String),
    /// `open_table` met no table of this name.
    #[error("there is no table {0:?}; create it first")]
    TableNotFound(String),
    /// A table was opened with other types than it was created with.
    #[error("table {table:?} holds {stored}, but was opened as {requested}; {advice}")]
    TableType {
        /// The table's name.
        table: String,
        /// Key and value types it was created with.
        stored: String,
        /// Key and value types it was opened with.
        requested: String,
        /// What to do.
        advice: String,
    },
    /// The name of a new table or index is empty, too long, or reserved.
    #[error(
        "{0:?} cannot name a table or an index: names have 1 to 512 bytes and do not start with \"braid.\""
    )]
    TableName(String),
    /// A table handle was used with a transaction of another database.
    #[error("table {0:?} belongs to another database than the transaction")]
    ForeignTable(String),
    /// A write would give a second record a key that another record has in a unique index. Nothing of
    /// it has happened.
    #[error("another record has the key {key} in the unique index {index:?} of table {table:?}")]
    UniqueViolation {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
        /// The key, encoded as a part of a tuple.
        key: EncodedKey,
    },
    /// A unique index cannot be created, because two records have the same key.
    #[error(
        "the index {index:?} of table {table:?} cannot be unique: the records {first} and {second} \
         both have the key {key}",
        first = records[0], second = records[1]
    )]
    DuplicateKey {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
        /// The key in the index, encoded as a part of a tuple.
        key: EncodedKey,
        /// The keys of the two records, encoded.
        records: Box<[EncodedKey; 2]>,
    },
    /// A table was written whose index is not attached since the database was opened.
    #[error(
        "table {table:?} cannot be written before its index {index:?} is attached: call \
         Database::index with what gives its keys, or Database::drop_index"
    )]
    IndexDetached {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
    },
    /// There is no index of this name, or it was dropped.
    #[error("table {table:?} has no index {index:?}; create it first")]
    IndexNotFound {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
    },
    /// An index was created with other options, another version or another type of keys.
    #[error(
        "the index {index:?} of table {table:?} is {stored}, but {requested} was asked for; drop it \
         and create it anew"
    )]
    IndexMismatch {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
        /// How it was created.
        stored: String,
        /// What was asked for.
        requested: String,
    },
    /// An index of the table is being created or dropped.
    #[error("an index of table {table:?} is being created or dropped; try again when that is done")]
    IndexBusy {
        /// The table's name.
        table: String,
    },
    /// A key is to lead to one record, in an index that is not unique.
    #[error("the index {0:?} is not unique; scan it instead")]
    IndexNotUnique(String),
    /// The function that gives an index its keys did not give those that it gave for the same value
    /// before. The transaction cannot commit.
    #[error(
        "the function of index {index:?} of table {table:?} does not give the keys that it gave \
         before; mend it, and create the index anew with another version"
    )]
    IndexInconsistent {
        /// The table's name.
        table: String,
        /// The index's name.
        index: String,
    },
    /// The options contradict each other or the machine.
    #[error("the options do not fit: {0}")]
    Options(String),
    /// The database is closed, or closing.
    #[error("the database is closed")]
    Closed,
    /// The engine found one of its own invariants broken, and has stopped: nothing is committed or
    /// read any more. What was acknowledged before is on disk, as after a crash; a transaction whose
    /// commit was waited for may be found there too. Opening the database anew recovers it.
    #[error(
        "the engine has failed and stopped: {message}; open the database again to go on, and please \
         report this"
    )]
    Failed {
        /// The message of the engine's panic.
        message: String,
    },
    /// A user's code panicked: the closure of a transaction, which was aborted; or the inputs or the
    /// reply of a source, which ended; what watched an opening; or what gives an index its keys, in a
    /// write, which has not happened then.
    #[error("the caller's own code panicked, in a closure given to the database: {0}")]
    Panicked(String),
    /// A call was made from within a transaction that would wait for this transaction itself, or block the
    /// thread of the worker that is to run it.
    #[error(
        "within a transaction this call would wait for that transaction itself, or for its worker; make it \
         outside"
    )]
    WouldBlock,
    /// A worker has as many transactions open as it may have; or, under
    /// [`Overload::Shed`](crate::Overload), as many that wait for storage.
    #[error(
        "too many transactions are open or wait for storage; try again later, or raise \
         Tuning::max_open or Tuning::cold_width"
    )]
    Overloaded,
    /// An interactive transaction is over: committed, aborted, or ended by an earlier error.
    #[error("the transaction is over")]
    TransactionOver,
    /// An interactive transaction was open for longer than an option allows, and was aborted.
    #[error(
        "the transaction was aborted: it was open for longer than Options::{option} allows, which is \
         {limit:?}; begin another one, and commit it sooner, or raise the option"
    )]
    TransactionExpired {
        /// The option's name.
        option: &'static str,
        /// Its value.
        limit: Duration,
    },
    /// What a change feed needs of the log was freed: it was behind by more than it may hold, or nobody held the log for
    /// it. Begin with a snapshot.
    #[error(
        "what the feed needs of the log was freed; it is there from LSN {oldest} on; begin with a snapshot, and hold \
         the log with a slot, or more of it"
    )]
    LogGone {
        /// From which LSN on the log is there.
        oldest: u64,
    },
    /// The token is of no use.
    #[error(transparent)]
    ChangeToken(#[from] TokenError),
    /// There is no change slot of this name.
    #[error("there is no change slot {0:?}; create it first")]
    ChangeSlotNotFound(String),
    /// `create_change_slot` met a slot of the same name.
    #[error("the change slot {0:?} exists already; drop it first, or begin feeds with it")]
    ChangeSlotExists(String),
    /// A checkpoint is being written already.
    #[error("a checkpoint is being written already; wait until it is done")]
    CheckpointUnderWay,
    /// The log failed after the transaction had drawn its place in it, and before it was known to
    /// be durable: the transaction may be there when the database is opened again, or not, and all
    /// or nothing of it. To find out, close the database, open it again once the cause is mended,
    /// and read back what the transaction wrote.
    ///
    /// Every other error of a commit but [`Error::Failed`] says that nothing of the transaction is or
    /// will be there.
    #[error(
        "the transaction may be committed or not: the log failed before its commit at LSN {lsn} \
         was known to be durable; open the database again and read back what it wrote ({cause})"
    )]
    CommitUnknown {
        /// Where in the log the commit is, if it is there.
        lsn: u64,
        /// How the log failed.
        cause: Arc<LogError>,
    },
    /// There is no room on the disk for what was asked: nothing of it was written, and the database
    /// goes on. Reads work, and so does everything once there is room on the file system again.
    /// Deletions, checkpoints and compaction have some room of their own: delete records, in
    /// transactions that do nothing else, and call [`Database::compact`](crate::Database::compact).
    #[error(transparent)]
    DiskFull(Arc<LogError>),
    /// Of a database that was opened to be only read ([`Options::read_only`](crate::Options::read_only)), something was
    /// to be read that the process which writes to it has freed meanwhile, or is changing too often. Nothing that was
    /// read is wrong; open it again.
    #[error(transparent)]
    Outdated(Arc<LogError>),
    /// The log cannot be written or read. [`LogError::CannotGrow`] is a matter of the moment: what
    /// needed room in the log was refused, nothing of it was written, and the database goes on.
    #[error(transparent)]
    Log(Arc<LogError>),
    /// The operating system refused something.
    #[error("{context}: {path}: {message}", path = path.display())]
    Io {
        /// What was being done.
        context: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the operating system said.
        message: String,
    },
}

impl Error {
    /// Whether running the transaction again may succeed. After [`Error::CommitUnknown`] it must not
    /// be run again unread: it may be there already.
    ///
    /// ```
    /// assert!(braiddb::Error::Conflict { attempts: 1, record: None }.is_retryable());
    /// assert!(!braiddb::Error::KeyExists.is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Conflict { .. }
                | Error::NotSerializable { .. }
                | Error::BulkUnderWay { .. }
                | Error::Overloaded
        )
    }
}

/// Whom a transaction met, for a message.
fn conflict(record: &Option<Box<Contended>>) -> String {
    match record {
        Some(record) => format!("other transactions wrote the same records first: {record}"),
        None => "one that others had kept from committing for long was let past".to_owned(),
    }
}

impl Error {
    pub(super) fn conflict(attempts: u32, record: Option<Box<NamedKeys>>) -> Self {
        Error::Conflict { attempts, record: record.map(|record| Box::new((*record).into())) }
    }
}

impl From<OperationError> for Error {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Conflict(record) => Error::conflict(1, record),
            OperationError::TurnedAway => Error::conflict(1, None),
            OperationError::NotSerializable(changed) => {
                Error::NotSerializable { attempts: 1, read: Box::new((*changed).into()) }
            }
            OperationError::BulkUnderWay(table, _) => {
                Error::BulkUnderWay { table: table.to_string() }
            }
            OperationError::BulkGivenUp => Error::InBulk(
                "a write to a table with indexes was given up, or failed, before it had made all entries",
            ),
            OperationError::BulkSavepoint => {
                Error::InBulk("there is no savepoint that it is rolled back to")
            }
            OperationError::VersionBytes(long) => {
                let TooLong { bytes, limit } = *long;
                Error::VersionBytes { bytes: bytes as u64, limit: limit as u64 }
            }
            OperationError::ReadOnly => Error::ReadOnly,
            OperationError::ReadOnlyDatabase => Error::ReadOnlyDatabase,
            OperationError::SavepointOver => Error::SavepointOver,
            OperationError::ScanBegun => Error::Options(
                "a scan that has begun does not turn round: call `rev` before its first record is read"
                    .to_owned(),
            ),
            OperationError::KeyExists => Error::KeyExists,
            OperationError::KeyNotFound => Error::KeyNotFound,
            OperationError::KeyTooLong(bytes) => {
                Error::KeyTooLong { bytes, limit: crate::index::MAX_KEY_BYTES }
            }
            OperationError::ValueTooLong(bytes) => {
                Error::ValueTooLong { bytes, limit: crate::version::MAX_VALUE_BYTES }
            }
            OperationError::TooLongForPage(long) => {
                let TooLong { bytes, limit } = *long;
                Error::KeyTooLong { bytes, limit }
            }
            OperationError::Pages(error) => Error::TableFull(error.to_string()),
            OperationError::TableFull(full) => Error::TableFull(full.to_string()),
            OperationError::Index(error) => Error::from(*error),
            OperationError::Panicked(message) => Error::Panicked(message.into()),
            OperationError::Decode(error) => Error::Decode(*error),
            OperationError::Unlogged => {
                Error::Options("a checkpoint is of what is logged, and nothing is".to_owned())
            }
            OperationError::CheckpointUnderWay => Error::CheckpointUnderWay,
            OperationError::Overloaded => Error::Overloaded,
            OperationError::CommitUnknown { lsn, cause } => {
                Error::CommitUnknown { lsn: lsn.0, cause }
            }
            OperationError::Refused(error) | OperationError::Storage(error) if error.is_full() => {
                Error::DiskFull(error)
            }
            OperationError::Refused(error)
            | OperationError::Log(error)
            | OperationError::Storage(error) => Error::from(error),
        }
    }
}

impl From<IndexError> for Error {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::UniqueViolation { table, index, key } => {
                Error::UniqueViolation { table, index, key }
            }
            IndexError::IndexDetached { table, index } => Error::IndexDetached { table, index },
            IndexError::IndexNotFound { table, index } => Error::IndexNotFound { table, index },
            IndexError::IndexInconsistent { table, index } => {
                Error::IndexInconsistent { table, index }
            }
            IndexError::DuplicateKey { table, index, key, records } => {
                Error::DuplicateKey { table, index, key, records }
            }
        }
    }
}

/// What a transaction lost to others: a record, or the records of a range, that it was to write or had read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contended {
    /// The table's name.
    pub table: String,
    /// Between which keys, as they are encoded; both bounds are the key, if it was one.
    pub keys: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    show_key: ShowKey,
}

impl From<NamedKeys> for Contended {
    fn from(records: NamedKeys) -> Self {
        let NamedKeys { table, keys, show_key } = records;
        Self { table, keys, show_key }
    }
}

/// Keys are shown as their type says ([`Key::shown`](crate::Key::shown)), or as their bytes.
impl std::fmt::Display for Contended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "table {:?}", self.table)?;
        match &self.keys {
            (Bound::Unbounded, Bound::Unbounded) => Ok(()),
            (Bound::Included(low), Bound::Included(high)) if low == high => {
                write!(f, ", key {}", self.show_key.show(low))
            }
            (low, high) => {
                let key = |bound: &Bound<Vec<u8>>, unbounded: &str| match bound {
                    Bound::Included(key) => self.show_key.show(key),
                    Bound::Excluded(key) => format!("{} (left out)", self.show_key.show(key)),
                    Bound::Unbounded => unbounded.to_owned(),
                };
                let (low, high) = (key(low, "the first"), key(high, "the last"));
                write!(f, ", keys from {low} to {high}")
            }
        }
    }
}

impl From<LogError> for Error {
    fn from(error: LogError) -> Self {
        Error::from(Arc::new(error))
    }
}

impl From<Arc<LogError>> for Error {
    fn from(error: Arc<LogError>) -> Self {
        match *error {
            LogError::Outdated { .. } => Error::Outdated(error),
            _ => Error::Log(error),
        }
    }
}

/// A result whose error is [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
