//! Transactions: their snapshot and write set, how they commit and abort, and what is cleaned up
//! behind them (CoroBase §4.5, MosaicDB §5).

mod admission;
mod begins;
mod budget;
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
mod prune;
mod read;
mod reading;
mod scan;
mod tables;
#[cfg(all(test, not(loom)))]
mod tests;
mod worker;
mod write;
mod write_set;

pub(crate) use admission::{InteractivePermit, NextAttempt};
pub(crate) use context::Transaction;
pub(crate) use counters::{AbortCause, WorkerCounters};
pub(crate) use driver::WorkerDriver;
pub use engine::Durability;
pub(crate) use engine::{Engine, EngineOptions};
pub(crate) use error::OperationError;
pub(crate) use found::Found;
pub(crate) use scan::{Bounds, Direction, Scan};
pub(crate) use worker::WorkerTransactions;
pub(crate) use write::Intent;
