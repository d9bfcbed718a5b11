//! State of a bulk operation: its tables, its closed gates, and what it has written.

use std::sync::Arc;

use super::log::BulkLog;
use crate::page::PagedTable;
use crate::record::{ChangingIndexes, Records};

/// State of a transaction that is a bulk operation.
#[derive(Debug)]
pub(in crate::transaction) struct BulkWrites {
    pub(super) tables: Vec<BulkTable>,
    pub(super) log: BulkLog,
    /// True while a write of several steps is in progress.
    pub(super) is_busy: bool,
    /// Number of records written.
    pub(super) written: u64,
    /// True if all its writes were deletions.
    pub(super) deletes_only: bool,
    /// Declared last, so that gates open after everything is decided.
    pub(super) _gates: BulkGates,
}

/// A table that a bulk operation writes.
#[derive(Debug)]
pub(super) struct BulkTable {
    pub(super) table: Arc<Records>,
    pub(super) epoch: u64,
    pub(super) is_written: bool,
    /// True if it replaced or deleted existing values.
    pub(super) covers: bool,
    /// Record delta: records added minus records deleted.
    pub(super) more: i64,
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

impl BulkTable {
    pub(super) fn paged(&self) -> &PagedTable {
        self.table.paged().expect("bulk operations are on paged tables")
    }
}

/// Closed gates, and the exclusive right to change the tables' indexes. Dropping this releases
/// both.
#[derive(Debug, Default)]
pub(crate) struct BulkGates {
    /// Tables with closed gates, including the entries of their indexes.
    pub(super) closed: Vec<Arc<Records>>,
    pub(super) rights: Vec<ChangingIndexes>,
}

impl Drop for BulkGates {
    fn drop(&mut self) {
        // Released first, so that the next operation to close a gate finds the right available.
        self.rights.clear();
        for table in &self.closed {
            table.paged().expect("a paged table").bulk().gate.open();
        }
    }
}
