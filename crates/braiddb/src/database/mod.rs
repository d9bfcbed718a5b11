//! The database as its user sees it: opening and closing, typed tables, transactions, errors.

mod catalog;
mod error;
mod interactive;
mod options;
mod run;
mod scan;
mod stats;
mod table;
mod transaction;

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use catalog::TableDescription;
pub use error::{Error, Result};
pub use interactive::InteractiveTransaction;
pub use options::{Options, Outcome, RunOptions};
pub use scan::Scan;
pub use stats::{AbortStats, LogStats, MemoryStats, Stats, WorkerStats};
pub use table::{KeyRange, PrefixKey, Table};
pub use transaction::Transaction;

use crate::types::{Key, Value};

/// An open database. Handles are cheap to clone, and can be used from any thread; the last one
/// dropped closes the database.
#[derive(Clone)]
pub struct Database {
    shared: Arc<Shared>,
}
