//! Braid: an embedded, multi-version transactional storage engine that hides every wait.
//!
//! One thread a core braids many transactions: whenever one would wait for a cache line, for the
//! disk, or for its commit to be durable, the thread runs another.
//!
//! ```
//! use braiddb::{Database, Error, Options, Table};
//!
//! let db = Database::in_memory(Options::default())?;
//! let cities: Table<str, u64> = db.run_blocking(async |tx| tx.create_table("cities").await)?;
//!
//! let table = cities.clone();
//! db.run_blocking(async move |tx| {
//!     tx.put(&table, "Ljubljana", &285_604).await?;
//!     tx.put(&table, "Maribor", &96_211).await
//! })?;
//!
//! let population = db.run_blocking(async move |tx| tx.get(&cities, "Maribor").await)?;
//! assert_eq!(population, Some(96_211));
//! # Ok::<_, Error>(())
//! ```
//!
//! The [`guide`] has a page for each task:
//!
//! | task | page |
//! |---|---|
//! | run transactions as closures | [closures](guide::closures) |
//! | use your own error types | [errors](guide::errors) |
//! | return pages of results, write conditionally | [results](guide::results) |
//! | use your own key types | [keys](guide::keys) |
//! | change the types of stored values | [changing types](guide::changing_types) |
//! | use tokio and other executors, cancel, set deadlines | [executors](guide::executors) |
//! | keep a transaction open across requests | [sessions](guide::sessions) |
//! | read a snapshot for a report or an export | [snapshots](guide::snapshots) |
//! | read a database that a service has open | [read-only](guide::read_only) |
//! | follow committed changes | [change feed](guide::change_feed) |
//! | expire records | [expiry](guide::expiry) |
//! | load or change very many records | [bulk](guide::bulk) |
//! | monitor a database and shut it down | [operation](guide::operation) |
//!
//! | feature | what it adds | default |
//! |---|---|---|
//! | `derive` | `#[derive(Key)]` for enums and structs | yes |
//! | `tokio` | timers, channels and spawned tasks of the caller's tokio runtime work inside transactions | yes |
//! | `json`, `messagepack` | values in formats that name their fields: `Json<T>`, `MessagePack<T>` beside [`Postcard`] | |
//! | `uuid`, `chrono` | keys of the types `uuid::Uuid` and `chrono::DateTime<Utc>` | |
//! | `metrics` | `Database::record_metrics`: all figures for the facade `metrics`, for Prometheus and others | |
//!
//! Layers, each importing only those below it: `database`, `durability`, `transaction`, `page`, `record`,
//! `index`, `version`, `reclaim`, `log`, `sched`, `io`, then `types`, `rid`, `memory`, `latch` and `sync`.

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

/// Implements [`Key`](trait@Key).
#[cfg(feature = "derive")]
pub use braid_derive::Key;
#[cfg(any(doc, doctest))]
pub use database::guide;
pub use database::{
    BusyWith, ChangesError, Contended, Database, EncodedKey, Error, ErrorKind, Index, IndexError,
    IndexKeys, IndexOptions, InteractiveTransaction, KeyRange, MemoryBudget, MemoryLimit, Misuse,
    Options, Outcome, Overload, Result, Savepoint, Scan, Snapshot, SourceRun, StagedTable, Stats,
    Table, TableOptions, Transaction, TransactionBuilder, TransactionEnd, WeakDatabase,
};
pub use index::MAX_KEY_BYTES;
pub use io::DeviceKind;
#[cfg(any(test, feature = "experiment", braid_simulation))]
pub use log::HoleTracker;
pub use log::LogError;
pub use page::MAX_PAGED_KEY_BYTES;
pub use sched::{Policy, Width};
pub use transaction::{Certifier, Durability, Isolation, WallClock};
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
        FeedTable, TokenError,
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
        Backup, CheckReport, Checkpoint, Compaction, LogBlock, OpenProgress, OpenStage, Recovery,
    };
}

pub mod stats {
    //! Parts of [`Stats`](crate::Stats), and the sizes of tables.

    pub use crate::database::{
        AbortStats, LogPositions, MemoryStats, PageStats, SuspensionStats, TableContents,
        TableSize, WorkerStats,
    };
    pub use crate::log::LogStats;
}

pub mod tables {
    //! Parameters and results of operations on tables. Programs rarely need their names.

    pub use crate::database::{BulkTables, Handles, Keys, OwnedScan, TableDescription};
}

pub mod trace {
    //! Scheduling trace of the workers. [`Database::trace`](crate::Database::trace) returns it.

    pub use crate::database::{Activity, Trace, TraceSlice};
    pub use crate::sched::Cause as WaitCause;
}
