//! Bulk operations at the transaction level. A bulk operation is the only writer of the paged
//! tables whose gates it closed. It writes their pages directly (`page/bulk`) and logs as it
//! writes, in parts. The parts take effect only if the commit block follows.
//!
//! | when | what a bulk operation does |
//! |---|---|
//! | it begins | waits until the last one on each table is settled; closes their gates, and waits for writers that have joined; then begins its transaction, and an epoch of each table |
//! | it writes | marks slots; queues log records, which are logged as soon as they fill a block |
//! | it commits | logs the rest; commits as any transaction; stamps the tables' epochs; opens the gates |
//! | it aborts | stamps the epochs as aborted; opens the gates |
//! | later | a pass removes the marks (`transaction/housekeeping/bulk_sweep.rs`); marks of an aborted operation go before the next may begin |
//!
//! Snapshots, certification, writes to other tables and recovery work as for every transaction.
//!
//! Invariant: an epoch is decided before its gate opens.

mod begin;
mod indexed;
mod write;

pub(crate) use begin::CannotBegin;

use crate::record::{Records, RecordsRef};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::transaction_state::Conflict;

impl ActiveTransaction {
    /// The epoch of this transaction's bulk operation on this table, if it has one.
    #[inline]
    pub(super) fn bulk_epoch(&self, table: &Records) -> Option<u64> {
        let epochs = self.context().extras.bulk_epochs.borrow();
        epochs.iter().find(|(id, _)| *id == table.id).map(|(_, epoch)| *epoch)
    }

    /// Registers the transaction as an ordinary writer of a table, if it is paged.
    ///
    /// # Errors
    /// `BulkUnderWay`; the transaction must then abort, and may be retried.
    #[inline]
    pub(in crate::transaction) fn join(&self, table: &Records) -> Result<(), OperationError> {
        let Some(table) = table.paged() else { return Ok(()) };
        let joined = &mut *self.joined().borrow_mut();
        let reference = RecordsRef::new(table);
        if joined.contains(&reference) {
            return Ok(());
        }
        if !table.pages().bulk().gate.join(self.worker().number()) {
            self.set_conflict(Conflict::Bulk);
            return Err(self.refused_for_bulk(table));
        }
        joined.push(reference);
        Ok(())
    }

    #[cold]
    fn refused_for_bulk(&self, table: &Records) -> OperationError {
        let (name, id) = self.meet_bulk(table);
        OperationError::BulkUnderWay(name.clone(), *id)
    }
}
