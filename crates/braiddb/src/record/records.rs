//! The records of a table: index, indirection array and record ids.

use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

#[cfg(feature = "experiment")]
use super::access::AccessStamps;
use super::count::RecordCount;
use super::expiry::Lifetime;
use super::indirection::{IndirectionArray, IndirectionEntry};
use super::rids::{RidAllocator, TableFull};
use super::secondary::Secondaries;
use super::show_key::ShowKey;
use crate::index::Index;
use crate::log::{ColdStore, Lsn};
use crate::memory::MemoryCounters;
use crate::page::PagedTable;
use crate::reclaim;
use crate::rid::{Rid, TableId};
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::version::{Stamp, TransactionName, VersionRef};

/// Structures smaller than this stay in the caches, and reading them is not worth a suspension.
const CACHED_BYTES: u64 = 2 << 20;
/// Bytes of a small version, to tell from a count of records how much memory versions take.
const SMALL_VERSION_BYTES: u64 = 32;

const ALL: u64 = 0;
const NOBODY: u64 = 1;
/// Those that began before the table was dropped.
const OLDER: u64 = 2;

/// The records of a table.
///
/// Invariant: every index entry leads to a record id whose indirection entry is a version or dead;
/// an id leads to a version before the index leads to the id.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) id: TableId,
    pub(crate) index: Index,
    /// Where its records are, if they are on pages: then it has none in its index and array.
    paged: Option<Box<PagedTable>>,
    pub(super) lifetime: Lifetime,
    /// As errors call it; known once somebody has opened it.
    name: RwLock<Arc<str>>,
    /// How errors show its keys.
    show_key: RwLock<ShowKey>,
    pub(super) secondaries: Secondaries,
    array: IndirectionArray,
    /// Who last read its records, where the serial safety net certifies.
    #[cfg(feature = "experiment")]
    access: Option<Box<AccessStamps>>,
    rids: RidAllocator,
    count: RecordCount,
    memory: Arc<MemoryCounters>,
    /// Where evicted records are read; none without a log.
    store: Option<ColdStore>,
    /// Who may use the table: [`ALL`], [`NOBODY`], [`OLDER`], or the transaction with the name in this stamp.
    users: AtomicU64,
    /// The LSN at which it was dropped, if it was.
    dropped_at: AtomicU64,
    /// Whether records are evicted, and so reads note what is of use.
    evicts: bool,
    /// Whether records read from the log stay in memory.
    caches: AtomicBool,
    /// The clock's hand: the next record id that eviction looks at.
    hand: CachePadded<AtomicU64>,
}

impl Records {
    /// An empty table that everybody may use. It takes no memory for records until it has some.
    pub(crate) fn new(
        id: TableId,
        memory: Arc<MemoryCounters>,
        store: Option<ColdStore>,
        evicts: bool,
    ) -> Self {
        let index = Index::new(memory.clone());
        let (array, rids) = (IndirectionArray::default(), RidAllocator::default());
        let (caches, hand) = (AtomicBool::new(true), CachePadded::default());
        let users = AtomicU64::new(ALL);
        let (name, secondaries) = (RwLock::new("".into()), Secondaries::default());
        let show_key = RwLock::new(ShowKey(|_| None));
        Self {
            id,
            index,
            paged: None,
            lifetime: Lifetime::default(),
            name,
            show_key,
            secondaries,
            array,
            #[cfg(feature = "experiment")]
            access: None,
            rids,
            count: RecordCount::default(),
            memory,
            store,
            users,
            dropped_at: AtomicU64::new(0),
            evicts,
            caches,
            hand,
        }
    }

    /// How many records are committed; of tables on pages, nothing.
    pub(crate) fn count(&self) -> &RecordCount {
        &self.count
    }

    /// The table with its records on pages.
    pub(crate) fn on_pages(mut self, pages: PagedTable) -> Self {
        self.paged = Some(Box::new(pages));
        self
    }

    /// Its records, if they are on pages.
    #[inline(always)]
    pub(crate) fn paged(&self) -> Option<&PagedTable> {
        self.paged.as_deref()
    }

    /// The table with access stamps.
    #[cfg(feature = "experiment")]
    pub(crate) fn with_access_stamps(mut self) -> Self {
        self.access = Some(Box::default());
        self
    }

    /// Makes the table one that only a transaction under way may use: it creates it.
    pub(crate) fn reserve_for(&self, creator: TransactionName) {
        // Relaxed: nobody else has the table yet.
        self.users.store(Stamp::in_flight(creator).bits(), Ordering::Relaxed);
    }

    /// Lets everybody use the table: its creator commits, and has drawn its LSN.
    pub(crate) fn open_to_all(&self) {
        // Release pairs with the Acquire in `may_be_used_by`: a transaction that uses it commits later.
        self.users.store(ALL, Ordering::Release);
    }

    /// Lets nobody use the table any more: its creator aborts.
    pub(crate) fn close_to_all(&self) {
        // Release pairs with the Acquire in `creation_was_aborted`: who meets a chain that its creator emptied afterwards
        // sees this.
        self.users.store(NOBODY, Ordering::Release);
    }

    /// Whether the table's creator took it back. What is read of it before this says no is what was committed; after that, what
    /// was aborted may be on pages that were absent.
    pub(crate) fn creation_was_aborted(&self) -> bool {
        // Acquire pairs with the Release in `close_to_all`.
        self.users.load(Ordering::Acquire) == NOBODY
    }

    /// Lets only transactions use the table that began before it was dropped, which was committed at `lsn`.
    ///
    /// A transaction that does not see this yet began before the next commit of whoever dropped it, for the
    /// reason that is given at [`Records::is_indexed`].
    pub(crate) fn drop_at(&self, lsn: Lsn) {
        // Relaxed: `users` publishes it.
        self.dropped_at.store(lsn.0, Ordering::Relaxed);
        // Release pairs with the Acquire in `may_be_used_by`.
        self.users.store(OLDER, Ordering::Release);
    }

    /// Whether a transaction may use the table that sees what was committed before `begin`. Handles of a
    /// table leave the transaction that creates it, if its code lets them; tables that never came to be have
    /// some, and dropped ones.
    #[inline(always)]
    pub(crate) fn may_be_used_by(&self, transaction: TransactionName, begin: Lsn) -> bool {
        // Acquire pairs with the Release in `open_to_all`, and in `drop_at`.
        let users = self.users.load(Ordering::Acquire);
        users == ALL || self.is_among(users, transaction, begin)
    }

    /// Whether nobody who begins now may use the table: it was dropped, or never came to be.
    pub(crate) fn is_gone(&self) -> bool {
        // Acquire pairs with the Release in `drop_at`.
        matches!(self.users.load(Ordering::Acquire), NOBODY | OLDER)
    }

    #[cold]
    fn is_among(&self, users: u64, transaction: TransactionName, begin: Lsn) -> bool {
        // Relaxed: stored before `OLDER` was.
        let dropped_at = || self.dropped_at.load(Ordering::Relaxed);
        (users == OLDER && begin.0 <= dropped_at()) || users == Stamp::in_flight(transaction).bits()
    }

    /// Says what errors call the table.
    pub(crate) fn set_name(&self, name: &str) {
        if **self.name.read() != *name {
            *self.name.write() = name.into();
        }
    }

    /// What errors call the table.
    pub(crate) fn name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    /// Says how errors show the table's keys.
    pub(crate) fn set_show_key(&self, show_key: ShowKey) {
        *self.show_key.write() = show_key;
    }

    /// How errors show the table's keys.
    pub(crate) fn show_key(&self) -> ShowKey {
        *self.show_key.read()
    }

    /// Says whether records read from the log stay in memory.
    pub(crate) fn set_caches(&self, caches: bool) {
        // Relaxed: a matter of speed only.
        self.caches.store(caches, Ordering::Relaxed);
    }

    pub(super) fn caches(&self) -> bool {
        // Relaxed: see `set_caches`.
        self.caches.load(Ordering::Relaxed)
    }

    pub(super) fn store(&self) -> Option<&ColdStore> {
        self.store.as_ref()
    }

    /// Whether records are evicted.
    #[inline(always)]
    pub(super) fn evicts(&self) -> bool {
        self.evicts
    }

    /// Whether versions that an active transaction sees stay allocated until it is over: where there is
    /// a log behind the table, they may give way to their addresses in it.
    pub(crate) fn keeps_versions(&self) -> bool {
        self.store.is_none()
    }

    /// The next `count` of the record ids below `bound` that the clock's hand reaches.
    pub(super) fn advance_hand(&self, count: u64, bound: u64) -> impl Iterator<Item = u64> {
        // Relaxed: workers only share out the ids.
        let start = self.hand.fetch_add(count, Ordering::Relaxed);
        (start..start + count).map(move |number| number % bound)
    }

    pub(crate) fn array(&self) -> &IndirectionArray {
        &self.array
    }

    pub(crate) fn rids(&self) -> &RidAllocator {
        &self.rids
    }

    pub(crate) fn memory(&self) -> &MemoryCounters {
        &self.memory
    }

    /// A record id for a new record.
    ///
    /// # Errors
    /// When there are no more, or no memory for more.
    pub(crate) fn take_rid(&self) -> Result<Rid, TableFull> {
        let rid = self.rids.take(&self.array, &self.memory)?;
        #[cfg(feature = "experiment")]
        self.make_room_for_readers(rid).inspect_err(|_| self.rids.give_back(rid))?;
        Ok(rid)
    }

    /// Makes sure that ids up to `rid` count as handed out; for recovery.
    ///
    /// # Errors
    /// When the table cannot have such an id, or there is no memory for it.
    pub(crate) fn raise_rid(&self, rid: Rid) -> Result<(), TableFull> {
        self.rids.raise(&self.array, &self.memory, rid)?;
        #[cfg(feature = "experiment")]
        self.make_room_for_readers(rid)?;
        Ok(())
    }

    #[cfg(feature = "experiment")]
    fn make_room_for_readers(&self, rid: Rid) -> Result<(), TableFull> {
        if let Some(access) = &self.access {
            access.grow(rid.number())?;
        }
        Ok(())
    }

    #[cfg(feature = "experiment")]
    pub(super) fn access_stamps(&self) -> Option<&AccessStamps> {
        self.access.as_deref()
    }

    /// Whether the indirection array is too large to stay cached.
    pub(crate) fn array_is_cold(&self) -> bool {
        self.rids.entry_bytes() > CACHED_BYTES
    }

    /// Whether the versions are too many to stay cached.
    pub(crate) fn versions_are_cold(&self) -> bool {
        self.rids.bound() * SMALL_VERSION_BYTES > CACHED_BYTES
    }

    /// Takes a dead record's id back once no operation can hold it any more.
    pub(crate) fn retire_rid(&self, rid: Rid) {
        assert_eq!(
            self.array.load(rid),
            IndirectionEntry::Dead,
            "only dead records give their id back"
        );
        let table = RecordsRef::new(self);
        reclaim::retire_with(move || {
            // SAFETY: a table is dropped after what was retired of it before: the engine drains its
            // garbage first, and a table that never came to be is retired itself.
            let table = unsafe { table.get() };
            table.array.clear(rid);
            table.rids.give_back(rid);
        });
    }

    /// Frees a version that was just unlinked, or never became visible, once no operation can
    /// hold it any more.
    ///
    /// # Safety
    /// No link leads to the version any more, and nobody else frees it.
    pub(crate) unsafe fn retire_version(&self, version: VersionRef) {
        // SAFETY: allocated with the table's counters; the rest is the caller's contract.
        unsafe { version.retire(&self.memory) };
    }
}

/// A table, by address: tables live as long as their engine, or as the transaction that creates them
/// in vain, so that a transaction need not count its references to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordsRef(NonNull<Records>);

// SAFETY: `Records` is `Sync`, and looking through the address takes `get`, whose contract keeps the
// table alive on any thread.
unsafe impl Send for RecordsRef {}

impl RecordsRef {
    pub(crate) fn new(table: &Records) -> Self {
        Self(NonNull::from(table))
    }

    /// The table.
    ///
    /// # Safety
    /// The engine that owns the table outlives `'a`, and if the table's creator aborts, then later.
    pub(crate) unsafe fn get<'a>(self) -> &'a Records {
        // SAFETY: made from a reference; alive by the caller's contract.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.memory.remove_array_bytes(self.rids.entry_bytes());
        for number in 0..self.rids.handed_out() {
            let mut entry = match self.array.load(Rid::new(number)) {
                IndirectionEntry::Version(version) => Some(version),
                IndirectionEntry::Address(_) | IndirectionEntry::Empty | IndirectionEntry::Dead => {
                    None
                }
            };
            // Only the newest version is the table's own; older ones belong to the garbage lists
            // of the workers that superseded them.
            if let Some(version) = entry.take() {
                free(version, &self.memory);
            }
        }
    }
}

fn free(version: VersionRef, memory: &MemoryCounters) {
    // SAFETY: the table is being dropped, so no transaction and no other list can reach the
    // newest version of one of its records.
    unsafe { version.free(memory) }
}
