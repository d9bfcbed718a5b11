//! Bulk epochs: number and stamp of a table's newest bulk operation.
//!
//! Invariants:
//!
//! - The number is incremented before the stamp of the next operation is stored. It is incremented
//!   only after the marks of the previous operation are visible to all, or are removed.
//! - So a reader of marks that loads their number, the stamp, and then the same number has the stamp
//!   of that epoch, because marks are written after the stamp is stored. Marks with a different
//!   number are older and visible to all.
//! - A reader without marks may load the new number with the stamp of the previous epoch. So it
//!   begins with the number of the newest epoch whose stamp is stored.
//! - Readers load these between the two checks of the page's version, so the marks existed at that
//!   time.

use std::cell::Cell;

use crate::log::Lsn;
use crate::page::value::CopiedValue;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{
    Stamp, StatusTable, TransactionName, TransactionStatus, Undecided, View, Visibility,
};

/// Newest bulk epoch of a table; numbered from 1.
#[derive(Debug, Default)]
pub(crate) struct BulkEpochs {
    number: AtomicU64,
    stamp: AtomicU64,
    /// Newest epoch whose stamp is stored.
    begun: AtomicU64,
    /// Newest epoch whose marks are visible to all and durable, or removed.
    settled: AtomicU64,
}

/// Outcome of the operation that left the marks on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::page) enum BulkMarks {
    /// The result is visible to all and durable.
    SeenByAll,
    /// The operation committed at this LSN.
    Committed(Lsn),
    Aborted,
    Undecided,
}

/// Copy of a marked slot's before-image and stamp.
#[derive(Clone, Debug)]
pub(in crate::page) struct VirtualChange {
    /// Stamp of the operation at the time of the copy.
    stamp: Stamp,
    /// Before-image; `None` if the record did not exist.
    pub(in crate::page) before: Option<CopiedValue>,
}

impl BulkEpochs {
    /// Begins the epoch of the operation with this name and returns its number. The caller holds
    /// the table's gate.
    pub(crate) fn begin(&self, name: TransactionName) -> u64 {
        // Relaxed, both: only the holder of the gate writes them, and the gate orders the holders.
        let number = self.number.load(Ordering::Relaxed) + 1;
        // Acquire pairs with the Release in `settle`.
        assert!(
            self.settled.load(Ordering::Acquire) + 1 == number,
            "the previous epoch is settled"
        );
        // Release, both: pairs with the Acquire in `stamp_of`.
        self.number.store(number, Ordering::Release);
        self.stamp.store(Stamp::in_flight(name).bits(), Ordering::Release);
        // Release pairs with the Acquire in `newest`: who loads this number loads its stamp.
        self.begun.store(number, Ordering::Release);
        number
    }

    /// Records the outcome of the newest epoch.
    pub(crate) fn decide(&self, stamp: Stamp) {
        assert!(stamp.name().is_none(), "a final stamp is not a name");
        // Release pairs with the Acquire in `stamp_of`.
        self.stamp.store(stamp.bits(), Ordering::Release);
    }

    /// Returns the stamp of an epoch. The caller has seen its marks under a version of their page
    /// that it validates afterwards, or has the page latched.
    fn stamp_of(&self, epoch: u64) -> Stamp {
        const SEEN_BY_ALL: Stamp = Stamp::committed_at_first();
        // Acquire pairs with the Release in `begin` and `decide`: a reader that loads the stamp of
        // a later epoch loads that epoch's number in the second check. Acquire also keeps the loads
        // in this order.
        let is_newest = || self.number.load(Ordering::Acquire) == epoch;
        if !is_newest() {
            return SEEN_BY_ALL;
        }
        let stamp = Stamp::from_bits(self.stamp.load(Ordering::Acquire));
        if is_newest() { stamp } else { SEEN_BY_ALL }
    }

    /// Returns the outcome of an epoch whose marks are on a page that the caller has latched.
    pub(in crate::page) fn marks(&self, epoch: u64, status: &StatusTable) -> BulkMarks {
        // Acquire pairs with the Release in `settle`.
        if self.settled.load(Ordering::Acquire) >= epoch {
            return BulkMarks::SeenByAll;
        }
        loop {
            let stamp = self.stamp_of(epoch);
            let Some(name) = stamp.name() else {
                return match stamp {
                    Stamp::ABORTED => BulkMarks::Aborted,
                    stamp => BulkMarks::Committed(stamp.lsn().expect("not in flight")),
                };
            };
            match status.outcome(name) {
                TransactionStatus::Stale => {}
                TransactionStatus::Committed(lsn) => return BulkMarks::Committed(lsn),
                TransactionStatus::Aborted => return BulkMarks::Aborted,
                TransactionStatus::Active | TransactionStatus::Committing(_) => {
                    return BulkMarks::Undecided;
                }
            }
        }
    }

    /// Copies the before-image of a marked slot, and the stamp that decides its visibility. Called
    /// between the two checks of the page's version.
    pub(in crate::page) fn copy(
        &self,
        epoch: u64,
        before: Option<CopiedValue>,
    ) -> Box<VirtualChange> {
        Box::new(VirtualChange { stamp: self.stamp_of(epoch), before })
    }

    /// Returns the newest epoch and its stamp. Returns `None` if no bulk operation has run yet, or
    /// its result is visible to all.
    pub(crate) fn newest(&self) -> Option<(u64, Stamp)> {
        // Acquire pairs with the Release in `begin`.
        let number = self.begun.load(Ordering::Acquire);
        // Acquire pairs with the Release in `settle`.
        let is_settled = self.settled.load(Ordering::Acquire) >= number;
        (!is_settled).then(|| (number, self.stamp_of(number)))
    }

    /// Returns the newest epoch if it was aborted and its marks may still exist.
    pub(crate) fn aborted(&self) -> Option<u64> {
        self.newest().and_then(|(number, stamp)| (stamp == Stamp::ABORTED).then_some(number))
    }

    /// Records that an epoch is visible to all and durable, or that its marks are removed.
    pub(crate) fn settle(&self, epoch: u64) {
        // Release pairs with the Acquire in `begin`, `marks` and `newest`.
        self.settled.fetch_max(epoch, Ordering::Release);
    }
}

impl VirtualChange {
    /// Returns whether `view` sees the operation's result.
    ///
    /// # Errors
    /// While another worker decides the outcome; the caller then reads the record again.
    pub(in crate::page) fn seen_by(&self, view: View<'_>) -> Result<Visibility, Undecided> {
        let looks = Cell::new(0);
        let stamp = || {
            // A second look means that the name was stale. The stamp may belong to another epoch by
            // then, so the caller must read the record again.
            if looks.replace(looks.get() + 1) == 0 { self.stamp } else { Stamp::ABORTED }
        };
        let visible = view.sees(stamp).ok_or(Undecided)?;
        if looks.get() > 1 { Err(Undecided) } else { Ok(visible) }
    }

    /// Returns whether the operation has committed. The caller has found that its view does not see
    /// it.
    pub(in crate::page) fn is_committed(&self, status: &StatusTable) -> bool {
        match self.stamp.name() {
            None => self.stamp != Stamp::ABORTED,
            Some(name) => matches!(
                status.outcome(name),
                TransactionStatus::Committed(_) | TransactionStatus::Stale
            ),
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// A sweep asks for the outcome of the newest epoch while the next operation begins.
    #[test]
    fn model_an_epoch_that_begins_has_no_older_outcome() {
        for outcome in [Stamp::ABORTED, Stamp::committed(Lsn(1))] {
            loom::model(move || {
                let epochs = Arc::new(BulkEpochs::default());
                let name = TransactionName::new(0, 0, 1);
                let first = epochs.begin(name);
                epochs.decide(outcome);
                epochs.settle(first);
                // The reader is the spawned thread: loom remembers one access to each atomic, and
                // `begin` loads the number before it stores it.
                let reader = epochs.clone();
                let reading = thread::spawn(move || reader.newest());
                epochs.begin(name);
                if let Some((_, stamp)) = reading.join().unwrap() {
                    assert_eq!(stamp.name(), Some(name), "the stamp of another epoch");
                }
            });
        }
    }
}
