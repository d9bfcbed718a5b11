//! Following what is committed.
//!
//! [`Database::changes`](crate::Database::changes) is a stream of whole transactions, in the order of their commits, each once it
//! is durable: for an index elsewhere, a cache, a queue, a copy in another system. Where it begins,
//! [`ChangesFrom`](crate::ChangesFrom) says.
//!
//! # A copy in memory
//!
//! A feed from [`Snapshot`](crate::ChangesFrom::Snapshot) gives all records first, and then what was committed after: nothing is
//! missed between the two, and nothing comes twice. All changes are puts and deletes by key, so a copy follows the table by
//! doing the same:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use braiddb::{ChangeKind, ChangeTransaction, ChangesFrom, Database, Error, Options, Table};
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
//! # pollster::block_on(async {
//! # let directory = tempfile::tempdir().unwrap();
//! let db = Database::open(directory.path(), Options::default().workers(1))?;
//! let table: Table<str, u64> = db.create_table("prices").await?;
//! db.put(&table, "nails", &250).await?;
//!
//! let (mut prices, mut changes) = (Prices::default(), db.changes(ChangesFrom::Snapshot).tables([&table]));
//! // The last piece of the snapshot is the first that has a token.
//! loop {
//!     let piece = changes.next().await?.expect("a feed ends with an error");
//!     prices.apply(&piece)?;
//!     if piece.token.is_some() {
//!         break;
//!     }
//! }
//! assert_eq!(prices.0["nails"], 250);
//!
//! db.run_on(&table, async |tx, table| {
//!     tx.delete(table, "nails").await?;
//!     tx.put(table, "screws", &300).await
//! })
//! .await?;
//! // What one transaction did comes together.
//! prices.apply(&changes.next().await?.expect("a feed ends with an error"))?;
//! assert_eq!(prices.0.into_iter().collect::<Vec<_>>(), [("screws".to_owned(), 300)]);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! What concerns tables as such, their creation, say, has kinds of its own, for which this copy has no use. One that is filled before
//! it is published ([`StagedTable`](crate::StagedTable)) comes as [`TablePublished`](crate::ChangeKind::TablePublished), without its
//! records.
//!
//! A service runs such a loop in a task of its own. It ends with [`Error::Closed`](crate::Error::Closed) when the database is closed.
//!
//! # Going on after a restart
//!
//! Each transaction has a [token](crate::ChangeToken), which says where a feed goes on that has been given that transaction
//! and all before. Keep it with what was made of the transaction, and the two agree whenever the program was interrupted. A
//! slot keeps the log meanwhile ([`Database::create_change_slot`](crate::Database::create_change_slot)); it is advanced when what was made
//! of the changes is safe, and then the log before may be freed:
//!
//! ```
//! use std::path::{Path, PathBuf};
//! use std::{fs, io};
//!
//! use braiddb::{ChangeToken, ChangesFrom, Database, Options};
//!
//! const SLOT: &str = "mailer";
//!
//! /// What another system keeps: how far it is, and what it has.
//! struct Mailer {
//!     file: PathBuf,
//! }
//!
//! impl Mailer {
//!     /// Where it is, if it has begun.
//!     fn token(&self) -> Option<ChangeToken> {
//!         fs::read_to_string(&self.file).ok()?.lines().next()?.parse().ok()
//!     }
//!
//!     /// Keeps the token and what came with it, both or neither.
//!     fn keep(&self, token: &ChangeToken, orders: &[u64]) -> io::Result<()> {
//!         let unfinished = self.file.with_extension("unfinished");
//!         fs::write(&unfinished, format!("{token}\n{orders:?}\n"))?;
//!         fs::rename(unfinished, &self.file)
//!     }
//! }
//!
//! /// Mails the next orders that were committed.
//! async fn mail_next(db: &Database, mailer: &Mailer) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
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
//!     // If this is not reached, the slot holds more of the log than it need, and nothing else is amiss.
//!     db.advance_change_slot(SLOT, &token).await?;
//!     Ok(orders)
//! }
//!
//! # pollster::block_on(async {
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory: &Path = directory.path();
//! let db = Database::open(directory.join("db"), Options::default().workers(1))?;
//! let orders = db.create_table::<u64, str>("orders").await?;
//! // Once: from now on the log is kept for it, a gigabyte of it at most.
//! db.create_change_slot(SLOT, 1 << 30).await?;
//! let mailer = Mailer { file: directory.join("mailer") };
//! db.put(&orders, &1, "nails").await?;
//! db.put(&orders, &2, "screws").await?;
//! assert_eq!(mail_next(&db, &mailer).await?, [1]);
//! db.close()?;
//!
//! let db = Database::open(directory.join("db"), Options::default().workers(1))?;
//! assert_eq!(mail_next(&db, &mailer).await?, [2]);
//! # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
//! ```
//!
//! (A service keeps one feed, and does not begin anew for each transaction as this does.) What is sent to a system that cannot keep
//! a token with it may be sent twice after a crash: that system must be able to tell, by the order's number, say.
//!
//! While the tables of a feed are quiet, nothing comes that has a token. [`Changes::token`](crate::Changes::token), looked at while the
//! feed waits, moves on past what is committed to other tables, and advances the slot as well. A slot that falls behind by more than it
//! may hold is lost, and its feed fails with [`ChangesError::LogGone`](crate::ChangesError): drop it, and begin with a snapshot again.
