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
//! Fill a [staged table](crate::Database::stage_table), which others do not see yet. Rows in key
//! order, as the other engine returns them, load fastest. This program moves the rows of any iterator:
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! async fn move_rows(
//!     db: &Database,
//!     name: &str,
//!     rows: impl IntoIterator<Item = (u64, Vec<u8>), IntoIter: Send + 'static>,
//! ) -> Result<Table<u64, [u8]>, Error> {
//!     let staged = db.stage_table::<u64, [u8]>(name).await?;
//!     staged.load(rows, |done| eprint!("\r{done} rows")).await?;
//!     staged.publish().await
//! }
//!
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let rows = (0..1000_u64).map(|number| (number, number.to_le_bytes().to_vec()));
//! let records = move_rows(&db, "records", rows).await?;
//! assert_eq!(db.len(&records).await?, 1000);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! The other engine provides the rows:
//!
//! ```text
//! // redb
//! let table = redb.begin_read()?.open_table(TableDefinition::<u64, &[u8]>::new("records"))?;
//! let rows = table.range::<u64>(..)?.map(|row| {
//!     let (key, value) = row.expect("a readable database");
//!     (key.value(), value.value().to_vec())
//! });
//!
//! // fjall, with big-endian keys
//! let rows = keyspace.iter().map(|row| {
//!     let (key, value) = row.into_inner().expect("a readable database");
//!     (u64::from_be_bytes(key.as_ref().try_into().expect("eight bytes")), value.to_vec())
//! });
//!
//! // RocksDB, with big-endian keys; collected, because the iterator borrows the database
//! let rows = rocksdb.iterator(IteratorMode::Start).map(|row| {
//!     let (key, value) = row.expect("a readable database");
//!     (u64::from_be_bytes(key.as_ref().try_into().expect("eight bytes")), value.into_vec())
//! });
//! let rows: Vec<_> = rows.collect();
//!
//! // SQLite
//! let mut select = sqlite.prepare("SELECT id, value FROM records ORDER BY id")?;
//! let rows: Vec<(u64, Vec<u8>)> =
//!     select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
//! ```
//!
//! `braid import` loads the same from CSV, JSON lines and Parquet without a program.
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
//! The same with Braid:
//!
//! ```
//! use braiddb::{Database, Options, Table};
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
//! # pollster::block_on(async {
//! let db = Database::in_memory(Options::default().workers(1))?;
//! let accounts = db.open_or_create_table("accounts").await?;
//! db.put(&accounts, "ada", &100).await?;
//! transfer(&db, &accounts, ("ada", "bob", 30)).await?;
//! assert_eq!(db.get(&accounts, "bob").await?, Some(30));
//! assert!(transfer(&db, &accounts, ("ada", "bob", 300)).await.is_err());
//! # anyhow::Ok(()) }).unwrap();
//! ```
