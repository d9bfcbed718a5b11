//! Number of records in a table.

use crossbeam_utils::CachePadded;

use crate::sync::statistic::{AtomicI64, Ordering};

/// Number of counters that the workers share.
const COUNTER_SHARDS: usize = 8;

/// The number of a table's records: the count at recovery, plus what commits have added since.
///
/// Invariant: while no commit is in progress, the counters add up to the number of committed
/// records.
#[derive(Debug, Default)]
pub(crate) struct RecordCount([CachePadded<AtomicI64>; COUNTER_SHARDS]);

impl RecordCount {
    /// Adds the record delta of a commit by this worker: insertions less deletions.
    #[inline(always)]
    pub(crate) fn add(&self, worker: usize, more: i64) {
        // Relaxed: nothing else depends on this number.
        self.0[worker % COUNTER_SHARDS].fetch_add(more, Ordering::Relaxed);
    }

    /// The number of records. Concurrent commits may be counted in part.
    pub(crate) fn get(&self) -> u64 {
        // Relaxed: a statistic. A thread that knows that a commit ended sees its addition, through
        // whatever informed it.
        let sum: i64 = self.0.iter().map(|place| place.load(Ordering::Relaxed)).sum();
        // A deletion may be read without the insertion, which was counted in a counter read before.
        sum.max(0).unsigned_abs()
    }
}
