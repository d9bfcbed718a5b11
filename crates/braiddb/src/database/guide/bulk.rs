//! Large jobs: loading tables, and changing or deleting very many records.
//!
//! A transaction keeps its writes in memory until it commits. A transaction of millions of records
//! therefore fails at the memory limit. Choose the method for the table instead:
//!
//! | task | method |
//! |---|---|
//! | fill a new table, all or nothing | [`Database::stage_table`](crate::Database::stage_table) |
//! | fill or change a paged table, all or nothing, while others read it | [`Database::run_bulk`](crate::Database::run_bulk) |
//! | change a table in memory, in steps that others may see | a transaction for every thousand records |
//! | delete a range, in one transaction | [`Database::delete_range`](crate::Database::delete_range) |
//! | delete all records, in as many transactions as necessary | [`Database::clear`](crate::Database::clear) |
//!
//! # Fill a new table
//!
//! Many transactions on all workers fill a staged table. Other users of the database cannot open it
//! yet. One last transaction publishes it. If the program stops before that, the next opening
//! removes the staged table and frees its space. Loading is fastest when the rows arrive in key
//! order:
//!
//! ```
//! use braiddb::{Database, Error, Options, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let staged = db.stage_table::<u64, u64>("squares").await?;
//!         let rows = (0..20_000_u64).map(|number| (number, number * number));
//!         let mut durable = 0;
//!         staged.load(rows, |rows| durable = rows).await?;
//!         assert!(db.tables().await?.is_empty(), "nobody sees it yet");
//!         let squares = staged.publish().await?;
//!         assert_eq!((durable, db.get(&squares, &9).await?), (20_000, Some(81)));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A table of that name must not exist. To replace a table, stage the new one under another name,
//! publish it, drop the old table, and [rename](crate::Database::rename_table) the new one.
//! Operations on a handle of the old table then fail with
//! [`Error::TableNotFound`](crate::Error::TableNotFound); open the new table instead.
//!
//! A debug build loads many times slower than a release build. [Two lines](super::tuning#debug-builds)
//! in `Cargo.toml` optimise the engine in it.
//!
//! # Change a paged table
//!
//! [`Database::run_bulk`](crate::Database::run_bulk) runs one transaction of any size. Its writes
//! to [paged](crate::TableOptions::paged) tables need no memory for versions. Other transactions
//! can read these tables at the same time; they see the state at their own start. Transactions that
//! write these tables are retried until the bulk transaction ends. The bulk transaction is atomic,
//! also across a crash.
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, TableOptions, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let paged = TableOptions::default().paged();
//!         let prices: Table<u64, u64> = db.create_table_with("prices", paged).await?;
//!         let table = prices.clone();
//!         db.run_bulk(&prices, async move |tx| {
//!             for article in 0..5_000 {
//!                 tx.insert(&table, &article, &100).await?;
//!             }
//!             Ok(())
//!         })
//!         .await?;
//!
//!         // Raises every price.
//!         let table = prices.clone();
//!         let changed = db.run_bulk(&prices, async move |tx| {
//!             let (mut scan, mut changed) = (tx.scan(&table, ..)?, 0);
//!             while let Some((article, cents)) = scan.next().await? {
//!                 let more = cents + cents / 10;
//!                 tx.put(&table, &article, &more).await?;
//!                 changed += 1;
//!             }
//!             Ok(changed)
//!         });
//!         assert_eq!(changed.await?, 5_000);
//!         assert_eq!(db.get(&prices, &4_999).await?, Some(110));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! The engine runs the closure once. If it fails with an error of the engine, the caller decides
//! whether to repeat it. A serializable transaction that read the table while the bulk transaction
//! ran cannot commit writes after it, and is retried.
//!
//! # Change a table in memory in steps
//!
//! This method fits if other transactions may see some records changed and others not yet. One
//! transaction for every thousand records is simple and needs little memory. Each transaction
//! continues after the last key of the previous one. Each record must show whether it was changed
//! already, so that an interrupted job can be repeated. In this example, the currency shows it.
//!
//! ```
//! use std::ops::Bound;
//!
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! const STEP: u64 = 1000;
//!
//! /// Changes up to `STEP` records after a key. Returns the key where the next step starts.
//! async fn step(
//!     db: &Database,
//!     prices: &Table<u64, str>,
//!     after: Option<u64>,
//! ) -> Result<Option<u64>, Error> {
//!     db.run_on(prices, async move |tx, prices| {
//!         let low = after.map_or(Bound::Unbounded, Bound::Excluded);
//!         let mut scan = tx.scan(prices, (low, Bound::Unbounded))?.limit(STEP);
//!         let (mut last, mut seen) = (None, 0);
//!         while let Some((article, price)) = scan.next().await? {
//!             if let Some(tolars) = price.strip_suffix(" SIT") {
//!                 let tolars: f64 = tolars.parse().unwrap_or(0.0);
//!                 tx.put(prices, &article, &format!("{:.2} EUR", tolars / 239.64)).await?;
//!             }
//!             (last, seen) = (Some(article), seen + 1);
//!         }
//!         Ok(last.filter(|_| seen == STEP))
//!     })
//!     .await
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let staged = db.stage_table::<u64, str>("prices").await?;
//!         staged.load((0..2_500).map(|article| (article, "1000 SIT")), |_| {}).await?;
//!         let prices = staged.publish().await?;
//!         let mut after = step(&db, &prices, None).await?;
//!         while after.is_some() {
//!             after = step(&db, &prices, after).await?;
//!         }
//!         assert_eq!(db.get(&prices, &2_499).await?.as_deref(), Some("4.17 EUR"));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # Delete
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let events: Table<(u64, u64), str> = db.create_table("events").await?;
//!         for day in 0..10 {
//!             db.put(&events, &(day, 1), "an event").await?;
//!         }
//!         // Deletes everything older than a week, in one transaction.
//!         assert_eq!(db.delete_range(&events, ..(3, 0)).await?, 3);
//!         // Deletes the rest, in as many transactions as necessary.
//!         db.clear(&events).await?;
//!         assert_eq!(db.len(&events).await?, 0);
//!         Ok(())
//!     })
//! }
//! ```
