//! What became of a table's bulk operations: the newest one's number, and its stamp.
//!
//! Invariants: the number goes up before the stamp is that of the next operation, and only once the last one's marks
//! stand for what everybody sees, or are gone. So who reads a number, then the stamp, then the same number, has that
//! epoch's stamp; and marks with another number are older, and seen by all. Readers look between the two checks
//! of the page's version: then the marks were there when they did.

use std::cell::Cell;

use crate::log::Lsn;
use crate::page::value::CopiedValue;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{Outcome, Stamp, StatusTable, TransactionName, Undecided, View, Visible};

/// The newest epoch of a table; numbered from 1.
#[derive(Debug, Default)]
pub(crate) struct BulkEpochs {
    number: AtomicU64,
    stamp: AtomicU64,
    /// The newest one whose marks stand for what everybody sees and is durable, or are gone.
    settled: AtomicU64,
}

/// What the marks on a page stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum Marks {
    /// What everybody sees, and is durable.
    SeenByAll,
    /// What was committed at this LSN.
    Committed(Lsn),
    Aborted,
    Undecided,
}

/// What a marked slot was copied with.
#[derive(Clone, Debug)]
pub(in crate::page) struct Virtual {
    /// The operation's, as it was then.
    stamp: Stamp,
    /// The value before it; `None` if there was no record.
    pub(in crate::page) before: Option<CopiedValue>,
}

impl BulkEpochs {
    /// Begins an epoch, of the operation with this name; its number. The caller has the table's gate.
    pub(crate) fn begin(&self, name: TransactionName) -> u64 {
        // Relaxed, both: only who has the gate writes them, which orders them.
        let number = self.number.load(Ordering::Relaxed) + 1;
        // Acquire pairs with the Release in `settle`.
        assert!(self.settled.load(Ordering::Acquire) + 1 == number, "the last one is settled");
        // Release, both: see `stamp_of`.
        self.number.store(number, Ordering::Release);
        self.stamp.store(Stamp::in_flight(name).bits(), Ordering::Release);
        number
    }

    /// Says what became of the newest epoch.
    pub(crate) fn decide(&self, stamp: Stamp) {
        assert!(stamp.name().is_none(), "a final stamp is no name");
        // Release pairs with the Acquire in `stamp_of`.
        self.stamp.store(stamp.bits(), Ordering::Release);
    }

    /// The stamp of an epoch whose marks the caller has seen under a version of their page that he validates
    /// afterwards, or has latched.
    fn stamp_of(&self, epoch: u64) -> Stamp {
        const SEEN_BY_ALL: Stamp = Stamp::committed_at_first();
        // Acquire pairs with the Release in `begin` and `decide`: who meets the stamp of a later epoch meets its number at
        // the second look; and keeps the looks in this order.
        let is_newest = || self.number.load(Ordering::Acquire) == epoch;
        if !is_newest() {
            return SEEN_BY_ALL;
        }
        let stamp = Stamp::from_bits(self.stamp.load(Ordering::Acquire));
        if is_newest() { stamp } else { SEEN_BY_ALL }
    }

    /// What the marks of an epoch stand for, on a page that the caller has latched.
    pub(in crate::page) fn marks(&self, epoch: u64, status: &StatusTable) -> Marks {
        // Acquire pairs with the Release in `settle`.
        if self.settled.load(Ordering::Acquire) >= epoch {
            return Marks::SeenByAll;
        }
        loop {
            let stamp = self.stamp_of(epoch);
            let Some(name) = stamp.name() else {
                return match stamp {
                    Stamp::ABORTED => Marks::Aborted,
                    stamp => Marks::Committed(stamp.lsn().expect("not in flight")),
                };
            };
            match status.outcome(name) {
                Outcome::Stale => {}
                Outcome::Committed(lsn) => return Marks::Committed(lsn),
                Outcome::Aborted => return Marks::Aborted,
                Outcome::Active | Outcome::Committing(_) => return Marks::Undecided,
            }
        }
    }

    /// What is copied with a marked slot, and who sees it. Called between the two checks of the page's version.
    pub(in crate::page) fn copy(&self, epoch: u64, before: Option<CopiedValue>) -> Box<Virtual> {
        Box::new(Virtual { stamp: self.stamp_of(epoch), before })
    }

    /// The newest epoch and its stamp; none if there was no bulk operation yet, or everybody sees it.
    pub(crate) fn newest(&self) -> Option<(u64, Stamp)> {
        // Acquire pairs with the Release in `begin`.
        let number = self.number.load(Ordering::Acquire);
        // Acquire pairs with the Release in `settle`.
        let is_settled = self.settled.load(Ordering::Acquire) >= number;
        (!is_settled).then(|| (number, self.stamp_of(number)))
    }

    /// The newest epoch, if it was aborted and its marks may be there.
    pub(crate) fn aborted(&self) -> Option<u64> {
        self.newest().and_then(|(number, stamp)| (stamp == Stamp::ABORTED).then_some(number))
    }

    /// Says that all see an epoch, and that it is durable, or that its marks are gone.
    pub(crate) fn settle(&self, epoch: u64) {
        // Release pairs with the Acquire where it is looked at.
        self.settled.fetch_max(epoch, Ordering::Release);
    }
}

impl Virtual {
    /// Whether `view` sees what the operation left.
    ///
    /// # Errors
    /// While that is being decided; then the record is to be read anew.
    pub(in crate::page) fn seen_by(&self, view: View<'_>) -> Result<Visible, Undecided> {
        let looks = Cell::new(0);
        let stamp = || {
            // Looked at again, it may be another epoch's: the name was stale, so the record is read anew.
            if looks.replace(looks.get() + 1) == 0 { self.stamp } else { Stamp::ABORTED }
        };
        let visible = view.sees(stamp).ok_or(Undecided)?;
        if looks.get() > 1 { Err(Undecided) } else { Ok(visible) }
    }

    /// Whether somebody else has committed the operation; of one that is not seen.
    pub(in crate::page) fn is_committed(&self, status: &StatusTable) -> bool {
        match self.stamp.name() {
            None => self.stamp != Stamp::ABORTED,
            Some(name) => matches!(status.outcome(name), Outcome::Committed(_) | Outcome::Stale),
        }
    }
}
