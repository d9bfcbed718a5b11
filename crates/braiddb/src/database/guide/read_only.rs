//! Reading a database that a service has open.
//!
//! [`Database::open_read_only`](crate::Database::open_read_only) opens it in another process, for a report or an export, and
//! takes nothing from the service: nothing in the directory is written. It shows the database as it was
//! when it was opened, with everything that was committed by then. Whoever wants to see what came since opens it again:
//!
//! ```
//! use std::path::Path;
//!
//! use braiddb::{Database, Error, Options, Table};
//!
//! /// What all orders come to, in a database that another process may have open.
//! fn total(directory: &Path) -> Result<u64, Error> {
//!     // A report needs little memory, and no more than one thread.
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
//! Whatever would change the database is refused with [`Misuse::ReadOnlyDatabase`](crate::Misuse): writes,
//! `create_table`, and `open_or_create_table` of a table that is not there. So a program that is to work both ways opens its
//! tables by `open_table`, and takes [`Error::TableNotFound`](crate::Error::TableNotFound) for a database that the service has
//! not filled yet:
//!
//! ```
//! use braiddb::{Database, Error, Misuse, Options, Table};
//!
//! # pollster::block_on(async {
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! # let service = Database::open(directory, Options::default().workers(1))?;
//! # service.create_table::<u64, u64>("orders").await?;
//! let report = Database::open_read_only(directory)?;
//! let orders: Table<u64, u64> = report.open_table("orders").await?;
//! let refused = report.put(&orders, &1, &250).await;
//! assert!(matches!(refused, Err(Error::Misuse(Misuse::ReadOnlyDatabase))));
//! let customers = report.open_table::<u64, str>("customers").await;
//! assert!(matches!(customers, Err(Error::TableNotFound(_))));
//! let customers = report.open_or_create_table::<u64, str>("customers").await;
//! assert!(matches!(customers, Err(Error::Misuse(Misuse::ReadOnlyDatabase))));
//! # Ok::<_, Error>(()) }).unwrap();
//! ```
//!
//! A change feed, a backup and a checkpoint need the database opened for writing. A report that runs within the service's own
//! process is better served by a [snapshot](super::snapshots), which costs no second opening.
//!
//! Opening reads the last checkpoint and the log since; [`Database::checkpoint`](crate::Database::checkpoint)
//! in the service, now and then, keeps that short. If the service's compaction removes what is still to be read, and the file could
//! not be kept open, a read fails with [`Error::Outdated`](crate::Error::Outdated): open the database again.
