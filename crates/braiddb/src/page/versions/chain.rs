//! Version chain of a record: its changes, newest first, down to the oldest that may still be
//! needed.
//!
//! The page has the record's latest value, which may be undecided. A reader that does not see the
//! newest change takes its before-image, and continues down the chain. At the end of the chain, the
//! value that the reader has is visible to all.
//!
//! # Writers of a chain and their latches
//!
//! | actor | action | holds |
//! |---|---|---|
//! | writer | pushes a change, and writes the page | the page's latch and the chain's |
//! | task that finds an aborted change at the head | removes it, and restores its before-image on the page | both |
//! | collector | cuts off changes that are visible to all and durable | the chain's latch |
//! | pruner | unlinks durable changes whose before-images no transaction sees (`prune`) | the chain's latch |
//! | reader | follows the links | an operation guard; it loads the head and the value under one version of the page |
//!
//! Invariants:
//!
//! - Stamps are in commit order. Changes in flight belong to one transaction and are at the head,
//!   as are aborted ones. Only while a transaction rolls back to a savepoint may its aborted changes
//!   be below one in flight.
//! - A change is unlinked once, and then retired by its own transaction: by its collector after the
//!   cut or the pruning, or by its abort after the rollback. Any task may unlink a change, but only its
//!   transaction retires it.
//!
//! A chain is reference-counted. The mapping table has one reference, and each change has one until
//! its transaction releases it. The last release retires the chain.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::change::{ChainChange, ChangeRef};
use crate::log::Lsn;
use crate::memory::{MemoryCounters, MemoryKind};
use crate::page::value::SlotValue;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::rid::TableId;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::{self, spin_loop, yield_thread};
use crate::version::{Stamp, StatusTable, TransactionStatus, Undecided, View, Visibility};

const LATCHED: u64 = 1;
/// Reference of the mapping table; the reference of a change is 1.
pub(super) const MAPPED: u32 = 1 << 31;
/// Number of spins before the thread yields, because the holder may have been preempted.
const MAX_SPINS: u32 = 100;
#[cfg(not(loom))]
const _: () = assert!(size_of::<ChainHeader>() == 24 && align_of::<ChainHeader>() == 8);

/// Header of a chain; the key follows it in memory.
#[derive(Debug)]
#[repr(C)]
struct ChainHeader {
    /// The newest change, or 0; bit 0: latched.
    head: AtomicU64,
    references: AtomicU32,
    table: TableId,
    key_bytes: u32,
    /// See `undo`; accessed under the page's latch.
    lengths: AtomicU32,
}

/// Pointer to a chain. The chain stays allocated at least as long as the pointer's holder may
/// access it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainRef(NonNull<ChainHeader>);

// SAFETY: a plain address; access through it takes `get`, whose contract covers other threads.
unsafe impl Send for ChainRef {}
// SAFETY: sharing it shares a plain address; access through that takes `get`, whose contract covers
// other threads.
unsafe impl Sync for ChainRef {}

/// A chain that stays allocated for `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a> {
    pointer: NonNull<ChainHeader>,
    held: PhantomData<&'a ChainHeader>,
}

/// Guard of a chain's latch. Collectors take it without the page's latch, so it is held for a few
/// instructions only, and its holder never waits.
pub(super) struct ChainGuard<'a> {
    chain: Chain<'a>,
    pub(super) newest: Option<ChangeRef>,
}

/// Start of a reader's walk along a chain: the newest change under the version of the page from
/// which the value was copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkHead<'o>(Option<ChainChange<'o>>);

/// Result of a reader's walk along a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkEnd<'o> {
    pub(crate) value: SeenValue<'o>,
    /// Commit LSN of the value. `None` for the transaction's own write, and for a value that was
    /// already durable and visible to all.
    pub(crate) committed: Option<Lsn>,
    pub(crate) own: bool,
    /// True if another transaction has committed a newer version.
    pub(crate) below_newer: bool,
}

/// Location of the value that a transaction sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenValue<'o> {
    /// The value on the page.
    OnPage,
    /// A before-image; `None` if the record does not exist.
    Before(Option<SlotValue<'o>>),
}

/// Version that a write would replace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChainBase<'a> {
    /// A version that is visible to all and durable.
    Settled,
    /// A change that the writer sees, committed at this LSN.
    Committed(Lsn),
    /// The writer's own newest change.
    Own(ChainChange<'a>),
}

/// Reason why a transaction may not write a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteRefusal {
    /// Another transaction is writing it.
    Conflict,
    /// Another transaction wrote it, and committed at or after the writer's begin stamp.
    Newer,
}

impl ChainRef {
    /// Allocates an empty chain with one reference, the mapping table's.
    pub(super) fn allocate(memory: &MemoryCounters, table: TableId, key: &[u8]) -> Self {
        let block =
            memory.allocate(MemoryKind::Change, Self::layout(key.len())).cast::<ChainHeader>();
        let header = ChainHeader {
            head: AtomicU64::new(0),
            references: AtomicU32::new(MAPPED),
            table,
            key_bytes: u32::try_from(key.len()).expect("keys are short"),
            lengths: AtomicU32::new(0),
        };
        // SAFETY: the block is fresh, unshared, aligned for a header and holds header and key.
        unsafe {
            block.write(header);
            let target = block.add(1).cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(key.as_ptr(), target, key.len());
        }
        Self(block)
    }

    /// Returns the chain.
    ///
    /// # Safety
    /// A counted reference to the chain exists for `'a`. Or the link was loaded under an operation
    /// guard that lasts for `'a`, while such a reference existed.
    pub(super) unsafe fn get<'a>(self) -> Chain<'a> {
        Chain { pointer: self.0, held: PhantomData }
    }

    /// Releases the mapping table's reference; the last release retires the chain.
    ///
    /// # Safety
    /// The contract of `release`.
    pub(super) unsafe fn release_by_mapping(self, memory: &MemoryCounters) {
        // SAFETY: the caller's contract.
        if unsafe { self.release_reference(MAPPED) } || is_planted(Bug::ChainFreedWithItsEntry) {
            // SAFETY: the last reference was released.
            unsafe { self.retire(memory) };
        }
    }

    /// Releases a change's reference; the last release retires the chain.
    ///
    /// # Safety
    /// The caller has the reference and does not use it again; the chain was allocated with these
    /// counters.
    pub(super) unsafe fn release(self, memory: &MemoryCounters) {
        // SAFETY: the caller's contract.
        if unsafe { self.release_reference(1) } {
            // SAFETY: the last reference was released.
            unsafe { self.retire(memory) };
        }
    }

    /// Releases a reference, and returns whether it was the last.
    ///
    /// # Safety
    /// The caller has the reference.
    pub(super) unsafe fn release_reference(self, reference: u32) -> bool {
        // SAFETY: the caller's reference.
        let references = &unsafe { self.get() }.header().references;
        // Release: everything done under this reference happens before the retirement by the holder
        // of the last reference. It pairs with the fence below.
        let last = references.fetch_sub(reference, Ordering::Release) == reference;
        if last {
            // Acquire pairs with the Release above, of all former holders of a reference.
            fence(Ordering::Acquire);
        }
        last
    }

    /// Frees the chain after no operation can hold it any more.
    ///
    /// # Safety
    /// It was allocated with these counters, and its last reference was just released.
    unsafe fn retire(self, memory: &MemoryCounters) {
        // SAFETY: allocated as long as this thread does not turn.
        let layout = Self::layout(unsafe { self.get() }.key().len());
        // SAFETY: allocated by `allocate` with this layout. Nothing references it: the mapping
        // table's reference is released after the table's entry is removed, and no change is left.
        unsafe { reclaim::retire_block(memory, MemoryKind::Change, self.0.cast(), layout) }
    }

    /// Frees the chain and its changes immediately.
    ///
    /// # Safety
    /// It was allocated with these counters, and no other reference to it or to its changes exists
    /// or will be made.
    pub(super) unsafe fn free(self, memory: &MemoryCounters) {
        // SAFETY: the chain is not freed before the end of this call (the caller's contract).
        let chain = unsafe { self.get() };
        let mut next = chain.newest();
        while let Some(change) = next {
            // SAFETY: linked, and not freed before the call below: no other reference exists (the
            // caller's contract).
            next = unsafe { change.get() }.next();
            // SAFETY: no other reference exists or will be made, and it was allocated with these
            // counters (the caller's contract).
            unsafe { change.free(memory) };
        }
        let layout = Self::layout(chain.key().len());
        // SAFETY: allocated by `allocate` with this layout; the rest is the caller's contract.
        unsafe { memory.free(MemoryKind::Change, self.0.cast(), layout) }
    }

    pub(super) fn word(self) -> u64 {
        self.0.as_ptr() as u64
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        debug_assert!(word.is_multiple_of(8), "{word:#x} is no chain");
        NonNull::new(word as *mut ChainHeader).map(Self)
    }

    fn layout(key_bytes: usize) -> Layout {
        Layout::from_size_align(size_of::<ChainHeader>() + key_bytes, align_of::<ChainHeader>())
            .expect("keys are short")
    }
}

impl<'a> Chain<'a> {
    fn header(self) -> &'a ChainHeader {
        // SAFETY: a header's first word is its head.
        unsafe { sync::assert_not_freed(self.pointer.as_ptr().cast()) };
        // SAFETY: initialised by `allocate` and allocated for `'a` (contract of `ChainRef::get`).
        unsafe { self.pointer.as_ref() }
    }

    pub(super) fn references(self) -> &'a AtomicU32 {
        &self.header().references
    }

    pub(super) fn lengths(self) -> &'a AtomicU32 {
        &self.header().lengths
    }

    pub(super) fn reference(self) -> ChainRef {
        ChainRef(self.pointer)
    }

    /// Returns the record's key.
    pub(crate) fn key(self) -> &'a [u8] {
        let bytes = self.header().key_bytes as usize;
        // SAFETY: `allocate` placed this many initialised bytes right after the header, in one
        // block; they never change and stay allocated for `'a`.
        unsafe { std::slice::from_raw_parts(self.pointer.add(1).cast::<u8>().as_ptr(), bytes) }
    }

    /// Returns the record's table.
    pub(crate) fn table(self) -> TableId {
        self.header().table
    }

    /// Returns the newest change. Acquire pairs with the Release at the end of a latch.
    fn newest(self) -> Option<ChangeRef> {
        ChangeRef::from_word(self.header().head.load(Ordering::Acquire) & !LATCHED)
    }

    /// Returns the start of a reader's walk. Called between the two checks of the page's version,
    /// together with the copy of the value.
    pub(super) fn start(self, _operation: &'a OperationGuard) -> WalkHead<'a> {
        // SAFETY: linked when it was loaded, under the guard.
        WalkHead(self.newest().map(|newest| unsafe { newest.get() }))
    }

    /// Returns whether the chain has no changes. The caller has the page latched, so no change is
    /// pushed.
    pub(in crate::page) fn is_empty(self) -> bool {
        self.newest().is_none()
    }

    /// Returns a guard without taking the latch; for planted bugs.
    #[cold]
    fn latch_not(self) -> ChainGuard<'a> {
        ChainGuard { chain: self, newest: self.newest() }
    }

    pub(super) fn latch(self) -> ChainGuard<'a> {
        let head = &self.header().head;
        let mut spins = 0;
        loop {
            // Relaxed: the exchange below is what counts.
            let word = head.load(Ordering::Relaxed);
            // Acquire pairs with the Release in the drop of `ChainGuard`: the last holder's stores are
            // visible.
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            if word & LATCHED == 0
                && head.compare_exchange_weak(word, word | LATCHED, success, failure).is_ok()
            {
                return ChainGuard { chain: self, newest: ChangeRef::from_word(word) };
            }
            spins += 1;
            if spins % MAX_SPINS == 0 || cfg!(loom) {
                yield_thread();
            } else {
                spin_loop();
            }
        }
    }

    /// Pushes a change: the transaction named by `stamp` is about to write the record, whose
    /// current value is `before`. The caller retires the change.
    ///
    /// # Safety
    /// The caller has the record's page latched from before it reads the value until it has written
    /// it, and [`Self::base`] did not refuse the write under that latch. The chain was allocated
    /// with these counters.
    pub(crate) unsafe fn push(
        self,
        memory: &MemoryCounters,
        stamp: Stamp,
        before: Option<SlotValue<'_>>,
        position: u32,
    ) -> ChangeRef {
        assert!(stamp.name().is_some(), "a write is in flight at first");
        let change = ChangeRef::allocate(memory, stamp, self.reference(), before, position);
        // Relaxed: while the page is latched, the mapping table's reference keeps the count above
        // zero.
        self.header().references.fetch_add(1, Ordering::Relaxed);
        let unlatched = is_planted(Bug::ChangePushedWithoutLatch);
        let mut latched = if unlatched { self.latch_not() } else { self.latch() };
        // SAFETY: linked, and only the holder of the latch unlinks it.
        let newest = latched.newest.map(|newest| unsafe { newest.get() }.stamp());
        self.note_before(newest, stamp, before);
        // SAFETY: the caller's, not shared yet.
        unsafe { change.get() }.set_next(latched.newest);
        latched.newest = Some(change);
        change
    }

    /// Pushes a change for a committed write that created no change at its time.
    ///
    /// # Safety
    /// The contract of `push`. Existing changes were committed before the stamp. The caller retires
    /// the change.
    pub(crate) unsafe fn push_committed(
        self,
        memory: &MemoryCounters,
        stamp: Stamp,
        before: Option<SlotValue<'_>>,
    ) -> ChangeRef {
        let change = ChangeRef::allocate(memory, stamp, self.reference(), before, 0);
        // Relaxed: the mapping table's reference keeps the count above zero, as in `push`.
        self.header().references.fetch_add(1, Ordering::Relaxed);
        let mut latched = self.latch();
        // SAFETY: the caller's, not shared yet.
        unsafe { change.get() }.set_next(latched.newest);
        latched.newest = Some(change);
        change
    }

    /// Removes aborted changes from the head, and calls `restore` with the value that the record had
    /// before the oldest one. Does nothing without aborted changes. Their transactions retire them.
    ///
    /// # Safety
    /// The caller has the record's page latched; `restore` writes that page.
    pub(crate) unsafe fn roll_back(
        self,
        status: &StatusTable,
        restore: impl FnOnce(Option<SlotValue<'_>>),
    ) {
        let unlatched = is_planted(Bug::ChangeTakenOutWithoutLatch);
        let mut latched = if unlatched { self.latch_not() } else { self.latch() };
        let mut oldest = None;
        while let Some(newest) = latched.newest {
            // SAFETY: linked, and only the holder of the latch unlinks it; its transaction retires
            // it after the latch is released.
            let newest = unsafe { newest.get() };
            if !is_aborted(newest, status) {
                break;
            }
            oldest = Some(newest);
            latched.newest = newest.next();
        }
        if let Some(oldest) = oldest {
            restore(oldest.before());
            self.note_on_page(oldest.before().map_or(0, SlotValue::cell_bytes));
        }
    }

    /// Returns the stamp of the newest change.
    pub(super) fn newest_stamp(self) -> Option<Stamp> {
        let latched = self.latch();
        // SAFETY: linked, and only the holder of the latch unlinks it.
        latched.newest.map(|newest| unsafe { newest.get() }.stamp())
    }

    /// Returns whether aborted changes are at the head.
    pub(super) fn has_aborted(self, status: &StatusTable) -> bool {
        let latched = self.latch();
        // SAFETY: linked, and only the holder of the latch unlinks it.
        latched.newest.is_some_and(|newest| is_aborted(unsafe { newest.get() }, status))
    }

    /// Returns the version that a write of `view` would replace.
    ///
    /// # Errors
    /// If `view` may not write the record.
    ///
    /// # Safety
    /// The caller has the record's page latched, and has rolled the chain back.
    pub(crate) unsafe fn base<'o>(
        self,
        view: View<'_>,
        _operation: &'o OperationGuard,
    ) -> Result<ChainBase<'o>, WriteRefusal> {
        // SAFETY: linked when it was loaded, under the guard.
        let Some(newest) = self.newest().map(|newest| unsafe { newest.get::<'o>() }) else {
            return Ok(ChainBase::Settled);
        };
        loop {
            let stamp = newest.stamp();
            let committed = match stamp.name() {
                None => stamp.lsn().expect("not in flight"),
                Some(name) if name == view.me => return Ok(ChainBase::Own(newest)),
                Some(name) => match view.status.outcome(name) {
                    TransactionStatus::Committed(lsn) => lsn,
                    TransactionStatus::Stale => continue,
                    TransactionStatus::Active
                    | TransactionStatus::Committing(_)
                    | TransactionStatus::Aborted => {
                        return Err(WriteRefusal::Conflict);
                    }
                },
            };
            return if committed < view.begin {
                Ok(ChainBase::Committed(committed))
            } else if stamp == Stamp::ABORTED {
                // The transaction has just aborted.
                Err(WriteRefusal::Conflict)
            } else {
                Err(WriteRefusal::Newer)
            };
        }
    }

    /// Cuts off the newest change committed before `horizon` and all older ones.
    pub(super) fn cut(self, horizon: Lsn) {
        let mut latched = self.latch();
        let is_due =
            |change: ChainChange<'_>| change.stamp().lsn().is_some_and(|lsn| lsn < horizon);
        let Some(newest) = latched.newest else { return };
        // SAFETY: linked, and only the holder of the latch unlinks it; the same holds for the
        // changes that follow.
        let mut change = unsafe { newest.get::<'a>() };
        if is_due(change) {
            latched.newest = None;
            return;
        }
        while let Some(next) = change.next() {
            // SAFETY: linked, and only the holder of the chain's latch unlinks it.
            let next = unsafe { next.get() };
            if is_due(next) {
                change.set_next(None);
                return;
            }
            change = next;
        }
    }
}

impl Drop for ChainGuard<'_> {
    fn drop(&mut self) {
        let word = self.newest.map_or(0, ChangeRef::word);
        // Release pairs with the Acquire in `latch` and in `newest`.
        self.chain.header().head.store(word, Ordering::Release);
    }
}

impl<'o> WalkHead<'o> {
    /// Start for a record without a chain.
    pub(crate) const NONE: Self = Self(None);

    /// Follows the chain to the version that `view` sees.
    ///
    /// # Errors
    /// While another worker decides the outcome of a change; the caller then reads the record
    /// again.
    pub(crate) fn see(self, view: View<'_>) -> Result<WalkEnd<'o>, Undecided> {
        let (mut value, mut below_newer) = (SeenValue::OnPage, false);
        let mut next = self.0;
        while let Some(change) = next {
            let (committed, own) = match view.sees(|| change.stamp()) {
                None => return Err(Undecided),
                Some(Visibility::Own) => (None, true),
                Some(Visibility::Committed(lsn)) => (Some(lsn), false),
                Some(Visibility::No) => {
                    below_newer = below_newer || is_committed(change, view.status);
                    value = SeenValue::Before(change.before());
                    // SAFETY: linked when it is loaded, under the guard with lifetime `'o`.
                    next = change.next().map(|next| unsafe { next.get() });
                    continue;
                }
            };
            return Ok(WalkEnd { value, committed, own, below_newer });
        }
        Ok(WalkEnd { value, committed: None, own: false, below_newer })
    }

    /// Calls `each` with the before-image of every change, newest first.
    pub(crate) fn each_before(self, mut each: impl FnMut(Option<SlotValue<'_>>)) {
        let mut next = self.0;
        while let Some(change) = next {
            each(change.before());
            // SAFETY: linked when it is loaded, under the guard with lifetime `'o`.
            next = change.next().map(|next| unsafe { next.get() });
        }
    }
}

/// Returns whether the transaction of a change has aborted.
fn is_aborted(change: ChainChange<'_>, status: &StatusTable) -> bool {
    loop {
        let stamp = change.stamp();
        let Some(name) = stamp.name() else { return stamp == Stamp::ABORTED };
        match status.outcome(name) {
            TransactionStatus::Aborted => return true,
            TransactionStatus::Stale => {}
            TransactionStatus::Active
            | TransactionStatus::Committing(_)
            | TransactionStatus::Committed(_) => return false,
        }
    }
}

fn is_committed(change: ChainChange<'_>, status: &StatusTable) -> bool {
    loop {
        let stamp = change.stamp();
        let Some(name) = stamp.name() else { return stamp != Stamp::ABORTED };
        match status.outcome(name) {
            TransactionStatus::Committed(_) => return true,
            TransactionStatus::Stale => {}
            TransactionStatus::Active
            | TransactionStatus::Committing(_)
            | TransactionStatus::Aborted => return false,
        }
    }
}
