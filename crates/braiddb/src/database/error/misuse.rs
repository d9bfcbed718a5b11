//! Calls that cannot succeed.

use crate::types::EncodeError;

/// A call that cannot succeed until the program or its input is corrected. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A transaction that began as read-only was asked to write.
    #[error("the transaction is read-only; run it without TransactionBuilder::read_only to write")]
    ReadOnlyTransaction,
    /// A database that was opened read-only was asked to change.
    #[error(
        "the database was opened read-only; to write, open it without Options::read_only when no \
         other process has it open"
    )]
    ReadOnlyDatabase,
    /// A blocking call was made inside a transaction, or a blocking executor inside a transaction
    /// polled a future of the same database. It would wait for that transaction, or block the thread
    /// of the worker that runs it. A future that was polled elsewhere before may have had effects. An
    /// operation of the transaction fails only if it had to wait, for example for the disk.
    #[error(
        "a call inside a transaction would wait for that transaction or block its worker; make the \
         call outside the transaction"
    )]
    WouldBlock,
    /// A table handle was used with a transaction of another database.
    #[error(
        "table {0:?} belongs to another database; open the table in the transaction's database"
    )]
    ForeignTable(String),
    /// A table was opened with types other than those it was created with.
    #[error(
        "table {:?} holds {}, but was opened with {}; {}",
        .0.table, .0.stored, .0.requested, .0.advice
    )]
    TableType(Box<TypeMismatch>),
    /// The name of a new table or index is empty, too long or reserved.
    #[error(
        "{0:?} cannot be the name of a table or an index; use 1 to 512 bytes that do not begin \
         with \"braid.\""
    )]
    TableName(String),
    /// The name of a new change slot is empty or too long.
    #[error("{0:?} cannot be the name of a change slot; use 1 to 512 bytes")]
    SlotName(String),
    /// The name of a key or value type is too long to store.
    #[error("the name of a type has {bytes} bytes, and the limit is {limit}; use a shorter name")]
    TypeNameTooLong {
        /// Bytes of the name.
        bytes: usize,
        /// Largest number of bytes of a name.
        limit: usize,
    },
    /// The encoded key is longer than the limit.
    #[error("a key of {bytes} bytes is too long: the limit is {limit} bytes; use a shorter key")]
    KeyTooLong {
        /// Bytes of the encoded key.
        bytes: usize,
        /// Largest number of bytes of a key.
        limit: usize,
    },
    /// The encoded value is longer than the limit.
    #[error(
        "a value of {bytes} bytes is too long: the limit is {limit} bytes; split it into several \
         records"
    )]
    ValueTooLong {
        /// Bytes of the encoded value.
        bytes: usize,
        /// Largest number of bytes of a value.
        limit: usize,
    },
    /// A value cannot be encoded.
    #[error("the value cannot be encoded: {0}; change the value or its type")]
    Encode(#[from] EncodeError),
    /// A table in memory has as many records as a table can have.
    #[error(
        "the table holds {records} records, the maximum; store further records in another table"
    )]
    TableFull {
        /// Largest number of records of a table.
        records: u64,
    },
    /// Paged tables use every page id.
    #[error(
        "paged tables use every page id; drop tables, or create the database with larger pages"
    )]
    OutOfPageIds,
    /// The database has no log because it is in memory or was opened with
    /// [`Durability::Volatile`](crate::Durability::Volatile).
    #[error(
        "the database has no log, which checkpoints, backups, checks and change feeds need; open a \
         database in a directory with a durability other than Volatile"
    )]
    NoLog,
    /// A transaction was to write, and the database accepts writes from one caller only
    /// ([`Database::restrict_writes`](crate::Database::restrict_writes)).
    #[error(
        "table {table:?} cannot be written by this call, because the database accepts writes only \
         from {writer}; use {writer}"
    )]
    RestrictedWrite {
        /// Name of the table.
        table: Box<str>,
        /// Name of the caller that may write.
        writer: Box<str>,
    },
    /// The database does not certify transactions by read validation, which this feature needs.
    #[error("{feature} need read validation; open the database with Certifier::ReadValidation")]
    NeedsReadValidation {
        /// Name of the feature, in the plural.
        feature: &'static str,
    },
    /// An expiry time was read or written in a table whose records do not expire.
    #[error(
        "records of table {0:?} do not expire because it was created without TableOptions::ttl; \
         use put and get, or create a table with a ttl"
    )]
    NotExpiring(String),
    /// An index was created on a table that is not published yet.
    #[error("table {0:?} is staged and cannot have an index; publish it first")]
    IndexOnStagedTable(String),
    /// A bulk operation lists a table that is in memory.
    #[error(
        "table {0:?} is in memory, and bulk operations need paged tables; write it with \
         Database::run, or create it with TableOptions::paged"
    )]
    NotPaged(String),
    /// A bulk operation dropped a write to a table with indexes, or the write failed, before all
    /// index entries were written. The whole operation is rolled back.
    #[error(
        "the bulk operation is rolled back because a write to a table with indexes was dropped or \
         failed before its index entries were complete; run it again, and await each write"
    )]
    IncompleteBulkWrite,
    /// The future of [`Transaction::rollback_to`](crate::Transaction::rollback_to) was dropped
    /// before it was ready. The whole transaction is rolled back.
    #[error(
        "the transaction is rolled back because a rollback to a savepoint was dropped before it \
         was complete; run it again, and await the rollback"
    )]
    IncompleteRollback,
    /// The future of [`Transaction::apply`](crate::Transaction::apply) was dropped before it was
    /// ready, or returned an error that the closure ignored. The whole transaction is rolled back.
    #[error(
        "the transaction is rolled back because row writes were not applied completely; run it \
         again, await Transaction::apply, and return its error"
    )]
    IncompleteApply,
    /// Row writes have expiry times for a table whose records do not expire here, or none for a
    /// table whose records do.
    #[error(
        "row writes of table {0:?} come from a table with another TableOptions::ttl; create both \
         tables with a ttl, or both without"
    )]
    AppliedExpiry(String),
    /// A transaction of [`Database::execute`](crate::Database::execute) did something that cannot be
    /// proposed as row writes.
    #[error("a transaction that is executed without commit cannot {0}; use Database::run")]
    NotExecutable(String),
    /// A bulk operation was asked for a savepoint. The whole operation is rolled back.
    #[error(
        "the bulk operation is rolled back because bulk operations have no savepoints; run it \
         again without one, or use Database::run"
    )]
    BulkSavepoint,
    /// The savepoint belongs to another transaction, or the transaction was rolled back to an
    /// earlier savepoint.
    #[error(
        "the savepoint belongs to another transaction, or the transaction was rolled back to an \
         earlier savepoint; create another savepoint"
    )]
    SavepointEnded,
    /// The direction of a scan was changed after its first record was read.
    #[error(
        "a scan cannot change its direction after it has begun; call `rev` before the first record \
         is read"
    )]
    ScanBegun,
    /// A source was started on a worker that does not exist.
    #[error("worker {worker} does not exist; choose a worker from 0 to {last}")]
    NoSuchWorker {
        /// Number of the worker.
        worker: usize,
        /// Number of the last worker.
        last: usize,
    },
}

/// Types of a stored table, and those that it was opened with. Only the types that differ are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMismatch {
    /// Name of the table.
    pub table: String,
    /// Type of the stored keys, values or both: `keys of type u64`.
    pub stored: String,
    /// Type of the requested keys, values or both.
    pub requested: String,
    /// Remedy.
    pub advice: String,
}

impl TypeMismatch {
    /// Compares the stored types of a table with the requested ones, each pair in this order.
    /// `reads` is `Ok` if the requested value type reads the stored one, and otherwise the remedy.
    pub(in crate::database) fn find(
        table: &str,
        keys: [&str; 2],
        values: [&str; 2],
        reads: Result<(), String>,
    ) -> Option<Self> {
        let has_other_keys = keys[0] != keys[1];
        let advice = match &reads {
            _ if has_other_keys => "open it with the types it was created with",
            Err(advice) => advice,
            Ok(()) => return None,
        };
        let [stored, requested] = [0, 1].map(|side| {
            let (keys, values) = (keys[side], values[side]);
            match (has_other_keys, &reads) {
                (true, Ok(())) => format!("keys of type {keys}"),
                (true, Err(_)) => format!("keys of type {keys} and values of type {values}"),
                (false, _) => format!("values of type {values}"),
            }
        });
        let advice = advice.to_owned();
        Some(Self { table: table.to_owned(), stored, requested, advice })
    }
}
