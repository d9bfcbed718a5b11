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
//! use braiddb::{Database, Options, Table};
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
//! async fn withdraw(db: &Database, accounts: &Table<u64, u64>, from: u64, sum: u64) -> Result<u64, TransferError> {
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
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let accounts = db.create_table("accounts").await?;
//! db.put(&accounts, &7, &100).await?;
//! assert_eq!(withdraw(&db, &accounts, 7, 60).await?, 40);
//! let refused = withdraw(&db, &accounts, 7, 60).await;
//! assert!(matches!(refused, Err(TransferError::Overdrawn { missing: 20 })));
//! # Ok::<_, TransferError>(()) }).unwrap();
//! ```
//!
//! A transaction that needs a record which `get` did not find returns the error of
//! [`Table::key_not_found`](crate::Table::key_not_found), as `update` does:
//! `tx.get(&users, &id).await?.ok_or_else(|| users.key_not_found(&id))?`.
//!
//! A service should handle three errors of the engine separately:
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
//! Every other error is described at its variant: what was written, and the remedy. Its message names
//! the remedy, too. Messages are written for developers: they name tables, keys, files and calls of
//! this library. A service logs them, and answers its clients by the kind of the error instead.
//! [`Error::kind`](crate::Error::kind), which has an example, groups the errors by what a program
//! does:
//!
//! | [`kind`](crate::ErrorKind) | errors | what to do |
//! |---|---|---|
//! | `Retry` | `Conflict`, `NotSerializable`, `Busy`, `Overloaded` | call again later, after a pause that grows |
//! | `Call` | `KeyExists`, `KeyNotFound`, `UniqueViolation`, `TableNotFound`, `TableExists`, `Options`, `Directory`, `Index`, `Changes`, `Misuse`, `Panicked` | correct the program or its input; answer the client, do not retry |
//! | `Data` | `Corrupt`, `Decode` | stop writing, run [`check`](crate::Database::check), restore from a [backup](super::backup) |
//! | `Machine` | `DiskFull`, `MemoryFull`, `Io` | alert the operator; reads continue, and after `DiskFull` writes do once space is free |
//! | `Unknown` | `CommitUnknown` | open the database again, and read what the transaction wrote |
//! | `Ended` | `TransactionEnded`, `Outdated`, `Closed`, `Failed` | begin another transaction, or open the database again |
