//! Retention of log for later readers, although neither recovery nor any record needs it.
//!
//! Invariants: a segment is freed only under the lock of the holds, and only if no hold within its
//! limit needs it. A hold is taken under the same lock, and only if every segment from its position
//! on exists. The held log can therefore be read until the hold is lost. A hold is lost only when a
//! segment of it is freed because the log has grown past its limit. This is recorded under the same
//! lock, before the segment is reused, and its owner finds out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::segment::{SegmentFile, Segments};
use super::{LogFiles, Lsn};
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
#[derive(Clone, Copy, Debug)]
struct HeldRange {
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
        let held = self.retention.0.lock().held[&self.number];
        (!held.lost).then_some(held.from)
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

impl Segments {
    /// Takes a segment out of use, unless a hold within its limit needs it. Holds beyond their
    /// limit that need it are lost. `tail` is the current end of the log.
    pub(super) fn retire_unheld(&self, index: u64, tail: Lsn) -> Option<SegmentFile> {
        let mut holds = self.retention.0.lock();
        if index >= self.index(holds.oldest(tail)) {
            return None;
        }
        for held in holds.held.values_mut() {
            held.lost |= self.index(held.from) <= index;
        }
        Some(self.retire(index))
    }
}

impl LogFiles {
    /// Holds the log from `from` on, up to `most` bytes. All of it must exist.
    ///
    /// # Errors
    /// An error if it does not.
    pub(crate) fn hold(&self, from: Lsn, most: u64) -> Result<LogHold, LogFreed> {
        let segments = self.segments();
        let mut holds = segments.retention.0.lock();
        let oldest = segments.contiguous_from();
        if from < oldest {
            return Err(LogFreed { oldest });
        }
        let number = holds.next;
        holds.next += 1;
        holds.held.insert(number, HeldRange { from, most, lost: false });
        Ok(LogHold { retention: segments.retention.clone(), number })
    }

    /// Returns the position from which the whole log exists.
    pub(crate) fn oldest(&self) -> Lsn {
        self.segments().contiguous_from()
    }

    /// Returns the segments that lie completely before `lsn` and that no hold within its limit
    /// needs. `tail` is the current end of the log.
    pub(crate) fn unheld_before(&self, lsn: Lsn, tail: Lsn) -> Vec<u64> {
        let segments = self.segments();
        let oldest = segments.retention.0.lock().oldest(tail);
        segments.whole_before(lsn.min(oldest))
    }
}
