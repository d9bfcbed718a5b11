//! The start of the log that a feed still needs. Large transactions are logged in parts, which
//! precede their commit and are mixed with other transactions.
//!
//! A part is *open* from the moment it is read until its commit is read. The commit never comes if
//! the transaction was aborted or its process ended. From time to time, the feed therefore samples
//! which transactions are being logged in parts. Once it has read everything logged before the
//! sample, open parts older than the first parts in the sample will never commit.

use std::collections::{BTreeMap, BTreeSet};

use crate::log::Lsn;

/// The parts of uncommitted transactions, up to the followed position.
#[derive(Debug)]
pub(super) struct OpenParts {
    /// The start of the followed log. Transactions that started before it have ended, as far as the
    /// feed needs them.
    from: Lsn,
    /// Start and end of each part, by the first part of its transaction.
    open: BTreeMap<Lsn, Vec<(Lsn, Lsn)>>,
    /// First parts of transactions that never commit.
    aborted: BTreeSet<Lsn>,
    sample: Option<BoundSample>,
}

/// A sample at one moment: no transaction that commits at `tail` or later has a part before
/// `bound`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundSample {
    pub(super) tail: Lsn,
    pub(super) bound: Lsn,
}

impl OpenParts {
    /// Creates the state of a feed that follows the log from `from`, the position in its token.
    pub(super) fn new(from: Lsn) -> Self {
        Self { from, open: BTreeMap::new(), aborted: BTreeSet::new(), sample: None }
    }

    /// Ignores the parts of transactions that never commit, given by their first parts.
    pub(super) fn ignore(&mut self, aborted: BTreeSet<Lsn>) {
        self.aborted = aborted;
    }

    /// Adds a part with its start and end. The transaction's first part is at `first`.
    pub(super) fn meet_part(&mut self, first: Lsn, part: (Lsn, Lsn)) {
        // A later part of an aborted transaction; the log before `from` may not be held.
        if first >= self.from && !self.aborted.contains(&first) {
            self.open.entry(first).or_default().push(part);
        }
    }

    /// Removes and returns the parts of a committing transaction that were read, in log order.
    pub(super) fn meet_commit(&mut self, first: Lsn) -> Vec<(Lsn, Lsn)> {
        self.open.remove(&first).unwrap_or_default()
    }

    /// Returns the start of the needed log. Everything before it was returned, or never will be.
    /// `position` is the end of the followed log.
    pub(super) fn needed_from(&self, position: Lsn) -> Lsn {
        self.open.first_key_value().map_or(position, |(first, _)| position.min(*first))
    }

    /// Forgets parts that will never commit. `position` is the end of the followed log. Takes a
    /// `sample` if parts are open and none is pending.
    pub(super) fn settle(&mut self, position: Lsn, sample: impl FnOnce() -> BoundSample) {
        self.forget_over(position);
        if self.sample.is_none() && !self.open.is_empty() {
            self.sample = Some(sample());
            // At the log tail the next block may take long, so the check runs again immediately.
            self.forget_over(position);
        }
    }

    fn forget_over(&mut self, position: Lsn) {
        if let Some(BoundSample { bound, .. }) =
            self.sample.take_if(|sample| position >= sample.tail)
        {
            self.open = self.open.split_off(&bound);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_that_will_never_commit_are_forgotten_once_that_is_known() {
        let mut open = OpenParts::new(Lsn(40));
        assert_eq!(open.needed_from(Lsn(100)), Lsn(100));
        let part = |at: u64| (Lsn(at), Lsn(at + 8));
        open.meet_part(Lsn(30), part(44));
        assert_eq!(open.needed_from(Lsn(100)), Lsn(100), "not before where it began");
        open.settle(Lsn(100), || panic!("nothing is open"));
        for first in [40, 60, 80] {
            open.meet_part(Lsn(first), part(first));
            open.meet_part(Lsn(first), part(first + 8));
        }
        assert_eq!(open.needed_from(Lsn(100)), Lsn(40));
        assert_eq!(open.meet_commit(Lsn(40)), [part(40), part(48)]);
        assert_eq!(open.meet_commit(Lsn(30)), []);
        assert_eq!(open.needed_from(Lsn(100)), Lsn(60));
        // Only the transaction at 80 may commit at 120 or later; the one at 60 commits before.
        open.settle(Lsn(100), || BoundSample { tail: Lsn(120), bound: Lsn(80) });
        open.settle(Lsn(112), || panic!("asked already"));
        assert_eq!(open.needed_from(Lsn(112)), Lsn(60));
        open.settle(Lsn(120), || BoundSample { tail: Lsn(130), bound: Lsn(130) });
        assert_eq!(open.needed_from(Lsn(120)), Lsn(80));
        open.settle(Lsn(136), || panic!("nothing is open any more"));
        // At the end of the log the sample takes effect immediately.
        open.meet_part(Lsn(140), part(140));
        open.settle(Lsn(148), || BoundSample { tail: Lsn(148), bound: Lsn(148) });
        assert_eq!(open.needed_from(Lsn(148)), Lsn(148));
        assert_eq!(open.needed_from(Lsn(136)), Lsn(136));
    }
}
