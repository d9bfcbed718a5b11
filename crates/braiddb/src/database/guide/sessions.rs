//! Transactions that span requests.
//!
//! [`Database::begin`](crate::Database::begin) gives a transaction whose steps come one by one, from any thread:
//! a session may keep it from request to request. It is aborted when it is dropped, when it waits longer for a step
//! than [`Options::interactive_idle`](crate::Options::interactive_idle), and when it is older than
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
//! Nothing is tried again by itself here: on [`Error::Conflict`](crate::Error::Conflict) begin anew.
