//! Record ids: handed out, taken back, handed out again.

use crossbeam_utils::CachePadded;

use super::indirection::IndirectionArray;
use crate::rid::Rid;
use crate::sync::SegQueue;
use crate::sync::atomic::{AtomicU64, Ordering};

/// How many ids beyond those in use get memory prepared at a time.
const PREPARE_STEP: u64 = 1 << 16;

/// The table has used every record id it can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the table is full: it holds {} records", IndirectionArray::CAPACITY)]
pub(crate) struct TableFull;

/// Hands out record ids. Invariant: an id is handed out to one record at a time; `give_back` takes
/// only ids whose entry is empty and that no operation holds any more.
#[derive(Debug, Default)]
pub(crate) struct RidAllocator {
    next: CachePadded<AtomicU64>,
    /// `next`, rounded up to the last step: read on every record access, written rarely.
    prepared: CachePadded<AtomicU64>,
    free: SegQueue<u64>,
}

impl RidAllocator {
    /// A free record id.
    pub(crate) fn take(&self, array: &IndirectionArray) -> Result<Rid, TableFull> {
        if let Some(number) = self.free.pop() {
            return Ok(Rid::new(number));
        }
        // Relaxed: `fetch_add` alone makes ids unique; entries are published by their own stores.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= IndirectionArray::CAPACITY {
            self.next.store(IndirectionArray::CAPACITY, Ordering::Relaxed);
            return Err(TableFull);
        }
        if number.is_multiple_of(PREPARE_STEP) {
            self.prepare(array, number + PREPARE_STEP);
        }
        Ok(Rid::new(number))
    }

    fn prepare(&self, array: &IndirectionArray, count: u64) {
        array.prepare(count);
        // Relaxed: a hint about size.
        self.prepared.fetch_max(count, Ordering::Relaxed);
    }

    /// Takes an id back.
    pub(crate) fn give_back(&self, rid: Rid) {
        self.free.push(rid.number());
    }

    /// Makes sure that ids up to `rid` count as handed out; for recovery.
    pub(crate) fn raise(&self, array: &IndirectionArray, rid: Rid) {
        // Relaxed: recovery's threads are joined before anything else takes ids.
        if self.next.fetch_max(rid.number() + 1, Ordering::Relaxed) <= rid.number() {
            let count = (rid.number() + 1).next_multiple_of(PREPARE_STEP);
            if count > self.prepared.load(Ordering::Relaxed) {
                self.prepare(array, count);
            }
        }
    }

    /// An upper bound of the ids in use, at most a step too high.
    pub(crate) fn bound(&self) -> u64 {
        // Relaxed: a hint about size.
        self.prepared.load(Ordering::Relaxed)
    }

    /// Ids handed out so far, whether or not they came back.
    pub(crate) fn handed_out(&self) -> u64 {
        // Relaxed: a statistic, or recovery after its threads were joined.
        self.next.load(Ordering::Relaxed)
    }
}
