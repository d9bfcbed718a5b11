//! Reading a database that a service has open.
//!
//! [`Options::read_only`](crate::Options::read_only) opens the database in another
//! process, for a report or an export. It does not disturb the service and writes nothing to the
//! directory. It shows every commit up to the moment of opening. To see later commits, open the
//! database again.
//!
//! This program needs `cargo add tempfile`:
//!
//! ```
//! use std::path::Path;
//!
//! use braiddb::{Database, Error, Options, Table, block_on};
//!
//! /// Returns the total of all orders. Another process may have the database open.
//! fn total(directory: &Path) -> Result<u64, Error> {
//!     // A report needs little memory and only one thread.
//!     let options = Options::default().read_only(true).workers(1).memory_budget(64 << 20);
//!     let db = Database::open(directory, options)?;
//!     let orders: Table<u64, u64> = db.run_blocking(async |tx| tx.open_table("orders").await)?;
//!     db.run_blocking(async move |tx| {
//!         let (mut scan, mut total) = (tx.scan(&orders, ..)?, 0);
//!         while let Some((_, cents)) = scan.next().await? {
//!             total += cents;
//!         }
//!         Ok(total)
//!     })
//! }
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let directory = tempfile::tempdir().unwrap();
//!         let directory = directory.path();
//!         let service = Database::open(directory, Options::default().workers(1))?;
//!         let orders: Table<u64, u64> = service.create_table("orders").await?;
//!         service.put(&orders, &1, &250).await?;
//!         assert_eq!(total(directory)?, 250);
//!         service.put(&orders, &2, &50).await?;
//!         assert_eq!(total(directory)?, 300);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Every operation that would change the database fails with
//! [`Misuse::ReadOnlyDatabase`](crate::Misuse). This includes writes,
//! `create_table`, and `open_or_create_table` for a table that does not exist. A program that works
//! in both modes opens its tables with `open_table`. It must expect
//! [`Error::TableNotFound`](crate::Error::TableNotFound) if the service has not created the table
//! yet.
//!
//! This program needs `cargo add tempfile`:
//!
//! ```
//! use braiddb::{Database, Error, Misuse, Options, Table, block_on};
//!
//! fn main() -> Result<(), Error> {
//!     block_on(async {
//!         let directory = tempfile::tempdir().unwrap();
//!         let directory = directory.path();
//!         let service = Database::open(directory, Options::default().workers(1))?;
//!         service.create_table::<u64, u64>("orders").await?;
//!         let report = Database::open(directory, Options::default().read_only(true))?;
//!         let orders: Table<u64, u64> = report.open_table("orders").await?;
//!         let refused = report.put(&orders, &1, &250).await;
//!         assert!(matches!(refused, Err(Error::Misuse(Misuse::ReadOnlyDatabase))));
//!         let customers = report.open_table::<u64, str>("customers").await;
//!         assert!(matches!(customers, Err(Error::TableNotFound(_))));
//!         let customers = report.open_or_create_table::<u64, str>("customers").await;
//!         assert!(matches!(customers, Err(Error::Misuse(Misuse::ReadOnlyDatabase))));
//!         Ok(())
//!     })
//! }
//! ```
//!
//! A change feed and a checkpoint require a database that is open for writing. For a backup, use
//! [`Database::backup_directory`](crate::Database::backup_directory). For a
//! report inside the service's process, use a [snapshot](super::snapshots), which avoids a second
//! opening.
//!
//! Opening reads the last checkpoint and the log after it. Call
//! [`Database::checkpoint`](crate::Database::checkpoint) in the service regularly to keep this
//! short. Compaction in the service may remove a file that the reader still needs. If the reader
//! could not keep that file open, a read fails with [`Error::Outdated`](crate::Error::Outdated):
//! open the database again.
//!
//! # What a read-only database does
//!
//! - **Disk**: it writes and creates nothing in the directory, so read-only media and read-only permissions are enough. Where
//!   the file system has locks, each open file has a shared lock. A writer never waits for that lock, but does not reuse the
//!   file while a reader has it open.
//! - **Contents**: it loads the newest checkpoint and replays the log after it, up to the last complete transaction. It may
//!   show a commit a moment before the writer learns that the commit is durable.
//! - **Paged tables**: pages that exceed [`Options::memory_budget`](crate::Options::memory_budget) go to unnamed files in the
//!   system's directory for temporary files (`TMPDIR`, or `/tmp`). They disappear when the database or the process closes. If
//!   such files are impossible, all pages stay in memory.
//! - **Records that are not in memory**: each read fetches them from the log. A file that the writer's compaction frees stays
//!   readable, and uses disk space, while the reader has it open. If the reader had to close a file (`ulimit -n`), or the file
//!   system has no locks, a read can come too late. It then fails with [`Error::Outdated`](crate::Error::Outdated); a read
//!   never returns anything that was not committed. `Database::open` returns the same error if a writer changes the directory
//!   again and again while the reader opens it.
