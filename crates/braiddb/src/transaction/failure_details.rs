//! The details that a transaction reports if it fails. It is created when there is something to report, so that
//! other transactions reset one word.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use super::context::ActiveTransaction;
use super::error::OperationError;
use super::read_set::NamedKeys;
use crate::record::Records;
use crate::rid::TableId;

/// The details that a transaction reports if it fails.
#[derive(Debug, Default)]
pub(super) struct FailureDetails {
    /// The record of its conflict, if conflicts are to name their records.
    conflict_record: RefCell<Option<Box<NamedKeys>>>,
    /// The table of the bulk operation that refused it.
    bulk_met: OnceCell<(Arc<str>, TableId)>,
    /// The first record that it read in a superseded version.
    doomed_by: OnceCell<Box<NamedKeys>>,
    /// The error of an operation because of which the transaction cannot commit.
    failed: OnceCell<OperationError>,
}

impl ActiveTransaction {
    #[cold]
    fn new_details(&self) -> &FailureDetails {
        self.details().get_or_init(Box::default)
    }

    /// The table of the bulk operation that refused the transaction, first `table`.
    pub(super) fn meet_bulk(&self, table: &Records) -> &(Arc<str>, TableId) {
        self.new_details().bulk_met.get_or_init(|| (table.name(), table.id))
    }

    /// The table of the bulk operation that refused the transaction.
    pub(super) fn bulk_met(&self) -> Option<&(Arc<str>, TableId)> {
        self.details().get()?.bulk_met.get()
    }

    /// The record of the conflict, if conflicts name their records.
    pub(super) fn conflict_record(&self) -> Option<Box<NamedKeys>> {
        self.details().get()?.conflict_record.borrow().clone()
    }

    /// Notes the first record that was read in a superseded version.
    pub(super) fn doom(&self, table: &Records, key: &[u8]) {
        let doomed_by = &self.new_details().doomed_by;
        doomed_by.get_or_init(|| Box::new(NamedKeys::record(table, key)));
    }

    /// The first record that was read in a superseded version.
    #[inline(always)]
    pub(super) fn doomed_by(&self) -> Option<&NamedKeys> {
        self.details().get()?.doomed_by.get().map(|record| &**record)
    }

    /// Notes that an operation failed such that the transaction must abort.
    pub(super) fn fail_halfway(&self, error: OperationError) -> OperationError {
        self.new_details().failed.get_or_init(|| error).clone()
    }

    /// The error of an operation that failed halfway, if any.
    pub(super) fn failed(&self) -> Option<&OperationError> {
        self.details().get()?.failed.get()
    }

    pub(super) fn note_conflict_record(&self, table: &Records, key: &[u8]) {
        let record = Box::new(NamedKeys::record(table, key));
        self.new_details().conflict_record.replace(Some(record));
    }

    pub(super) fn forget_conflict_record(&self) {
        if let Some(details) = self.details().get() {
            details.conflict_record.take();
        }
    }
}
