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
//! How to write what services need is in the [`guide`]: [transactions as closures](guide::closures), [errors of your
//! own](guide::errors), [pages of results, and conditional writes](guide::results), [keys of your own types](guide::keys),
//! [values whose types change](guide::changing_types), [tokio and other executors, cancellation and
//! deadlines](guide::executors), [transactions that span requests](guide::sessions), [snapshots for reports and
//! exports](guide::snapshots), [reading a database that a service has open](guide::read_only), [following what is
//! committed](guide::change_feed), [records that expire](guide::expiry), [loads, and changes to very many
//! records](guide::bulk), [watching a database, and shutting it down](guide::operation).
//!
//! | feature | what it adds | default |
//! |---|---|---|
//! | `derive` | `#[derive(Key)]` for enums and structs | yes |
//! | `tokio` | timers, channels and spawned tasks of the caller's tokio runtime work inside transactions | yes |
//! | `json`, `messagepack` | values in formats that name their fields: `Json<T>`, `MessagePack<T>` beside [`Postcard`] | |
//! | `uuid`, `chrono` | keys of the types `uuid::Uuid` and `chrono::DateTime<Utc>` | |
//! | `metrics` | `Database::record_metrics`: all figures for the facade `metrics`, for Prometheus and others | |
//!
//! Layers, each importing only those below it: `database`, `durability`, `transaction`, `record`,
//! `page`, `index`, `version`, `reclaim`, `log`, `sched`, `io`, then `types`, `rid`, `memory`,
//! `latch` and `sync`.

// What tests of this crate and those beside it share names it as these do.
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

// So that the program in it compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Implements [`Key`](trait@Key).
#[cfg(feature = "derive")]
pub use braid_derive::Key;
#[cfg(any(doc, doctest))]
pub use database::guide;
pub use database::{
    AbortStats, Activity, Backup, BulkTables, Change, ChangeKind, ChangeSlot, ChangeToken,
    ChangeTransaction, Changes, ChangesFrom, CheckReport, Checkpoint, Compaction, Contended,
    Database, EncodedKey, Error, FeedTable, Handles, Index, IndexDescription, IndexEntries,
    IndexKeys, IndexOptions, IndexProgress, IndexScan, IndexStage, InteractiveTransaction,
    KeyRange, Keys, LogBlock, LogPositions, MemoryBudget, MemoryStats, OpenProgress, OpenStage,
    Options, Outcome, Overload, OwnedScan, PageStats, Recovery, Result, RunOptions, Savepoint,
    Scan, Snapshot, SourceRun, StagedTable, Stats, SuspensionStats, Table, TableContents,
    TableDescription, TableOptions, TableSize, TokenError, Trace, TraceSlice, Transaction, Tuning,
    WeakDatabase, WorkerStats,
};
pub use index::MAX_KEY_BYTES;
pub use io::DeviceKind;
#[cfg(feature = "experiment")]
pub use log::HoleTracker;
pub use log::{LogError, LogStats};
pub use page::MAX_PAGED_KEY_BYTES;
#[cfg(feature = "experiment")]
pub use sched::Policy;
pub use sched::{Cause as WaitCause, Width};
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
