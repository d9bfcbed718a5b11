//! Who writes a table: many transactions, or one bulk operation.
//!
//! A transaction joins before its first write, and leaves when it is over. While a bulk operation has the gate, or waits for
//! those who have joined, others are refused, not made to wait: so nobody waits in a circle.
//!
//! Invariant: no transaction has joined while an operation works behind a closed gate.

use crossbeam_utils::CachePadded;

#[cfg(loom)]
use crate::sync::atomic::fence;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Workers seldom count at the same place.
const SHARDS: usize = if cfg!(loom) { 1 } else { 8 };

/// The gate of a table.
#[derive(Debug)]
pub(crate) struct Gate {
    closed: AtomicBool,
    writers: Box<[CachePadded<AtomicU64>]>,
}

impl Default for Gate {
    fn default() -> Self {
        let writers = (0..SHARDS).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { closed: AtomicBool::new(false), writers }
    }
}

impl Gate {
    fn writers(&self, worker: usize) -> &AtomicU64 {
        &self.writers[worker % SHARDS]
    }

    /// Lets a transaction of a worker write; `false` while the gate is closed.
    #[must_use]
    pub(crate) fn join(&self, worker: usize) -> bool {
        // Sequentially consistent, both, as in `close` and `is_empty`: of a writer who joins and an operation that closes,
        // one at least sees the other.
        self.writers(worker).fetch_add(1, Ordering::SeqCst);
        order_in_models();
        if self.closed.load(Ordering::SeqCst) {
            self.leave(worker);
            return false;
        }
        true
    }

    /// A transaction that had joined is over.
    pub(crate) fn leave(&self, worker: usize) {
        // Release pairs with the reading in `is_empty`: what it wrote is decided.
        let before = self.writers(worker).fetch_sub(1, Ordering::Release);
        assert!(before > 0, "it had joined");
    }

    /// Closes the gate; `false` if it is closed.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Whether nobody has joined, of a closed gate.
    pub(crate) fn is_empty(&self) -> bool {
        order_in_models();
        self.writers.iter().all(|writers| writers.load(Ordering::SeqCst) == 0)
    }

    /// Opens the gate, which the caller has closed.
    pub(crate) fn open(&self) {
        // Release pairs with the reading in `join`: what the operation came to is seen.
        let was_closed = self.closed.swap(false, Ordering::Release);
        assert!(was_closed, "closed once, opened once");
    }

    /// Whether it is closed; a hint.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: who wants to write looks again.
        self.closed.load(Ordering::Relaxed)
    }
}

/// Loom takes sequentially consistent accesses for weaker ones, but not fences.
#[inline(always)]
fn order_in_models() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Two writers, which may come by at any time, beside an operation that waits until those who have joined are over. Loom
/// finds it if one touches what another does without being ordered.
#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::Gate;

    struct Table {
        gate: Gate,
        /// What each writer writes, and the operation.
        records: [UnsafeCell<u64>; 2],
    }

    // SAFETY: the records are touched as the gate allows, which is what the model checks.
    unsafe impl Sync for Table {}

    fn write(table: &Table, writer: usize) -> bool {
        let joined = table.gate.join(writer);
        if joined {
            // SAFETY: no operation works on it meanwhile, and no other writer.
            table.records[writer].with_mut(|record| unsafe { *record += 1 });
            table.gate.leave(writer);
        }
        joined
    }

    #[test]
    fn nobody_writes_beside_an_operation() {
        loom::model(|| {
            let records = [UnsafeCell::new(0), UnsafeCell::new(0)];
            let table = Arc::new(Table { gate: Gate::default(), records });
            let writers = [0, 1].map(|writer| {
                let table = table.clone();
                thread::spawn(move || write(&table, writer))
            });
            assert!(table.gate.close());
            while !table.gate.is_empty() {
                thread::yield_now();
            }
            for record in &table.records {
                // SAFETY: nobody has joined.
                record.with_mut(|record| unsafe { *record += 10 });
            }
            table.gate.open();
            for (writer, record) in writers.into_iter().zip(&table.records) {
                let written = u64::from(writer.join().unwrap());
                // SAFETY: its writer is over.
                assert_eq!(record.with(|record| unsafe { *record }), 10 + written);
            }
            assert!(write(&table, 0), "an open gate lets writers pass");
        });
    }
}
