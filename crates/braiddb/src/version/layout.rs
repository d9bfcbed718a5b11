//! Layout of a version: header and payload in one block of memory, so that a small record is one
//! cache line.
//!
//! ```text
//! offset  size  field
//!      0     8  stamp: commit LSN or transaction name
//!      8     8  next: the next older version, the address of a record in the log, or 0
//!     16     4  length: payload bytes (bits 0..25), evicted (bit 29), referenced (bit 30),
//!               tombstone (bit 31)
//!     20     4  in flight: position in the write set; committed: where its record is in the log,
//!               as a signed distance from the stamp in units of 8 bytes
//!     24     …  payload: the value, or for a tombstone the key; nothing if evicted
//! ```
//!
//! If the payload is evicted, a header in another block of memory replaces the version in the
//! chain. A transaction that sees this header reads the payload in the log.
//!
//! Invariants: the payload, its length, and the evicted and tombstone bits never change after the
//! version is published. `stamp` changes from a name to an LSN once. `next` of a published version
//! changes only while no active transaction's begin stamp needs the versions that are cut off.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::address::Address;
use super::stamp::Stamp;
use crate::log::Lsn;
use crate::memory::{MemoryCounters, MemoryKind};
use crate::reclaim;
use crate::sync;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum length of an encoded value in bytes.
pub const MAX_VALUE_BYTES: usize = 16 << 20;

const LENGTH_MASK: u32 = (1 << 25) - 1;
const TOMBSTONE: u32 = 1 << 31;
const REFERENCED: u32 = 1 << 30;
const EVICTED: u32 = 1 << 29;
/// The position of a committed version that is not in the log, or not near its stamp.
const NOWHERE: i32 = i32::MIN;
const POSITION_UNIT: i64 = 8;
const _: () = assert!(MAX_VALUE_BYTES <= LENGTH_MASK as usize);
#[cfg(not(loom))]
const _: () = assert!(size_of::<VersionHeader>() == 24 && align_of::<VersionHeader>() == 8);

/// The header of a version; the payload follows it in memory.
#[derive(Debug)]
#[repr(C)]
struct VersionHeader {
    stamp: AtomicU64,
    next: AtomicU64,
    length: AtomicU32,
    position: AtomicU32,
}

/// A pointer to a version that is allocated for at least as long as its holder may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionRef(NonNull<VersionHeader>);

// SAFETY: a plain address; dereferencing it takes `get`, whose contract covers other threads.
unsafe impl Send for VersionRef {}

/// A version that stays allocated for `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version<'a> {
    pointer: NonNull<VersionHeader>,
    held: PhantomData<&'a VersionHeader>,
}

impl VersionRef {
    /// Allocates a version.
    pub(crate) fn allocate(
        memory: &MemoryCounters,
        stamp: Stamp,
        payload: &[u8],
        tombstone: bool,
    ) -> Self {
        assert!(payload.len() <= MAX_VALUE_BYTES);
        let length = payload.len() as u32 | if tombstone { TOMBSTONE } else { 0 };
        let header = VersionHeader {
            stamp: AtomicU64::new(stamp.bits()),
            next: AtomicU64::new(0),
            length: AtomicU32::new(length),
            position: AtomicU32::new(0),
        };
        Self::allocate_with(memory, header, payload)
    }

    /// Allocates a header that replaces `whole`, without its payload and with the same link.
    /// `whole` is committed and its record is in the log. The caller prevents changes of `whole`'s
    /// link.
    pub(crate) fn allocate_evicted(memory: &MemoryCounters, whole: Version<'_>) -> Self {
        assert!(whole.record().is_some() && !whole.is_tombstone(), "its payload is in the log");
        let header = VersionHeader {
            stamp: AtomicU64::new(whole.stamp().bits()),
            next: AtomicU64::new(whole.next().map_or(0, Link::word)),
            length: AtomicU32::new(whole.payload_bytes() as u32 | EVICTED),
            position: AtomicU32::new(whole.position()),
        };
        Self::allocate_with(memory, header, &[])
    }

    /// Allocates the version that the header `evicted` replaced, with its payload, which was read
    /// from the log. The contract of [`Self::allocate_evicted`] applies.
    pub(crate) fn allocate_restored(
        memory: &MemoryCounters,
        evicted: Version<'_>,
        payload: &[u8],
    ) -> Self {
        assert!(evicted.is_evicted() && payload.len() == evicted.payload_bytes());
        let header = VersionHeader {
            stamp: AtomicU64::new(evicted.stamp().bits()),
            next: AtomicU64::new(evicted.next().map_or(0, Link::word)),
            length: AtomicU32::new(payload.len() as u32),
            position: AtomicU32::new(evicted.position()),
        };
        Self::allocate_with(memory, header, payload)
    }

    fn allocate_with(memory: &MemoryCounters, header: VersionHeader, payload: &[u8]) -> Self {
        let block = memory
            .allocate(MemoryKind::Version, Self::layout(payload.len()))
            .cast::<VersionHeader>();
        // SAFETY: the block is fresh, unshared, aligned for a header and holds header + payload.
        unsafe {
            block.write(header);
            let target = block.add(1).cast::<u8>().as_ptr();
            match payload.len() {
                // A short value: a single move.
                8 => std::ptr::copy_nonoverlapping(payload.as_ptr(), target, 8),
                bytes => std::ptr::copy_nonoverlapping(payload.as_ptr(), target, bytes),
            }
        }
        Self(block)
    }

    /// Frees the version.
    ///
    /// # Safety
    /// It was allocated with the same counters, is unreachable for other threads, and is freed
    /// once.
    pub(crate) unsafe fn free(self, memory: &MemoryCounters) {
        // SAFETY: alive until here (the caller's contract).
        let layout = Self::layout(unsafe { self.get() }.payload_bytes_in_memory());
        // SAFETY: allocated by `allocate` with this layout; the rest is the caller's contract.
        unsafe { memory.free(MemoryKind::Version, self.0.cast(), layout) }
    }

    /// Frees the version once no operation can hold it any more.
    ///
    /// # Safety
    /// It was allocated with the same counters, nothing references it any more, and it is retired
    /// once.
    pub(crate) unsafe fn retire(self, memory: &MemoryCounters) {
        // SAFETY: allocated until this thread's next turn (the caller's contract).
        let layout = Self::layout(unsafe { self.get() }.payload_bytes_in_memory());
        // SAFETY: allocated by `allocate` with this layout; the rest is the caller's contract.
        unsafe { reclaim::retire_block(memory, MemoryKind::Version, self.0.cast(), layout) }
    }

    /// The version itself.
    ///
    /// # Safety
    /// The version is not freed during `'a`: it is linked and the caller holds an operation guard
    /// or an active begin stamp that needs it, or the caller owns it.
    pub(crate) unsafe fn get<'a>(self) -> Version<'a> {
        Version { pointer: self.0, held: PhantomData }
    }

    /// The address, for prefetching.
    pub(crate) fn pointer(self) -> *const u8 {
        self.0.as_ptr().cast()
    }

    /// Encodes the address as a link word.
    pub(crate) fn word(self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Decodes a version pointer from a link word; `None` for 0.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        debug_assert!(word.is_multiple_of(8), "{word:#x} is not a version");
        NonNull::new(word as *mut VersionHeader).map(Self)
    }

    fn layout(payload_bytes: usize) -> Layout {
        Layout::from_size_align(
            size_of::<VersionHeader>() + payload_bytes,
            align_of::<VersionHeader>(),
        )
        .expect("payloads are bounded far below isize::MAX")
    }
}

impl<'a> Version<'a> {
    fn header(self) -> &'a VersionHeader {
        // SAFETY: a header's first word is its stamp.
        unsafe { sync::assert_not_freed(self.pointer.as_ptr().cast()) };
        // SAFETY: initialised by `allocate` and alive for `'a` (contract of `VersionRef::get`).
        unsafe { self.pointer.as_ref() }
    }

    /// The pointer that links store.
    pub(crate) fn reference(self) -> VersionRef {
        VersionRef(self.pointer)
    }

    /// Its stamp. Acquire pairs with the Release in `set_stamp`.
    pub(crate) fn stamp(self) -> Stamp {
        Stamp::from_bits(self.header().stamp.load(Ordering::Acquire))
    }

    /// Sets the final stamp of the version. Release pairs with the Acquire in `stamp`.
    pub(crate) fn set_stamp(self, stamp: Stamp) {
        assert!(stamp.name().is_none(), "a final stamp is an LSN");
        self.header().stamp.store(stamp.bits(), Ordering::Release);
    }

    /// The next older version. Acquire pairs with the Release in `set_next`.
    pub(crate) fn next(self) -> Option<Link> {
        Link::from_word(self.header().next.load(Ordering::Acquire))
    }

    /// Links the next older version. Release pairs with the Acquire in `next`.
    pub(crate) fn set_next(self, next: Option<Link>) {
        self.header().next.store(next.map_or(0, Link::word), Ordering::Release);
    }

    /// Returns whether the record is deleted as of this version.
    pub(crate) fn is_tombstone(self) -> bool {
        self.length_word() & TOMBSTONE != 0
    }

    /// Length of the payload in bytes, resident or not.
    pub(crate) fn payload_bytes(self) -> usize {
        (self.length_word() & LENGTH_MASK) as usize
    }

    /// Returns whether the payload is only in the log.
    pub(crate) fn is_evicted(self) -> bool {
        self.length_word() & EVICTED != 0
    }

    fn payload_bytes_in_memory(self) -> usize {
        if self.is_evicted() { 0 } else { self.payload_bytes() }
    }

    /// Memory of the version in bytes.
    pub(crate) fn memory_bytes(self) -> u64 {
        VersionRef::layout(self.payload_bytes_in_memory()).size() as u64
    }

    /// The value, or for a tombstone the key.
    ///
    /// # Panics
    /// Panics if it is evicted.
    pub(crate) fn payload(self) -> &'a [u8] {
        let length = self.length_word();
        assert!(length & EVICTED == 0, "the payload is in the log");
        // SAFETY: it is not evicted.
        unsafe { self.payload_of(length) }
    }

    /// The value, if the record is not deleted and the value is in memory.
    #[inline(always)]
    pub(crate) fn value_in_memory(self) -> Option<&'a [u8]> {
        let length = self.length_word();
        // SAFETY: called only if it is not evicted.
        (length & (EVICTED | TOMBSTONE) == 0).then(|| unsafe { self.payload_of(length) })
    }

    /// The payload, given the word with its length.
    ///
    /// # Safety
    /// The payload is not evicted.
    #[inline(always)]
    unsafe fn payload_of(self, length: u32) -> &'a [u8] {
        // SAFETY: `allocate` wrote so many initialised bytes right after the header, in one block;
        // they never change while the version is shared, and live for `'a`.
        unsafe {
            let start = self.pointer.add(1).cast::<u8>();
            std::slice::from_raw_parts(start.as_ptr(), (length & LENGTH_MASK) as usize)
        }
    }

    fn length_word(self) -> u32 {
        // Relaxed: the link to this version was loaded with Acquire, and only `REFERENCED` changes.
        self.header().length.load(Ordering::Relaxed)
    }

    /// Marks the version as referenced, so that eviction gives it a second chance.
    pub(crate) fn mark_referenced(self) {
        if self.length_word() & REFERENCED == 0 {
            // Relaxed: a hint.
            self.header().length.fetch_or(REFERENCED, Ordering::Relaxed);
        }
    }

    /// Takes the mark that the version was referenced.
    pub(crate) fn take_referenced(self) -> bool {
        // Relaxed: a hint.
        self.length_word() & REFERENCED != 0
            && self.header().length.fetch_and(!REFERENCED, Ordering::Relaxed) & REFERENCED != 0
    }

    /// Stores the log position of a version that commits at `stamp`; must precede its stamping.
    pub(crate) fn set_record(self, stamp: Lsn, record: Option<Lsn>) {
        let distance = record.map(|record| (record.0 as i64 - stamp.0 as i64) / POSITION_UNIT);
        let position = distance.and_then(|distance| i32::try_from(distance).ok());
        self.set_position(position.unwrap_or(NOWHERE) as u32);
    }

    /// Stores another log position of a committed version, which [`Self::record`] may return from
    /// now on; `false` if that is too far from its stamp to be encoded.
    pub(crate) fn move_record(self, record: Lsn) -> bool {
        let stamp = self.stamp().lsn().expect("committed");
        let distance = (record.0 as i64 - stamp.0 as i64) / POSITION_UNIT;
        let position = i32::try_from(distance).ok().filter(|position| *position != NOWHERE);
        if let Some(position) = position {
            self.set_position(position as u32);
        }
        position.is_some()
    }

    /// The log position of a committed version, if it is in the log.
    pub(crate) fn record(self) -> Option<Lsn> {
        if self.stamp() == Stamp::ABORTED {
            // The field still holds the position in the transaction's write set.
            return None;
        }
        let (stamp, position) = (self.stamp().lsn()?, self.position() as i32);
        (position != NOWHERE)
            .then(|| Lsn((stamp.0 as i64 + i64::from(position) * POSITION_UNIT) as u64))
    }

    /// The version's position in its transaction's write set.
    pub(crate) fn position(self) -> u32 {
        // Relaxed: read by the worker that wrote it, or after the stamp's Acquire. Of two positions
        // of a copied record, either is valid until all transactions active now have ended.
        self.header().position.load(Ordering::Relaxed)
    }

    pub(crate) fn set_position(self, position: u32) {
        // Relaxed: see `position`; the stamp's Release publishes it.
        self.header().position.store(position, Ordering::Relaxed);
    }
}

/// The target of a version's `next` or of an indirection entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// A version in memory.
    Version(VersionRef),
    /// A record in the log, visible to every transaction that meets the link.
    Address(Address),
}

impl Link {
    pub(crate) fn word(self) -> u64 {
        match self {
            Link::Version(version) => version.word(),
            Link::Address(address) => address.word(),
        }
    }

    /// Decodes a link from a word; `None` for 0.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        match Address::from_word(word) {
            Some(address) => Some(Link::Address(address)),
            None => VersionRef::from_word(word).map(Link::Version),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_version_holds_its_payload() {
        let memory = MemoryCounters::new();
        for payload in [&b""[..], b"x", &[7; 8], &[9; 4096]] {
            for tombstone in [false, true] {
                let stamp = Stamp::committed(Lsn(64));
                let version = VersionRef::allocate(&memory, stamp, payload, tombstone);
                {
                    // SAFETY: owned by this test until freed below.
                    let held = unsafe { version.get() };
                    assert_eq!(held.payload(), payload);
                    assert_eq!(held.is_tombstone(), tombstone);
                    assert_eq!(held.stamp(), stamp);
                    assert!(held.next().is_none());
                }
                // SAFETY: never shared, freed once.
                unsafe { version.free(&memory) };
            }
        }
        assert_eq!(memory.bytes(MemoryKind::Version), 0);
    }

    #[test]
    fn an_evicted_version_tells_all_but_its_payload() {
        let memory = MemoryCounters::new();
        let allocate =
            |lsn| VersionRef::allocate(&memory, Stamp::committed(Lsn(lsn)), &[7; 1000], false);
        let (older, whole) = (allocate(64), allocate(640));
        // SAFETY: owned by this test until freed below.
        let version = unsafe { whole.get() };
        version.set_next(Some(Link::Version(older)));
        version.set_record(Lsn(640), Some(Lsn(680)));
        let evicted = VersionRef::allocate_evicted(&memory, version);
        // SAFETY: owned by this test until freed below.
        let restored = VersionRef::allocate_restored(&memory, unsafe { evicted.get() }, &[7; 1000]);
        // SAFETY: both are owned by this test until freed below.
        for one in [evicted, restored].map(|one| unsafe { one.get() }) {
            let shown = (one.stamp(), one.next(), one.record(), one.payload_bytes());
            let link = Some(Link::Version(older));
            assert_eq!(shown, (version.stamp(), link, Some(Lsn(680)), 1000));
            assert!(!one.is_tombstone());
        }
        // SAFETY: both are owned by this test until freed below.
        let (header, restored_version) = unsafe { (evicted.get(), restored.get()) };
        assert!(header.is_evicted() && header.memory_bytes() == 24);
        assert!(!restored_version.is_evicted() && restored_version.payload() == [7; 1000]);
        for one in [older, whole, evicted, restored] {
            // SAFETY: never shared, each freed once.
            unsafe { one.free(&memory) };
        }
        assert_eq!(memory.bytes(MemoryKind::Version), 0);
    }
}
