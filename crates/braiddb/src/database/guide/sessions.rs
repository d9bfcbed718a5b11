//! Transactions that span requests.
//!
//! [`Database::begin`](crate::Database::begin) starts an interactive transaction. The program calls
//! its steps one by one, from any thread, so a session can keep the transaction from request to
//! request.
//!
//! The transaction is aborted when it is dropped, when it waits longer for its next step than
//! [`Options::interactive_idle`](crate::Options::interactive_idle), or when it becomes older than
//! [`Options::interactive_age`](crate::Options::interactive_age).
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let carts: Table<str, u64> = db.create_table("carts").await?;
//!         let session = db.begin().await?;
//!         session.put(&carts, "ada", &1).await?;
//!         // A later request of the same session.
//!         assert_eq!(session.get(&carts, "ada").await?, Some(1));
//!         session.commit().await?;
//!         Ok(())
//!     })
//! }
//! ```
//!
//! The engine does not retry an interactive transaction. On
//! [`Error::Conflict`](crate::Error::Conflict), begin a new one.
