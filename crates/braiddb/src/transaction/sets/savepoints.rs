//! Savepoints of a transaction: positions in its writes to which it may roll back, and counts that
//! show whether it has written or rolled back since.

use std::cell::{Cell, RefCell};

use crate::version::TransactionName;

/// A position in a transaction: the writes made and the tables created so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteSavepoint {
    pub(in crate::transaction) transaction: TransactionName,
    pub(in crate::transaction) number: u64,
    pub(in crate::transaction) writes: usize,
    pub(in crate::transaction) replaced: usize,
    pub(in crate::transaction) paged: u32,
    pub(in crate::transaction) paged_value_bytes: usize,
    pub(in crate::transaction) created: usize,
}

/// Counts of a transaction's writes and rollbacks; two values are equal if it wrote nothing between
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::transaction) struct WriteMoment {
    pub(in crate::transaction) written: usize,
    pub(in crate::transaction) rollbacks: u64,
}

/// The savepoints of a transaction.
#[derive(Debug, Default)]
pub(in crate::transaction) struct Savepoints {
    /// Numbers of the savepoints that may be rolled back to, in order of creation.
    pub(in crate::transaction) valid: RefCell<Vec<u64>>,
    pub(in crate::transaction) next: Cell<u64>,
    pub(in crate::transaction) rollbacks: Cell<u64>,
    /// Number of writes to paged tables before the newest savepoint. These are not overwritten in
    /// place.
    pub(in crate::transaction) newest_paged: Cell<u32>,
}

impl Savepoints {
    /// Removes all savepoints, for a new transaction.
    #[inline]
    pub(in crate::transaction) fn reset(&mut self) {
        self.valid.get_mut().clear();
        self.next.set(0);
        self.rollbacks.set(0);
        self.newest_paged.set(0);
    }

    /// Number of rollbacks of this transaction.
    pub(in crate::transaction) fn rollbacks(&self) -> u64 {
        self.rollbacks.get()
    }

    /// Number of writes to paged tables before the newest savepoint.
    pub(in crate::transaction) fn newest_paged(&self) -> u32 {
        self.newest_paged.get()
    }
}
