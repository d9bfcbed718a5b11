//! Transactions as closures.
//!
//! A transaction is a closure that may run more than once, on a thread of the database. It must own the values that it uses.
//! [`Database::run_on`](crate::Database::run_on) clones the tables for the closure, which is cheap:
//!
//! ```
//! # use braiddb::{Database, Error, Options, Table};
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! let stock: Table<str, u64> = db.open_or_create_table("stock").await?;
//! let sold: Table<u64, str> = db.open_or_create_table("sold").await?;
//! db.put(&stock, "nails", &2).await?;
//! let left = db.run_on((&stock, &sold), async |tx, (stock, sold)| {
//!     let left = tx.get(stock, "nails").await?.unwrap_or(0) - 1;
//!     tx.put(stock, "nails", &left).await?;
//!     tx.insert(sold, &1, "nails").await?;
//!     Ok(left)
//! });
//! assert_eq!(left.await?, 1);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! An `async move` closure captures other values. A struct with the database and its tables needs one clone:
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
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
//!                 let left = left.checked_sub(1).ok_or(Error::KeyNotFound)?;
//!                 tx.put(&shop.stock, &article, &left).await?;
//!                 tx.insert(&shop.sold, &(article.clone(), order), &1).await?;
//!                 Ok(left)
//!             })
//!             .await
//!     }
//! }
//!
//! # pollster::block_on(async {
//! let shop = Shop::open(Database::in_memory(Options::default().workers(1))?).await?;
//! shop.db.put(&shop.stock, "nails", &2).await?;
//! assert_eq!(shop.sell("nails", 1).await?, 1);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! Inside the closure, clone a value that an operation consumes (`article.clone()` above): after a conflict the closure runs
//! again and needs the value again.
//!
//! # Compiler errors
//!
//! - "borrowed data escapes", "does not live long enough": the closure borrows a table. Use `run_on`, or clone the table before
//!   the closure.
//! - "lifetime may not live long enough": the closure returns text or bytes that a read borrows from the transaction. Make them
//!   owned: `tx.get(&names, &1).await?.map(str::to_owned)`. [`Database::get`](crate::Database::get) returns owned values.
//!
//! # Options and results
//!
//! [`Database::transaction`](crate::Database::transaction) returns a builder that sets the isolation level, the number of
//! attempts, or read-only. It also reports the attempts and the commit LSN:
//!
//! ```
//! # use braiddb::{Database, Error, Isolation, Options, Table};
//! # pollster::block_on(async {
//! # let db = Database::in_memory(Options::default().workers(1))?;
//! # let stock: Table<str, u64> = db.open_or_create_table("stock").await?;
//! let outcome = db
//!     .transaction()
//!     .isolation(Isolation::Snapshot)
//!     .max_attempts(5)
//!     .run(async move |tx| tx.put(&stock, "nails", &2).await)
//!     .await?;
//! println!("committed at {} after {} attempts", outcome.commit_lsn, outcome.attempts);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
