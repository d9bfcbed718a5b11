//! Change feed: following committed transactions.
//!
//! [`Database::changes`](crate::Database::changes) is a stream of whole transactions in commit
//! order. It returns each transaction when the transaction is durable. Use it to keep an external
//! index, a cache, a queue or a copy in another system up to date.
//! [`ChangesFrom`](crate::changes::ChangesFrom) selects where the feed starts.
//!
//! # Keep a copy in memory
//!
//! A feed from [`Snapshot`](crate::changes::ChangesFrom::Snapshot) returns all existing records first, and
//! then every later commit. It misses no change and repeats none. Every change to records is a put
//! or a delete by key, so a copy applies the same operations.
//!
//! This program needs `cargo add tempfile`:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use braiddb::changes::{ChangeKind, ChangeTransaction, ChangesFrom};
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! #[derive(Default)]
//! struct Prices(BTreeMap<String, u64>);
//!
//! impl Prices {
//!     fn apply(&mut self, transaction: &ChangeTransaction) -> Result<(), Error> {
//!         for change in &transaction.changes {
//!             if change.kind.gives_value() {
//!                 self.0.insert(change.key_as::<str>()?, change.value_as::<u64>()?);
//!             } else if change.kind == ChangeKind::Delete {
//!                 self.0.remove(&change.key_as::<str>()?);
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let directory = tempfile::tempdir().unwrap();
//!         let db = Database::open(directory.path(), Options::default().workers(1))?;
//!         let table: Table<str, u64> = db.create_table("prices").await?;
//!         db.put(&table, "nails", &250).await?;
//!
//!         let (mut prices, mut changes) =
//!             (Prices::default(), db.changes(ChangesFrom::Snapshot).tables([&table]));
//!         // The last item of the snapshot is the first that has a token.
//!         loop {
//!             let piece = changes.next().await?.expect("a feed ends with an error");
//!             prices.apply(&piece)?;
//!             if piece.token.is_some() {
//!                 break;
//!             }
//!         }
//!         assert_eq!(prices.0["nails"], 250);
//!
//!         db.run_on(&table, async |tx, table| {
//!             tx.delete(table, "nails").await?;
//!             tx.put(table, "screws", &300).await
//!         })
//!         .await?;
//!         // All changes of one transaction arrive together.
//!         prices.apply(&changes.next().await?.expect("a feed ends with an error"))?;
//!         assert_eq!(prices.0.into_iter().collect::<Vec<_>>(), [("screws".to_owned(), 300)]);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Changes to tables themselves, for example their creation, have their own kinds. This copy
//! ignores them. A table that is filled before it is published
//! ([`StagedTable`](crate::StagedTable)) arrives as
//! [`TablePublished`](crate::changes::ChangeKind::TablePublished), without its records.
//!
//! A service runs such a loop in a separate task. The loop ends with
//! [`Error::Closed`](crate::Error::Closed) when the database closes.
//!
//! # Stop when everything is read
//!
//! A feed waits for later commits. [`Database::past_changes`](crate::Database::past_changes) returns
//! the same transactions without waiting, and ends with those that were committed when it was called.
//!
//! This program needs `cargo add tempfile`:
//!
//! ```
//! use braiddb::changes::ChangeToken;
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! /// Collects the orders since `token`, and moves it forward.
//! fn new_orders(db: &Database, token: &mut Option<ChangeToken>) -> Result<Vec<u64>, Error> {
//!     let mut orders = Vec::new();
//!     for transaction in db.past_changes(*token)? {
//!         let transaction = transaction?;
//!         for change in &transaction.changes {
//!             if &*change.table == "orders" && change.kind.gives_value() {
//!                 orders.push(change.key_as::<u64>()?);
//!             }
//!         }
//!         *token = transaction.token;
//!     }
//!     Ok(orders)
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let directory = tempfile::tempdir().unwrap();
//!     let db = Database::open(directory.path(), Options::default().workers(1))?;
//!     let orders: Table<u64, str> = block_on(db.create_table("orders"))?;
//!     block_on(db.put(&orders, &1, "nails"))?;
//!     let mut token = None;
//!     assert_eq!(new_orders(&db, &mut token)?, [1]);
//!     block_on(db.put(&orders, &2, "screws"))?;
//!     assert_eq!(new_orders(&db, &mut token)?, [2]);
//!     Ok(())
//! }
//! ```
//!
//! - Each step blocks its thread. In an async program, run the loop in
//!   `tokio::task::spawn_blocking`.
//! - It returns the changes to all tables.
//! - Without a token it begins with the first commit, or at the newest checkpoint if the beginning
//!   of the log was freed.
//! - It does not keep the log: if the log after the token was freed, it fails with
//!   [`ChangesError::LogGone`](crate::ChangesError). A slot keeps the log, as in the next section.
//! - In a database that never had a feed or a slot, it also returns records that compaction logged
//!   again, as updates.
//!
//! # Resume after a restart
//!
//! Each transaction has a [token](crate::changes::ChangeToken). A feed that starts from a token returns the
//! transactions after that one. Store the token together with the result of the transaction, so
//! that the two agree whenever the program stops. A slot keeps the log that the feed still needs
//! ([`Database::create_change_slot`](crate::Database::create_change_slot)). Advance the slot when
//! the results are safe; the engine may then free the older log.
//!
//! This program needs `cargo add tempfile`:
//!
//! ```
//! use std::path::{Path, PathBuf};
//! use std::{fs, io};
//!
//! use braiddb::changes::{ChangeToken, ChangesFrom};
//! use braiddb::{Database, Options, block_on};
//!
//! const SLOT: &str = "mailer";
//!
//! /// The state of the other system: its position in the feed, and its data.
//! struct Mailer {
//!     file: PathBuf,
//! }
//!
//! impl Mailer {
//!     /// The position in the feed; `None` before the first transaction.
//!     fn token(&self) -> Option<ChangeToken> {
//!         fs::read_to_string(&self.file).ok()?.lines().next()?.parse().ok()
//!     }
//!
//!     /// Stores the token and its changes atomically.
//!     fn keep(&self, token: &ChangeToken, orders: &[u64]) -> io::Result<()> {
//!         let unfinished = self.file.with_extension("unfinished");
//!         fs::write(&unfinished, format!("{token}\n{orders:?}\n"))?;
//!         fs::rename(unfinished, &self.file)
//!     }
//! }
//!
//! /// Mails the orders of the next committed transaction.
//! async fn mail_next(
//!     db: &Database,
//!     mailer: &Mailer,
//! ) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
//!     let from = match mailer.token() {
//!         Some(token) => ChangesFrom::Token(token),
//!         None => ChangesFrom::Slot(SLOT.to_owned()),
//!     };
//!     let mut changes = db.changes(from).tables(["orders"]);
//!     let transaction = changes.next().await?.expect("a feed ends with an error");
//!     let changes = transaction.changes.iter().filter(|change| change.kind.gives_value());
//!     let orders = changes.map(|change| change.key_as::<u64>()).collect::<Result<Vec<_>, _>>()?;
//!     let token = transaction.token.expect("only pieces of a snapshot have none");
//!     mailer.keep(&token, &orders)?;
//!     // If the program stops before this line, the slot only keeps more log than necessary.
//!     db.advance_change_slot(SLOT, &token).await?;
//!     Ok(orders)
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     block_on(async {
//!         let directory = tempfile::tempdir().unwrap();
//!         let directory: &Path = directory.path();
//!         let db = Database::open(directory.join("db"), Options::default().workers(1))?;
//!         let orders = db.create_table::<u64, str>("orders").await?;
//!         // Done once: from now on the slot keeps the log, up to one gigabyte.
//!         db.create_change_slot(SLOT, 1 << 30).await?;
//!         let mailer = Mailer { file: directory.join("mailer") };
//!         db.put(&orders, &1, "nails").await?;
//!         db.put(&orders, &2, "screws").await?;
//!         assert_eq!(mail_next(&db, &mailer).await?, [1]);
//!         db.close()?;
//!
//!         let db = Database::open(directory.join("db"), Options::default().workers(1))?;
//!         assert_eq!(mail_next(&db, &mailer).await?, [2]);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A service keeps one feed open; this example opens one per transaction only to be short. A target
//! that cannot store a token with the data may receive a transaction twice after a crash. The
//! target must then recognize duplicates, for example by an order number.
//!
//! While the tables of a feed do not change, the feed returns no new tokens. Read
//! [`Changes::token`](crate::changes::Changes::token) while the feed waits: it moves past the commits of
//! other tables, and so can advance the slot too. The engine discards a slot that falls behind by
//! more than its limit. The feed then fails with [`ChangesError::LogGone`](crate::ChangesError): drop
//! the slot and start again from a snapshot.
