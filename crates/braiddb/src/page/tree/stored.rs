//! Number of records of a tree, and the bytes of their keys and values.
//!
//! Slots of deleted records are not counted. The counts cover the contents of pages, regardless of
//! visibility. Older versions are counted with their before-images.

use crossbeam_utils::CachePadded;

use crate::page::map::PageId;
use crate::sync::statistic::{AtomicI64, Ordering};

/// Number of counters, so that writers of different leaves rarely share one.
const SHARDS: usize = 8;

/// Counters of one tree.
///
/// Invariant: the sum over all shards is correct whenever no leaf is latched. A single shard may be
/// negative, because slots move to other pages.
#[derive(Debug, Default)]
pub(super) struct StoredRecords(Box<[CachePadded<CounterShard>; SHARDS]>);

#[derive(Debug, Default)]
struct CounterShard {
    records: AtomicI64,
    bytes: AtomicI64,
}

/// Number of records, and the bytes of their keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredSize {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl StoredRecords {
    /// Counts a change of a slot from `before` to `after` bytes; `None` means no record.
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

    /// Adds the records of a tree that was created from existing leaves.
    pub(super) fn add(&self, stored: StoredSize) {
        // Relaxed: a statistic.
        self.0[0].records.fetch_add(stored.records as i64, Ordering::Relaxed);
        self.0[0].bytes.fetch_add(stored.bytes as i64, Ordering::Relaxed);
    }

    /// Returns the sums; approximate during concurrent writes.
    pub(super) fn sums(&self) -> StoredSize {
        let sum = |of: fn(&CounterShard) -> &AtomicI64| {
            // Relaxed: a statistic.
            self.0.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum::<i64>().max(0) as u64
        };
        StoredSize { records: sum(|shard| &shard.records), bytes: sum(|shard| &shard.bytes) }
    }
}
