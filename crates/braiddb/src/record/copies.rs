//! Copies of values that are returned for longer than an operation: for a transaction, or for a
//! batch of a scan. A version may be evicted and freed while a transaction uses its value. The copy
//! here stays until its owner ends, however long that takes.

use std::alloc::Layout;
use std::cell::RefCell;
use std::ptr::NonNull;

use crate::log::ColdRecord;
use crate::memory::{Buffer, MemoryCounters, MemoryKind};
use crate::sync::thread;

/// Size of the first chunk in bytes, unless a value needs more: many transactions keep one value
/// each. Each later chunk is twice as large, up to a limit.
const FIRST_CHUNK_BYTES: usize = 256;
const CHUNK_BYTES: usize = 64 << 10;
/// Values read from the log that are at least this long stay in the buffer they were read into.
const MIN_ADOPTED_BYTES: usize = 32 << 10;

/// A block of memory that is filled from its start.
#[derive(Debug)]
struct CopyChunk {
    start: NonNull<u8>,
    capacity: usize,
    used: usize,
}

/// Copies of values.
///
/// Invariants: a returned copy is never moved, changed or freed while the owner is borrowed; chunks
/// are filled one after the other, and only the last has room.
#[derive(Debug, Default)]
pub(crate) struct Copies(RefCell<OwnedCopies>);

#[derive(Debug, Default)]
struct OwnedCopies {
    chunks: Vec<CopyChunk>,
    records: Vec<ColdRecord>,
    buffers: Vec<Buffer>,
}

impl CopyChunk {
    fn allocate(memory: &MemoryCounters, capacity: usize) -> Self {
        Self { start: memory.allocate(MemoryKind::Copy, Self::layout(capacity)), capacity, used: 0 }
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, 1).expect("values are bounded far below isize::MAX")
    }

    /// Appends `bytes`, which must fit; returns their location.
    fn append(&mut self, bytes: &[u8]) -> NonNull<[u8]> {
        assert!(bytes.len() <= self.capacity - self.used, "the caller checked the room");
        // SAFETY: within the chunk (asserted), after everything returned before.
        let target = unsafe { self.start.add(self.used) };
        // SAFETY: the target belongs to the chunk and is not shared yet; its length is asserted.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), bytes.len()) };
        self.used += bytes.len();
        NonNull::slice_from_raw_parts(target, bytes.len())
    }

    fn free(self, memory: &MemoryCounters) {
        // SAFETY: allocated with this layout by the same counters, and owned: freed once.
        unsafe { memory.free(MemoryKind::Copy, self.start, Self::layout(self.capacity)) }
    }
}

impl OwnedCopies {
    fn append(&mut self, memory: &MemoryCounters, bytes: &[u8]) -> NonNull<[u8]> {
        let room = |chunk: &CopyChunk| chunk.capacity - chunk.used;
        if self.chunks.last().is_none_or(|last| room(last) < bytes.len()) {
            let twice = |last: &CopyChunk| (2 * last.capacity).min(CHUNK_BYTES);
            let usual = self.chunks.last().map_or(FIRST_CHUNK_BYTES, twice);
            self.chunks.push(CopyChunk::allocate(memory, usual.max(bytes.len())));
        }
        self.chunks.last_mut().expect("pushed above").append(bytes)
    }
}

impl Copies {
    /// Keeps a copy of `bytes`. All copies are counted and freed with the same `memory`.
    pub(crate) fn keep(&self, memory: &MemoryCounters, bytes: &[u8]) -> &[u8] {
        let copy = self.0.borrow_mut().append(memory, bytes);
        // SAFETY: initialised, and neither changed nor freed before `self` is borrowed exclusively.
        unsafe { copy.as_ref() }
    }

    /// Returns whether [`Self::keep_record`] keeps such a value in the buffer it was read into.
    pub(crate) fn adopts(value_bytes: usize) -> bool {
        value_bytes >= MIN_ADOPTED_BYTES
    }

    /// Keeps the value of a record that was read from the log.
    pub(crate) fn keep_record(&self, memory: &MemoryCounters, record: ColdRecord) -> &[u8] {
        if !Self::adopts(record.view().value.len()) {
            return self.keep(memory, record.view().value);
        }
        memory.count(MemoryKind::Copy, record.memory_bytes() as i64);
        let value = NonNull::from(record.view().value);
        self.0.borrow_mut().records.push(record);
        // SAFETY: in the record's heap buffer, which does not move with its owners, and is neither
        // changed nor freed before `self` is borrowed exclusively.
        unsafe { value.as_ref() }
    }

    /// Keeps a value in its own buffer.
    pub(crate) fn keep_buffer(&self, memory: &MemoryCounters, value: Buffer) -> &[u8] {
        memory.count(MemoryKind::Copy, value.capacity() as i64);
        let kept = NonNull::from(&*value);
        self.0.borrow_mut().buffers.push(value);
        // SAFETY: in the buffer's heap memory, which does not move with its owners, and is neither
        // changed nor freed before `self` is borrowed exclusively.
        unsafe { kept.as_ref() }
    }

    /// Returns the bytes of values that were copied, without those that stay in their own buffers.
    pub(crate) fn copied_bytes(&self) -> usize {
        self.0.borrow().chunks.iter().map(|chunk| chunk.used).sum()
    }

    /// Takes over the copies of `other`.
    pub(crate) fn take_over(&self, other: &mut Self) {
        let (mut mine, other) = (self.0.borrow_mut(), other.0.get_mut());
        // Appended, so that the last chunk is the one with room.
        mine.chunks.append(&mut other.chunks);
        mine.records.append(&mut other.records);
        mine.buffers.append(&mut other.buffers);
    }

    /// Removes all copies, and frees their memory.
    #[inline]
    pub(crate) fn free(&mut self, memory: &MemoryCounters) {
        let kept = self.0.get_mut();
        if !kept.is_empty() {
            kept.free(memory);
        }
    }
}

impl OwnedCopies {
    fn free(&mut self, memory: &MemoryCounters) {
        self.chunks.drain(..).for_each(|chunk| chunk.free(memory));
        for record in self.records.drain(..) {
            memory.count(MemoryKind::Copy, -(record.memory_bytes() as i64));
        }
        for buffer in self.buffers.drain(..) {
            memory.count(MemoryKind::Copy, -(buffer.capacity() as i64));
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.records.is_empty() && self.buffers.is_empty()
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        let kept = self.0.get_mut();
        // When a panic unwinds, copies may be leaked.
        assert!(kept.is_empty() || thread::panicking(), "copies are freed with their counters");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};

    #[test]
    fn copies_stay_where_they_are_until_they_are_forgotten() {
        with_limit(PART_SECONDS, |_| {
            let memory = MemoryCounters::new();
            let mut copies = Copies::default();
            for round in 0..3u8 {
                let lengths = [0, 1, 1000, 3095, 1, 100_000, 7, 70_000, 5];
                let all: Vec<Vec<u8>> = lengths.iter().map(|length| vec![round; *length]).collect();
                let kept: Vec<&[u8]> = all.iter().map(|one| copies.keep(&memory, one)).collect();
                assert!(kept.iter().zip(&all).all(|(kept, one)| kept == one));
                assert!(memory.bytes(MemoryKind::Copy) >= 170_000);
                copies.free(&memory);
                assert_eq!(memory.bytes(MemoryKind::Copy), 0);
            }
            let mut other = Copies::default();
            other.keep(&memory, b"other");
            copies.keep(&memory, b"own");
            copies.take_over(&mut other);
            assert_eq!(copies.keep(&memory, b"more"), b"more");
            copies.free(&memory);
            other.free(&memory);
            assert_eq!(memory.bytes(MemoryKind::Copy), 0);
        });
    }
}
