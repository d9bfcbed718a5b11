//! What of the log is kept although neither recovery nor any record needs it: those who read it later hold it.
//!
//! Invariants: a segment is freed only under the lock of the holds, and only if no hold needs it that is within its limit; a
//! hold is taken, under the same lock, only if every segment from there on is there. So what is held can be read, until the
//! hold is lost: that happens only when something of it is freed, as the log has gone on for more than the hold may keep;
//! it is noted under the same lock, before the segment is anything else, and its owner finds out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::segment::{SegmentFile, Segments};
use super::{LogFiles, Lsn};
use crate::planted::{Bug, is_planted};
use crate::sync::Mutex;

/// Who holds the log, and from where on.
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
    /// The log from the segment of this position on is needed.
    from: Lsn,
    /// Bytes of log, from there to its tail, beyond which it may be freed.
    most: u64,
    /// Something of it was.
    lost: bool,
}

/// The log from a position on; held until this is dropped, or lost.
#[derive(Debug)]
pub(crate) struct LogHold {
    retention: Arc<Retention>,
    number: u64,
}

/// The log was freed before a position that lies behind the one asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogFreed {
    /// From where on the log is there.
    pub(crate) oldest: Lsn,
}

impl LogHold {
    /// From where on the log is held, if it still is.
    pub(crate) fn from(&self) -> Option<Lsn> {
        let held = self.retention.0.lock().held[&self.number];
        (!held.lost).then_some(held.from)
    }

    /// How many bytes of log may be held, from where it is held on.
    pub(crate) fn set_max_bytes(&self, most: u64) {
        let mut holds = self.retention.0.lock();
        holds.held.get_mut(&self.number).expect("held until it is dropped").most = most;
    }

    /// Needs what is before `from` no more.
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
    /// The least position from which on the log is needed, and may be held; `tail` is where it ends now.
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
    /// Takes a segment out of use, if nobody holds it who may; `tail` is where the log ends now. Those lose their holds
    /// who need it, and hold more than they may.
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
    /// Holds the log from `from` on, at most `most` bytes of it, all of which must be there.
    ///
    /// # Errors
    /// If it is not.
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

    /// From where on all of the log is there.
    pub(crate) fn oldest(&self) -> Lsn {
        self.segments().contiguous_from()
    }

    /// The segments whose every position is before `lsn`, and which nobody holds who may; `tail` is where the log ends
    /// now.
    pub(crate) fn unheld_before(&self, lsn: Lsn, tail: Lsn) -> Vec<u64> {
        let segments = self.segments();
        let oldest = segments.retention.0.lock().oldest(tail);
        segments.whole_before(lsn.min(oldest))
    }
}
