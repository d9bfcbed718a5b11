//! Backups, and restoring one.
//!
//! [`Database::backup`](crate::Database::backup) copies an open database into an empty directory
//! while transactions run. The copy contains exactly the commits before one moment, and opens as a
//! database; to restore, open it or a copy of it. Do not copy the files of an open database with other
//! tools: they change while they are copied.
//!
//! The method blocks its thread. In an async program, call it where blocking is allowed, such as in
//! `tokio::task::spawn_blocking`.
//!
//! This program needs `cargo add tempfile`:
//!
//! ```
//! use std::path::Path;
//!
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! /// Writes a backup, and checks that it can be restored.
//! fn back_up(db: &Database, directory: &Path) -> Result<(), Error> {
//!     let backup = db.backup(directory)?;
//!     println!("{} bytes, all commits before LSN {}", backup.bytes, backup.lsn);
//!     let copy = Database::open(directory, Options::default().read_only(true))?;
//!     let report = copy.check()?;
//!     assert!(report.problems.is_empty(), "{:?}", report.problems);
//!     copy.close()
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let directory = tempfile::tempdir().unwrap();
//!     let (path, target) = (directory.path().join("data"), directory.path().join("backup"));
//!     let db = Database::open(&path, Options::default().workers(1))?;
//!     let names: Table<u64, str> = block_on(db.create_table("names"))?;
//!     block_on(db.put(&names, &1, "ada"))?;
//!     back_up(&db, &target)?;
//!
//!     // Restores it.
//!     let restored = Database::open(&target, Options::default().workers(1))?;
//!     let names: Table<u64, str> = block_on(restored.open_table("names"))?;
//!     assert_eq!(block_on(restored.get(&names, &1))?.as_deref(), Some("ada"));
//!     Ok(())
//! }
//! ```
//!
//! # From another process
//!
//! [`Database::backup_directory`](crate::Database::backup_directory) copies a database that another
//! process has open, as `braid backup` does. It only reads the directory, so it needs no permission
//! to write there, and the service need not take part. Unlike the method above it writes no
//! checkpoint, so opening the copy may replay more log.
//!
//! Shared locks on the files keep the service from reusing what is copied; until the copy is
//! complete, freed files take disk space. If locks are missing, for example on a file system
//! without them, the copy is checked, and repeated if the service has changed what it read.
//!
//! A backup takes the disk space of the live data. To keep another copy at most a moment behind,
//! follow the commits with a [change feed](super::change_feed) instead.
