//! Snapshots: one consistent state for long reads.
//!
//! [`Database::snapshot`](crate::Database::snapshot) fits reads that take long, or that run in
//! several places, and must all see the same state: a report, an export, a check. While a snapshot
//! is held, the engine keeps one older version of each record that changes.
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let orders: Table<u64, u64> = db.create_table("orders").await?;
//!         db.put(&orders, &1, &250).await?;
//!         let snapshot = db.snapshot().await?;
//!         db.delete(&orders, &1).await?;
//!         let total = snapshot
//!             .run(async move |tx| {
//!                 let (mut scan, mut total) = (tx.scan(&orders, ..)?, 0);
//!                 while let Some((_, cents)) = scan.next().await? {
//!                     total += cents;
//!                 }
//!                 Ok(total)
//!             })
//!             .await?;
//!         assert_eq!(total, 250);
//!         Ok(())
//!     })
//! }
//! ```
