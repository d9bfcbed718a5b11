//! Gate of a table: admits either any number of writing transactions or one bulk operation.
//!
//! A transaction joins before its first write and leaves when it ends. While a bulk operation holds
//! the gate, or waits for joined transactions to end, further transactions are refused instead of
//! blocked. So no circular wait is possible.
//!
//! Invariant: no transaction is joined while an operation works behind a closed gate.

use crossbeam_utils::CachePadded;

#[cfg(loom)]
use crate::sync::atomic::fence;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Number of counters, so that workers rarely share one.
const SHARDS: usize = if cfg!(loom) { 1 } else { 8 };

/// Gate of a table.
#[derive(Debug)]
pub(crate) struct BulkGate {
    closed: AtomicBool,
    writers: Box<[CachePadded<AtomicU64>]>,
}

impl Default for BulkGate {
    fn default() -> Self {
        let writers = (0..SHARDS).map(|_| CachePadded::new(AtomicU64::new(0))).collect();
        Self { closed: AtomicBool::new(false), writers }
    }
}

impl BulkGate {
    fn writers(&self, worker: usize) -> &AtomicU64 {
        &self.writers[worker % SHARDS]
    }

    /// Admits a writing transaction of a worker; `false` while the gate is closed.
    #[must_use]
    pub(crate) fn join(&self, worker: usize) -> bool {
        // SeqCst, both, as in `close` and `is_empty`: if a writer joins while an operation closes
        // the gate, at least one of them sees the other.
        self.writers(worker).fetch_add(1, Ordering::SeqCst);
        order_in_models();
        if self.closed.load(Ordering::SeqCst) {
            self.leave(worker);
            return false;
        }
        true
    }

    /// Records the end of a joined transaction.
    pub(crate) fn leave(&self, worker: usize) {
        // Release pairs with the load in `is_empty`: the outcome of its writes is decided.
        let before = self.writers(worker).fetch_sub(1, Ordering::Release);
        assert!(before > 0, "the transaction had joined");
    }

    /// Closes the gate. Returns `false` if it is already closed.
    #[must_use]
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// Returns whether no transaction is joined to the closed gate.
    pub(crate) fn is_empty(&self) -> bool {
        order_in_models();
        self.writers.iter().all(|writers| writers.load(Ordering::SeqCst) == 0)
    }

    /// Opens the gate, which the caller has closed.
    pub(crate) fn open(&self) {
        // Release pairs with the load in `join`: the outcome of the operation is visible.
        let was_closed = self.closed.swap(false, Ordering::Release);
        assert!(was_closed, "closed once, opened once");
    }

    /// Returns whether the gate is closed; a hint.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: a writer checks again when it joins.
        self.closed.load(Ordering::Relaxed)
    }
}

/// Loom weakens sequentially consistent accesses, but not fences.
#[inline(always)]
fn order_in_models() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Two writers that may join at any time, and an operation that waits until the joined ones have
/// ended. Loom reports unordered accesses to the same record.
#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::BulkGate;

    struct Table {
        gate: BulkGate,
        /// One record for each writer; the operation writes both.
        records: [UnsafeCell<u64>; 2],
    }

    // SAFETY: the gate orders all accesses to the records, which is what the model checks.
    unsafe impl Sync for Table {}

    fn write(table: &Table, writer: usize) -> bool {
        let joined = table.gate.join(writer);
        if joined {
            // SAFETY: the gate excludes the operation, and no other writer uses this record.
            table.records[writer].with_mut(|record| unsafe { *record += 1 });
            table.gate.leave(writer);
        }
        joined
    }

    #[test]
    fn nobody_writes_beside_an_operation() {
        loom::model(|| {
            let records = [UnsafeCell::new(0), UnsafeCell::new(0)];
            let table = Arc::new(Table { gate: BulkGate::default(), records });
            let writers = [0, 1].map(|writer| {
                let table = table.clone();
                thread::spawn(move || write(&table, writer))
            });
            assert!(table.gate.close());
            while !table.gate.is_empty() {
                thread::yield_now();
            }
            for record in &table.records {
                // SAFETY: no writer is joined.
                record.with_mut(|record| unsafe { *record += 10 });
            }
            table.gate.open();
            for (writer, record) in writers.into_iter().zip(&table.records) {
                let written = u64::from(writer.join().unwrap());
                // SAFETY: its writer has ended.
                assert_eq!(record.with(|record| unsafe { *record }), 10 + written);
            }
            assert!(write(&table, 0), "an open gate lets writers pass");
        });
    }
}
