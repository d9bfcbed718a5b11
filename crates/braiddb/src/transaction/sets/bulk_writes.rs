//! State of a bulk operation: its tables, its closed gates, and what it has written.

use std::sync::Arc;

use super::bulk_log::BulkLog;
use crate::record::{ChangingIndexes, PagedRecords};

/// State of a transaction that is a bulk operation.
#[derive(Debug)]
pub(in crate::transaction) struct BulkWrites {
    pub(in crate::transaction) tables: Vec<BulkTable>,
    pub(in crate::transaction) log: BulkLog,
    /// True while a write of several steps is in progress.
    pub(in crate::transaction) is_busy: bool,
    /// Number of records written.
    pub(in crate::transaction) written: u64,
    /// True if all its writes were deletions.
    pub(in crate::transaction) deletes_only: bool,
    /// Declared last, so that gates open after everything is decided.
    pub(in crate::transaction) _gates: BulkGates,
}

/// A table that a bulk operation writes.
#[derive(Debug)]
pub(in crate::transaction) struct BulkTable {
    pub(in crate::transaction) table: Arc<PagedRecords>,
    pub(in crate::transaction) epoch: u64,
    pub(in crate::transaction) is_written: bool,
    /// True if it replaced or deleted existing values.
    pub(in crate::transaction) covers: bool,
    /// Record delta: records added minus records deleted.
    pub(in crate::transaction) more: i64,
}

impl BulkWrites {
    /// Returns whether the operation has written nothing.
    pub(in crate::transaction) fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Returns whether the operation wrote only deletions.
    pub(in crate::transaction) fn deletes_only(&self) -> bool {
        self.deletes_only
    }
}

/// Closed gates, and the exclusive right to change the tables' indexes. Dropping this releases
/// both.
#[derive(Debug, Default)]
pub(crate) struct BulkGates {
    /// Tables with closed gates, including the entries of their indexes.
    pub(in crate::transaction) closed: Vec<Arc<PagedRecords>>,
    pub(in crate::transaction) rights: Vec<ChangingIndexes>,
}

impl Drop for BulkGates {
    fn drop(&mut self) {
        // Released first, so that the next operation to close a gate finds the right available.
        self.rights.clear();
        for table in &self.closed {
            table.pages().bulk().gate.open();
        }
    }
}
