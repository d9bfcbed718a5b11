//! Watching a database, and shutting it down.
//!
//! # Watching a database
//!
//! [`Database::stats`](crate::Database::stats) counts what happened and how full everything is. A database is open in one
//! process at a time; so that others can watch it, the program writes the figures to a file now and then, and
//! `braid top --from FILE` shows them on a live screen:
//!
//! ```
//! use std::path::Path;
//! use std::{fs, io};
//!
//! use braiddb::{Database, Error, Options};
//!
//! /// To be called every second, say, by a thread or a task of the program.
//! fn write_statistics(db: &Database, file: &Path) -> io::Result<()> {
//!     let unfinished = file.with_extension("unfinished");
//!     fs::write(&unfinished, serde_json::to_vec(&db.stats())?)?;
//!     fs::rename(unfinished, file)
//! }
//!
//! let db = Database::in_memory(Options::default().workers(1))?;
//! db.run_blocking(async |tx| tx.tables().await)?;
//! # let directory = tempfile::tempdir().unwrap();
//! # let file = directory.path().join("statistics.json");
//! write_statistics(&db, &file).unwrap();
//! # let read: braiddb::Stats = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
//! # assert_eq!((read.committed, read.workers.len()), (1, 1));
//! # Ok::<_, Error>(())
//! ```
//!
//! # Shutting down
//!
//! [`Database::close`](crate::Database::close) refuses new transactions, lets those that run come to their end,
//! writes what is left, and gives the directory free. If nobody calls it, dropping the last handle does the same
//! without telling what failed; a process that is killed loses nothing that was acknowledged.
