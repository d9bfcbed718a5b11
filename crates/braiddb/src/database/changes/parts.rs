//! From where on the log is needed for what was not given yet: large transactions are logged in parts, which precede their
//! commit among others.
//!
//! A part is *open* from when it is met to when its commit is. Parts whose transaction was aborted, or ended with its
//! process, would be open for ever. So every now and then it is asked which transactions are being logged in parts;
//! once all that was logged by then has been met, what is open and older than their first parts will never commit.

use std::collections::BTreeMap;

use crate::log::Lsn;

/// The parts of transactions that have not committed, as far as the log was followed.
#[derive(Debug)]
pub(super) struct OpenParts {
    /// Where the log began to be followed: what began before is over, as far as it is to be given.
    from: Lsn,
    /// By their first parts; where each part starts and ends.
    open: BTreeMap<Lsn, Vec<(Lsn, Lsn)>>,
    sample: Option<Sample>,
}

/// Taken at one moment: no transaction that commits at `tail` or later has a part before `bound`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) tail: Lsn,
    pub(super) bound: Lsn,
}

impl OpenParts {
    /// Of a log that is followed from there on, where a token says so.
    pub(super) fn new(from: Lsn) -> Self {
        Self { from, open: BTreeMap::new(), sample: None }
    }

    /// A part of the transaction whose first one is there, which starts and ends there.
    pub(super) fn meet_part(&mut self, first: Lsn, part: (Lsn, Lsn)) {
        // A later part of one that was aborted. What is before is perhaps not held.
        if first >= self.from {
            self.open.entry(first).or_default().push(part);
        }
    }

    /// Where the parts are of a transaction that commits, which were met; in their order.
    pub(super) fn meet_commit(&mut self, first: Lsn) -> Vec<(Lsn, Lsn)> {
        self.open.remove(&first).unwrap_or_default()
    }

    /// What is before this was given, or never will be; `position` is how far the log was followed.
    pub(super) fn needed_from(&self, position: Lsn) -> Lsn {
        self.open.first_key_value().map_or(position, |(first, _)| position.min(*first))
    }

    /// Forgets what will never commit; `position` is how far the log was followed. If something is open, and nothing
    /// was asked for it yet, `sample` is asked.
    pub(super) fn settle(&mut self, position: Lsn, sample: impl FnOnce() -> Sample) {
        self.forget_over(position);
        if self.sample.is_none() && !self.open.is_empty() {
            self.sample = Some(sample());
            // At the end of the log it may be long until there is more.
            self.forget_over(position);
        }
    }

    fn forget_over(&mut self, position: Lsn) {
        if let Some(Sample { bound, .. }) = self.sample.take_if(|sample| position >= sample.tail) {
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
        // Only that of 80 may commit from 120 on; that of 60 may before.
        open.settle(Lsn(100), || Sample { tail: Lsn(120), bound: Lsn(80) });
        open.settle(Lsn(112), || panic!("asked already"));
        assert_eq!(open.needed_from(Lsn(112)), Lsn(60));
        open.settle(Lsn(120), || Sample { tail: Lsn(130), bound: Lsn(130) });
        assert_eq!(open.needed_from(Lsn(120)), Lsn(80));
        open.settle(Lsn(136), || panic!("nothing is open any more"));
        // At the end of the log it is known at once.
        open.meet_part(Lsn(140), part(140));
        open.settle(Lsn(148), || Sample { tail: Lsn(148), bound: Lsn(148) });
        assert_eq!(open.needed_from(Lsn(148)), Lsn(148));
        assert_eq!(open.needed_from(Lsn(136)), Lsn(136));
    }
}
