//! Braid is an embedded database: a transactional key-value store that runs inside a Rust service.
//! Many tasks write at the same time, transactions are serializable, and a commit returns when it
//! is on disk. One worker thread per core *braids* thousands of transactions: when one of them
//! waits for memory, for the disk, or for its commit, the worker runs another.
//!
#![cfg_attr(doc, doc = concat!("<div>", include_str!("../docs/braid.svg"), "</div>\n"))]
//!
//! # Install
//!
//! Braid needs Linux, Rust 1.93 and a C compiler. Until its first release:
//!
//! ```text
//! cargo add braiddb --git https://github.com/braiddb/braid
//! ```
//!
//! Debug builds run the engine [many times slower](guide::tuning#debug-builds). These lines in the
//! `Cargo.toml` of the program's workspace optimise the engine, and not the program:
//!
//! ```toml
//! [profile.dev.package.braiddb]
//! opt-level = 3
//! ```
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `derive` | `#[derive(Key)]` for enums and structs | yes |
//! | `tokio` | timers, channels and tasks of the caller's tokio runtime inside transactions | yes |
//! | `json`, `messagepack` | values in formats that name their fields: `Json<T>`, `MessagePack<T>` | |
//! | `uuid`, `chrono` | keys of the types `uuid::Uuid` and `chrono::DateTime<Utc>` | |
//! | `metrics` | `Database::record_metrics`: all counters, for Prometheus and other exporters | |
//!
//! # First program
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! fn main() -> Result<(), Error> {
//!     // `Database::open(path, options)` opens or creates a database on disk.
//!     let db = Database::in_memory(Options::default())?;
//!     let cities: Table<str, u64> =
//!         db.run_blocking(async |tx| tx.create_table("cities").await)?;
//!
//!     // A transaction is a closure. Braid runs it again after a conflict, so it owns what it uses.
//!     let table = cities.clone();
//!     db.run_blocking(async move |tx| {
//!         tx.put(&table, "Ljubljana", &285_604).await?;
//!         tx.put(&table, "Maribor", &96_211).await
//!     })?;
//!
//!     let population = db.run_blocking(async move |tx| tx.get(&cities, "Maribor").await)?;
//!     assert_eq!(population, Some(96_211));
//!     Ok(())
//! }
//! ```
//!
//! # Concepts
//!
//! - A [`Database`] is a directory with a log, or memory only. One process writes to it;
//!   [`Options::read_only`] opens it in others. Handles are cheap to clone.
//! - A [`Table`] maps typed keys to typed values. Keys implement [`trait@Key`], values implement
//!   [`Value`]. Text, bytes, integers and `bool` are values without a wrapper; floats, tuples,
//!   collections and structs are values by [`Postcard`]. An [`Index`] finds records by a part of
//!   their values.
//! - A [`Transaction`] reads the database as of one moment and commits all of its writes or none.
//!   [`Database::run`] runs it from any executor, [`Database::run_blocking`] from any thread, and
//!   both retry it after conflicts. An error or a dropped future aborts it.
//! - [`Isolation`] states what concurrent transactions may observe of one another,
//!   [`Durability`] when a commit returns.
//! - A [`Snapshot`] is a view of the database as of one moment, which any thread may read.
//! - Records that exceed the memory budget ([`Options::memory_budget`]) stay on disk, and reads
//!   load them. Tables of [`TableOptions::paged`] also keep their index on disk.
//! - An [`Error`](enum@Error) means that nothing was written, except [`Error::CommitUnknown`] and
//!   [`Error::Failed`]. [`Error::kind`] groups errors by remedy.
//!
//! # Guide
//!
//! The [`guide`] has one page for each task:
//!
//! | task | page |
//! |---|---|
//! | write transactions | [closures](guide::closures), [errors](guide::errors), [results and conditional writes](guide::results), [savepoints](guide::savepoints) |
//! | choose types and find records | [keys](guide::keys), [values whose types change](guide::changing_types), [indexes](guide::indexes) |
//! | call Braid from async code | [executors, cancellation, deadlines](guide::executors), [transactions that span requests](guide::sessions) |
//! | call Braid from other code | [synchronous programs](guide::synchronous) |
//! | read much | [snapshots](guide::snapshots), [reading in place](guide::reading_in_place), [reading the database of another process](guide::read_only) |
//! | follow or expire records | [change feeds](guide::change_feed), [expiry](guide::expiry) |
//! | distribute work | [job queues](guide::queues) |
//! | load or change many records | [bulk operations](guide::bulk) |
//! | run a service | [operation: monitoring, shutdown](guide::operation), [backups](guide::backup), [tuning](guide::tuning), [tests](guide::testing) |
//! | leave another store | [redb, fjall, RocksDB, LMDB, SQLite](guide::moving) |
//!
//! # Examples
//!
//! An example with `fn main` is a whole program; put others into `main`. These commands add
//! the other crates of examples. The pages of the guide name them before each program:
//!
//! ```text
//! cargo add tempfile anyhow serde_json futures-util
//! cargo add serde --features derive
//! cargo add postcard --features use-std
//! cargo add tokio --features macros,rt-multi-thread,time
//! ```

// Shared test code names the crate `braiddb`, in unit tests and in integration tests.
#[cfg(all(test, not(loom)))]
extern crate self as braiddb;

#[cfg(all(test, not(loom)))]
#[path = "../tests/common/mod.rs"]
mod common;
mod database;
mod durability;
#[cfg(all(feature = "experiment", not(loom)))]
pub mod experiment;
mod index;
mod io;
mod latch;
mod log;
mod memory;
mod page;
mod planted;
mod reclaim;
mod record;
mod rid;
mod sched;
#[cfg(any(test, braid_simulation))]
pub mod simulation;
mod sync;
mod transaction;
mod types;
mod version;

// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

// Compiles the programs in references.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/changes.md")]
#[doc = include_str!("../../../docs/expiry.md")]
#[doc = include_str!("../../../docs/indexes.md")]
#[doc = include_str!("../../../docs/paged.md")]
#[doc = include_str!("../../../docs/proposals.md")]
struct References;

/// Implements [`Key`](trait@Key).
///
/// ```
/// use braiddb::{Database, Error, Key, Options, Table, block_on};
///
/// #[derive(Key, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
/// #[key(name = "shop.job")]
/// enum Job {
///     Urgent,
///     Normal { deadline: u64 },
///     Of(String, u32),
/// }
///
/// fn main() -> Result<(), Error> {
///     block_on(async {
///         let db = Database::in_memory(Options::default().workers(1))?;
///         let jobs: Table<Job, str> = db.create_table("jobs").await?;
///         db.put(&jobs, &Job::Of("ada".to_owned(), 2), "sweep").await?;
///         db.put(&jobs, &Job::Normal { deadline: 7 }, "mend").await?;
///         let first =
///             db.run(async move |tx| Ok(tx.first(&jobs).await?.map(|(job, _)| job))).await?;
///         assert_eq!(first, Some(Job::Normal { deadline: 7 }));
///         Ok(())
///     })
/// }
/// ```
#[cfg(feature = "derive")]
pub use braid_derive::Key;
#[cfg(any(doc, doctest))]
pub use database::guide;
pub use database::{
    BusyWith, ChangesError, Contended, Database, EncodedKey, Error, ErrorKind, Index, IndexError,
    IndexKeys, IndexOptions, InteractiveTransaction, KeyRange, MemoryBudget, MemoryLimit,
    MissingTable, Misuse, Options, Outcome, Overload, RecordKey, Result, Savepoint, Scan, Snapshot,
    SourceRun, StagedTable, Stats, Table, TableOptions, Ticket, Transaction, TransactionBuilder,
    TransactionEnd, Tuning, TypeMismatch, UniqueViolation, WeakDatabase, block_on,
};
pub use index::MAX_KEY_BYTES;
pub use io::DeviceKind;
#[cfg(feature = "experiment")]
pub use log::HoleTracker;
pub use log::LogError;
pub use page::MAX_PAGED_KEY_BYTES;
#[cfg(feature = "experiment")]
pub use sched::Policy;
pub use sched::Width;
#[cfg(feature = "experiment")]
pub use transaction::Certifier;
pub use transaction::{Durability, Isolation, WallClock};
#[cfg(feature = "json")]
pub use types::Json;
#[cfg(feature = "messagepack")]
pub use types::MessagePack;
pub use types::{
    DecodeError, EncodeError, EncodedValue, Key, KeyBuffer, KeyPrefix, Postcard, Schema, TableKey,
    Value,
};
pub use version::MAX_VALUE_BYTES;

pub mod changes {
    //! Change feed: committed transactions, in order, with the records they changed.
    //! [`Database::changes`](crate::Database::changes) returns it.

    pub use crate::database::{
        Change, ChangeKind, ChangeSlot, ChangeToken, ChangeTransaction, Changes, ChangesFrom,
        FeedTable, PastChanges, TokenError,
    };
}

pub mod indexes {
    //! Types that describe, build and scan a secondary [`Index`](crate::Index).

    pub use crate::database::{
        IndexDescription, IndexEntries, IndexProgress, IndexScan, IndexStage,
    };
}

pub mod maintenance {
    //! Progress and results of opening, checkpoints, compaction, checks and backups.

    pub use crate::database::{
        Backup, CheckReport, Checkpoint, Compaction, LogBlock, LogWrites, OpenProgress, OpenStage,
        Recovery,
    };
}

pub mod proposals {
    //! Transactions that are executed in one database and committed in others, by
    //! [`Database::execute`](crate::Database::execute) and
    //! [`Transaction::apply`](crate::Transaction::apply).

    pub use crate::database::{
        CertificationConflict, DamagedSet, KeySet, KeySpace, OrderedCertifier, Proposal, RowWrite,
        RowWriteKind, RowWrites,
    };
}

pub mod stats {
    //! Parts of [`Stats`](crate::Stats), and the sizes of tables.

    pub use crate::database::{
        AbortStats, LogHolder, LogPositions, MemoryStats, PageStats, SuspensionStats,
        TableContents, TableSize, WorkerStats,
    };
    pub use crate::log::LogStats;
}

pub mod tables {
    //! Parameters and results of operations on tables. Programs rarely need their names.

    pub use crate::database::{BulkTables, Handles, Keys, OwnedScan, TableDescription};
    pub use crate::types::ValueShape;
}

pub mod trace {
    //! Scheduling trace of the workers. [`Database::trace`](crate::Database::trace) returns it.

    pub use crate::database::{Activity, Trace, TraceSlice};
    pub use crate::sched::WaitCause;
}
