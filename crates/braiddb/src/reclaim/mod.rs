//! Reclamation by epochs: an unlinked block is freed once no operation can hold it any more.
//!
//! Quiescent states of workers replace fences in operations (CoroBase §4.4, epochs per scheduler).
//! A global epoch increases. Each participant, one per thread, publishes an epoch that is not later
//! than that of any operation in flight on it. An unlinked block is tagged with the epoch read
//! afterwards, and freed once every participant publishes a later one.
//!
//! Proof: an operation with an epoch later than the tag began after its thread had read, with a
//! fence, an epoch that was raised after the tag was read, and so after the unlinking. So it cannot
//! find the unlinked block. Operations of many tasks may be in flight on one thread, across
//! suspensions: each is counted under the epoch it began in. Threads that are no participants may
//! perform single operations as guests (`guests.rs`), which may also retire blocks
//! (`guest_participant.rs`).

mod guest_participant;
mod guests;
#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;

use std::alloc::Layout;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::memory::{MemoryCounters, MemoryKind, OwnShard};
use crate::planted::{Bug, is_planted};
use crate::sched::engine_call;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

pub(crate) use guest_participant::GuestParticipant;
pub(crate) use guests::{GuestBounds, GuestOperation, MAX_GUESTS};

/// Maximum number of blocks freed per turn, so that no turn takes long.
const MAX_BLOCKS_PER_TURN: usize = 4096;
/// Blocks that another item counts as: it frees some versions, or a table.
const BLOCKS_PER_ITEM: usize = 64;

/// Published by a sleeping participant without operations in flight.
const QUIESCENT: u64 = u64::MAX;

/// Capacity of an emptied list of garbage that is kept.
const MAX_RETAINED: usize = 1024;

/// An item to free.
enum RetiredItem {
    /// A block of memory; the common case.
    Block { kind: MemoryKind, block: NonNull<u8>, layout: Layout },
    /// Anything else; the function frees it.
    Other(Box<dyn FnOnce() + Send>),
}

// SAFETY: an unused block may be freed by any thread (`retire_block`).
unsafe impl Send for RetiredItem {}

impl RetiredItem {
    fn free(self, memory: &MemoryCounters) {
        match self {
            // SAFETY: of this layout, allocated with the counters of the domain, unlinked when it
            // was retired, and retired once (`retire_block`); the grace period has ended.
            RetiredItem::Block { kind, block, layout } => unsafe {
                memory.free(kind, block, layout)
            },
            RetiredItem::Other(free) => free(),
        }
    }
}

/// The published state of one participating thread.
#[derive(Debug)]
struct Participant {
    taken: AtomicBool,
    published: AtomicU64,
}

/// The threads and the garbage of one database.
pub(crate) struct Domain {
    epoch: CachePadded<AtomicU64>,
    participants: Box<[CachePadded<Participant>]>,
    /// The epochs of guests' operations.
    guests: GuestBounds,
    /// Allocator counters for retired blocks.
    memory: Arc<MemoryCounters>,
    /// Garbage of threads that left, with its tags.
    orphans: Mutex<Vec<(u64, RetiredItem)>>,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({} participants)", self.participants.len())
    }
}

#[cfg(not(loom))]
thread_local! {
    static CURRENT: Cell<*const ParticipantState> = const { Cell::new(std::ptr::null()) };
}
#[cfg(loom)]
loom::thread_local! {
    static CURRENT: Cell<*const ParticipantState> = Cell::new(std::ptr::null());
}

/// A participating thread's private state.
struct ParticipantState {
    domain: Arc<Domain>,
    /// The epoch in which new operations begin, and the number of its operations in flight.
    epoch: Cell<u64>,
    in_flight: Cell<u64>,
    /// The same pairs for earlier epochs that are still in use, oldest first.
    earlier: RefCell<VecDeque<(u64, u64)>>,
    /// Garbage retired since the last turn, which has no tag yet.
    fresh: RefCell<VecDeque<RetiredItem>>,
    /// Earlier garbage by its tag, oldest first.
    tagged: RefCell<VecDeque<(u64, VecDeque<RetiredItem>)>>,
    /// An emptied list, for later use.
    spare: RefCell<VecDeque<RetiredItem>>,
    /// Set if the last turn left garbage that was due.
    is_behind: Cell<bool>,
}

impl Domain {
    /// Creates a domain for at most `threads` concurrent threads; `memory` counts its blocks.
    pub(crate) fn new(threads: usize, memory: Arc<MemoryCounters>) -> Self {
        let participant = || {
            CachePadded::new(Participant {
                taken: AtomicBool::new(false),
                published: AtomicU64::new(QUIESCENT),
            })
        };
        Self {
            epoch: CachePadded::new(AtomicU64::new(1)),
            participants: (0..threads).map(|_| participant()).collect(),
            guests: GuestBounds::new(),
            memory,
            orphans: Mutex::default(),
        }
    }

    /// Makes this thread a participant until the result is dropped.
    ///
    /// # Panics
    /// Panics if the thread participates already, or if the domain has no slot left.
    pub(crate) fn participate(self: &Arc<Self>) -> Participation {
        assert!(CURRENT.with(Cell::get).is_null(), "a thread participates once");
        let free = |number: &usize| {
            // AcqRel pairs with the Release of the thread that leaves the slot. Relaxed on failure:
            // another slot is tried.
            let taken = &self.participants[*number].taken;
            taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let number = (0..self.participants.len()).find(free);
        let number = number.expect("the domain was made for this many threads");
        let local = Box::new(ParticipantState::new(self.clone()));
        CURRENT.with(|current| current.set(&raw const *local));
        let entered = Participation { local, number, _shard: OwnShard::take(), bound: PhantomData };
        entered.publish_current();
        entered
    }

    /// The oldest epoch in which any operation in flight may have begun.
    fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        let published =
            |participant: &CachePadded<Participant>| participant.published.load(Ordering::SeqCst);
        let oldest = self.participants.iter().map(published).min().unwrap_or(QUIESCENT);
        oldest.min(self.guests.oldest())
    }

    /// Frees the remaining garbage when no thread participates any more; part of closing a
    /// database.
    ///
    /// # Panics
    /// Panics if a thread still participates.
    pub(crate) fn drain(&self) {
        assert_eq!(self.oldest(), QUIESCENT, "no thread may participate any more");
        loop {
            let orphans = std::mem::take(&mut *self.orphans.lock());
            if orphans.is_empty() {
                return;
            }
            orphans.into_iter().for_each(|(_, garbage)| garbage.free(&self.memory));
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.drain();
    }
}

impl ParticipantState {
    fn new(domain: Arc<Domain>) -> Self {
        Self {
            domain,
            epoch: Cell::new(0),
            in_flight: Cell::new(0),
            earlier: RefCell::default(),
            fresh: RefCell::default(),
            tagged: RefCell::default(),
            spare: RefCell::default(),
            is_behind: Cell::new(false),
        }
    }

    fn retire(&self, garbage: RetiredItem) {
        self.fresh.borrow_mut().push_back(garbage);
    }

    /// Tags the garbage that has no tag yet. Later than necessary, which is safe, and once for many
    /// items.
    fn tag_fresh(&self) {
        let mut fresh = self.fresh.borrow_mut();
        if fresh.is_empty() {
            return;
        }
        // Orders the unlinking before the load of the tag.
        fence(Ordering::SeqCst);
        let tag = self.domain.epoch.load(Ordering::SeqCst);
        let batch = std::mem::replace(&mut *fresh, self.spare.take());
        self.tagged.borrow_mut().push_back((tag, batch));
    }

    /// Frees the garbage whose tag is before `oldest`, up to a limit. Returns `false` if it reached
    /// the limit.
    fn free_before(&self, oldest: u64) -> bool {
        let mut freed = 0;
        loop {
            let due = self.tagged.borrow_mut().pop_front_if(|(tag, _)| *tag < oldest);
            let Some((tag, mut batch)) = due else { return true };
            while let Some(garbage) = batch.pop_front() {
                freed += match garbage {
                    RetiredItem::Block { .. } => 1,
                    RetiredItem::Other(_) => BLOCKS_PER_ITEM,
                };
                garbage.free(&self.domain.memory);
                if freed >= MAX_BLOCKS_PER_TURN {
                    if !batch.is_empty() {
                        self.tagged.borrow_mut().push_front((tag, batch));
                    }
                    return false;
                }
            }
            if batch.capacity() <= MAX_RETAINED {
                self.spare.replace(batch);
            }
        }
    }

    /// Passes all garbage to the domain, which frees it at its end.
    fn leave_garbage(&self) {
        // Operations belong to tasks, which have all ended: one that is still counted was leaked
        // (`mem::forget`), and no task can continue it.
        self.tag_fresh();
        let tagged = self.tagged.take().into_iter();
        let orphans = tagged.flat_map(|(tag, batch)| batch.into_iter().map(move |one| (tag, one)));
        self.domain.orphans.lock().extend(orphans);
    }

    fn is_quiet(&self) -> bool {
        let earlier = self.earlier.borrow();
        self.in_flight.get() == 0 && earlier.iter().all(|(_, count)| *count == 0)
    }
}

/// This thread's membership in a domain.
pub(crate) struct Participation {
    local: Box<ParticipantState>,
    number: usize,
    _shard: OwnShard,
    /// Bound to the thread that created it.
    bound: PhantomData<*const ()>,
}

impl Participation {
    fn participant(&self) -> &Participant {
        &self.local.domain.participants[self.number]
    }

    /// Moves this thread to the current epoch and publishes the oldest it still uses.
    fn publish_current(&self) {
        let local = &*self.local;
        let now = local.domain.epoch.load(Ordering::SeqCst);
        let mut earlier = local.earlier.borrow_mut();
        let before = local.epoch.replace(now);
        if before != now && local.in_flight.get() > 0 {
            earlier.push_back((before, local.in_flight.take()));
        }
        while earlier.pop_front_if(|(_, count)| *count == 0).is_some() {}
        let oldest = earlier.front().map_or(now, |(epoch, _)| *epoch);
        self.participant().published.store(oldest, Ordering::SeqCst);
        // Operations that begin from here on see what was unlinked before `now` was reached.
        fence(Ordering::SeqCst);
    }

    /// Quiescent point: publishes this thread's oldest epoch and frees what is due, up to a limit.
    /// Returns whether garbage is left.
    pub(crate) fn turn(&self) -> bool {
        self.publish_current();
        let local = &*self.local;
        local.tag_fresh();
        let newest = local.tagged.borrow().back().map(|(tag, _)| *tag);
        let Some(newest) = newest else { return false };
        let domain = &local.domain;
        if newest >= domain.epoch.load(Ordering::SeqCst) {
            domain.epoch.fetch_add(1, Ordering::SeqCst);
        }
        let oldest = domain.oldest() + u64::from(is_planted(Bug::FreedOneEpochEarly));
        local.is_behind.set(!local.free_before(oldest));
        !local.tagged.borrow().is_empty() || !local.fresh.borrow().is_empty()
    }

    /// Returns whether the last turn left garbage that was due.
    pub(crate) fn is_behind(&self) -> bool {
        self.local.is_behind.get()
    }

    /// Stops holding back reclamation before this thread sleeps, if no operation is in flight on
    /// it.
    pub(crate) fn sleep(&self) {
        if self.local.is_quiet() {
            // Release pairs with the load in `oldest`: a thread that sees it sees the operations' end.
            self.participant().published.store(QUIESCENT, Ordering::Release);
        }
    }

    /// Publishes the current epoch after this thread slept, before its next operation.
    pub(crate) fn wake(&self) {
        self.publish_current();
    }
}

impl Drop for Participation {
    fn drop(&mut self) {
        self.local.leave_garbage();
        // Release pairs with the load in `oldest` and the exchange in `participate`.
        self.participant().published.store(QUIESCENT, Ordering::Release);
        self.participant().taken.store(false, Ordering::Release);
        CURRENT.with(|current| current.set(std::ptr::null()));
    }
}

/// An operation in flight: everything it finds linked stays allocated until this is dropped.
#[derive(Debug)]
pub(crate) struct OperationGuard {
    epoch: u64,
    /// Operations never change threads.
    bound: PhantomData<*const ()>,
}

impl OperationGuard {
    fn of_epoch(epoch: u64) -> Self {
        Self { epoch, bound: PhantomData }
    }
}

#[inline(always)]
fn local<R>(look: impl FnOnce(&ParticipantState) -> R) -> R {
    // SAFETY: null, or set on this thread to a boxed state, by `participate` or by a guest. Cleared
    // on this thread before the state is dropped, by the destructor of `Participation` or of
    // `EnteredParticipant`.
    look(
        unsafe { CURRENT.with(Cell::get).as_ref() }
            .expect("operations run on participating threads"),
    )
}

/// Begins an operation; dropping the guard ends it.
///
/// # Panics
/// Panics if this thread does not participate in a domain.
#[inline]
pub(crate) fn enter() -> OperationGuard {
    local(|local| {
        local.in_flight.set(local.in_flight.get() + 1);
        OperationGuard::of_epoch(local.epoch.get())
    })
}

impl Drop for OperationGuard {
    #[inline(always)]
    fn drop(&mut self) {
        // User code may drop the guard, together with the future that holds it.
        engine_call(|| {
            local(|local| match self.epoch == local.epoch.get() {
                true => local.in_flight.set(local.in_flight.get() - 1),
                false => local.end_earlier(self.epoch),
            });
        });
    }
}

impl ParticipantState {
    /// Ends an operation that began in an earlier epoch.
    #[cold]
    #[inline(never)]
    fn end_earlier(&self, epoch: u64) {
        let mut earlier = self.earlier.borrow_mut();
        let mine = earlier.iter_mut().find(|(earlier, _)| *earlier == epoch);
        let count = &mut mine.expect("kept while in use").1;
        assert!(*count > 0, "entered before it leaves");
        *count -= 1;
    }
}

/// Runs `garbage`, which frees something just unlinked, once no operation can hold it any more.
///
/// # Panics
/// Panics if this thread does not participate in a domain.
pub(crate) fn retire_with(garbage: impl FnOnce() + Send + 'static) {
    local(|local| local.retire(RetiredItem::Other(Box::new(garbage))));
}

/// Frees a block of memory that was just unlinked, once no operation can hold it any more.
///
/// # Safety
/// `block` was allocated with `memory`, for this kind and with this layout; nothing references it
/// any more, and it is retired once.
///
/// # Panics
/// Panics if this thread does not participate in the domain whose blocks `memory` counts.
pub(crate) unsafe fn retire_block(
    memory: &MemoryCounters,
    kind: MemoryKind,
    block: NonNull<u8>,
    layout: Layout,
) {
    local(|local| {
        let same = std::ptr::eq(memory, &*local.domain.memory);
        assert!(same, "a block is retired in the domain of its database");
        local.retire(RetiredItem::Block { kind, block, layout });
    });
}
