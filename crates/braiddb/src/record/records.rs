//! Records of a table: index, indirection array and record ids.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

#[cfg(feature = "experiment")]
use super::access_stamps::AccessStamps;
use super::count::RecordCount;
use super::indirection::{IndirectionArray, IndirectionEntry};
use super::lifetime::Lifetime;
use super::rids::{RidAllocator, TableFull};
use super::secondary::Secondaries;
use super::show_key::{EncodedKey, ShowKey};
use crate::index::{IndexTree, MAX_KEY_BYTES};
use crate::log::{ColdStore, Lsn};
use crate::memory::MemoryCounters;
use crate::page::PagedTable;
use crate::reclaim;
use crate::rid::{Rid, TableId};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{RwLock, unreachable_unchecked};
use crate::version::{Stamp, TransactionName, VersionRef};

/// Structures smaller than this stay in the processor's caches, and reading them does not justify a
/// suspension.
const CACHED_BYTES: u64 = 2 << 20;
/// Size of a small version in bytes, to estimate the memory of versions from a record count.
const SMALL_VERSION_BYTES: u64 = 32;

const USABLE_BY_ALL: u64 = 0;
const USABLE_BY_NONE: u64 = 1;
/// Users are the transactions that began before the table was dropped.
const USABLE_BY_OLDER: u64 = 2;

/// The records of a table.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) id: TableId,
    storage: RecordStorage,
    pub(super) lifetime: Lifetime,
    /// The table's name in errors; known once the table was opened.
    name: RwLock<Arc<str>>,
    /// Formats the table's keys in errors.
    show_key: RwLock<ShowKey>,
    pub(super) secondaries: Secondaries,
    count: RecordCount,
    memory: Arc<MemoryCounters>,
    /// The transactions that may use the table: one of the constants above, or the transaction with
    /// the name in this stamp.
    users: AtomicU64,
    /// The LSN at which it was first dropped; the maximum if it was not.
    dropped_at: AtomicU64,
    /// Number of entries in the workers' lists that have its address.
    listed: AtomicU64,
    /// Set if records read from the log become resident.
    caches: AtomicBool,
}

/// Where the records of a table are.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a table in memory is reached without a further load"
)]
enum RecordStorage {
    Memory(MemoryStorage),
    Paged(Box<PagedTable>),
}

/// The records of a table in memory.
///
/// Invariant: every index entry references a record id whose indirection entry is a version or
/// dead. An id has a version before the index references the id.
#[derive(Debug)]
struct MemoryStorage {
    index: IndexTree,
    array: IndirectionArray,
    /// The last readers of its records, for the serial safety net.
    #[cfg(feature = "experiment")]
    access: Option<Box<AccessStamps>>,
    rids: RidAllocator,
    /// Reader of evicted records; `None` without a log.
    store: Option<ColdStore>,
    /// Set if records are evicted, so that reads mark versions as referenced.
    evicts: bool,
    /// The clock's hand: the next record id for eviction.
    hand: CachePadded<AtomicU64>,
}

impl Records {
    /// Creates an empty table in memory that every transaction may use.
    pub(crate) fn new(
        id: TableId,
        memory: Arc<MemoryCounters>,
        store: Option<ColdStore>,
        evicts: bool,
    ) -> Self {
        let storage = MemoryStorage {
            index: IndexTree::new(memory.clone()),
            array: IndirectionArray::default(),
            #[cfg(feature = "experiment")]
            access: None,
            rids: RidAllocator::default(),
            store,
            evicts,
            hand: CachePadded::default(),
        };
        Self::of_storage(id, memory, RecordStorage::Memory(storage))
    }

    /// Creates a paged table that every transaction may use.
    pub(crate) fn on_pages(id: TableId, memory: Arc<MemoryCounters>, pages: PagedTable) -> Self {
        Self::of_storage(id, memory, RecordStorage::Paged(Box::new(pages)))
    }

    fn of_storage(id: TableId, memory: Arc<MemoryCounters>, storage: RecordStorage) -> Self {
        Self {
            id,
            storage,
            lifetime: Lifetime::default(),
            name: RwLock::new("".into()),
            show_key: RwLock::new(ShowKey(|_| None)),
            secondaries: Secondaries::default(),
            count: RecordCount::default(),
            memory,
            users: AtomicU64::new(USABLE_BY_ALL),
            dropped_at: AtomicU64::new(u64::MAX),
            listed: AtomicU64::new(0),
            caches: AtomicBool::new(true),
        }
    }

    /// The number of committed records.
    pub(crate) fn count(&self) -> &RecordCount {
        &self.count
    }

    /// The approximate number of records.
    pub(crate) fn stored(&self) -> u64 {
        match self.kind() {
            TableKind::Memory(table) => table.rids().in_use(),
            TableKind::Paged(table) => table.pages().stored().records,
        }
    }

    /// The height and the approximate bytes of the index.
    pub(crate) fn index_size(&self) -> (u64, u64) {
        match self.kind() {
            TableKind::Memory(table) => table.index().size(),
            TableKind::Paged(table) => table.pages().index_size(),
        }
    }

    /// The maximum length of a key, in bytes.
    pub(crate) fn max_key_bytes(&self) -> usize {
        self.paged().map_or(MAX_KEY_BYTES, |table| table.pages().max_key_bytes())
    }

    /// Adds access stamps to a table in memory.
    #[cfg(feature = "experiment")]
    pub(crate) fn with_access_stamps(mut self) -> Self {
        if let RecordStorage::Memory(storage) = &mut self.storage {
            storage.access = Some(Box::default());
        }
        self
    }

    /// Reserves the table for the active transaction that creates it.
    pub(crate) fn reserve_for(&self, creator: TransactionName) {
        // Relaxed: the table is not shared yet.
        self.users.store(Stamp::in_flight(creator).bits(), Ordering::Relaxed);
    }

    /// Opens the table to every transaction: its creator commits, and has drawn its LSN.
    pub(crate) fn open_to_all(&self) {
        // Release pairs with the Acquire in `may_be_used_by`: a transaction that uses it commits later.
        self.users.store(USABLE_BY_ALL, Ordering::Release);
    }

    /// Closes the table to every transaction: its creator aborts.
    pub(crate) fn close_to_all(&self) {
        // Release pairs with the Acquire in `creation_was_aborted`: a thread that meets a chain
        // that its creator emptied afterwards sees this.
        self.users.store(USABLE_BY_NONE, Ordering::Release);
    }

    /// Returns whether the table's creation was rolled back. Data read before this was false is
    /// committed. Later, aborted data may be on pages that were not resident.
    pub(crate) fn creation_was_aborted(&self) -> bool {
        // Acquire pairs with the Release in `close_to_all`.
        self.users.load(Ordering::Acquire) == USABLE_BY_NONE
    }

    /// Restricts the table to transactions that began before it was dropped; the drop was committed
    /// at `lsn`.
    ///
    /// A transaction that does not see this yet began before the next commit of the dropping
    /// transaction; [`Records::is_indexed`] gives the reason.
    pub(crate) fn drop_at(&self, lsn: Lsn) {
        // Relaxed: `users` publishes it. A table may be dropped twice, and transactions between may
        // not use it.
        self.dropped_at.fetch_min(lsn.0, Ordering::Relaxed);
        // Release pairs with the Acquire in `may_be_used_by`.
        self.users.store(USABLE_BY_OLDER, Ordering::Release);
    }

    /// Returns whether a transaction with begin stamp `begin` may use the table. A table handle can
    /// escape the transaction that creates it. Handles of dropped tables, and of those whose
    /// creation was rolled back, exist too.
    #[inline(always)]
    pub(crate) fn may_be_used_by(&self, transaction: TransactionName, begin: Lsn) -> bool {
        // Acquire pairs with the Release in `open_to_all`, and in `drop_at`.
        let users = self.users.load(Ordering::Acquire);
        users == USABLE_BY_ALL || self.is_among(users, transaction, begin)
    }

    /// Returns whether the transaction that creates the table may still be rolled back.
    pub(crate) fn is_being_created(&self) -> bool {
        // Acquire pairs with the Release in `open_to_all`.
        let users = self.users.load(Ordering::Acquire);
        !matches!(users, USABLE_BY_ALL | USABLE_BY_NONE | USABLE_BY_OLDER)
    }

    /// Returns whether no new transaction may use the table: it was dropped, or its creation was
    /// rolled back.
    pub(crate) fn is_gone(&self) -> bool {
        // Acquire pairs with the Release in `drop_at`.
        matches!(self.users.load(Ordering::Acquire), USABLE_BY_NONE | USABLE_BY_OLDER)
    }

    /// Returns whether every transaction may use the table.
    #[inline(always)]
    pub(crate) fn is_open_to_all(&self) -> bool {
        // Acquire pairs with the Release in `open_to_all`, and in `drop_at`.
        self.users.load(Ordering::Acquire) == USABLE_BY_ALL
    }

    #[cold]
    fn is_among(&self, users: u64, transaction: TransactionName, begin: Lsn) -> bool {
        // Relaxed: stored before `USABLE_BY_OLDER` was.
        let dropped_at = || self.dropped_at.load(Ordering::Relaxed);
        (users == USABLE_BY_OLDER && begin.0 <= dropped_at())
            || users == Stamp::in_flight(transaction).bits()
    }

    /// Sets the table's name in errors.
    pub(crate) fn set_name(&self, name: &str) {
        if **self.name.read() != *name {
            *self.name.write() = name.into();
        }
    }

    /// Sets the table's name in errors, unless it has one: an old snapshot shows earlier names.
    pub(crate) fn set_first_name(&self, name: &str) {
        if self.name().is_empty() {
            let mut first = self.name.write();
            *first = if first.is_empty() { name.into() } else { first.clone() };
        }
    }

    /// The table's name in errors.
    pub(crate) fn name(&self) -> Arc<str> {
        self.name.read().clone()
    }

    /// Sets the format of the table's keys in errors.
    pub(crate) fn set_show_key(&self, show_key: ShowKey) {
        *self.show_key.write() = show_key;
    }

    /// The format of the table's keys in errors.
    pub(crate) fn show_key(&self) -> ShowKey {
        *self.show_key.read()
    }

    /// Returns a key of the table, for an error.
    pub(crate) fn encoded_key(&self, key: &[u8]) -> EncodedKey {
        EncodedKey::new(key, self.show_key())
    }

    /// Sets whether records read from the log become resident.
    pub(crate) fn set_caches(&self, caches: bool) {
        // Relaxed: affects only performance.
        self.caches.store(caches, Ordering::Relaxed);
    }

    pub(super) fn caches(&self) -> bool {
        // Relaxed: see `set_caches`.
        self.caches.load(Ordering::Relaxed)
    }

    pub(crate) fn memory(&self) -> &MemoryCounters {
        &self.memory
    }

    /// Counts an entry with the table's address in a list of a worker: a deletion until the record
    /// is reclaimed, or deferred work. Recent commits to paged tables are not counted.
    pub(crate) fn count_listed(&self) {
        // Relaxed: the count falls to zero only after this, on the same thread.
        self.listed.fetch_add(1, Ordering::Relaxed);
    }

    /// Undoes `count_listed`.
    pub(crate) fn uncount_listed(&self) {
        // Release pairs with the Acquire in `is_unused`: the ids in use are seen.
        self.listed.fetch_sub(1, Ordering::Release);
    }

    /// Returns whether a table that no transaction uses has no id in use, and no counted entry in a
    /// list.
    pub(crate) fn is_unused(&self) -> bool {
        // Acquire pairs with the Release in `uncount_listed`.
        self.listed.load(Ordering::Acquire) == 0
            && self.in_memory().is_none_or(|table| table.rids().in_use() == 0)
    }
}

impl MemoryRecords {
    pub(super) fn store(&self) -> Option<&ColdStore> {
        self.storage().store.as_ref()
    }

    /// Returns whether records are evicted.
    #[inline(always)]
    pub(super) fn evicts(&self) -> bool {
        self.storage().evicts
    }

    /// Returns whether versions that an active transaction sees stay allocated until it ends. With
    /// a log behind the table, their addresses may replace them.
    pub(crate) fn keeps_versions(&self) -> bool {
        self.storage().store.is_none()
    }

    /// Advances the clock's hand over the next `count` of the record ids below `bound`.
    pub(super) fn advance_hand(&self, count: u64, bound: u64) -> impl Iterator<Item = u64> {
        // Relaxed: this only divides the ids between workers.
        let start = self.storage().hand.fetch_add(count, Ordering::Relaxed);
        (start..start + count).map(move |number| number % bound)
    }

    #[inline(always)]
    pub(crate) fn index(&self) -> &IndexTree {
        &self.storage().index
    }

    #[inline(always)]
    pub(crate) fn array(&self) -> &IndirectionArray {
        &self.storage().array
    }

    #[inline(always)]
    pub(crate) fn rids(&self) -> &RidAllocator {
        &self.storage().rids
    }

    /// Allocates a record id for a new record.
    ///
    /// # Errors
    /// Fails if no id, or no memory for more ids, is left.
    pub(crate) fn take_rid(&self) -> Result<Rid, TableFull> {
        let rid = self.rids().take(self.array(), self.memory())?;
        #[cfg(feature = "experiment")]
        self.make_room_for_readers(rid).inspect_err(|_| self.rids().release(rid))?;
        Ok(rid)
    }

    /// Marks ids up to `rid` as used; for recovery.
    ///
    /// # Errors
    /// Fails if the table cannot have such an id, or no memory for it is left.
    pub(crate) fn raise_rid(&self, rid: Rid) -> Result<(), TableFull> {
        self.rids().raise(self.array(), self.memory(), rid)?;
        #[cfg(feature = "experiment")]
        self.make_room_for_readers(rid)?;
        Ok(())
    }

    #[cfg(feature = "experiment")]
    fn make_room_for_readers(&self, rid: Rid) -> Result<(), TableFull> {
        if let Some(access) = &self.storage().access {
            access.grow(rid.number())?;
        }
        Ok(())
    }

    #[cfg(feature = "experiment")]
    pub(super) fn access_stamps(&self) -> Option<&AccessStamps> {
        self.storage().access.as_deref()
    }

    /// Returns whether the indirection array is too large to stay cached.
    pub(crate) fn array_is_cold(&self) -> bool {
        self.rids().entry_bytes() > CACHED_BYTES
    }

    /// Returns whether the versions are too many to stay cached.
    pub(crate) fn versions_are_cold(&self) -> bool {
        self.rids().bound() * SMALL_VERSION_BYTES > CACHED_BYTES
    }

    /// Returns whether a point operation probably accesses memory that is not cached.
    #[inline(always)]
    pub(crate) fn is_cold(&self) -> bool {
        self.index().has_cold_levels() || self.array_is_cold() || self.versions_are_cold()
    }

    /// Frees a dead record's id once no operation can hold it any more.
    pub(crate) fn retire_rid(&self, rid: Rid) {
        assert_eq!(
            self.array().load(rid),
            IndirectionEntry::Dead,
            "only ids of dead records are freed"
        );
        let table = RecordsRef::new(self);
        reclaim::retire_with(move || {
            // SAFETY: a table is dropped after what was retired of it before: the engine drains its
            // garbage first, a table whose creation was rolled back is retired itself, and a dropped
            // one is freed after this thread's next turn, once no id is in use.
            let table = unsafe { table.get() };
            table.array().clear(rid);
            table.rids().release(rid);
        });
    }

    /// Frees a version that was just unlinked, or never became visible, once no operation can hold
    /// it any more.
    ///
    /// # Safety
    /// No link references the version any more, and no other code frees it.
    pub(crate) unsafe fn retire_version(&self, version: VersionRef) {
        // SAFETY: allocated with the table's counters; the rest is the caller's contract.
        unsafe { version.retire(self.memory()) };
    }
}

/// The records of a table in memory. Invariant: so is their storage.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct MemoryRecords(Records);

/// The records of a paged table. Invariant: their storage is paged.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct PagedRecords(Records);

/// A table by its kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableKind<'t> {
    Memory(&'t MemoryRecords),
    Paged(&'t PagedRecords),
}

impl Records {
    /// The table by its kind.
    #[inline(always)]
    pub(crate) fn kind(&self) -> TableKind<'_> {
        let table = std::ptr::from_ref(self);
        match self.storage {
            // SAFETY: the types have the same layout; the invariant is checked.
            RecordStorage::Memory(_) => TableKind::Memory(unsafe { &*table.cast() }),
            // SAFETY: the types have the same layout; the invariant is checked.
            RecordStorage::Paged(_) => TableKind::Paged(unsafe { &*table.cast() }),
        }
    }

    /// The table, if it is in memory.
    #[inline(always)]
    pub(crate) fn in_memory(&self) -> Option<&MemoryRecords> {
        if let TableKind::Memory(table) = self.kind() { Some(table) } else { None }
    }

    /// The table, if it is paged.
    #[inline(always)]
    pub(crate) fn paged(&self) -> Option<&PagedRecords> {
        if let TableKind::Paged(table) = self.kind() { Some(table) } else { None }
    }

    /// The table, if it is paged.
    pub(crate) fn into_paged(self: Arc<Self>) -> Option<Arc<PagedRecords>> {
        self.paged()?;
        // SAFETY: the types have the same layout; the invariant is checked.
        Some(unsafe { Arc::from_raw(Arc::into_raw(self).cast()) })
    }
}

impl MemoryRecords {
    #[inline(always)]
    fn storage(&self) -> &MemoryStorage {
        match &self.0.storage {
            RecordStorage::Memory(storage) => storage,
            // SAFETY: the invariant.
            RecordStorage::Paged(_) => unsafe { unreachable_unchecked() },
        }
    }
}

impl PagedRecords {
    /// The table, without its kind.
    pub(crate) fn into_any(self: Arc<Self>) -> Arc<Records> {
        // SAFETY: the types have the same layout.
        unsafe { Arc::from_raw(Arc::into_raw(self).cast()) }
    }

    /// The pages of the table.
    #[inline(always)]
    pub(crate) fn pages(&self) -> &PagedTable {
        match &self.0.storage {
            RecordStorage::Paged(pages) => pages,
            // SAFETY: the invariant.
            RecordStorage::Memory(_) => unsafe { unreachable_unchecked() },
        }
    }
}

impl Deref for MemoryRecords {
    type Target = Records;

    #[inline(always)]
    fn deref(&self) -> &Records {
        &self.0
    }
}

impl Deref for PagedRecords {
    type Target = Records;

    #[inline(always)]
    fn deref(&self) -> &Records {
        &self.0
    }
}

/// A table by address. A table exists until its engine is dropped, or until the aborting transaction
/// that created it has ended, or, if it is dropped, until nothing that has its address is left
/// (`transaction/context/tables.rs`). So a transaction need not count its references to tables.
#[derive(Debug)]
pub(crate) struct RecordsRef<T = Records>(NonNull<T>);

impl<T> Clone for RecordsRef<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for RecordsRef<T> {}

impl<T> PartialEq for RecordsRef<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for RecordsRef<T> {}

// SAFETY: dereferencing the address takes `get`, whose contract keeps the table alive on any
// thread.
unsafe impl<T: Sync> Send for RecordsRef<T> {}

impl<T> RecordsRef<T> {
    pub(crate) fn new(table: &T) -> Self {
        Self(NonNull::from(table))
    }

    /// The table.
    ///
    /// # Safety
    /// The engine that owns the table outlives `'a`; if the table's creator aborts, it does so
    /// after `'a`. If the table is dropped, the caller is one of those that keep it allocated.
    pub(crate) unsafe fn get<'a>(self) -> &'a T {
        // SAFETY: made from a reference; alive by the caller's contract.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        let Some(table) = self.in_memory() else { return };
        self.memory.remove_array_bytes(table.rids().entry_bytes());
        // The ids of a dropped table are free, and their entries empty.
        let ids = if table.rids().in_use() == 0 { 0 } else { table.rids().handed_out() };
        for rid in (0..ids).map(Rid::new) {
            // Only the newest version belongs to the table; older ones belong to the garbage lists
            // of the workers that superseded them.
            if let IndirectionEntry::Version(version) = table.array().load(rid) {
                free(version, &self.memory);
            }
        }
    }
}

fn free(version: VersionRef, memory: &MemoryCounters) {
    // SAFETY: the table is being dropped, so no transaction and no other list can reach the newest
    // version of one of its records.
    unsafe { version.free(memory) }
}
