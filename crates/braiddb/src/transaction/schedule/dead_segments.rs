//! Segments of the log that have no live record, but are not freed yet.
//!
//! Transactions that see versions in such a segment may still read it, and so may those that hold
//! an address of a record that was moved out of it. After a grace period, none of these is active,
//! but an open snapshot may delay the end of that period for ever. Then begin stamps determine
//! which segments no snapshot sees. They do not help with records that were moved, because these
//! are newest versions, which all transactions see.

use std::collections::{BTreeMap, BTreeSet};

use crate::log::Lsn;
use crate::sync::Mutex;

/// A segment whose records were all superseded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SupersededSegment {
    pub(crate) number: u64,
    /// An LSN before which its last record was superseded.
    pub(crate) until: Lsn,
}

/// The segments of one database that are not freed yet.
#[derive(Debug, Default)]
pub(crate) struct DeadSegments {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Segments without live records, and the tail at which this was noted first.
    dead: BTreeMap<u64, Lsn>,
    /// Segments from which records were moved.
    moved: BTreeSet<u64>,
}

impl DeadSegments {
    /// Notes all segments that have no live record as of `tail`. Returns those whose records were
    /// superseded, not moved.
    pub(crate) fn note(&self, segments: &[u64], tail: Lsn) -> Vec<SupersededSegment> {
        let State { dead, moved } = &mut *self.state.lock();
        let since = |segment| (segment, dead.get(&segment).copied().unwrap_or(tail));
        *dead = segments.iter().copied().map(since).collect();
        let superseded = dead.iter().filter(|(number, _)| !moved.contains(number));
        superseded
            .map(|(number, until)| SupersededSegment { number: *number, until: *until })
            .collect()
    }

    /// Notes that records may be moved from these segments.
    pub(crate) fn note_moving(&self, segments: &[u64]) {
        self.state.lock().moved.extend(segments);
    }

    /// Forgets a segment, which was freed.
    pub(crate) fn forget(&self, segment: u64) {
        let mut state = self.state.lock();
        state.dead.remove(&segment);
        state.moved.remove(&segment);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_segment_counts_from_when_it_was_last_found_live() {
        let segments = DeadSegments::default();
        let noted = |numbers: &[u64], tail| {
            let noted = segments.note(numbers, Lsn(tail));
            noted.iter().map(|segment| (segment.number, segment.until.0)).collect::<Vec<_>>()
        };
        assert_eq!(noted(&[1, 2], 100), [(1, 100), (2, 100)]);
        assert_eq!(noted(&[1, 3], 200), [(1, 100), (3, 200)]);
        assert_eq!(noted(&[1, 2], 300), [(1, 100), (2, 300)], "2 was live in between");
    }

    #[test]
    fn a_segment_with_moved_records_is_never_reported() {
        let segments = DeadSegments::default();
        segments.note_moving(&[2, 3]);
        assert_eq!(
            segments.note(&[1, 2], Lsn(100)),
            [SupersededSegment { number: 1, until: Lsn(100) }]
        );
        segments.forget(2);
        assert_eq!(segments.note(&[2, 3], Lsn(200)).len(), 1, "only the freed one was forgotten");
    }
}
