//! A transaction's view: the input of visibility decisions.

use super::stamp::{Stamp, TransactionName};
use super::status::{StatusTable, TransactionStatus, Visibility};
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sync;

/// The view of a transaction that is active for `'a`: its begin stamp, its name, and the states of
/// all transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) begin: Lsn,
    pub(crate) me: TransactionName,
    pub(crate) status: &'a StatusTable,
}

/// Error: another worker is about to decide the visibility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecided;

/// Number of polls of a transaction that has begun to draw its LSN. It publishes the LSN within a
/// few instructions, unless its thread is interrupted.
const MAX_POLLS: u32 = if cfg!(loom) { 2 } else { 100 };

/// Relation of a commit to a begin stamp and a later commit LSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Committed before both.
    Before,
    /// Committed between them.
    Between,
    /// Not committed before the later one.
    After,
    /// In doubt: the LSN is not published yet.
    Untold,
}

impl<'a> View<'a> {
    /// Creates the view of a transaction.
    ///
    /// # Safety
    /// A transaction with this begin stamp and name is active during `'a`.
    pub(crate) unsafe fn new(begin: Lsn, me: TransactionName, status: &'a StatusTable) -> Self {
        Self { begin, me, status }
    }

    /// A view of everything that is committed when it is read. Versions that it reports as
    /// uncommitted commit after the transaction's begin stamp, if ever.
    pub(crate) fn of_newest(self) -> Self {
        Self { begin: Stamp::LATEST, ..self }
    }

    /// Returns the visibility of a version for the transaction, given a function that reads its
    /// stamp; `None` while another worker decides.
    #[inline(always)]
    pub(crate) fn sees(&self, stamp: impl Fn() -> Stamp) -> Option<Visibility> {
        self.status.visible(stamp(), self.begin, Some(self.me), stamp)
    }

    /// Returns whether a version with this stamp was written by the transaction, or committed before
    /// its begin stamp. [`Self::verdict`] is then `Before`.
    #[inline(always)]
    pub(crate) fn wrote_or_precedes(&self, stamp: Stamp) -> bool {
        stamp == Stamp::in_flight(self.me) || stamp.lsn_before(self.begin).is_some()
    }

    /// Relates a version's commit to the begin stamp and to `until`, a commit LSN that was drawn,
    /// or [`Lsn::MAX`]. `stamp` reads the version's stamp.
    pub(crate) fn verdict(&self, stamp: impl Fn() -> Stamp, until: Lsn) -> Verdict {
        let (mut word, mut looks) = (stamp(), 0);
        let committed = loop {
            let Some(name) = word.name() else {
                // The LSN of an aborted one is later than any other.
                break word.lsn().expect("not in flight");
            };
            if name == self.me {
                // First updater wins: the version it was installed on is the one that the
                // transaction saw.
                return Verdict::Before;
            }
            match self.status.outcome(name) {
                TransactionStatus::Active | TransactionStatus::Aborted => return Verdict::After,
                TransactionStatus::Committing(_) if is_planted(Bug::CertifiedBesideCommitting) => {
                    return Verdict::After;
                }
                // Independent of the outcome: no transaction waits here, so no cycle of waits
                // exists.
                TransactionStatus::Committing(Some(lsn)) if lsn < until => return Verdict::Between,
                TransactionStatus::Committing(Some(_)) => return Verdict::After,
                // A caller that only asks for current commits does not wait either. The LSN may be
                // before the begin stamp, so the version below may be freed once it is decided: the
                // search ends here.
                TransactionStatus::Committing(None) if until == Lsn::MAX || looks == MAX_POLLS => {
                    return Verdict::Untold;
                }
                TransactionStatus::Committing(None) => {
                    looks += 1;
                    sync::spin_loop();
                }
                TransactionStatus::Committed(lsn) => break lsn,
                TransactionStatus::Stale => word = stamp(),
            }
        };
        match committed {
            lsn if lsn < self.begin => Verdict::Before,
            lsn if lsn < until => Verdict::Between,
            _ => Verdict::After,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::version::Stamp;

    /// A search that receives `After` continues at the older version. So `After` is wrong for a
    /// transaction that may have drawn an LSN before the begin stamp.
    #[test]
    fn a_transaction_that_draws_its_lsn_is_not_later() {
        let status = StatusTable::new(2, 1);
        let (me, other) = (status.begin(0, 0), status.begin(1, 0));
        // SAFETY: the transaction is active for as long as the test runs.
        let view = unsafe { View::new(Lsn(100), me, &status) };
        let verdict = || view.verdict(|| Stamp::in_flight(other), Lsn::MAX);
        assert_eq!(verdict(), Verdict::After, "it will draw a later one");
        let committing = status.committing(other);
        assert_eq!(verdict(), Verdict::Untold);
        committing.drew(Lsn(50));
        assert_eq!(verdict(), Verdict::Between, "published before it is decided");
        committing.committed();
        assert_eq!(verdict(), Verdict::Before);
    }
}
