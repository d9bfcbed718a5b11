//! Errors in closures, and the errors that a service handles.
//!
//! [`Database::run`](crate::Database::run) takes closures whose error is [`Error`](crate::Error).
//! [`Database::try_run`](crate::Database::try_run) takes closures with any error type that
//! [`Error`](crate::Error) converts into; `?` works in both. An error of the closure aborts the
//! transaction and is returned unchanged. The transaction is not retried.
//!
//! | the compiler reports | remedy |
//! |---|---|
//! | "`?` couldn't convert the error to `braiddb::Error`", or "expected `braiddb::Error`, found `anyhow::Error`" | use `try_run` instead of `run` |
//! | "type annotations needed" in `try_run` | name the error type: `Ok::<_, TransferError>(..)` or `anyhow::Ok(..)` |
//!
//! ```
//! use braiddb::{Database, Options, Table, block_on};
//!
//! #[derive(Debug)]
//! enum TransferError {
//!     Overdrawn { missing: u64 },
//!     Database(braiddb::Error),
//! }
//!
//! impl From<braiddb::Error> for TransferError {
//!     fn from(error: braiddb::Error) -> Self {
//!         TransferError::Database(error)
//!     }
//! }
//!
//! async fn withdraw(
//!     db: &Database,
//!     accounts: &Table<u64, u64>,
//!     from: u64,
//!     sum: u64,
//! ) -> Result<u64, TransferError> {
//!     let accounts = accounts.clone();
//!     db.try_run(async move |tx| {
//!         let there = tx.get(&accounts, &from).await?.unwrap_or(0);
//!         let Some(left) = there.checked_sub(sum) else {
//!             return Err(TransferError::Overdrawn { missing: sum - there });
//!         };
//!         tx.put(&accounts, &from, &left).await?;
//!         Ok(left)
//!     })
//!     .await
//! }
//!
//! fn main() -> Result<(), TransferError> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let accounts = db.create_table("accounts").await?;
//!         db.put(&accounts, &7, &100).await?;
//!         assert_eq!(withdraw(&db, &accounts, 7, 60).await?, 40);
//!         let refused = withdraw(&db, &accounts, 7, 60).await;
//!         assert!(matches!(refused, Err(TransferError::Overdrawn { missing: 20 })));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A transaction that needs a record which `get` did not find returns the error of
//! [`Table::key_not_found`](crate::Table::key_not_found), as `update` does:
//! `tx.get(&users, &id).await?.ok_or_else(|| users.key_not_found(&id))?`.
//!
//! # Two errors that every service handles
//!
//! - [`Error::Conflict`](crate::Error::Conflict) and
//!   [`Error::NotSerializable`](crate::Error::NotSerializable) are returned after 64 attempts.
//!   Too many transactions use the same records; try again later. The pauses between attempts grow to
//!   a quarter of a second, so a transaction fails after about six seconds if others write its record
//!   continuously. An attempt that fails because a record that it read has changed is repeated
//!   without a pause. [`TransactionBuilder::max_attempts`](crate::TransactionBuilder::max_attempts)
//!   sets another number, for example for a request that must be answered earlier.
//! - [`Error::CommitUnknown`](crate::Error::CommitUnknown) means that the disk failed during the
//!   commit. The transaction may be present after the next opening; check before you repeat it.
//!
//! # Every error and its remedy
//!
//! Messages are written for developers: they name tables, keys, files and calls of this library, and
//! the remedy. A service logs them, and answers its clients by the kind of the error instead.
//! [`Error::kind`](crate::Error::kind), which has an example, groups the errors as the following
//! sections do.
//!
//! | [`kind`](crate::ErrorKind) | what a service does |
//! |---|---|
//! | [`Retry`](#retry) | call again later, after a pause that grows |
//! | [`Call`](#call) | do not retry; answer the client, or correct the program |
//! | [`Data`](#data) | stop writing, run [`check`](crate::Database::check), restore from a [backup](super::backup) |
//! | [`Machine`](#machine) | alert the operator; reads continue |
//! | [`Unknown`](#unknown) | open the database again, and read what the transaction wrote |
//! | [`Ended`](#ended) | begin another transaction, or open the database again |
//!
//! ## Retry
//!
//! Nothing was written.
//!
//! | error | remedy |
//! |---|---|
//! | `Conflict` | run the transaction again later; divide a record that all transactions write into several |
//! | `NotSerializable` | run the transaction again later, read less in each transaction, or use [`Isolation::Snapshot`](crate::Isolation) where write skew does no harm |
//! | `Busy(BulkOperation)` | call again when the [bulk operation](super::bulk) has finished |
//! | `Busy(TableChange)` | call again when the change of the table or of its index has finished |
//! | `Busy(Checkpoint)` | call again when the running checkpoint, compaction, backup or check has finished |
//! | `Overloaded` | send fewer requests at the same time, or raise [`Tuning::max_open`](crate::Tuning::max_open) or [`Tuning::cold_width`](crate::Tuning::cold_width) |
//!
//! ## Call
//!
//! Nothing was written. The same call fails again until its cause is removed.
//!
//! | error | remedy |
//! |---|---|
//! | `KeyExists` | answer the client; `put` and `update` write an existing record |
//! | `KeyNotFound` | answer the client; `put` and `insert` create the record |
//! | `UniqueViolation` | answer the client, or continue the transaction with another value |
//! | `TableNotFound` | create the table, or correct the name |
//! | `TableExists` | open the table, or choose another name |
//! | `Options` | correct the option that the message names |
//! | `Directory(NotADatabase)` | correct the path |
//! | `Directory(BackupTarget)` | name a new or empty directory for the backup |
//! | `Directory(WrongVersion)` | open the database with the version of Braid that wrote it, or move its tables by `braid export` and `braid import` |
//! | `Directory(Locked)` | close the database in the other process, or open it [read-only](super::read_only) |
//! | `Index(NotFound)` | create the index by [`Database::index`](crate::Database::index) |
//! | `Index(Detached)` | attach the index by [`Database::index`](crate::Database::index), after each opening and before the first write; then write again |
//! | `Index(Mismatch)` | request the stored definition, or drop the index and create it again |
//! | `Index(NotUnique)` | scan the index by [`scan_by`](crate::Transaction::scan_by) |
//! | `Index(DuplicateKey)` | change one of the two records, or create the index without `unique` |
//! | `Index(Inconsistent)` | correct the key function, and create the index again with another [`version`](crate::IndexOptions::version) |
//! | `Changes(LogGone)` | start the feed again from a [snapshot](super::change_feed); a slot with a larger limit keeps more log |
//! | `Changes(Token)` | use the token with its own database; start from a snapshot if the database was restored from an older backup |
//! | `Changes(SlotNotFound)` | create the slot |
//! | `Changes(SlotExists)` | use the slot, or drop it first |
//! | `Misuse(TableType)` | open the table with the types that it was created with, or declare the [new version](super::changing_types) of the type |
//! | `Misuse(KeyTooLong)`, `Misuse(ValueTooLong)`, `Misuse(Encode)` | answer the client, or change the input |
//! | `Misuse(TableFull)`, `Misuse(OutOfPageIds)` | store further records in another table or database |
//! | `Misuse` | correct the call; each variant of [`Misuse`](crate::Misuse) describes how |
//! | `Panicked` | correct the closure or key function that panicked |
//!
//! ## Data
//!
//! Nothing was written.
//!
//! | error | remedy |
//! |---|---|
//! | `Corrupt(Corrupt)` | restore the file or the database from a backup |
//! | `Corrupt(DamagedPage)` | open the database again if the message asks for it, otherwise restore it from a backup |
//! | `Corrupt(ValueNotWhole)` | close the database and open it again, which recovers the value |
//! | `Decode` | read the table with the types that wrote it; check the database for damage |
//!
//! ## Machine
//!
//! Nothing was written. Reads continue.
//!
//! | error | remedy |
//! |---|---|
//! | `DiskFull` | free space, then writes succeed again; or delete records in transactions that do nothing else, then call [`compact`](crate::Database::compact) |
//! | `MemoryFull(Versions)` | correct the program: use [`run_bulk`](super::bulk), or split the transaction; or raise [`Tuning::version_bytes`](crate::Tuning::version_bytes) |
//! | `MemoryFull(PageFrames)` | raise [`Options::memory_budget`](crate::Options::memory_budget) |
//! | `MemoryFull(PageFramesContended)` | raise the memory budget, or run fewer operations at the same time |
//! | `MemoryFull(Allocation)` | free memory, or raise the memory limit of the process |
//! | `Io(Io)` | remove the cause, then open the database again |
//! | `Io(CannotGrow)` | remove the cause; the open database then accepts writes again |
//! | `Io(NoRoomForCheckpoint)` | free space, then compact again; the database continues |
//! | `Io(IncompleteBackup)` | remove the incomplete copy and the cause, then back up again; the database continues |
//!
//! ## Unknown
//!
//! The whole transaction was written, or nothing of it.
//!
//! | error | remedy |
//! |---|---|
//! | `CommitUnknown` | remove the cause, open the database again, and read what the transaction wrote before you repeat it |
//!
//! ## Ended
//!
//! | error | remedy |
//! |---|---|
//! | `TransactionEnded(Finished)` | begin another transaction |
//! | `TransactionEnded(Expired)` | begin another transaction and commit it sooner, or raise the option that the message names |
//! | `Outdated` | open the read-only database again |
//! | `Closed` | open the database again |
//! | `Failed` | open the database again, which recovers all acknowledged commits, and report the message as a bug |
