//! The indirection array: one word a record, from its id to its newest version.
//!
//! A reserved mapping holds the entries of one table in one contiguous run of addresses; memory
//! stands behind an entry from its first use. Entries:
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | empty: the id is not in use |
//! | 2 | dead: the record is gone and its index entry is on the way out |
//! | multiple of 8 | the newest version, in memory |
//! | odd | the newest version, in the log: committed for every transaction, active or to come |
//!
//! Invariant: an entry leaves `dead` only by [`IndirectionArray::clear`], after the grace period
//! in which operations may still hold the id.

use crate::rid::Rid;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{Address, Link, VersionRef};

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
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

impl Entry {
    fn from_word(word: u64) -> Self {
        match word {
            DEAD => Entry::Dead,
            word => Link::from_word(word).map_or(Entry::Empty, Entry::from),
        }
    }

    fn word(self) -> u64 {
        match self {
            Entry::Empty => 0,
            Entry::Dead => DEAD,
            Entry::Version(version) => version.word(),
            Entry::Address(address) => address.word(),
        }
    }
}

impl Entry {
    /// What leads to the record's newest version, if it has one.
    pub(super) fn link(self) -> Option<Link> {
        match self {
            Entry::Version(version) => Some(Link::Version(version)),
            Entry::Address(address) => Some(Link::Address(address)),
            Entry::Empty | Entry::Dead => None,
        }
    }
}

impl From<Link> for Entry {
    fn from(link: Link) -> Self {
        match link {
            Link::Version(version) => Entry::Version(version),
            Link::Address(address) => Entry::Address(address),
        }
    }
}

/// Entries of one table.
#[derive(Debug)]
pub(crate) struct IndirectionArray {
    entries: mapping::Mapping,
}

impl IndirectionArray {
    /// Records one table can hold.
    pub(crate) const CAPACITY: u64 = mapping::CAPACITY;

    /// Reserves addresses for [`Self::CAPACITY`] entries.
    ///
    /// # Errors
    /// The operating system's, when it has no such run of addresses left.
    pub(crate) fn reserve() -> std::io::Result<Self> {
        Ok(Self { entries: mapping::Mapping::reserve()? })
    }

    fn word(&self, rid: Rid) -> &AtomicU64 {
        self.entries.word(rid.number())
    }

    /// Lets memory stand behind the entries up to `count` in large pages, where that pays.
    pub(crate) fn prepare(&self, count: u64) {
        self.entries.prepare(count);
    }

    /// The address of an entry, to be prefetched.
    pub(crate) fn pointer(&self, rid: Rid) -> *const u8 {
        std::ptr::from_ref(self.word(rid)).cast()
    }

    /// What the entry holds. Acquire pairs with the Release of `publish`, `replace` and `clear`.
    pub(crate) fn load(&self, rid: Rid) -> Entry {
        Entry::from_word(self.word(rid).load(Ordering::Acquire))
    }

    /// Puts the first version of a record into the entry of a fresh id, which nobody else knows.
    pub(crate) fn publish(&self, rid: Rid, version: VersionRef) {
        // Release pairs with the Acquire in `load`: who finds the version finds its header.
        let before = self.word(rid).swap(version.word(), Ordering::Release);
        assert_eq!(before, 0, "a fresh record id has an empty entry");
    }

    /// Replaces `from` by `to`; `false` if the entry holds something else.
    pub(crate) fn replace(&self, rid: Rid, from: Entry, to: Entry) -> bool {
        // Release as in `publish`. Relaxed on failure: the caller loads again.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        self.word(rid).compare_exchange(from.word(), to.word(), success, failure).is_ok()
    }

    /// Empties an entry whose id is about to be used again.
    pub(crate) fn clear(&self, rid: Rid) {
        // Release pairs with the Acquire in `load`; the id itself travels through a queue.
        self.word(rid).store(0, Ordering::Release);
    }
}

#[cfg(not(loom))]
mod mapping {
    use std::ptr::NonNull;

    use crate::sync::atomic::AtomicU64;

    /// Entries a mapping has room for: 32 GiB of addresses, which cost nothing until used.
    pub(super) const CAPACITY: u64 = 1 << 32;
    const HUGE_PAGE_BYTES: usize = 2 << 20;
    const BYTES: usize = CAPACITY as usize * size_of::<AtomicU64>();

    /// A reserved run of zeroed words.
    #[derive(Debug)]
    pub(super) struct Mapping {
        start: NonNull<AtomicU64>,
    }

    // SAFETY: the mapping is shared memory of atomics that lives until the owner is dropped.
    unsafe impl Send for Mapping {}
    // SAFETY: as above; all access goes through atomics.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        pub(super) fn reserve() -> std::io::Result<Self> {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
            let start =
                unsafe { libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0) };
            if start == libc::MAP_FAILED {
                return Err(std::io::Error::last_os_error());
            }
            Ok(Self { start: NonNull::new(start.cast()).expect("the kernel never maps address 0") })
        }

        pub(super) fn word(&self, number: u64) -> &AtomicU64 {
            assert!(number < CAPACITY, "record id {number} is beyond the table's capacity");
            // SAFETY: inside the mapping (asserted), which is zeroed, aligned to pages, shared only
            // through atomics, and lives as long as `self`.
            unsafe { self.start.add(number as usize).as_ref() }
        }

        /// Large pages save a page walk on every random access, but a small table would waste most
        /// of one: they start after the first 2 MiB (262 144 records).
        pub(super) fn prepare(&self, count: u64) {
            let bytes = (count as usize * size_of::<AtomicU64>()).min(BYTES);
            let start = self.start.as_ptr() as usize;
            let first = (start + HUGE_PAGE_BYTES).next_multiple_of(HUGE_PAGE_BYTES);
            let end = (start + bytes).next_multiple_of(HUGE_PAGE_BYTES).min(start + BYTES);
            if end > first {
                // SAFETY: advice about a part of our own mapping; it changes no contents. A refusal
                // costs speed only, so the result is of no interest.
                unsafe { libc::madvise(first as *mut _, end - first, libc::MADV_HUGEPAGE) };
            }
        }
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: mapped in `reserve` with this length; no reference outlives `self`.
            let result = unsafe { libc::munmap(self.start.as_ptr().cast(), BYTES) };
            assert_eq!(result, 0, "unmapping our own mapping cannot fail");
        }
    }
}

#[cfg(loom)]
mod mapping {
    use crate::sync::atomic::AtomicU64;

    pub(super) const CAPACITY: u64 = 4;

    /// A model's stand-in: loom's atomics cannot live in a mapping.
    #[derive(Debug)]
    pub(super) struct Mapping(Vec<AtomicU64>);

    impl Mapping {
        pub(super) fn reserve() -> std::io::Result<Self> {
            Ok(Self((0..CAPACITY).map(|_| AtomicU64::new(0)).collect()))
        }

        pub(super) fn word(&self, number: u64) -> &AtomicU64 {
            &self.0[number as usize]
        }

        pub(super) fn prepare(&self, _count: u64) {}
    }
}
