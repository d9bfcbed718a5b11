//! Bulk operations, as transactions carry them out: of some paged tables, whose gates they have closed, they write the
//! pages alone (`page/bulk`), and log what they write as they go, in parts that count once their commit block is there.
//!
//! | when | what a bulk operation does |
//! |---|---|
//! | it begins | waits until the last one on each table is settled; closes their gates, and waits for writers that have joined; then begins its transaction, and an epoch of each table |
//! | it writes | marks slots; adds to what is to be logged, which is logged as soon as it is a block |
//! | it commits | logs the rest; commits as any transaction; says so by the tables' stamps; opens the gates |
//! | it is aborted | says so by the stamps; opens the gates |
//! | later | the marks are swept (`sweep`): those of an aborted one before the next may begin |
//!
//! Everything else is that of transactions: snapshots, certification, writes to other tables, recovery.
//!
//! Invariant: an epoch is decided before its gate opens.

mod begin;
mod indexed;
mod log;
mod sweep;
mod write;

use std::sync::Arc;

use begin::BulkGates;
pub(crate) use begin::CannotBegin;
pub(super) use log::BulkLog;
pub(super) use sweep::BulkSweeps;

use super::context::Transaction;
use super::doomed::Conflict;
use super::error::OperationError;
use crate::page::PagedTable;
use crate::record::{Records, RecordsRef};
use crate::version::Stamp;

/// What a transaction has that is a bulk operation.
#[derive(Debug)]
pub(super) struct BulkWrites {
    tables: Vec<BulkTable>,
    pub(super) log: BulkLog,
    /// Whether a write of several steps is under way.
    is_busy: bool,
    /// How many records it wrote.
    written: u64,
    /// Whether all that it wrote were deletions.
    deletes_only: bool,
    /// Last, so that gates open when all is decided.
    _gates: BulkGates,
}

/// A table that a bulk operation writes.
#[derive(Debug)]
struct BulkTable {
    table: Arc<Records>,
    epoch: u64,
    is_written: bool,
    /// Whether it left values in the place of others, or none.
    covers: bool,
    /// How many records more than before it has.
    more: i64,
}

impl BulkWrites {
    /// Whether it has written nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.written == 0
    }

    /// Whether it wrote nothing but deletions.
    pub(super) fn deletes_only(&self) -> bool {
        self.deletes_only
    }
}

impl BulkTable {
    fn paged(&self) -> &PagedTable {
        self.table.paged().expect("bulk operations are on paged tables")
    }
}

impl Transaction {
    /// The epoch of the bulk operation that the transaction is, if it is one on this table.
    #[inline]
    pub(super) fn bulk_epoch(&self, table: &Records) -> Option<u64> {
        let epochs = self.bulk_epochs().borrow();
        epochs.iter().find(|(id, _)| *id == table.id).map(|(_, epoch)| *epoch)
    }

    /// Whether the transaction is a bulk operation.
    pub(super) fn is_bulk(&self) -> bool {
        !self.bulk_epochs().borrow().is_empty()
    }

    /// Lets the transaction write a paged table as others do.
    ///
    /// # Errors
    /// `BulkUnderWay`; then it must abort, and may be retried.
    #[inline]
    pub(super) fn join(&self, table: &Records, paged: &PagedTable) -> Result<(), OperationError> {
        let joined = &mut *self.joined().borrow_mut();
        let reference = RecordsRef::new(table);
        if joined.contains(&reference) {
            return Ok(());
        }
        if !paged.bulk().gate.join(self.worker().number()) {
            self.set_conflict(Conflict::Bulk);
            return Err(self.refused_for_bulk(table));
        }
        joined.push(reference);
        Ok(())
    }

    #[cold]
    fn refused_for_bulk(&self, table: &Records) -> OperationError {
        let (name, id) = self.bulk_met().get_or_init(|| (table.name(), table.id));
        OperationError::BulkUnderWay(name.clone(), *id)
    }

    /// Says what became of the bulk operation that the transaction is, if it is one, by its tables' stamps.
    #[inline]
    pub(super) fn decide_bulk(&self, stamp: Stamp) {
        if self.is_bulk() {
            self.decide_tables(stamp);
        }
    }

    #[cold]
    fn decide_tables(&self, stamp: Stamp) {
        let mut writes = self.writes().borrow_mut();
        let Some(bulk) = &mut writes.bulk else { return };
        let engine = self.engine();
        for one in bulk.tables.drain(..) {
            let epochs = &one.paged().bulk().epochs;
            if !one.is_written {
                // There are no marks.
                epochs.decide(Stamp::ABORTED);
                epochs.settle(one.epoch);
                continue;
            }
            if stamp != Stamp::ABORTED {
                one.table.count().add(self.worker().number(), one.more);
            }
            epochs.decide(stamp);
            let has_pass = one.covers || stamp == Stamp::ABORTED;
            engine.bulk_sweeps.expect(one.table, has_pass);
        }
    }
}
