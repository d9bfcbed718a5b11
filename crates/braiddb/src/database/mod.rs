//! Public interface of the engine: opening and closing, typed tables, transactions, errors. It is
//! the top one of the layers:
//!
#![cfg_attr(doc, doc = concat!("<div>", include_str!("../../docs/layers.svg"), "</div>\n"))]

mod blocking;
mod bulk;
mod catalog;
mod change;
mod changes;
mod contents;
mod drop;
mod dropped_row;
mod encode;
mod error;
mod existing_tables;
mod expiry;
mod guest;
#[cfg(any(doc, doctest))]
pub mod guide;
mod handle;
mod index;
mod interactive;
mod keys;
mod load;
mod maintenance;
mod memory_budget;
#[cfg(feature = "metrics")]
mod metrics;
mod open;
mod option_checks;
mod options;
mod point;
mod proposal;
mod read_only;
mod recovery;
mod restriction;
mod retry;
mod run;
mod run_on;
mod savepoint;
mod scan;
mod single;
mod single_range;
mod snapshot;
mod socket;
mod source;
mod span;
mod stage;
mod stats;
mod table;
mod table_description;
mod table_options;
mod tables;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticket;
mod trace;
mod transaction;
mod transaction_builder;
mod tuning;
mod unfold;
#[cfg(feature = "experiment")]
mod unversioned;
mod upkeep;
mod weak;
mod workers;
mod write;

pub use crate::record::EncodedKey;
pub use blocking::block_on;
pub use bulk::BulkTables;
pub use changes::{
    Change, ChangeKind, ChangeSlot, ChangeToken, ChangeTransaction, Changes, ChangesFrom,
    FeedTable, PastChanges, TokenError,
};
pub use contents::TableContents;
pub use error::{
    BusyWith, ChangesError, Contended, Error, ErrorKind, IndexError, MemoryLimit, MissingTable,
    Misuse, RecordKey, Result, TransactionEnd, TypeMismatch, UniqueViolation,
};
pub use handle::Database;
pub use index::{
    Index, IndexDescription, IndexEntries, IndexKeys, IndexOptions, IndexProgress, IndexScan,
    IndexStage,
};
pub use interactive::InteractiveTransaction;
pub use keys::Keys;
pub use maintenance::{CheckReport, Compaction};
pub use memory_budget::MemoryBudget;
pub use options::Options;
pub use proposal::{
    CertificationConflict, DamagedSet, KeySet, KeySpace, OrderedCertifier, Proposal, RowWrite,
    RowWriteKind, RowWrites,
};
pub use recovery::{Checkpoint, OpenProgress, OpenStage, Recovery};
pub use run_on::Handles;
pub use savepoint::Savepoint;
pub use scan::Scan;
pub use single_range::OwnedScan;
pub use snapshot::Snapshot;
pub use source::SourceRun;
pub use stage::StagedTable;
#[cfg(braid_simulation)]
pub use stats::MemoryProbe;
pub use stats::{
    AbortStats, LogHolder, LogPositions, MemoryStats, PageStats, Stats, SuspensionStats, TableSize,
    WorkerStats,
};
pub use table::{KeyRange, Table};
pub use table_description::TableDescription;
pub use table_options::TableOptions;
pub use ticket::Ticket;
pub use trace::{Activity, Trace, TraceSlice};
pub use transaction::Transaction;
pub use transaction_builder::{Outcome, TransactionBuilder};
pub use tuning::{Overload, Tuning};
#[cfg(feature = "experiment")]
pub use unversioned::load_onto_pages;
pub use upkeep::{Backup, LogBlock, LogWrites};
pub use weak::WeakDatabase;
