//! Retention of log for later readers, although neither recovery nor any record needs it.
//!
//! Invariants: a segment is freed only under the lock of the holds, and only if no hold within its
//! limit needs it. A hold is taken under the same lock, and only if every segment from its position
//! on exists. The held log can therefore be read until the hold is lost. A hold is lost only when a
//! segment of it is freed because the log has grown past its limit. This is recorded under the same
//! lock, before the segment is reused, and its owner finds out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sync::Mutex;

/// The active holds of the log.
#[derive(Debug, Default)]
pub(super) struct Retention(Mutex<LogHolds>);

#[derive(Debug, Default)]
struct LogHolds {
    next: u64,
    held: BTreeMap<u64, HeldRange>,
}

/// The part of the log that one holder needs.
#[derive(Clone, Debug)]
struct HeldRange {
    /// The change slot that holds it.
    slot: Option<Arc<str>>,
    /// The log is needed from the segment of this position on.
    from: Lsn,
    /// Maximum bytes of log from there to the tail; beyond that it may be freed.
    most: u64,
    /// True if a part of it was freed.
    lost: bool,
}

/// A hold on the log from a position on, until it is dropped or lost.
#[derive(Debug)]
pub(crate) struct LogHold {
    retention: Arc<Retention>,
    number: u64,
}

/// The error for a position before the oldest existing log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFreed {
    /// The start of the existing log.
    pub(crate) oldest: Lsn,
}

impl LogHold {
    /// Returns the start of the held log, if the hold is not lost.
    pub(crate) fn from(&self) -> Option<Lsn> {
        let holds = self.retention.0.lock();
        let held = &holds.held[&self.number];
        (!held.lost).then_some(held.from)
    }

    /// Names the change slot to which this hold belongs, for statistics.
    pub(crate) fn set_slot(&self, name: &str) {
        let mut holds = self.retention.0.lock();
        let held = holds.held.get_mut(&self.number).expect("held until it is dropped");
        held.slot = Some(name.into());
    }

    /// Sets the maximum bytes of log to hold.
    pub(crate) fn set_max_bytes(&self, most: u64) {
        let mut holds = self.retention.0.lock();
        holds.held.get_mut(&self.number).expect("held until it is dropped").most = most;
    }

    /// Releases everything before `from`.
    pub(crate) fn advance(&self, from: Lsn) {
        let mut holds = self.retention.0.lock();
        let held = holds.held.get_mut(&self.number).expect("held until it is dropped");
        held.from = held.from.max(from);
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.retention.0.lock().held.remove(&self.number);
    }
}

impl LogHolds {
    /// Returns the lowest position that a hold within its limit needs; `tail` is the current end of
    /// the log.
    fn oldest(&self, tail: Lsn) -> Lsn {
        let is_within = |held: &&HeldRange| tail.0.saturating_sub(held.from.0) <= held.most;
        if is_planted(Bug::FreedHeldSegment) {
            return Lsn::MAX;
        }
        let held = self.held.values().filter(|held| !held.lost).filter(is_within);
        held.map(|held| held.from).min().unwrap_or(Lsn::MAX)
    }
}

impl Retention {
    /// Calls `retire`, which takes segment `index` out of use, unless a hold within its limit needs
    /// it. Holds beyond their limit that need it are lost. `segment_of` returns the segment of a
    /// position; `tail` is the current end of the log.
    pub(super) fn retire_unheld<T>(
        &self,
        index: u64,
        tail: Lsn,
        segment_of: impl Fn(Lsn) -> u64,
        retire: impl FnOnce(u64) -> T,
    ) -> Option<T> {
        let mut holds = self.0.lock();
        if index >= segment_of(holds.oldest(tail)) {
            return None;
        }
        for held in holds.held.values_mut() {
            held.lost |= segment_of(held.from) <= index;
        }
        Some(retire(index))
    }

    /// Holds the log from `from` on, up to `most` bytes. All of it must exist; `contiguous_from`
    /// returns from where it does.
    ///
    /// # Errors
    /// An error if it does not.
    pub(super) fn hold(
        self: &Arc<Self>,
        from: Lsn,
        most: u64,
        contiguous_from: impl FnOnce() -> Lsn,
    ) -> Result<LogHold, LogFreed> {
        let mut holds = self.0.lock();
        let oldest = contiguous_from();
        if from < oldest {
            return Err(LogFreed { oldest });
        }
        let number = holds.next;
        holds.next += 1;
        holds.held.insert(number, HeldRange { slot: None, from, most, lost: false });
        Ok(LogHold { retention: self.clone(), number })
    }

    /// Returns the change slot, if any, and the lowest position of each hold that is not lost.
    pub(super) fn holders(&self) -> Vec<(Option<Arc<str>>, Lsn)> {
        let holds = self.0.lock();
        let held = holds.held.values().filter(|held| !held.lost);
        held.map(|held| (held.slot.clone(), held.from)).collect()
    }

    /// Returns the lowest position that a hold within its limit needs.
    pub(super) fn oldest(&self, tail: Lsn) -> Lsn {
        self.0.lock().oldest(tail)
    }
}
