//! How far the user of a scan has got.

use std::cell::Cell;

use super::error::OperationError;

/// What a scan gave, and may give. What was given borrows the scan, so this is shared while it changes.
#[derive(Debug)]
pub(super) struct Progress {
    /// Records that may still be given.
    left: Cell<u64>,
    /// Whether the record that is ready was given, so that it is to be passed before the next.
    given: Cell<bool>,
    /// Whether it was asked for something that comes too late: then nothing is left.
    refused: Cell<bool>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(u64::MAX), given: Cell::new(false), refused: Cell::new(false) }
    }

    /// At most `count` more are to be given.
    pub(super) fn limit(&self, count: u64) {
        if !self.refused.get() {
            self.left.set(count);
        }
    }

    /// The scan was to turn round, and has begun.
    pub(super) fn refuse(&self) {
        self.refused.set(true);
        self.left.set(0);
    }

    /// What is told when nothing is left.
    #[cold]
    pub(super) fn over(&self) -> Result<bool, OperationError> {
        if self.refused.get() { Err(OperationError::ScanBegun) } else { Ok(false) }
    }

    /// How many more may be given.
    pub(super) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Whether a record that was given is to be passed now.
    pub(super) fn passes(&self) -> bool {
        self.given.take()
    }

    /// Whether one was given and not passed yet.
    pub(super) fn has_given(&self) -> bool {
        self.given.get()
    }

    pub(super) fn give(&self) {
        self.given.set(true);
        self.left.set(self.left.get() - 1);
    }
}
