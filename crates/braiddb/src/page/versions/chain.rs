//! The chain of a record: its changes, newest first, from the first that a transaction may have to undo on.
//!
//! The page has the record's latest value, which may be undecided. Who does not see the newest change takes
//! the value before it, and so on down the chain; where the chain ends, everybody sees what he has got.
//!
//! # Who changes a chain, and under what
//!
//! | who | does what | holds |
//! |---|---|---|
//! | a writer | puts a change in front, and writes the page | the page's latch and the chain's |
//! | who meets an aborted change in front | takes it out, and puts the value before back on the page | both |
//! | a collector | cuts off the changes that are due: everybody sees them, and they are durable | the chain's latch |
//! | a reader | follows it | an operation guard; the head is loaded within one version of the page, with the value |
//!
//! Invariants: stamps are in the order of commits; the changes in flight are one transaction's and in front; so
//! are aborted ones. A change leaves a chain once, and is retired afterwards, by its transaction alone: by
//! its collector after the cut, by its abort after it was taken out. Cutting is anybody's, retiring is not.
//!
//! A chain counts what leads to it: the mapping table, and each change until its transaction has done with
//! it. It is retired with the last of them.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::change::{Change, ChangeRef};
use crate::log::Lsn;
use crate::memory::{Kind, MemoryCounters};
use crate::page::value::SlotValue;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::rid::TableId;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::{self, spin_loop, yield_thread};
use crate::version::{Outcome, Stamp, StatusTable, Undecided, View, Visible};

const LATCHED: u64 = 1;
/// The mapping table's reference; that of a change is 1.
pub(super) const MAPPED: u32 = 1 << 31;
/// Spins before the thread gives way: the holder may have been taken off its core.
const SPINS: u32 = 100;
#[cfg(not(loom))]
const _: () = assert!(size_of::<ChainHeader>() == 24 && align_of::<ChainHeader>() == 8);

/// The header of a chain; the key follows it in memory.
#[derive(Debug)]
#[repr(C)]
struct ChainHeader {
    /// The newest change, or 0; bit 0: latched.
    head: AtomicU64,
    references: AtomicU32,
    table: TableId,
    key_bytes: u32,
    /// Bytes that the record's cell has of its value; written and read under its latch.
    on_page: AtomicU32,
}

/// A pointer to a chain that is allocated for at least as long as its holder may look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainRef(NonNull<ChainHeader>);

// SAFETY: a plain address; looking through it takes `get`, whose contract covers other threads.
unsafe impl Send for ChainRef {}
// SAFETY: sharing it shares a plain address; looking through that takes `get`, whose contract covers other threads.
unsafe impl Sync for ChainRef {}

/// A chain that stays allocated for `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a> {
    pointer: NonNull<ChainHeader>,
    held: PhantomData<&'a ChainHeader>,
}

/// The latch of a chain, held; let go of when dropped. Collectors take it without the page's, so it is held
/// for a few instructions, and whoever has it waits for nothing.
struct Latched<'a> {
    chain: Chain<'a>,
    newest: Option<ChangeRef>,
}

/// Where a reader's walk along a chain begins: what was newest within the version of the page that the
/// value was copied from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'o>(Option<Change<'o>>);

/// What a transaction sees of a record, told by its chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'o> {
    pub(crate) value: SeenValue<'o>,
    /// When what is seen was committed. `None` for the transaction's own write, and for what was durable and
    /// visible to all already.
    pub(crate) committed: Option<Lsn>,
    pub(crate) own: bool,
    /// Whether somebody else has committed a newer one.
    pub(crate) below_newer: bool,
}

/// Where the value is that a transaction sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeenValue<'o> {
    /// What the page had.
    OnPage,
    /// This; `None`: there is no record.
    Before(Option<SlotValue<'o>>),
}

/// What a write would be made on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base<'a> {
    /// What everybody sees, and is durable.
    Settled,
    /// A change that the writer sees, committed at this LSN.
    Committed(Lsn),
    /// The writer's own newest change.
    Own(Change<'a>),
}

/// Why a record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another transaction is writing it.
    Conflict,
    /// Another transaction wrote it, and committed at or after the writer's begin stamp.
    Newer,
}

impl ChainRef {
    /// Allocates an empty chain with one reference, its mapping table's.
    pub(super) fn allocate(memory: &MemoryCounters, table: TableId, key: &[u8]) -> Self {
        let block = memory.allocate(Kind::Change, Self::layout(key.len())).cast::<ChainHeader>();
        let header = ChainHeader {
            head: AtomicU64::new(0),
            references: AtomicU32::new(MAPPED),
            table,
            key_bytes: u32::try_from(key.len()).expect("keys are short"),
            on_page: AtomicU32::new(0),
        };
        // SAFETY: the block is fresh, unshared, aligned for a header and holds header and key.
        unsafe {
            block.write(header);
            let target = block.add(1).cast::<u8>().as_ptr();
            std::ptr::copy_nonoverlapping(key.as_ptr(), target, key.len());
        }
        Self(block)
    }

    /// The chain itself.
    ///
    /// # Safety
    /// For as long as `'a` something that it counts leads to it; or something did when the holder of an
    /// operation guard that lasts for `'a` loaded the link.
    pub(super) unsafe fn get<'a>(self) -> Chain<'a> {
        Chain { pointer: self.0, held: PhantomData }
    }

    /// Takes the mapping table's reference back; the last one retires the chain.
    ///
    /// # Safety
    /// As for `release`.
    pub(super) unsafe fn release_by_mapping(self, memory: &MemoryCounters) {
        // SAFETY: the caller's contract.
        if unsafe { self.take_back(MAPPED) } || is_planted(Bug::ChainFreedWithItsEntry) {
            // SAFETY: the last reference was taken back.
            unsafe { self.retire(memory) };
        }
    }

    /// Takes a change's reference back; the last one retires the chain.
    ///
    /// # Safety
    /// The caller has the reference, and uses it no more; the chain was allocated with these counters.
    pub(super) unsafe fn release(self, memory: &MemoryCounters) {
        // SAFETY: the caller's contract.
        if unsafe { self.take_back(1) } {
            // SAFETY: the last reference was taken back.
            unsafe { self.retire(memory) };
        }
    }

    /// Takes a reference back; whether it was the last.
    ///
    /// # Safety
    /// The caller has it.
    pub(super) unsafe fn take_back(self, reference: u32) -> bool {
        // SAFETY: the caller's reference.
        let references = &unsafe { self.get() }.header().references;
        // Release: what was done under this reference comes before the retirement, by whoever has the last;
        // the fence below is its partner.
        let last = references.fetch_sub(reference, Ordering::Release) == reference;
        if last {
            // Acquire pairs with the Release above, of all who had a reference.
            fence(Ordering::Acquire);
        }
        last
    }

    /// Frees the chain once no operation can hold it any more.
    ///
    /// # Safety
    /// It was allocated with these counters, and the last reference was just taken back.
    unsafe fn retire(self, memory: &MemoryCounters) {
        // SAFETY: allocated as long as this thread does not turn.
        let layout = Self::layout(unsafe { self.get() }.key().len());
        // SAFETY: allocated by `allocate` with this layout. Nothing leads to it: the mapping table's reference
        // is taken back when it leaves the table, and no change is left.
        unsafe { reclaim::retire_block(memory, Kind::Change, self.0.cast(), layout) }
    }

    /// Frees the chain and its changes at once.
    ///
    /// # Safety
    /// It was allocated with these counters, and nobody leads to it or to its changes, or will.
    pub(super) unsafe fn free(self, memory: &MemoryCounters) {
        // SAFETY: nobody frees the chain before the end of this call (the caller's contract).
        let chain = unsafe { self.get() };
        let mut next = chain.newest();
        while let Some(change) = next {
            // SAFETY: linked, and freed below at the earliest: nobody else leads to it (the caller's contract).
            next = unsafe { change.get() }.next();
            // SAFETY: nobody leads to it, or will, and it was allocated with these counters (the caller's contract).
            unsafe { change.free(memory) };
        }
        let layout = Self::layout(chain.key().len());
        // SAFETY: allocated by `allocate` with this layout; the rest is the caller's contract.
        unsafe { memory.free(Kind::Change, self.0.cast(), layout) }
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
        // SAFETY: initialised by `allocate` and alive for `'a` (contract of `ChainRef::get`).
        unsafe { self.pointer.as_ref() }
    }

    pub(super) fn references(self) -> &'a AtomicU32 {
        &self.header().references
    }

    pub(super) fn reference(self) -> ChainRef {
        ChainRef(self.pointer)
    }

    /// The record's key.
    pub(crate) fn key(self) -> &'a [u8] {
        let bytes = self.header().key_bytes as usize;
        // SAFETY: `allocate` laid so many initialised bytes right after the header, in one block; they never
        // change and live for `'a`.
        unsafe { std::slice::from_raw_parts(self.pointer.add(1).cast::<u8>().as_ptr(), bytes) }
    }

    /// The record's table.
    pub(crate) fn table(self) -> TableId {
        self.header().table
    }

    /// The newest change. Acquire pairs with the Release at the end of a latch.
    fn newest(self) -> Option<ChangeRef> {
        ChangeRef::from_word(self.header().head.load(Ordering::Acquire) & !LATCHED)
    }

    /// Where a reader begins; loaded between the two checks of the page's version, with the value.
    pub(super) fn start(self, _operation: &'a OperationGuard) -> Start<'a> {
        // SAFETY: linked when it was loaded, under the guard.
        Start(self.newest().map(|newest| unsafe { newest.get() }))
    }

    /// Whether it has no changes, asked by who has the page latched: then it gets none.
    pub(super) fn is_empty(self) -> bool {
        self.newest().is_none()
    }

    /// Pretends to have the latch.
    #[cold]
    fn latch_not(self) -> Latched<'a> {
        Latched { chain: self, newest: self.newest() }
    }

    fn latch(self) -> Latched<'a> {
        let head = &self.header().head;
        let mut spins = 0;
        loop {
            // Relaxed: the exchange below is what counts.
            let word = head.load(Ordering::Relaxed);
            // Acquire pairs with the Release in the drop of `Latched`: what the last holder did is seen.
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            if word & LATCHED == 0
                && head.compare_exchange_weak(word, word | LATCHED, success, failure).is_ok()
            {
                return Latched { chain: self, newest: ChangeRef::from_word(word) };
            }
            spins += 1;
            if spins % SPINS == 0 || cfg!(loom) {
                yield_thread();
            } else {
                spin_loop();
            }
        }
    }

    /// Puts a change in front: the transaction that `stamp` names is about to write the record, which has
    /// the value `before` now. The change is the caller's to retire.
    ///
    /// # Safety
    /// The caller has the record's page latched, from before it looked at the value until it has written
    /// it; [`Self::base`] did not refuse the write meanwhile. The chain was allocated with these counters.
    pub(crate) unsafe fn push(
        self,
        memory: &MemoryCounters,
        stamp: Stamp,
        before: Option<SlotValue<'_>>,
        position: u32,
    ) -> ChangeRef {
        assert!(stamp.name().is_some(), "a write is in flight at first");
        let change = ChangeRef::allocate(memory, stamp, self.reference(), before, position);
        // Relaxed: the mapping table's reference keeps it from falling to none, as long as the page is latched.
        self.header().references.fetch_add(1, Ordering::Relaxed);
        let unlatched = is_planted(Bug::ChangePushedWithoutLatch);
        let mut latched = if unlatched { self.latch_not() } else { self.latch() };
        // SAFETY: the caller's, not shared yet.
        unsafe { change.get() }.set_next(latched.newest);
        latched.newest = Some(change);
        change
    }

    /// Puts a change in front of a record that a transaction committed which made no change then.
    ///
    /// # Safety
    /// As of `push`; the changes there are were committed before the stamp. The change is the caller's to retire.
    pub(crate) unsafe fn push_committed(
        self,
        memory: &MemoryCounters,
        stamp: Stamp,
        before: Option<SlotValue<'_>>,
    ) -> ChangeRef {
        let change = ChangeRef::allocate(memory, stamp, self.reference(), before, 0);
        // Relaxed: see `push`.
        self.header().references.fetch_add(1, Ordering::Relaxed);
        let mut latched = self.latch();
        // SAFETY: the caller's, not shared yet.
        unsafe { change.get() }.set_next(latched.newest);
        latched.newest = Some(change);
        change
    }

    /// Takes aborted changes out that are in front, and lets `restore` put the value back that was there before
    /// each. They are their transactions' to retire.
    ///
    /// # Safety
    /// The caller has the record's page latched; `restore` writes that page.
    pub(crate) unsafe fn roll_back(
        self,
        status: &StatusTable,
        mut restore: impl FnMut(Option<SlotValue<'_>>),
    ) {
        let unlatched = is_planted(Bug::ChangeTakenOutWithoutLatch);
        let mut latched = if unlatched { self.latch_not() } else { self.latch() };
        while let Some(newest) = latched.newest {
            // SAFETY: linked, and only who has the latch takes it out.
            let newest = unsafe { newest.get() };
            if !is_aborted(newest, status) {
                break;
            }
            restore(newest.before());
            self.note_on_page(newest.before().map_or(0, SlotValue::cell_bytes));
            latched.newest = newest.next();
        }
    }

    /// What `view` would write on.
    ///
    /// # Errors
    /// If it may not.
    ///
    /// # Safety
    /// The caller has the record's page latched, and has rolled the chain back.
    pub(crate) unsafe fn base<'o>(
        self,
        view: View<'_>,
        _operation: &'o OperationGuard,
    ) -> Result<Base<'o>, Refusal> {
        // SAFETY: linked when it was loaded, under the guard.
        let Some(newest) = self.newest().map(|newest| unsafe { newest.get::<'o>() }) else {
            return Ok(Base::Settled);
        };
        loop {
            let stamp = newest.stamp();
            let committed = match stamp.name() {
                None => stamp.lsn().expect("not in flight"),
                Some(name) if name == view.me => return Ok(Base::Own(newest)),
                Some(name) => match view.status.outcome(name) {
                    Outcome::Committed(lsn) => lsn,
                    Outcome::Stale => continue,
                    Outcome::Active | Outcome::Committing(_) | Outcome::Aborted => {
                        return Err(Refusal::Conflict);
                    }
                },
            };
            return if committed < view.begin {
                Ok(Base::Committed(committed))
            } else if stamp == Stamp::ABORTED {
                // A moment ago.
                Err(Refusal::Conflict)
            } else {
                Err(Refusal::Newer)
            };
        }
    }

    /// Cuts off all changes from the newest one on that was committed before `horizon`.
    pub(super) fn cut(self, horizon: Lsn) {
        let mut latched = self.latch();
        let is_due = |change: Change<'_>| change.stamp().lsn().is_some_and(|lsn| lsn < horizon);
        let Some(newest) = latched.newest else { return };
        // SAFETY: linked, and only who has the latch takes it out; so are those that follow.
        let mut change = unsafe { newest.get::<'a>() };
        if is_due(change) {
            latched.newest = None;
            return;
        }
        while let Some(next) = change.next() {
            // SAFETY: linked, and only who has the chain's latch takes it out.
            let next = unsafe { next.get() };
            if is_due(next) {
                change.set_next(None);
                return;
            }
            change = next;
        }
    }

    /// Notes how many bytes the value has that the page has now; to be called at every write, by who has
    /// the page latched.
    pub(crate) fn note_on_page(self, bytes: usize) {
        let bytes = u32::try_from(bytes).expect("values are bounded");
        // Relaxed: only who has the page latched writes and reads it.
        self.header().on_page.store(bytes, Ordering::Relaxed);
    }

    /// Bytes by which the value on the page may still have to grow: when changes are undone that are
    /// not decided yet, or aborted.
    pub(super) fn undo_bytes(self) -> usize {
        let latched = self.latch();
        let (mut next, mut longest) = (latched.newest, 0);
        while let Some(change) = next {
            // SAFETY: linked, and only who has the latch takes it out.
            let change = unsafe { change.get() };
            let stamp = change.stamp();
            if stamp.name().is_none() && stamp != Stamp::ABORTED {
                break;
            }
            longest = longest.max(change.before().map_or(0, SlotValue::cell_bytes));
            next = change.next();
        }
        // Relaxed: see `note_on_page`.
        longest.saturating_sub(self.header().on_page.load(Ordering::Relaxed) as usize)
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        let word = self.newest.map_or(0, ChangeRef::word);
        // Release pairs with the Acquire in `latch` and in `newest`.
        self.chain.header().head.store(word, Ordering::Release);
    }
}

impl<'o> Start<'o> {
    /// A record without a chain.
    pub(crate) const NONE: Self = Self(None);

    /// Follows the chain to what `view` sees.
    ///
    /// # Errors
    /// While another worker decides that; then the record is to be read anew.
    pub(crate) fn see(self, view: View<'_>) -> Result<Seen<'o>, Undecided> {
        let (mut value, mut below_newer) = (SeenValue::OnPage, false);
        let mut next = self.0;
        while let Some(change) = next {
            let (committed, own) = match view.sees(|| change.stamp()) {
                None => return Err(Undecided),
                Some(Visible::Own) => (None, true),
                Some(Visible::Committed(lsn)) => (Some(lsn), false),
                Some(Visible::No) => {
                    below_newer = below_newer || is_committed(change, view.status);
                    value = SeenValue::Before(change.before());
                    // SAFETY: linked when it is loaded, under the guard that `'o` is of.
                    next = change.next().map(|next| unsafe { next.get() });
                    continue;
                }
            };
            return Ok(Seen { value, committed, own, below_newer });
        }
        Ok(Seen { value, committed: None, own: false, below_newer })
    }

    /// Calls `each` with the before-image of every change, from the newest on.
    pub(crate) fn each_before(self, mut each: impl FnMut(Option<SlotValue<'_>>)) {
        let mut next = self.0;
        while let Some(change) = next {
            each(change.before());
            // SAFETY: linked when it is loaded, under the guard that `'o` is of.
            next = change.next().map(|next| unsafe { next.get() });
        }
    }
}

/// Whether the transaction that made a change will not commit it.
fn is_aborted(change: Change<'_>, status: &StatusTable) -> bool {
    loop {
        let stamp = change.stamp();
        let Some(name) = stamp.name() else { return stamp == Stamp::ABORTED };
        match status.outcome(name) {
            Outcome::Aborted => return true,
            Outcome::Stale => {}
            Outcome::Active | Outcome::Committing(_) | Outcome::Committed(_) => return false,
        }
    }
}

fn is_committed(change: Change<'_>, status: &StatusTable) -> bool {
    loop {
        let stamp = change.stamp();
        let Some(name) = stamp.name() else { return stamp != Stamp::ABORTED };
        match status.outcome(name) {
            Outcome::Committed(_) => return true,
            Outcome::Stale => {}
            Outcome::Active | Outcome::Committing(_) | Outcome::Aborted => return false,
        }
    }
}
