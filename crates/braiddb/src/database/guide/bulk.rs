//! Much at once: loads, and changes to very many records.
//!
//! A transaction keeps what it wrote in memory until it has committed, so one that writes millions of records is refused, or takes
//! more memory than there is. What there is instead depends on the table:
//!
//! | what is to be done | how |
//! |---|---|
//! | fill a new table, all or nothing | [`Database::stage_table`](crate::Database::stage_table) |
//! | fill or change a paged table, all or nothing, while others read it | [`Database::run_bulk`](crate::Database::run_bulk) |
//! | change a table in memory, in steps that others may see | a transaction for every thousand records |
//! | delete a range, in one transaction | [`Database::delete_range`](crate::Database::delete_range) |
//! | delete everything, in as many transactions as it takes | [`Database::clear`](crate::Database::clear) |
//!
//! # A new table
//!
//! A staged table is filled by many transactions on all workers while nobody finds it by its name, and is published by one. If the
//! program is interrupted before, nothing of it is there, and its space is given back at the next opening. Rows are best given in
//! the order of their keys:
//!
//! ```
//! use braiddb::{Database, Error, Options};
//!
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! let staged = db.stage_table::<u64, u64>("squares").await?;
//! let rows = (0..20_000_u64).map(|number| (number, number * number));
//! let mut durable = 0;
//! staged.load(rows, |rows| durable = rows).await?;
//! assert!(db.tables().await?.is_empty(), "nobody sees it yet");
//! let squares = staged.publish().await?;
//! assert_eq!((durable, db.get(&squares, &9).await?), (20_000, Some(81)));
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! There must be no table of that name. To replace one, stage its successor under another name, publish it, drop the old table, and
//! [rename](crate::Database::rename_table) the new one. Who has a handle of the old one is told that it is gone
//! ([`Error::TableNotFound`](crate::Error::TableNotFound)), and opens the new one.
//!
//! # A paged table
//!
//! [`Database::run_bulk`](crate::Database::run_bulk) is a transaction of any size: what it writes to
//! [paged](crate::TableOptions::paged) tables takes no memory for versions. Others read these tables meanwhile, as of
//! their own beginning; whoever writes them is run again until it is over. All of it is there in the end, or nothing, also after a crash.
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, TableOptions};
//!
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! let paged = TableOptions::default().paged();
//! let prices: Table<u64, u64> = db.create_table_with("prices", paged).await?;
//! let table = prices.clone();
//! db.run_bulk(&prices, async move |tx| {
//!     for article in 0..5_000 {
//!         tx.insert(&table, &article, &100).await?;
//!     }
//!     Ok(())
//! })
//! .await?;
//!
//! // Every price goes up.
//! let table = prices.clone();
//! let changed = db.run_bulk(&prices, async move |tx| {
//!     let (mut scan, mut changed) = (tx.scan(&table, ..)?, 0);
//!     while let Some((article, cents)) = scan.next().await? {
//!         let more = cents + cents / 10;
//!         tx.put(&table, &article, &more).await?;
//!         changed += 1;
//!     }
//!     Ok(changed)
//! });
//! assert_eq!(changed.await?, 5_000);
//! assert_eq!(db.get(&prices, &4_999).await?, Some(110));
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! The closure runs once, so an error of the engine's ends it, and the caller decides whether to begin again. While it runs, a
//! serializable transaction that has read the table and writes cannot commit after it, and is run again.
//!
//! # A table in memory, step by step
//!
//! Where others may see some records changed and others not yet, a transaction for every thousand of them is simple, and
//! takes little memory. Each goes on after the last key of the one before. So that an interruption does no harm, a record must show
//! whether it was changed already: here by the currency.
//!
//! ```
//! use std::ops::Bound;
//!
//! use braiddb::{Database, Error, Options, Table};
//!
//! const STEP: u64 = 1000;
//!
//! /// Changes at most `STEP` records after a key; where the next step begins, if there is one.
//! async fn step(db: &Database, prices: &Table<u64, str>, after: Option<u64>) -> Result<Option<u64>, Error> {
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
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! let staged = db.stage_table::<u64, str>("prices").await?;
//! staged.load((0..2_500).map(|article| (article, "1000 SIT")), |_| {}).await?;
//! let prices = staged.publish().await?;
//! let mut after = step(&db, &prices, None).await?;
//! while after.is_some() {
//!     after = step(&db, &prices, after).await?;
//! }
//! assert_eq!(db.get(&prices, &2_499).await?.as_deref(), Some("4.17 EUR"));
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! # Deleting
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! let events: Table<(u64, u64), str> = db.create_table("events").await?;
//! for day in 0..10 {
//!     db.put(&events, &(day, 1), "an event").await?;
//! }
//! // What is older than a week, in one transaction.
//! assert_eq!(db.delete_range(&events, ..(3, 0)).await?, 3);
//! // All that is left, in as many as it takes.
//! db.clear(&events).await?;
//! assert_eq!(db.len(&events).await?, 0);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
