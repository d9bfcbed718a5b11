//! Operations of several steps that must not commit halfway.

use super::active_transaction::ActiveTransaction;
use super::error::OperationError;

/// Keeps the transaction from committing until the operation is complete, also if this is leaked.
#[derive(Debug)]
pub(crate) struct PartialOperation<'t> {
    transaction: &'t ActiveTransaction,
    /// The error with which other operations fail, if this is dropped before.
    error: Option<OperationError>,
}

impl<'t> PartialOperation<'t> {
    /// Begins an operation. If it stays incomplete, a commit fails with `error`.
    pub(crate) fn begin(transaction: &'t ActiveTransaction, error: OperationError) -> Self {
        transaction.begin_partial(error.clone());
        Self { transaction, error: Some(error) }
    }

    /// Ends the operation.
    pub(crate) fn complete(mut self) {
        self.error = None;
        self.transaction.complete_partial();
    }
}

impl Drop for PartialOperation<'_> {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            self.transaction.fail_halfway(error);
        }
    }
}
