//! Record numbers: assigned when insertions are drawn, acknowledged when they commit. Other
//! operations draw only acknowledged records, as in YCSB.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers from 0 on.
#[derive(Debug)]
pub(super) struct Numbers {
    given: AtomicU64,
    /// All records below this number are committed.
    acknowledged: AtomicU64,
    /// Committed numbers above the first uncommitted one.
    beyond: Mutex<BTreeSet<u64>>,
}

impl Numbers {
    /// Returns the numbers after `records` existing records.
    pub(super) fn after(records: u64) -> Self {
        Self { given: records.into(), acknowledged: records.into(), beyond: Mutex::default() }
    }

    /// Returns the number of the next record.
    pub(super) fn next(&self) -> u64 {
        // Relaxed: each number is assigned once, and the counter publishes no other data.
        self.given.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the exclusive upper bound of acknowledged records.
    pub(super) fn acknowledged(&self) -> u64 {
        // Acquire: pairs with the store by the client that committed the last of them.
        self.acknowledged.load(Ordering::Acquire)
    }

    /// Records that the record with this number is committed.
    pub(super) fn acknowledge(&self, number: u64) {
        let mut beyond = self.beyond.lock().expect("no thread panics while it is locked");
        beyond.insert(number);
        // Relaxed: it changes only under the lock.
        let mut first = self.acknowledged.load(Ordering::Relaxed);
        while beyond.remove(&first) {
            first += 1;
        }
        // Release: pairs with the load above.
        self.acknowledged.store(first, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_drawn_only_after_all_earlier_ones_are_committed() {
        let numbers = Numbers::after(10);
        assert_eq!([numbers.next(), numbers.next(), numbers.next()], [10, 11, 12]);
        numbers.acknowledge(11);
        assert_eq!(numbers.acknowledged(), 10);
        numbers.acknowledge(10);
        assert_eq!(numbers.acknowledged(), 12);
        numbers.acknowledge(12);
        assert_eq!(numbers.acknowledged(), 13);
    }
}
