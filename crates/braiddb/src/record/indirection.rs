//! Indirection array: one word per record, from its id to its newest version.
//!
//! Entries are stored in chunks, each twice as long as the previous one (`chunks`), so that an
//! empty table takes no memory and a large one wastes little. Entries:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | empty: the id is not in use |
//! | 2 | dead: the record is deleted and its index entry is about to be removed |
//! | multiple of 8 | the newest version, in memory |
//! | odd | the newest version, in the log: committed before every active or later transaction |
//!
//! Invariants: only [`IndirectionArray::clear`] changes a `dead` entry, after the grace period in
//! which operations may still hold the id. A thread obtains a record id from the allocator of ids,
//! which makes room for its entry first, or from where the id was published.

use super::chunks::{ChunkWords, Chunks, NoMemory};
use crate::rid::Rid;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{Address, Link, VersionRef};

/// The decoded contents of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndirectionEntry {
    /// The id is not in use.
    Empty,
    /// The record is dead for every transaction; its index entry is about to be removed.
    Dead,
    /// The newest version of the record.
    Version(VersionRef),
    /// The location of the newest version in the log.
    Address(Address),
}

const ADDRESS: u64 = 1;
const DEAD: u64 = 2;

impl IndirectionEntry {
    fn from_word(word: u64) -> Self {
        match word & (ADDRESS | DEAD) {
            0 => VersionRef::from_word(word).map_or(IndirectionEntry::Empty, Self::Version),
            DEAD => IndirectionEntry::Dead,
            _ => Link::from_word(word).map_or(IndirectionEntry::Empty, IndirectionEntry::from),
        }
    }

    fn word(self) -> u64 {
        match self {
            IndirectionEntry::Empty => 0,
            IndirectionEntry::Dead => DEAD,
            IndirectionEntry::Version(version) => version.word(),
            IndirectionEntry::Address(address) => address.word(),
        }
    }
}

impl IndirectionEntry {
    /// A link to the record's newest version, if it has one.
    pub(super) fn link(self) -> Option<Link> {
        match self {
            IndirectionEntry::Version(version) => Some(Link::Version(version)),
            IndirectionEntry::Address(address) => Some(Link::Address(address)),
            IndirectionEntry::Empty | IndirectionEntry::Dead => None,
        }
    }
}

impl From<Link> for IndirectionEntry {
    fn from(link: Link) -> Self {
        match link {
            Link::Version(version) => IndirectionEntry::Version(version),
            Link::Address(address) => IndirectionEntry::Address(address),
        }
    }
}

/// The entries of one table.
#[derive(Debug, Default)]
pub(crate) struct IndirectionArray {
    entries: Chunks,
}

/// Access to several entries of one table.
#[derive(Clone, Debug)]
pub(super) struct EntryReader<'a>(ChunkWords<'a>);

impl EntryReader<'_> {
    /// Does what [`IndirectionArray::load`] does.
    #[inline(always)]
    pub(super) fn load(&mut self, rid: Rid) -> IndirectionEntry {
        // Acquire as in `IndirectionArray::load`.
        IndirectionEntry::from_word(self.0.word(rid.number()).load(Ordering::Acquire))
    }
}

/// Access to one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryAccess<'a>(&'a AtomicU64);

impl EntryAccess<'_> {
    /// Does what [`IndirectionArray::load`] does.
    #[inline(always)]
    pub(super) fn load(self) -> IndirectionEntry {
        // Acquire as in `IndirectionArray::load`.
        IndirectionEntry::from_word(self.0.load(Ordering::Acquire))
    }

    /// Does what [`IndirectionArray::replace`] does.
    #[inline(always)]
    pub(super) fn replace(self, from: IndirectionEntry, to: IndirectionEntry) -> bool {
        // AcqRel: the Release is as in `publish`, the Acquire as in `load`.
        // Relaxed on failure: the caller loads again.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.0.compare_exchange(from.word(), to.word(), success, failure).is_ok()
    }
}

impl IndirectionArray {
    /// Maximum number of records in one table.
    pub(crate) const CAPACITY: u64 = Chunks::CAPACITY;

    #[inline(always)]
    fn word(&self, rid: Rid) -> &AtomicU64 {
        self.entries.word(rid.number())
    }

    /// Returns access to an entry that is loaded and then replaced.
    #[inline(always)]
    pub(crate) fn entry(&self, rid: Rid) -> EntryAccess<'_> {
        EntryAccess(self.word(rid))
    }

    /// Makes the entries up to `number` available, and returns a lower bound of the number of
    /// available entries.
    ///
    /// # Errors
    /// Fails if the operating system has no address space left.
    pub(super) fn grow(&self, number: u64) -> Result<u64, NoMemory> {
        self.entries.grow(number)
    }

    /// The address of an entry, for prefetching.
    pub(crate) fn pointer(&self, rid: Rid) -> *const u8 {
        std::ptr::from_ref(self.word(rid)).cast()
    }

    /// Loads an entry. Acquire pairs with the Release of `publish`, `replace` and `clear`.
    pub(crate) fn load(&self, rid: Rid) -> IndirectionEntry {
        IndirectionEntry::from_word(self.word(rid).load(Ordering::Acquire))
    }

    /// Returns access to several entries.
    #[inline(always)]
    pub(super) fn reader(&self) -> EntryReader<'_> {
        EntryReader(self.entries.reader())
    }

    /// Stores the first version of a record in the entry of a fresh id, which is not shared yet.
    pub(crate) fn publish(&self, rid: Rid, version: VersionRef) {
        // Release pairs with the Acquire in `load`: a thread that finds the version finds its header.
        let before = self.word(rid).swap(version.word(), Ordering::Release);
        assert_eq!(before, 0, "a fresh record id has an empty entry");
    }

    /// Replaces `from` by `to`; `false` if the entry holds something else.
    pub(crate) fn replace(&self, rid: Rid, from: IndirectionEntry, to: IndirectionEntry) -> bool {
        self.entry(rid).replace(from, to)
    }

    /// Empties an entry before its id is reused.
    pub(crate) fn clear(&self, rid: Rid) {
        // Release pairs with the Acquire in `load`; the id itself passes through a queue.
        self.word(rid).store(0, Ordering::Release);
    }
}
