//! What a transaction looks through.

use super::stamp::{Stamp, TransactionName};
use super::status::{StatusTable, Visible};
use crate::log::Lsn;

/// What a transaction looks through, which is active for `'a`: its begin stamp, its own name, and
/// everyone's states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) begin: Lsn,
    pub(crate) me: TransactionName,
    pub(crate) status: &'a StatusTable,
}

/// Another worker is about to decide what is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecided;

impl<'a> View<'a> {
    /// The view of a transaction.
    ///
    /// # Safety
    /// For the length of `'a` a transaction with this begin stamp and name is active.
    pub(crate) unsafe fn new(begin: Lsn, me: TransactionName, status: &'a StatusTable) -> Self {
        Self { begin, me, status }
    }

    /// Whether the transaction sees what has the stamp that `stamp` reads; `None` while another worker
    /// decides.
    #[inline(always)]
    pub(crate) fn sees(&self, stamp: impl Fn() -> Stamp) -> Option<Visible> {
        self.status.visible(stamp(), self.begin, Some(self.me), stamp)
    }
}
