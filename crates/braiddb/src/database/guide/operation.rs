//! Monitoring a database, maintaining it from outside, and shutting it down.
//!
//! # Monitoring
//!
//! [`Database::stats`](crate::Database::stats) returns counters and fill levels. Only one process
//! can have a database open for writing. To let other processes monitor it, the program writes the
//! figures to a file regularly. `braid top --from FILE` then shows them on a live screen.
//!
//! This program needs `cargo add tempfile` and `cargo add serde_json`:
//!
//! ```
//! use std::path::Path;
//! use std::{fs, io};
//!
//! use braiddb::{Database, Error, Options};
//!
//! /// Call this every second, for example from a thread or a task.
//! fn write_statistics(db: &Database, file: &Path) -> io::Result<()> {
//!     let unfinished = file.with_extension("unfinished");
//!     fs::write(&unfinished, serde_json::to_vec(&db.stats())?)?;
//!     fs::rename(unfinished, file)
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let db = Database::in_memory(Options::default().workers(1))?;
//!     db.run_blocking(async |tx| tx.tables().await)?;
//!     let directory = tempfile::tempdir().unwrap();
//!     let file = directory.path().join("statistics.json");
//!     write_statistics(&db, &file).unwrap();
//!     let read: braiddb::Stats = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
//!     assert_eq!((read.committed, read.workers.len()), (1, 1));
//!     Ok(())
//! }
//! ```
//!
//! # Maintenance from outside
//!
//! While a service has a database open, the command `braid` can still maintain it:
//!
//! - `braid backup` copies the files and only reads them ([backups](super::backup)).
//! - `braid checkpoint`, `braid compact` and `braid check` ask the service through the local socket
//!   `braid.socket` in the directory. The service performs them in its own workers, between its
//!   transactions, as if it had called the methods itself.
//!
//! The socket is on by default. Users that may write to the directory may connect; nothing else
//! protects it. [`Options::socket`](crate::Options::socket) switches it off. A service can log
//! whether it listens.
//!
//! This program needs `cargo add tempfile`:
//!
//! ```
//! use braiddb::{Database, Error, Options};
//!
//! fn main() -> Result<(), Error> {
//!     let directory = tempfile::tempdir().unwrap();
//!     let db = Database::open(directory.path(), Options::default().workers(1))?;
//!     match db.socket_path() {
//!         Ok(Some(path)) => println!("maintenance through {}", path.display()),
//!         Ok(None) => println!("no maintenance from outside"),
//!         Err(reason) => println!("no maintenance from outside: {reason}"),
//!     }
//!     assert!(db.socket_path()?.is_some());
//!     Ok(())
//! }
//! ```
//!
//! Two threads wait for requests and use no processor time while none arrives. Interrupting the
//! command does not stop an operation that has begun.
//!
//! # Shutting down
//!
//! [`Database::close`](crate::Database::close) refuses new transactions, waits for the running
//! ones, writes the remaining data, and releases the directory. Dropping the last handle does the
//! same, but reports no errors. If the process is killed, every acknowledged commit is kept.
//!
//! Both block the thread until the running transactions have ended, also in an async function. Under
//! tokio, close the database on a thread that may block.
//!
//! This program needs `cargo add tokio --features macros,rt-multi-thread`:
//!
//! ```
//! use braiddb::{Database, Error, Options};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let db = Database::in_memory(Options::default().workers(1))?;
//!     // The service runs until it is told to stop.
//!     tokio::task::spawn_blocking(move || db.close()).await.expect("it does not panic")
//! }
//! ```
