//! Progress of a scan's user.

use std::cell::Cell;

use crate::transaction::context::error::OperationError;

/// Counts the records that a scan returned and may still return. A returned record borrows the
/// scan, so this is shared while it changes.
#[derive(Debug)]
pub(super) struct ScanProgress {
    /// Number of records that may still be returned.
    left: Cell<u64>,
    /// Set if the ready record was returned, so that the scan must move past it first.
    given: Cell<bool>,
    /// Set if a request came too late; then nothing is left.
    refused: Cell<bool>,
}

impl ScanProgress {
    pub(in crate::transaction) fn new() -> Self {
        Self { left: Cell::new(u64::MAX), given: Cell::new(false), refused: Cell::new(false) }
    }

    /// Limits the scan to `count` more records.
    pub(in crate::transaction) fn limit(&self, count: u64) {
        if !self.refused.get() {
            self.left.set(count);
        }
    }

    /// Refuses a change of direction after the scan has begun.
    pub(super) fn refuse(&self) {
        self.refused.set(true);
        self.left.set(0);
    }

    /// The result once nothing is left.
    #[cold]
    pub(in crate::transaction) fn over(&self) -> Result<bool, OperationError> {
        if self.refused.get() { Err(OperationError::ScanBegun) } else { Ok(false) }
    }

    /// Number of records that may still be returned.
    pub(in crate::transaction) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Takes the flag that a returned record must be moved past now.
    pub(in crate::transaction) fn passes(&self) -> bool {
        self.given.take()
    }

    pub(in crate::transaction) fn give(&self) {
        self.given.set(true);
        self.left.set(self.left.get() - 1);
    }
}
