//! Moving to Braid from redb, fjall, RocksDB, LMDB or SQLite.
//!
//! # What corresponds to what
//!
//! | redb | fjall | RocksDB | LMDB (heed) | SQLite | Braid |
//! |---|---|---|---|---|---|
//! | `Database::create` | `Database::builder().open` | `DB::open` | `EnvOpenOptions::open` | `Connection::open` | [`Database::open`](crate::Database::open): a directory |
//! | `InMemoryBackend` | | `Env::mem_env` | | `":memory:"` | [`Database::in_memory`](crate::Database::in_memory) |
//! | `TableDefinition` | keyspace | column family | database | `CREATE TABLE` | [`open_or_create_table`](crate::Database::open_or_create_table) |
//! | `begin_write`, `commit` | `write_tx`, `commit` | optimistic transaction, `WriteBatch` | `write_txn`, `commit` | `BEGIN`, `COMMIT` | [`run`](crate::Database::run) with a closure; or [`begin`](crate::Database::begin) |
//! | `begin_read` | `snapshot`, `read_tx` | `snapshot` | `read_txn` | `BEGIN` | `run`, [`snapshot`](crate::Database::snapshot) |
//! | `get` | `get` | `get` | `get` | `SELECT` by key | [`get`](crate::Transaction::get) |
//! | `insert` | `insert` | `put` | `put` | `INSERT OR REPLACE` | [`put`](crate::Transaction::put) |
//! | | | | `PutFlags::NO_OVERWRITE` | `INSERT` | [`insert`](crate::Transaction::insert) |
//! | `remove` | `remove` | `delete` | `delete` | `DELETE` by key | [`delete`](crate::Transaction::delete) |
//! | `range` | `range`, `prefix` | iterator | `range`, cursor | `WHERE`, `ORDER BY` on a key | [`scan`](crate::Transaction::scan) |
//! | multimap table | key of two parts | key of two parts | `DUP_SORT` | second column of a key | a [tuple](super::keys) as key |
//! | second table | second keyspace | second column family | second database | `CREATE INDEX` | an [index](super::indexes) |
//! | | `fetch_update` | merge operator | | `UPDATE` with an expression | [`fetch_update`](crate::Database::fetch_update) |
//! | savepoint of the database | | savepoint | nested transaction | `SAVEPOINT` | [`savepoint`](super::savepoints) |
//! | `Durability::None` | `PersistMode::Buffer` | `sync = false` | `NO_SYNC` | `synchronous = OFF` | [`Durability::Relaxed`](crate::Durability) |
//! | | compaction filter | TTL, compaction filter | | | a [lifetime](super::expiry) |
//! | copy of the closed file | | `Checkpoint`, backup engine | `copy_to_file` | `VACUUM INTO` | [`backup`](super::backup) |
//! | `compact` | `major_compact` | `compact_range` | `copy_to_file` | `VACUUM` | automatic; [`compact`](crate::Database::compact) |
//!
//! # What differs
//!
//! - Many transactions write at the same time. One that meets a conflict runs again, so its closure
//!   has no effects outside the database. redb, LMDB and SQLite let one writer at a time proceed.
//! - A transaction is serializable by default, also if it reads much and writes little.
//! - A commit returns once it is on disk, and one flush serves all commits that wait. So write from many
//!   tasks or threads at the same time, or several records in one transaction.
//! - Keys and values have types. Numbers order as numbers, without big-endian encoding.
//! - Operations are futures. A [program without async code](super::synchronous) uses
//!   [`run_blocking`](crate::Database::run_blocking) and [`block_on`](crate::block_on).
//! - Tables are in memory up to the [budget](crate::Options::memory_budget), and older records are on
//!   disk. For data far larger than memory, create the table [paged](crate::TableOptions::paged).
//!
//! # Moving the data
//!
//! A [staged table](crate::Database::stage_table) is invisible until it is published, so others see
//! all rows or none. Rows in key order load fastest, and each of these engines returns them so.
//! [`load`](crate::StagedTable::load) takes the rows of any iterator, and never holds more than a few
//! MiB of them. Each of the following programs moves one table in the current folder. If the source
//! does not exist, it first creates a small one, so that the program can be tried. `lab/peers` has the
//! four programs as examples. The gate runs them, except the one for RocksDB, which takes a quarter of
//! an hour to compile (`--features rocksdb`).
//!
//! LMDB needs only another source: `iter` of heed's `Database` returns the rows in key order.
//! `braid import` loads CSV, JSON lines and Parquet without a program.
//!
//! ## From redb
//!
//! This program needs `cargo add redb`:
//!
//! ```rust,ignore
//! use std::error::Error;
//! use std::path::Path;
//!
//! use braiddb::{Database, Options, block_on};
//! use redb::{ReadableDatabase, TableDefinition};
//!
//! const RECORDS: TableDefinition<u64, &[u8]> = TableDefinition::new("records");
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     if !Path::new("records.redb").exists() {
//!         create_source()?;
//!     }
//!     let source = redb::Database::open("records.redb")?;
//!     let db = Database::open("records.braid", Options::default())?;
//!
//!     let table = source.begin_read()?.open_table(RECORDS)?;
//!     // A row that cannot be read ends the iterator, and its error ends the program.
//!     let mut failed = None;
//!     let rows = table.range::<u64>(..)?.map_while(|row| match row {
//!         Ok((key, value)) => Some((key.value(), value.value().to_vec())),
//!         Err(error) => {
//!             failed = Some(error);
//!             None
//!         }
//!     });
//!     let staged = block_on(db.stage_table::<u64, [u8]>("records"))?;
//!     let moved = block_on(staged.load(rows, |_| {}))?;
//!     if let Some(error) = failed {
//!         return Err(error.into());
//!     }
//!     let records = block_on(staged.publish())?;
//!
//!     assert_eq!(block_on(db.len(&records))?, moved);
//!     println!("moved {moved} records from redb");
//!     db.close()?;
//!     Ok(())
//! }
//!
//! /// Creates a database of a thousand records, so that this program can be tried.
//! fn create_source() -> Result<(), Box<dyn Error>> {
//!     let source = redb::Database::create("records.redb")?;
//!     let tx = source.begin_write()?;
//!     {
//!         let mut table = tx.open_table(RECORDS)?;
//!         for key in 0..1000 {
//!             table.insert(key, format!("record {key}").as_bytes())?;
//!         }
//!     }
//!     tx.commit()?;
//!     Ok(())
//! }
//! ```
//!
//! ## From fjall
//!
//! This program needs `cargo add fjall`. Its source has big-endian keys:
//!
//! ```rust,ignore
//! use std::error::Error;
//! use std::path::Path;
//!
//! use braiddb::{Database, Options, block_on};
//! use fjall::{KeyspaceCreateOptions, PersistMode};
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     if !Path::new("records.fjall").exists() {
//!         create_source()?;
//!     }
//!     let source = fjall::Database::builder("records.fjall").open()?;
//!     let keyspace = source.keyspace("records", KeyspaceCreateOptions::default)?;
//!     let db = Database::open("records.braid", Options::default())?;
//!
//!     // A row that cannot be read ends the iterator, and its error ends the program.
//!     let mut failed = None;
//!     let rows = keyspace.iter().map_while(|row| match decode(row) {
//!         Ok(row) => Some(row),
//!         Err(error) => {
//!             failed = Some(error);
//!             None
//!         }
//!     });
//!     let staged = block_on(db.stage_table::<u64, [u8]>("records"))?;
//!     let moved = block_on(staged.load(rows, |_| {}))?;
//!     if let Some(error) = failed {
//!         return Err(error);
//!     }
//!     let records = block_on(staged.publish())?;
//!
//!     assert_eq!(block_on(db.len(&records))?, moved);
//!     println!("moved {moved} records from fjall");
//!     db.close()?;
//!     Ok(())
//! }
//!
//! /// Decodes a key that was stored as a big-endian number. Braid orders numbers without that.
//! fn decode(row: fjall::Guard) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
//!     let (key, value) = row.into_inner()?;
//!     Ok((u64::from_be_bytes(key[..].try_into()?), value.to_vec()))
//! }
//!
//! /// Creates a database of a thousand records, so that this program can be tried.
//! fn create_source() -> Result<(), Box<dyn Error>> {
//!     let source = fjall::Database::builder("records.fjall").open()?;
//!     let keyspace = source.keyspace("records", KeyspaceCreateOptions::default)?;
//!     for key in 0..1000_u64 {
//!         keyspace.insert(key.to_be_bytes(), format!("record {key}"))?;
//!     }
//!     source.persist(PersistMode::SyncAll)?;
//!     Ok(())
//! }
//! ```
//!
//! ## From RocksDB
//!
//! This program needs `cargo add rocksdb`, a C++ compiler and libclang. Its source has big-endian keys:
//!
//! ```rust,ignore
//! use std::error::Error;
//! use std::path::Path;
//!
//! use braiddb::{Database, Options, block_on};
//! use rocksdb::{DB, IteratorMode};
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     if !Path::new("records.rocksdb").exists() {
//!         create_source()?;
//!     }
//!     let source = DB::open_for_read_only(&rocksdb::Options::default(), "records.rocksdb", false)?;
//!     let db = Database::open("records.braid", Options::default())?;
//!
//!     // A row that cannot be read ends the iterator, and its error ends the program.
//!     let mut failed = None;
//!     let rows = source.iterator(IteratorMode::Start).map_while(|row| match decode(row) {
//!         Ok(row) => Some(row),
//!         Err(error) => {
//!             failed = Some(error);
//!             None
//!         }
//!     });
//!     let staged = block_on(db.stage_table::<u64, [u8]>("records"))?;
//!     let moved = block_on(staged.load(rows, |_| {}))?;
//!     if let Some(error) = failed {
//!         return Err(error);
//!     }
//!     let records = block_on(staged.publish())?;
//!
//!     assert_eq!(block_on(db.len(&records))?, moved);
//!     println!("moved {moved} records from RocksDB");
//!     db.close()?;
//!     Ok(())
//! }
//!
//! type Row = (Box<[u8]>, Box<[u8]>);
//!
//! /// Decodes a key that was stored as a big-endian number. Braid orders numbers without that.
//! fn decode(row: Result<Row, rocksdb::Error>) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
//!     let (key, value) = row?;
//!     Ok((u64::from_be_bytes(key[..].try_into()?), value.into_vec()))
//! }
//!
//! /// Creates a database of a thousand records, so that this program can be tried.
//! fn create_source() -> Result<(), Box<dyn Error>> {
//!     let source = DB::open_default("records.rocksdb")?;
//!     for key in 0..1000_u64 {
//!         source.put(key.to_be_bytes(), format!("record {key}"))?;
//!     }
//!     source.flush()?;
//!     Ok(())
//! }
//! ```
//!
//! ## From SQLite
//!
//! This program needs `cargo add rusqlite --features bundled` and `cargo add serde --features derive`.
//! Each row of the table becomes a struct:
//!
//! ```rust,ignore
//! use std::error::Error;
//! use std::path::Path;
//!
//! use braiddb::{Database, Options, Postcard, Schema, block_on};
//! use rusqlite::Connection;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct City {
//!     name: String,
//!     people: i64,
//! }
//!
//! impl Schema for City {
//!     const NAME: &'static str = "city";
//! }
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     if !Path::new("cities.sqlite").exists() {
//!         create_source()?;
//!     }
//!     let source = Connection::open("cities.sqlite")?;
//!     let db = Database::open("cities.braid", Options::default())?;
//!
//!     let mut select = source.prepare("SELECT id, name, people FROM cities ORDER BY id")?;
//!     let cities = select.query_map([], |row| {
//!         Ok((row.get::<_, i64>(0)?, City { name: row.get(1)?, people: row.get(2)? }))
//!     })?;
//!     // A row that cannot be read ends the iterator, and its error ends the program.
//!     let mut failed = None;
//!     let rows = cities.map_while(|row| match row {
//!         Ok(row) => Some(row),
//!         Err(error) => {
//!             failed = Some(error);
//!             None
//!         }
//!     });
//!     let staged = block_on(db.stage_table::<i64, Postcard<City>>("cities"))?;
//!     let moved = block_on(staged.load(rows, |_| {}))?;
//!     if let Some(error) = failed {
//!         return Err(error.into());
//!     }
//!     let cities = block_on(staged.publish())?;
//!
//!     assert_eq!(block_on(db.len(&cities))?, moved);
//!     println!("moved {moved} rows from SQLite");
//!     db.close()?;
//!     Ok(())
//! }
//!
//! /// Creates a table of a thousand rows, so that this program can be tried.
//! fn create_source() -> rusqlite::Result<()> {
//!     let mut source = Connection::open("cities.sqlite")?;
//!     let tx = source.transaction()?;
//!     tx.execute("CREATE TABLE cities (id INTEGER PRIMARY KEY, name TEXT, people INTEGER)", [])?;
//!     for id in 0..1000_i64 {
//!         tx.execute("INSERT INTO cities VALUES (?1, ?2, ?3)", (id, format!("city {id}"), id * 100))?;
//!     }
//!     tx.commit()
//! }
//! ```
//!
//! # A transaction
//!
//! A transfer between two accounts, with redb:
//!
//! ```text
//! let tx = db.begin_write()?;
//! {
//!     let mut accounts = tx.open_table(ACCOUNTS)?;
//!     let there = accounts.get(from)?.map_or(0, |balance| balance.value());
//!     let left = there.checked_sub(sum).ok_or("overdrawn")?;
//!     accounts.insert(from, left)?;
//!     let now = accounts.get(to)?.map_or(0, |balance| balance.value());
//!     accounts.insert(to, now + sum)?;
//! }
//! tx.commit()?;
//! ```
//!
//! The same with Braid.
//!
//! This program needs `cargo add anyhow`:
//!
//! ```
//! use braiddb::{Database, Options, Table, block_on};
//!
//! async fn transfer(
//!     db: &Database,
//!     accounts: &Table<str, u64>,
//!     (from, to, sum): (&str, &str, u64),
//! ) -> anyhow::Result<()> {
//!     let (accounts, from, to) = (accounts.clone(), from.to_owned(), to.to_owned());
//!     db.try_run(async move |tx| {
//!         let there = tx.get(&accounts, &from).await?.unwrap_or(0);
//!         let Some(left) = there.checked_sub(sum) else { anyhow::bail!("overdrawn") };
//!         tx.put(&accounts, &from, &left).await?;
//!         let now = tx.get(&accounts, &to).await?.unwrap_or(0);
//!         tx.put(&accounts, &to, &(now + sum)).await?;
//!         Ok(())
//!     })
//!     .await
//! }
//!
//! fn main() -> anyhow::Result<()> {
//!     block_on(async {
//!         let db = Database::in_memory(Options::default().workers(1))?;
//!         let accounts = db.open_or_create_table("accounts").await?;
//!         db.put(&accounts, "ada", &100).await?;
//!         transfer(&db, &accounts, ("ada", "bob", 30)).await?;
//!         assert_eq!(db.get(&accounts, "bob").await?, Some(30));
//!         assert!(transfer(&db, &accounts, ("ada", "bob", 300)).await.is_err());
//!         Ok(())
//!     })
//! }
//! ```
