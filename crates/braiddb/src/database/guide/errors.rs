//! Errors of your own.
//!
//! [`Database::run`](crate::Database::run) is for closures whose error is [`Error`](crate::Error).
//! [`Database::try_run`](crate::Database::try_run) takes any error that an [`Error`](crate::Error) can be
//! turned into; `?` works for both. That "`?` couldn't convert the error to `braiddb::Error`"
//! (or "expected `braiddb::Error`, found `anyhow::Error`") means that `run` should be `try_run`; "type annotations needed"
//! in `try_run`, that the closure's error must be said, since `?` is applied to what `try_run` gives, too, and may convert it once
//! more: `Ok::<_, TransferError>(..)`, `anyhow::Ok(..)`. An error aborts the transaction and comes back as it is; it is not tried
//! again.
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
//! [`Error::kind`](crate::Error::kind) groups the errors of the engine by what the program can do:
//!
//! | [`ErrorKind`](crate::ErrorKind) | errors | remedy |
//! |---|---|---|
//! | `Retry` | `Conflict`, `NotSerializable`, `Busy`, `Overloaded` | run the transaction again later; after many attempts the load on the same records is too high |
//! | `Call` | `KeyExists`, `TableNotFound`, `Misuse` and others | correct the call or its input |
//! | `Data` | `Corrupt`, `Decode` | open the database again, or restore it from a backup |
//! | `Machine` | `DiskFull`, `MemoryFull`, `Io` | free space or memory, or correct the machine |
//! | `Unknown` | `CommitUnknown` | open the database again, and read what the transaction wrote before you repeat it |
//! | `Ended` | `TransactionEnded`, `Outdated`, `Closed`, `Failed` | begin another transaction, or open the database again |
//!
//! Only a transaction that ended with [`Error::CommitUnknown`](crate::Error::CommitUnknown) or
//! [`Error::Failed`](crate::Error::Failed) may be in the database after the next opening.
