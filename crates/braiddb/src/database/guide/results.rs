//! Pages of results, and conditional writes in one call.
//!
//! # Pages of results
//!
//! A page is a scan with a limit that starts just after the last key of the previous page. The scan
//! holds no resources between requests, and sees commits made in between.
//!
//! ```
//! use std::ops::Bound;
//!
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! async fn page(
//!     db: &Database,
//!     names: &Table<str, u64>,
//!     after: Option<String>,
//!     size: u64,
//! ) -> Result<Vec<(String, u64)>, Error> {
//!     let names = names.clone();
//!     db.run(async move |tx| {
//!         let low = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
//!         let (mut scan, mut page) =
//!             (tx.scan(&names, (low, Bound::Unbounded))?.limit(size), Vec::new());
//!         while let Some((name, value)) = scan.next().await? {
//!             page.push((name, value));
//!         }
//!         Ok(page)
//!     })
//!     .await
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let names: Table<str, u64> = db.create_table("names").await?;
//!         for (number, name) in ["ada", "ben", "cleo"].into_iter().enumerate() {
//!             db.put(&names, name, &(number as u64)).await?;
//!         }
//!         let first = page(&db, &names, None, 2).await?;
//!         assert_eq!(first.last().map(|(name, _)| name.as_str()), Some("ben"));
//!         let second = page(&db, &names, Some("ben".to_owned()), 2).await?;
//!         assert_eq!(second, [("cleo".to_owned(), 2)]);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # Conditional writes
//!
//! [`Database::fetch_update`](crate::Database::fetch_update),
//! [`compare_and_set`](crate::Database::compare_and_set) and
//! [`update_with`](crate::Database::update_with) read and write one record in one call, as one
//! transaction. [`Transaction`](crate::Transaction) has the same methods for use within a larger
//! transaction. [`scan`](crate::Database::scan), [`first`](crate::Database::first),
//! [`count`](crate::Database::count) and [`delete_range`](crate::Database::delete_range) work on
//! several records.
//!
//! A counter, for example to number orders. `fetch_update` returns the *previous* value:
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! /// Returns the next number, from 1.
//! async fn next_number(
//!     db: &Database,
//!     counters: &Table<str, u64>,
//!     name: &str,
//! ) -> Result<u64, Error> {
//!     let one_more = |count: Option<u64>| Some(count.unwrap_or(0) + 1);
//!     let previous = db.fetch_update(counters, name, one_more).await?;
//!     Ok(previous.unwrap_or(0) + 1)
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let counters: Table<str, u64> = db.create_table("counters").await?;
//!         assert_eq!(next_number(&db, &counters, "orders").await?, 1);
//!         assert_eq!(next_number(&db, &counters, "orders").await?, 2);
//!         assert_eq!(db.get(&counters, "orders").await?, Some(2));
//!         Ok(())
//!     })
//! }
//! ```
