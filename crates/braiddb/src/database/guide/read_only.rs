//! Reading a database that a service has open.
//!
//! [`Database::open_read_only`](crate::Database::open_read_only) opens the database in another
//! process, for a report or an export. It does not disturb the service and writes nothing to the
//! directory. It shows every commit up to the moment of opening. To see later commits, open the
//! database again:
//!
//! ```
//! use std::path::Path;
//!
//! use braiddb::{Database, Error, Options, Table};
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
//! # pollster::block_on(async {
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! let service = Database::open(directory, Options::default().workers(1))?;
//! let orders: Table<u64, u64> = service.create_table("orders").await?;
//! service.put(&orders, &1, &250).await?;
//! assert_eq!(total(directory)?, 250);
//! service.put(&orders, &2, &50).await?;
//! assert_eq!(total(directory)?, 300);
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! Every operation that would change the database fails with
//! [`Error::ReadOnlyDatabase`](crate::Error::ReadOnlyDatabase). This includes writes,
//! `create_table`, and `open_or_create_table` for a table that does not exist. A program that works
//! in both modes opens its tables with `open_table`. It must expect
//! [`Error::TableNotFound`](crate::Error::TableNotFound) if the service has not created the table
//! yet:
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! # pollster::block_on(async {
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! # let service = Database::open(directory, Options::default().workers(1))?;
//! # service.create_table::<u64, u64>("orders").await?;
//! let report = Database::open_read_only(directory)?;
//! let orders: Table<u64, u64> = report.open_table("orders").await?;
//! assert!(matches!(report.put(&orders, &1, &250).await, Err(Error::ReadOnlyDatabase)));
//! let customers = report.open_table::<u64, str>("customers").await;
//! assert!(matches!(customers, Err(Error::TableNotFound(_))));
//! let customers = report.open_or_create_table::<u64, str>("customers").await;
//! assert!(matches!(customers, Err(Error::ReadOnlyDatabase)));
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! A change feed, a backup and a checkpoint require a database that is open for writing. For a
//! report inside the service's process, use a [snapshot](super::snapshots), which avoids a second
//! opening.
//!
//! Opening reads the last checkpoint and the log after it. Call
//! [`Database::checkpoint`](crate::Database::checkpoint) in the service regularly to keep this
//! short. Compaction in the service may remove a file that the reader still needs. If the reader
//! could not keep that file open, a read fails with [`Error::Outdated`](crate::Error::Outdated):
//! open the database again.
