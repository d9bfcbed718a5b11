//! Savepoints of a transaction: positions in its writes to which it may roll back, and counts that
//! show whether it has written or rolled back since.

use std::cell::{Cell, RefCell};

use crate::version::TransactionName;

/// A position in a transaction: the writes made and the tables created so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteSavepoint {
    pub(super) transaction: TransactionName,
    pub(super) number: u64,
    pub(super) writes: usize,
    pub(super) replaced: usize,
    pub(super) paged: u32,
    pub(super) paged_value_bytes: usize,
    pub(super) created: usize,
}

/// Counts of a transaction's writes and rollbacks; two values are equal if it wrote nothing between
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WriteMoment {
    pub(super) written: usize,
    pub(super) rollbacks: u64,
}

/// The savepoints of a transaction.
#[derive(Debug, Default)]
pub(super) struct Savepoints {
    /// Numbers of the savepoints that may be rolled back to, in order of creation.
    pub(super) valid: RefCell<Vec<u64>>,
    pub(super) next: Cell<u64>,
    pub(super) rollbacks: Cell<u64>,
    /// Number of writes to paged tables before the newest savepoint. These are not overwritten in
    /// place.
    pub(super) newest_paged: Cell<u32>,
}

impl Savepoints {
    /// Removes all savepoints, for a new transaction.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.valid.get_mut().clear();
        self.next.set(0);
        self.rollbacks.set(0);
        self.newest_paged.set(0);
    }

    /// Number of rollbacks of this transaction.
    pub(super) fn rollbacks(&self) -> u64 {
        self.rollbacks.get()
    }

    /// Number of writes to paged tables before the newest savepoint.
    pub(super) fn newest_paged(&self) -> u32 {
        self.newest_paged.get()
    }
}
