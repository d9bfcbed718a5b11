//! Tests of programs that use a database.
//!
//! Give each test its own database. [`Database::in_memory`](crate::Database::in_memory) needs no
//! directory and writes no file; one worker is enough for most tests, and takes the least memory. Two
//! databases share nothing, so tests run in parallel.
//!
//! ```
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! struct Counters {
//!     db: Database,
//!     table: Table<str, u64>,
//! }
//!
//! impl Counters {
//!     async fn open(db: Database) -> Result<Self, Error> {
//!         let table = db.open_or_create_table("counters").await?;
//!         Ok(Self { db, table })
//!     }
//!
//!     async fn increment(&self, name: &str) -> Result<u64, Error> {
//!         let name = name.to_owned();
//!         self.db
//!             .run_on(&self.table, async move |tx, table| {
//!                 let next = tx.get(table, &name).await?.unwrap_or(0) + 1;
//!                 tx.put(table, &name, &next).await?;
//!                 Ok(next)
//!             })
//!             .await
//!     }
//! }
//!
//! fn main() -> Result<(), Error> {
//!     // The body of a test of a program:
//!     block_on(async {
//!         let counters =
//!             Counters::open(Database::in_memory(Options::default().workers(1))?).await?;
//!         counters.increment("visits").await?;
//!         assert_eq!(counters.increment("visits").await?, 2);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A test of a restart opens a temporary directory, closes the database, and opens it again.
//! [`Durability::Relaxed`](crate::Durability) does not wait for the disk at each commit; closing the
//! database writes everything.
//!
//! This program needs `cargo add tempfile`:
//!
//! ```
//! use braiddb::{Database, Durability, Error, Options, Table, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     let directory = tempfile::tempdir().unwrap();
//!     let open = || {
//!         let options = Options::default().workers(1).durability(Durability::Relaxed);
//!         Database::open(directory.path().join("data"), options)
//!     };
//!     let db = open()?;
//!     let names: Table<u64, str> = block_on(db.create_table("names"))?;
//!     block_on(db.put(&names, &1, "ada"))?;
//!     db.close()?;
//!
//!     let db = open()?;
//!     let names: Table<u64, str> = block_on(db.open_table("names"))?;
//!     assert_eq!(block_on(db.get(&names, &1))?.as_deref(), Some("ada"));
//!     Ok(())
//! }
//! ```
//!
//! Records that expire follow the clock of
//! [`Tuning::wall_clock`](crate::Tuning::wall_clock), which a test can set and advance.
