//! Mapping table of a page: maps keys to the version chains of their records. The page's frame
//! references it while a record of the page may have a chain.
//!
//! The table uses open addressing with linear probing. Its number of entries is a power of two, and
//! at most three quarters are in use. The word in the frame is 0 or the table's address. Growing a
//! table, splitting it or merging it with another replaces it.
//!
//! Invariants:
//!
//! - A table changes only while the page is latched and its version is raised. So readers may load
//!   inconsistent entries, but then their validation fails.
//! - Everything that readers find is allocated: removed chains and replaced tables are retired.
//! - A key with a chain has a slot on the page. A slot without the *versioned* flag has no chain.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::chain::{Chain, ChainRef, WalkHead};
use crate::memory::{MemoryCounters, MemoryKind};
use crate::reclaim::{self, OperationGuard};
use crate::rid::TableId;
use crate::sync::atomic::{AtomicU64, Ordering};

const MIN_ENTRIES: usize = 4;
/// Divisor of the maximum load: at most three of four entries are in use.
const QUARTERS: usize = 4;

/// Header of a mapping table; its entries follow.
#[derive(Debug)]
#[repr(C)]
struct MappingHeader {
    /// Counters of the database, which outlives its tables.
    memory: NonNull<MemoryCounters>,
    /// Number of entries, a power of two.
    entries: usize,
    /// Number of entries in use; accessed under the page's latch.
    used: AtomicU64,
}

#[derive(Debug)]
#[repr(C)]
struct MappingEntry {
    /// The chain, or 0.
    chain: AtomicU64,
    hash: AtomicU64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<MappingHeader>() == 24 && size_of::<MappingEntry>() == 16);
const _: () = assert!(size_of::<MappingHeader>().is_multiple_of(align_of::<MappingEntry>()));

/// A mapping table, referenced by the word in its page's frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping(NonNull<MappingHeader>);

impl Mapping {
    /// Returns the table that a frame's word references; `None` for 0.
    ///
    /// # Safety
    /// The word was loaded from the frame with Acquire. The page was latched for the load and stays
    /// latched while the result is used. Or an operation guard was held for the load and lasts as
    /// long as the result is used.
    pub(crate) unsafe fn from_word(word: u64) -> Option<Self> {
        debug_assert!(word.is_multiple_of(8), "{word:#x} is no mapping table");
        NonNull::new(word as *mut MappingHeader).map(Self)
    }

    fn word(self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Allocates an empty table with room for `chains` chains.
    fn allocate(memory: NonNull<MemoryCounters>, chains: usize) -> Self {
        let entries =
            (chains * QUARTERS).div_ceil(QUARTERS - 1).next_power_of_two().max(MIN_ENTRIES);
        // SAFETY: the database's, which outlives its tables.
        let counters = unsafe { memory.as_ref() };
        let block =
            counters.allocate(MemoryKind::Change, Self::layout(entries)).cast::<MappingHeader>();
        // SAFETY: the block is fresh, unshared, aligned for a header and holds header and entries.
        unsafe {
            block.write(MappingHeader { memory, entries, used: AtomicU64::new(0) });
            let first = block.add(1).cast::<MappingEntry>();
            for number in 0..entries {
                first
                    .add(number)
                    .write(MappingEntry { chain: AtomicU64::new(0), hash: AtomicU64::new(0) });
            }
        }
        Self(block)
    }

    fn layout(entries: usize) -> Layout {
        let bytes = size_of::<MappingHeader>() + entries * size_of::<MappingEntry>();
        Layout::from_size_align(bytes, align_of::<MappingHeader>()).expect("pages hold few records")
    }

    fn header(&self) -> &MappingHeader {
        // SAFETY: initialised by `allocate`, and allocated (contract of `from_word`).
        unsafe { self.0.as_ref() }
    }

    fn entries(&self) -> &[MappingEntry] {
        // SAFETY: `allocate` placed this many entries right after the header, in one block.
        unsafe {
            std::slice::from_raw_parts(
                self.0.add(1).cast::<MappingEntry>().as_ptr(),
                self.header().entries,
            )
        }
    }

    fn memory(&self) -> &MemoryCounters {
        // SAFETY: the database's, which outlives its tables.
        unsafe { self.header().memory.as_ref() }
    }

    /// Returns the number of chains.
    pub(crate) fn chains(&self) -> usize {
        // Relaxed: only the holder of the page's latch accesses it.
        self.header().used.load(Ordering::Relaxed) as usize
    }

    /// Returns the chain of `key`.
    fn chain(&self, key: &[u8]) -> Option<Chain<'_>> {
        let (entries, wanted) = (self.entries(), hash(key));
        let first = wanted as usize;
        for number in 0..entries.len() {
            let entry = &entries[(first + number) & (entries.len() - 1)];
            // Acquire pairs with the Release in `put`: the chain's header and key are visible.
            let chain = ChainRef::from_word(entry.chain.load(Ordering::Acquire))?;
            // Relaxed: stored before the chain; the page's version detects an inconsistent entry.
            if entry.hash.load(Ordering::Relaxed) != wanted {
                continue;
            }
            // SAFETY: the table has a reference to it. If a reader got the table under its guard,
            // everything in it is retired only after the guard began.
            let chain = unsafe { chain.get() };
            if chain.key() == key {
                return Some(chain);
            }
        }
        None
    }

    /// Returns the start of a reader's walk for the record of `key`. Called between the two checks
    /// of the page's version.
    ///
    /// # Safety
    /// `word` was loaded with Acquire from the frame, under this guard.
    pub(crate) unsafe fn start<'o>(
        word: u64,
        key: &[u8],
        operation: &'o OperationGuard,
    ) -> WalkHead<'o> {
        // SAFETY: the caller's contract.
        let Some(mapping) = (unsafe { Self::from_word(word) }) else { return WalkHead::NONE };
        let Some(chain) = mapping.chain(key) else { return WalkHead::NONE };
        // SAFETY: found under the guard.
        unsafe { chain.reference().get::<'o>() }.start(operation)
    }

    /// Returns the chain of `key`, on a latched page.
    ///
    /// # Safety
    /// The caller has the page latched for `'a`, and loaded `word` under that latch.
    pub(crate) unsafe fn find<'a>(word: u64, key: &[u8]) -> Option<Chain<'a>> {
        // SAFETY: the caller's contract.
        let mapping = unsafe { Self::from_word(word) }?;
        // SAFETY: the mapping table has a reference to it, and changes only under the page's latch.
        mapping.chain(key).map(|chain| unsafe { chain.reference().get() })
    }

    /// Returns the chain of `key`, created if necessary, and the word to store in the frame.
    ///
    /// # Safety
    /// The caller has the page latched for `'a`, and loaded `word` under that latch; `key` has a
    /// slot on the page. `memory` is the database's.
    pub(crate) unsafe fn find_or_make<'a>(
        word: u64,
        memory: &MemoryCounters,
        table: TableId,
        key: &[u8],
    ) -> (Chain<'a>, u64) {
        // SAFETY: the caller's contract.
        if let Some(chain) = unsafe { Self::find(word, key) } {
            return (chain, word);
        }
        // SAFETY: the caller's contract.
        let mapping = unsafe { Self::from_word(word) };
        let with_room = match mapping {
            Some(mapping) if mapping.has_room() => mapping,
            Some(mapping) => mapping.replaced_by_larger(),
            None => Self::allocate(NonNull::from(memory), 1),
        };
        let chain = ChainRef::allocate(memory, table, key);
        with_room.put(hash(key), chain);
        // SAFETY: just created, and the table has a reference to it.
        (unsafe { chain.get() }, with_room.word())
    }

    fn has_room(&self) -> bool {
        (self.chains() + 1) * QUARTERS <= self.header().entries * (QUARTERS - 1)
    }

    fn replaced_by_larger(self) -> Self {
        let larger = Self::allocate(self.header().memory, 2 * self.chains());
        self.each(|hash, chain| larger.put(hash, chain));
        self.retire();
        larger
    }

    /// Puts a chain into a free entry, which must exist.
    fn put(&self, hash: u64, chain: ChainRef) {
        let entries = self.entries();
        let used = self.chains() + 1;
        assert!(used < entries.len(), "a search ends at a free entry");
        let places =
            (0..entries.len()).map(|number| (hash as usize + number) & (entries.len() - 1));
        // Relaxed, as below: only the holder of the page's latch writes.
        let is_free = |place: &usize| entries[*place].chain.load(Ordering::Relaxed) == 0;
        let entry = &entries[places.into_iter().find(is_free).expect("there is one")];
        entry.hash.store(hash, Ordering::Relaxed);
        // Release pairs with the Acquire in `chain`.
        entry.chain.store(chain.word(), Ordering::Release);
        self.header().used.store(used as u64, Ordering::Relaxed);
    }

    /// Calls `each` with every chain and the hash of its key.
    fn each(&self, mut each: impl FnMut(u64, ChainRef)) {
        for entry in self.entries() {
            // Relaxed: only the holder of the page's latch writes.
            if let Some(chain) = ChainRef::from_word(entry.chain.load(Ordering::Relaxed)) {
                each(entry.hash.load(Ordering::Relaxed), chain);
            }
        }
    }

    fn clear(&self) {
        // Relaxed: a concurrent reader may load inconsistent entries, which the page's version
        // detects.
        self.entries().iter().for_each(|entry| entry.chain.store(0, Ordering::Relaxed));
        self.header().used.store(0, Ordering::Relaxed);
    }

    /// Frees the table after no reader can hold it any more; its chains have been moved.
    fn retire(self) {
        let layout = Self::layout(self.header().entries);
        // SAFETY: allocated by `allocate` with this layout and these counters. The caller replaces
        // the word that references it while it has the page latched, and retires it once.
        unsafe { reclaim::retire_block(self.memory(), MemoryKind::Change, self.0.cast(), layout) }
    }

    /// Calls `each` with the keys of all chains.
    ///
    /// # Safety
    /// The caller has the page latched, and loaded `word` under that latch.
    pub(crate) unsafe fn each_key(word: u64, mut each: impl FnMut(&[u8])) {
        // SAFETY: the caller's contract.
        let Some(mapping) = (unsafe { Self::from_word(word) }) else { return };
        // SAFETY: the table has a reference to it.
        mapping.each(|_, chain| each(unsafe { chain.get() }.key()));
    }

    /// Removes the empty chains, and calls `gone` with the key of each, whose slot no longer needs
    /// the *versioned* flag. Returns the word to store in the frame.
    ///
    /// # Safety
    /// The caller has the page latched, and loaded `word` under that latch.
    pub(crate) unsafe fn prune(word: u64, mut gone: impl FnMut(&[u8])) -> u64 {
        let keep = |chain: Chain<'_>| {
            let is_empty = chain.is_empty();
            if is_empty {
                gone(chain.key());
            }
            !is_empty
        };
        // SAFETY: the caller's contract; only empty chains are not kept.
        unsafe { Self::retain(word, keep) }
    }

    /// Removes the chains for which `keep` returns false. Returns the word to store in the frame.
    ///
    /// # Safety
    /// The caller has the page latched for `'a`, and loaded `word` under that latch. `keep` does not
    /// change the table. The chains that it does not keep are empty, and their slots no longer need
    /// the *versioned* flag.
    pub(crate) unsafe fn retain<'a>(word: u64, mut keep: impl FnMut(Chain<'a>) -> bool) -> u64 {
        // SAFETY: the caller's contract.
        let Some(mapping) = (unsafe { Self::from_word(word) }) else { return 0 };
        let (mut kept, mut empty) = (Vec::with_capacity(mapping.chains()), Vec::new());
        mapping.each(|hash, chain| {
            // SAFETY: the table has a reference to it, and changes only under the page's latch.
            if keep(unsafe { chain.get() }) {
                kept.push((hash, chain));
            } else {
                empty.push(chain);
            }
        });
        if empty.is_empty() {
            return word;
        }
        let word = if kept.is_empty() {
            mapping.retire();
            0
        } else {
            mapping.clear();
            kept.into_iter().for_each(|(hash, chain)| mapping.put(hash, chain));
            word
        };
        for chain in empty {
            // SAFETY: the table's reference; its entry is removed.
            unsafe { chain.release_by_mapping(mapping.memory()) };
        }
        word
    }

    /// Frees the table, its chains and their changes immediately.
    ///
    /// # Safety
    /// The page is no longer used. No transaction retires any of the changes later.
    pub(crate) unsafe fn free(word: u64) {
        // SAFETY: the caller's contract.
        let Some(mapping) = (unsafe { Self::from_word(word) }) else { return };
        let memory = mapping.memory();
        // SAFETY: the caller's contract.
        mapping.each(|_, chain| unsafe { chain.free(memory) });
        let layout = Self::layout(mapping.header().entries);
        // SAFETY: allocated by `allocate` with this layout; the rest is the caller's contract.
        unsafe { memory.free(MemoryKind::Change, mapping.0.cast(), layout) }
    }
}

/// Splits a mapping table when the records from `separator` upwards move to another page. Returns
/// the words for the frames of the left and the right page.
///
/// # Safety
/// The caller has both pages latched, and loaded `left` under that latch.
pub(crate) unsafe fn split_mapping(left: u64, separator: &[u8]) -> (u64, u64) {
    // SAFETY: the caller's contract.
    let Some(mapping) = (unsafe { Mapping::from_word(left) }) else { return (0, 0) };
    let (mut lower, mut upper) = (Vec::with_capacity(mapping.chains()), Vec::new());
    mapping.each(|hash, chain| {
        // SAFETY: the table has a reference to it.
        let goes = unsafe { chain.get() }.key() >= separator;
        if goes { &mut upper } else { &mut lower }.push((hash, chain));
    });
    let with = |chains: Vec<(u64, ChainRef)>| {
        if chains.is_empty() {
            return 0;
        }
        let table = Mapping::allocate(mapping.header().memory, chains.len());
        chains.into_iter().for_each(|(hash, chain)| table.put(hash, chain));
        table.word()
    };
    if upper.is_empty() {
        return (left, 0);
    }
    let words = if lower.is_empty() { (0, left) } else { (with(lower), with(upper)) };
    if words.1 != left {
        mapping.retire();
    }
    words
}

/// Joins the mapping tables of two pages that are merged. Returns the word for the frame of the
/// merged page.
///
/// # Safety
/// The caller has both pages latched, and loaded both words under these latches.
pub(crate) unsafe fn merge_mappings(left: u64, right: u64) -> u64 {
    // SAFETY: the caller's contract.
    let (left_table, right_table) =
        unsafe { (Mapping::from_word(left), Mapping::from_word(right)) };
    let (Some(one), Some(other)) = (left_table, right_table) else { return left | right };
    let both = Mapping::allocate(one.header().memory, one.chains() + other.chains());
    for table in [one, other] {
        table.each(|hash, chain| both.put(hash, chain));
        table.retire();
    }
    both.word()
}

/// Returns the bytes to reserve on a page so that all undecided changes can be undone; 0 for word
/// 0.
///
/// # Safety
/// The caller has the page latched, and loaded `word` under that latch.
pub(crate) unsafe fn reserved_bytes(word: u64) -> usize {
    // SAFETY: the caller's contract.
    let Some(mapping) = (unsafe { Mapping::from_word(word) }) else { return 0 };
    let mut bytes = 0;
    // SAFETY: the table has a reference to it.
    mapping.each(|_, chain| bytes += reserved_for(unsafe { chain.get() }));
    bytes
}

/// Returns the share of the record of `key` in [`reserved_bytes`]; `None` if it has no chain.
///
/// # Safety
/// The contract of [`reserved_bytes`].
pub(crate) unsafe fn reserved_bytes_of(word: u64, key: &[u8]) -> Option<usize> {
    // SAFETY: the caller's contract.
    unsafe { Mapping::find(word, key) }.map(reserved_for)
}

fn reserved_for(chain: Chain<'_>) -> usize {
    /// Alignment of values on a page.
    const ALIGNMENT: usize = 8;
    match chain.undo_bytes() {
        0 => 0,
        grows => grows + ALIGNMENT,
    }
}

/// Hashes a key: its bytes as words, the last one padded, and its length.
fn hash(key: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let (words, rest) = key.as_chunks::<8>();
    let sum = words.iter().fold(key.len() as u64, |sum, word| mix(sum, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let sum = mix(sum, u64::from_le_bytes(last));
    sum ^ sum >> 32
}
