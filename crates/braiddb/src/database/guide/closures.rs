//! Transaction closures and how they use tables.
//!
//! | wanted | call |
//! |---|---|
//! | one operation | [`Database::get`](crate::Database::get), [`put`](crate::Database::put) and others; [one call](super::results) that reads and writes |
//! | several operations, which take effect together | [`Database::run`](crate::Database::run), or [`run_on`](crate::Database::run_on) with borrowed tables |
//! | the same with an error type of the program | [`Database::try_run`](crate::Database::try_run), with [clones of the tables](super::errors): `run_on` has no such variant |
//! | the same in a program without async code | [`Database::run_blocking`](crate::Database::run_blocking); with an error type of the program `block_on(db.try_run(…))`: [synchronous programs](super::synchronous) |
//! | another isolation level, only reads, fewer attempts | [`Database::transaction`](crate::Database::transaction), then `run` |
//! | several requests of a client in one transaction | [`Database::begin`](crate::Database::begin): [sessions](super::sessions) |
//! | many reads of one state | [`Database::snapshot`](crate::Database::snapshot): [snapshots](super::snapshots) |
//! | very many writes | [bulk](super::bulk) |
//! | a stream of small transactions at the highest rate | [`Database::run_source`](crate::Database::run_source) |
//!
//! A transaction is a closure that may run more than once, on a thread of the database. The closure
//! must therefore own the values it uses. [`Database::run_on`](crate::Database::run_on) clones the
//! given tables for the closure, which is cheap:
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let stock: Table<str, u64> = db.open_or_create_table("stock").await?;
//!         let sold: Table<u64, str> = db.open_or_create_table("sold").await?;
//!         db.put(&stock, "nails", &2).await?;
//!         let left = db.run_on((&stock, &sold), async |tx, (stock, sold)| {
//!             let left = tx.get(stock, "nails").await?.unwrap_or(0) - 1;
//!             tx.put(stock, "nails", &left).await?;
//!             tx.insert(sold, &1, "nails").await?;
//!             Ok(left)
//!         });
//!         assert_eq!(left.await?, 1);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! For other values, use an `async move` closure. It is convenient to put the database and a group
//! of tables into one struct, which one clone copies:
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! #[derive(Clone)]
//! struct Shop {
//!     db: Database,
//!     stock: Table<str, u64>,
//!     sold: Table<(String, u64), u64>,
//! }
//!
//! impl Shop {
//!     async fn open(db: Database) -> Result<Self, Error> {
//!         let stock = db.open_or_create_table("stock").await?;
//!         let sold = db.open_or_create_table("sold").await?;
//!         Ok(Self { db, stock, sold })
//!     }
//!
//!     /// Sells one piece. Returns how many are left.
//!     async fn sell(&self, article: &str, order: u64) -> Result<u64, Error> {
//!         let (shop, article) = (self.clone(), article.to_owned());
//!         self.db
//!             .run(async move |tx| {
//!                 let left = tx.get(&shop.stock, &article).await?.unwrap_or(0);
//!                 let left =
//!                     left.checked_sub(1).ok_or_else(|| shop.stock.key_not_found(&article))?;
//!                 tx.put(&shop.stock, &article, &left).await?;
//!                 tx.insert(&shop.sold, &(article.clone(), order), &1).await?;
//!                 Ok(left)
//!             })
//!             .await
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let shop = Shop::open(Database::in_memory(Options::default().workers(1))?).await?;
//!         shop.db.put(&shop.stock, "nails", &2).await?;
//!         assert_eq!(shop.sell("nails", 1).await?, 1);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A closure that borrows a table (`&Table`) does not compile. The compiler reports "borrowed data
//! escapes" or "does not live long enough". Use `run_on`, or clone the table before the closure.
//!
//! A closure that is stored in a variable names the type of its argument:
//! `let pay = async move |tx: &braiddb::Transaction| { … };`. The compiler infers the type only for a
//! closure that is written within the call. Otherwise it reports "type annotations needed" or
//! "implementation of `AsyncFn` is not general enough".
//!
//! A read of text or bytes returns a value borrowed from the transaction. If the closure returns
//! such a value, the compiler reports "lifetime may not live long enough". Convert it with
//! `.to_owned()`: `tx.get(&names, &1).await?.map(str::to_owned)`.
//! [`Database::get`](crate::Database::get) returns an owned value directly.
//!
//! Clone values inside the closure (`article.clone()` above) if the closure consumes them. After a
//! conflict the closure runs again and needs the original value.
