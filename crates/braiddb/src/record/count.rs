//! How many records a table has.

use crossbeam_utils::CachePadded;

use crate::sync::statistic::{AtomicI64, Ordering};

/// Workers add to places of their own, up to so many.
const PLACES: usize = 8;

/// The number of a table's records: what was counted when it was recovered, and what commits have added since.
///
/// Invariant: when no commit is under way the places add up to the number of records that are committed.
#[derive(Debug, Default)]
pub(crate) struct RecordCount([CachePadded<AtomicI64>; PLACES]);

impl RecordCount {
    /// Notes that a commit of this worker's inserted so many records more than it deleted.
    #[inline(always)]
    pub(crate) fn add(&self, worker: usize, more: i64) {
        // Relaxed: a number that nothing else hangs on.
        self.0[worker % PLACES].fetch_add(more, Ordering::Relaxed);
    }

    /// How many there are. Beside commits, some of those may be counted and others not.
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: as above. Whoever knows that a commit is over, by whatever he learned it, sees what it added.
        let sum: i64 = self.0.iter().map(|place| place.load(Ordering::Relaxed)).sum();
        // A deletion may be seen without the insertion that was counted in a place looked at before.
        sum.max(0).unsigned_abs()
    }
}
