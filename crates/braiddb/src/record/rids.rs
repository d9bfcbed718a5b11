//! Allocator of record ids.

use crossbeam_utils::CachePadded;

use super::chunks::NoMemory;
use super::indirection::IndirectionArray;
use crate::memory::MemoryCounters;
use crate::rid::Rid;
use crate::sync::SegQueue;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Granularity at which a large table counts ids as in use: memory for their entries is allocated,
/// or soon will be.
const RIDS_PER_STEP: u64 = if cfg!(braid_simulation) { 1 << 5 } else { 1 << 16 };
const ENTRY_BYTES: u64 = size_of::<u64>() as u64;

/// A table has no record id for another record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableFull {
    /// The table has used every record id.
    #[error("the table holds {records} records, the maximum")]
    Capacity { records: u64 },
    /// The operating system refused memory for more record ids.
    #[error("the table cannot grow: {0}")]
    Memory(#[from] NoMemory),
}

/// Allocates record ids.
///
/// Invariants: an id belongs to one record at a time; `release` accepts only ids whose entry is
/// empty and that no operation holds any more. The array has room for every id below `bound`, and
/// so for every allocated id.
#[derive(Debug, Default)]
pub(crate) struct RidAllocator {
    next: CachePadded<AtomicU64>,
    /// See [`Self::bound`]: read on every record access, written rarely.
    bound: CachePadded<AtomicU64>,
    free: SegQueue<u64>,
}

impl RidAllocator {
    /// Allocates a record id.
    ///
    /// # Errors
    /// Fails if no id, or no memory for more ids, is left.
    pub(crate) fn take(
        &self,
        array: &IndirectionArray,
        memory: &MemoryCounters,
    ) -> Result<Rid, TableFull> {
        // A `pop` needs a fence even if the queue is empty.
        let free = if self.free.is_empty() { None } else { self.free.pop() };
        let number = match free {
            Some(number) => number,
            None => self.next_number()?,
        };
        if let Err(error) = self.make_room(array, memory, number) {
            self.free.push(number);
            return Err(error);
        }
        Ok(Rid::new(number))
    }

    fn next_number(&self) -> Result<u64, TableFull> {
        // Relaxed: `fetch_add` alone makes ids unique; entries are published by their own stores.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= IndirectionArray::CAPACITY {
            self.next.store(IndirectionArray::CAPACITY, Ordering::Relaxed);
            return Err(TableFull::Capacity { records: IndirectionArray::CAPACITY });
        }
        Ok(number)
    }

    /// Makes room for the entry of an id.
    fn make_room(
        &self,
        array: &IndirectionArray,
        memory: &MemoryCounters,
        number: u64,
    ) -> Result<(), TableFull> {
        if number < self.bound() {
            return Ok(());
        }
        let room = array.grow(number)?;
        let bound = (number + 1).next_multiple_of(RIDS_PER_STEP).min(room);
        // AcqRel, of which the Release pairs with the Acquire in `bound`.
        let before = self.bound.fetch_max(bound, Ordering::AcqRel);
        memory.add_array_bytes(bound.saturating_sub(before) * ENTRY_BYTES);
        Ok(())
    }

    /// Frees an id.
    pub(crate) fn release(&self, rid: Rid) {
        self.free.push(rid.number());
    }

    /// Marks ids up to `rid` as used; for recovery.
    ///
    /// # Errors
    /// Fails if the table cannot have such an id, or no memory for it is left.
    pub(crate) fn raise(
        &self,
        array: &IndirectionArray,
        memory: &MemoryCounters,
        rid: Rid,
    ) -> Result<(), TableFull> {
        if rid.number() >= IndirectionArray::CAPACITY {
            return Err(TableFull::Capacity { records: IndirectionArray::CAPACITY });
        }
        self.make_room(array, memory, rid.number())?;
        // Relaxed: recovery's threads are joined before anything else takes ids.
        self.next.fetch_max(rid.number() + 1, Ordering::Relaxed);
        Ok(())
    }

    /// An upper bound of the ids in use, at most one step too high. The array has room for every id
    /// below.
    pub(crate) fn bound(&self) -> u64 {
        // Acquire pairs with the Release in `make_room`: the chunks are published.
        self.bound.load(Ordering::Acquire)
    }

    /// Bytes of the entries below `bound`.
    pub(crate) fn entry_bytes(&self) -> u64 {
        self.bound() * ENTRY_BYTES
    }

    /// Approximate number of ids in use. Ids of deleted records count until they are reclaimed, and
    /// other threads allocate and free ids concurrently.
    pub(crate) fn in_use(&self) -> u64 {
        self.handed_out().saturating_sub(self.free.len() as u64)
    }

    /// An upper bound of the ids ever allocated, freed or not. The array has room for every id
    /// below.
    pub(crate) fn handed_out(&self) -> u64 {
        // Relaxed: concurrent allocations do not matter.
        self.next.load(Ordering::Relaxed).min(self.bound())
    }
}
