//! Global lock tracker: one lock held from the reservation of a block until it is filled.
//!
//! Invariant: `filled` is the end of the last filled block, and every block before it is filled.

use std::ops::Range;

use crossbeam_utils::CachePadded;

use super::Tracker;
use crate::sync::RawLock;
use crate::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(in crate::log) struct GlobalLock {
    lock: RawLock,
    /// The filler that holds the lock.
    holder: AtomicU64,
    filled: CachePadded<AtomicU64>,
}

const NO_FILLER: u64 = u64::MAX;

impl GlobalLock {
    pub(in crate::log) fn new() -> Self {
        Self {
            lock: RawLock::new(),
            holder: AtomicU64::new(NO_FILLER),
            filled: CachePadded::new(AtomicU64::new(0)),
        }
    }
}

impl Tracker for GlobalLock {
    fn start(&self, lsn: u64) {
        // Release as in `end`; the threads that will read it are started later.
        self.filled.store(lsn, Ordering::Release);
    }

    fn begin(&self, filler: usize, _: u64) {
        self.lock.acquire();
        // Relaxed: only read by a thread that holds the lock.
        self.holder.store(filler as u64, Ordering::Relaxed);
    }

    fn end(&self, filler: usize, block: Range<u64>, _: u64) {
        // Relaxed, here and below: the value is this filler's own store if it holds the lock, as it
        // should.
        let holder = self.holder.load(Ordering::Relaxed);
        assert_eq!(holder, filler as u64, "a block is ended by the thread that began it");
        self.holder.store(NO_FILLER, Ordering::Relaxed);
        // Release pairs with the Acquire in `prefix`: the block's bytes, and, through the lock,
        // those of every block before.
        self.filled.store(block.end, Ordering::Release);
        // SAFETY: acquired by this filler's `begin`, as asserted, and blocks are filled by the
        // thread that reserves them.
        unsafe { self.lock.release() };
    }

    fn prefix(&self, _: u64) -> u64 {
        // Acquire pairs with the Release in `end`: the bytes of every block before.
        self.filled.load(Ordering::Acquire)
    }
}
