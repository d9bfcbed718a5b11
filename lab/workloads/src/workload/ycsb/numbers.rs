//! The numbers of records: given out when insertions are drawn, acknowledged once they are committed. Only
//! acknowledged records are drawn for other operations, as in YCSB.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers from 0 on.
#[derive(Debug)]
pub(super) struct Numbers {
    given: AtomicU64,
    /// All below are committed.
    acknowledged: AtomicU64,
    /// Committed ones that wait for some before them.
    beyond: Mutex<BTreeSet<u64>>,
}

impl Numbers {
    /// So many records are there.
    pub(super) fn after(records: u64) -> Self {
        Self { given: records.into(), acknowledged: records.into(), beyond: Mutex::default() }
    }

    /// The next record's.
    pub(super) fn next(&self) -> u64 {
        // Relaxed: each is given once, and nothing else is told by it.
        self.given.fetch_add(1, Ordering::Relaxed)
    }

    /// All records with smaller numbers are there.
    pub(super) fn acknowledged(&self) -> u64 {
        // Acquire: pairs with the store of whoever committed the last of them.
        self.acknowledged.load(Ordering::Acquire)
    }

    /// The record of that number is committed.
    pub(super) fn acknowledge(&self, number: u64) {
        let mut beyond = self.beyond.lock().expect("nobody panics while it is locked");
        beyond.insert(number);
        // Relaxed: it changes under the lock alone.
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
    fn a_record_is_drawn_once_all_before_it_are_committed() {
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
