//! Transactions: their snapshot and write set, how they commit and abort, and what is cleaned up
//! behind them (CoroBase §4.5, MosaicDB §5).

mod abort;
mod admission;
mod begins;
mod budget;
mod certify;
mod checkpoints;
mod commit;
mod context;
mod counters;
mod create;
mod driver;
mod durable;
mod engine;
mod error;
mod evict;
mod found;
mod garbage;
mod index_build;
mod index_changes;
mod index_check;
mod index_scan;
mod isolation;
mod prune;
mod read;
mod read_set;
mod reading;
mod scan;
mod stale;
mod tables;
#[cfg(all(test, not(loom)))]
mod tests;
mod turnstile;
mod worker;
mod write;
mod write_set;

pub(crate) use abort::Savepoint;
pub(crate) use admission::{InteractivePermit, NextAttempt};
pub(crate) use context::Transaction;
pub(crate) use counters::{AbortCause, WorkerCounters};
pub(crate) use driver::WorkerDriver;
pub use engine::Durability;
pub(crate) use engine::{Engine, EngineOptions};
pub(crate) use error::OperationError;
pub(crate) use found::Found;
pub(crate) use index_build::{CatalogRow, clear_index};
pub(crate) use index_check::check_index;
pub(crate) use index_scan::{Hit, IndexScan};
pub use isolation::Isolation;
pub(crate) use isolation::Mode;
pub(crate) use read::SeenRecord;
pub(crate) use read_set::Changed;
pub(crate) use scan::{Bounds, Direction, Scan};
pub(crate) use turnstile::{TakenTurnstile, TurnedAway};
pub(crate) use worker::WorkerTransactions;
pub(crate) use write::Intent;
