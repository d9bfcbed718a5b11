//! How many records a tree has, and how many bytes their keys and values take.
//!
//! Slots of deleted records do not count. So what is on pages is counted, whoever may see it; what is older is
//! counted where its before-images are.

use crossbeam_utils::CachePadded;

use crate::page::map::PageId;
use crate::sync::statistic::{AtomicI64, Ordering};

/// Writers of different leaves seldom count at the same place.
const SHARDS: usize = 8;

/// The sums of one tree.
///
/// Invariant: the sum over shards is right whenever no leaf is latched; a single one may be negative, as slots move to other
/// pages.
#[derive(Debug, Default)]
pub(super) struct StoredRecords(Box<[CachePadded<Shard>; SHARDS]>);

#[derive(Debug, Default)]
struct Shard {
    records: AtomicI64,
    bytes: AtomicI64,
}

/// Records, and the bytes of their keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl StoredRecords {
    /// Counts a slot of a leaf, which took `before` bytes, and takes `after`; `None`: there is no record in it.
    pub(super) fn count(&self, leaf: PageId, before: Option<usize>, after: Option<usize>) {
        let difference = |before: u64, after: u64| after as i64 - before as i64;
        let records = difference(before.is_some().into(), after.is_some().into());
        let bytes = difference(before.unwrap_or(0) as u64, after.unwrap_or(0) as u64);
        let shard = &self.0[leaf.number() as usize % SHARDS];
        // Relaxed: a statistic, ordered with nothing.
        if records != 0 {
            shard.records.fetch_add(records, Ordering::Relaxed);
        }
        if bytes != 0 {
            shard.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Adds what a tree has that was made of its leaves.
    pub(super) fn add(&self, stored: Stored) {
        // Relaxed, as above.
        self.0[0].records.fetch_add(stored.records as i64, Ordering::Relaxed);
        self.0[0].bytes.fetch_add(stored.bytes as i64, Ordering::Relaxed);
    }

    /// The sums; approximate while others write.
    pub(super) fn sums(&self) -> Stored {
        let sum = |of: fn(&Shard) -> &AtomicI64| {
            // Relaxed, as above.
            self.0.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
        };
        Stored { records: sum(|shard| &shard.records), bytes: sum(|shard| &shard.bytes) }
    }
}
