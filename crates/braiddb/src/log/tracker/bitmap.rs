//! Bitmap tracker: one bit for every 8 bytes of the ring. Fillers set the bits of their blocks. The
//! leader scans for the first bit that is not set, and clears the bits behind it.
//!
//! Invariant: outside `[scanned, tail)`, as positions in the ring, no bit is set. Space that is
//! reserved again therefore has no bits set.

use std::ops::Range;

use crossbeam_utils::CachePadded;

use super::Tracker;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Bytes of log per bit, which is the alignment of blocks.
const UNIT: u64 = 8;
const WORD_BITS: u64 = u64::BITS as u64;

#[derive(Debug)]
pub(in crate::log) struct BitmapScan {
    words: Box<[AtomicU64]>,
    /// Held by the scanning thread.
    scanning: Mutex<()>,
    /// Everything before is filled.
    scanned: CachePadded<AtomicU64>,
}

impl BitmapScan {
    pub(in crate::log) fn new(ring_bytes: u64) -> Self {
        let words = (ring_bytes / UNIT).div_ceil(WORD_BITS);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            scanning: Mutex::new(()),
            scanned: CachePadded::new(AtomicU64::new(0)),
        }
    }

    fn word(&self, unit: u64) -> &AtomicU64 {
        &self.words[(unit / WORD_BITS) as usize % self.words.len()]
    }
}

/// Returns the mask of the unit's word from the unit on, for at most `units` bits, and their
/// number.
fn bits(unit: u64, units: u64) -> (u64, u64) {
    let first = unit % WORD_BITS;
    let count = units.min(WORD_BITS - first);
    ((u64::MAX >> (WORD_BITS - count)) << first, count)
}

impl Tracker for BitmapScan {
    fn start(&self, lsn: u64) {
        // Release as in `prefix`; the threads that will read it are started later.
        self.scanned.store(lsn, Ordering::Release);
    }

    fn begin(&self, _: usize, _: u64) {}

    fn end(&self, _: usize, block: Range<u64>, _: u64) {
        let (mut unit, end) = (block.start / UNIT, block.end / UNIT);
        while unit < end {
            let (mask, count) = bits(unit, end - unit);
            // Release pairs with the Acquire of the scan: the block's bytes.
            let before = self.word(unit).fetch_or(mask, Ordering::Release);
            assert_eq!(before & mask, 0, "space is reserved again only after it was scanned");
            unit += count;
        }
    }

    fn prefix(&self, tail: u64) -> u64 {
        let Some(_scanning) = self.scanning.try_lock() else {
            // Acquire pairs with the Release below: the bytes of every block before.
            return self.scanned.load(Ordering::Acquire);
        };
        // Relaxed: only the scanning thread stores it.
        let start = self.scanned.load(Ordering::Relaxed) / UNIT;
        let (mut unit, tail) = (start, tail / UNIT);
        while unit < tail {
            let (mask, count) = bits(unit, tail - unit);
            // Acquire pairs with the Release in `end`, for each addition of bits that is seen: the
            // bytes of its block.
            let set = self.word(unit).load(Ordering::Acquire) & mask;
            let run = ((set | !mask) >> (unit % WORD_BITS)).trailing_ones().into();
            let run = count.min(run);
            if run == 0 {
                break;
            }
            // Relaxed: the space is reused only after a flush of it, which orders.
            self.word(unit).fetch_and(!bits(unit, run).0, Ordering::Relaxed);
            unit += run;
            if run < count {
                break;
            }
        }
        // Release pairs with the Acquire of threads that find another one scanning.
        self.scanned.store(unit * UNIT, Ordering::Release);
        unit * UNIT
    }
}
