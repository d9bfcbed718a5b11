//! What a transaction looks through.

use super::stamp::{Stamp, TransactionName};
use super::status::{Outcome, StatusTable, Visible};
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sync;

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

/// How often a transaction is asked again that has begun to draw its LSN: it is about to publish it,
/// within a few instructions, unless its thread was interrupted.
const MAX_LOOKS: u32 = if cfg!(loom) { 2 } else { 100 };

/// What a stamp says of the time between a begin stamp and a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was committed before both.
    Before,
    /// It was committed between them.
    Between,
    /// It was not committed before the later one.
    After,
    /// That cannot be told at once.
    Untold,
}

impl<'a> View<'a> {
    /// The view of a transaction.
    ///
    /// # Safety
    /// For the length of `'a` a transaction with this begin stamp and name is active.
    pub(crate) unsafe fn new(begin: Lsn, me: TransactionName, status: &'a StatusTable) -> Self {
        Self { begin, me, status }
    }

    /// The same, of all that is committed when it is looked at. What it is then told of as not committed is committed
    /// after the transaction's begin stamp, if ever.
    pub(crate) fn of_newest(self) -> Self {
        Self { begin: Stamp::ABORTED.lsn().expect("later than any LSN"), ..self }
    }

    /// Whether the transaction sees what has the stamp that `stamp` reads; `None` while another worker
    /// decides.
    #[inline(always)]
    pub(crate) fn sees(&self, stamp: impl Fn() -> Stamp) -> Option<Visible> {
        self.status.visible(stamp(), self.begin, Some(self.me), stamp)
    }

    /// What the stamp that `stamp` reads says of the time between the begin stamp and `until`, a commit LSN
    /// that was drawn, or [`Lsn::MAX`].
    pub(crate) fn verdict(&self, stamp: impl Fn() -> Stamp, until: Lsn) -> Verdict {
        let (mut word, mut looks) = (stamp(), 0);
        let committed = loop {
            let Some(name) = word.name() else {
                // An aborted one's is later than any LSN.
                break word.lsn().expect("not in flight");
            };
            if name == self.me {
                // First updater wins: what it was installed on is what the transaction saw.
                return Verdict::Before;
            }
            match self.status.outcome(name) {
                Outcome::Active | Outcome::Aborted => return Verdict::After,
                Outcome::Committing(_) if is_planted(Bug::CertifiedBesideCommitting) => {
                    return Verdict::After;
                }
                // Whatever becomes of it: nobody waits here, so nobody waits in a circle.
                Outcome::Committing(Some(lsn)) if lsn < until => return Verdict::Between,
                Outcome::Committing(Some(_)) => return Verdict::After,
                // Nor does who only asks what is committed by now. Its LSN may be before the begin stamp, so what it was
                // installed on may be freed once it is decided: it ends every search.
                Outcome::Committing(None) if until == Lsn::MAX || looks == MAX_LOOKS => {
                    return Verdict::Untold;
                }
                Outcome::Committing(None) => {
                    looks += 1;
                    sync::spin_loop();
                }
                Outcome::Committed(lsn) => break lsn,
                Outcome::Stale => word = stamp(),
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

    /// Whoever takes "after" for an answer goes on to what it was installed on; so that is no answer for what may have
    /// drawn an LSN before the begin stamp.
    #[test]
    fn what_draws_its_lsn_is_not_after() {
        let status = StatusTable::new(2, 1);
        let (me, other) = (status.begin(0, 0), status.begin(1, 0));
        // SAFETY: it is active for as long as the test runs.
        let view = unsafe { View::new(Lsn(100), me, &status) };
        let verdict = || view.verdict(|| Stamp::in_flight(other), Lsn::MAX);
        assert_eq!(verdict(), Verdict::After, "it will draw a later one");
        status.committing(other);
        assert_eq!(verdict(), Verdict::Untold);
        status.drew(other, Lsn(50));
        assert_eq!(verdict(), Verdict::Between, "told before it is decided");
        status.committed(other);
        assert_eq!(verdict(), Verdict::Before);
    }
}
