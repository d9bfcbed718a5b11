//! The indirection array: one word a record, from its id to its newest version.
//!
//! Entries stand in chunks, each twice as long as the one before (`chunks`), so that an empty table
//! takes nothing and a large one wastes little. Entries:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | empty: the id is not in use |
//! | 2 | dead: the record is gone and its index entry is about to be removed |
//! | multiple of 8 | the newest version, in memory |
//! | odd | the newest version, in the log: committed for every transaction, active or to come |
//!
//! Invariants: an entry leaves `dead` only by [`IndirectionArray::clear`], after the grace period in
//! which operations may still hold the id. A thread that has a record id has it from the allocator
//! of ids, which made room for its entry first, or from where that was published.

use super::chunks::{Chunks, NoMemory};
use crate::rid::Rid;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{Address, Link, VersionRef};

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndirectionEntry {
    /// The id is not in use.
    Empty,
    /// The record is gone for everyone; its index entry is about to be removed.
    Dead,
    /// The newest version of the record.
    Version(VersionRef),
    /// Where in the log the newest version is.
    Address(Address),
}

const DEAD: u64 = 2;

impl IndirectionEntry {
    fn from_word(word: u64) -> Self {
        match word {
            DEAD => IndirectionEntry::Dead,
            word => Link::from_word(word).map_or(IndirectionEntry::Empty, IndirectionEntry::from),
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
    /// What leads to the record's newest version, if it has one.
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

/// Entries of one table.
#[derive(Debug, Default)]
pub(crate) struct IndirectionArray {
    entries: Chunks,
}

impl IndirectionArray {
    /// Records one table can hold.
    pub(crate) const CAPACITY: u64 = Chunks::CAPACITY;

    #[inline(always)]
    fn word(&self, rid: Rid) -> &AtomicU64 {
        self.entries.word(rid.number())
    }

    /// Makes room for the entries up to `number`, and returns for how many there is room at least.
    ///
    /// # Errors
    /// When the operating system has no addresses for them.
    pub(super) fn grow(&self, number: u64) -> Result<u64, NoMemory> {
        self.entries.grow(number)
    }

    /// The address of an entry, to be prefetched.
    pub(crate) fn pointer(&self, rid: Rid) -> *const u8 {
        std::ptr::from_ref(self.word(rid)).cast()
    }

    /// What the entry holds. Acquire pairs with the Release of `publish`, `replace` and `clear`.
    pub(crate) fn load(&self, rid: Rid) -> IndirectionEntry {
        IndirectionEntry::from_word(self.word(rid).load(Ordering::Acquire))
    }

    /// Puts the first version of a record into the entry of a fresh id, which nobody else knows.
    pub(crate) fn publish(&self, rid: Rid, version: VersionRef) {
        // Release pairs with the Acquire in `load`: a thread that finds the version finds its header.
        let before = self.word(rid).swap(version.word(), Ordering::Release);
        assert_eq!(before, 0, "a fresh record id has an empty entry");
    }

    /// Replaces `from` by `to`; `false` if the entry holds something else.
    pub(crate) fn replace(&self, rid: Rid, from: IndirectionEntry, to: IndirectionEntry) -> bool {
        // AcqRel: the Release is as in `publish`, the Acquire as in `load`. Relaxed on failure: the caller loads again.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word(rid).compare_exchange(from.word(), to.word(), success, failure).is_ok()
    }

    /// Empties an entry whose id is about to be used again.
    pub(crate) fn clear(&self, rid: Rid) {
        // Release pairs with the Acquire in `load`; the id itself travels through a queue.
        self.word(rid).store(0, Ordering::Release);
    }
}
