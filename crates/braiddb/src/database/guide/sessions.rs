//! Transactions that span requests.
//!
//! [`Database::begin`](crate::Database::begin) returns an interactive transaction: its operations come one by one, from any
//! thread, so a session can keep it from request to request. It aborts when the session drops it, after
//! [`Options::interactive_idle`](crate::Options::interactive_idle) without an operation, and at the age
//! [`Options::interactive_age`](crate::Options::interactive_age).
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let carts: Table<str, u64> = db.create_table("carts").await?;
//! let session = db.begin().await?;
//! session.put(&carts, "ada", &1).await?;
//! // Another request of the same session.
//! assert_eq!(session.get(&carts, "ada").await?, Some(1));
//! session.commit().await?;
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! The engine does not retry an interactive transaction. After [`Error::Conflict`](crate::Error::Conflict), begin another one.
//! [`Database::transaction`](crate::Database::transaction) sets options: `db.transaction().read_only(true).begin()` begins a
//! transaction that only reads and never conflicts.
