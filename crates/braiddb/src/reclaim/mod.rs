//! Reclamation: what is unlinked is freed once no operation can still hold it.
//!
//! Quiescent states of workers stand in for fences in operations (CoroBase §4.4, epochs per
//! scheduler). A global epoch counts up. Each participant, one a thread, publishes an epoch that is
//! not later than that of any operation in flight on it. What is unlinked is tagged with the epoch
//! read afterwards, and freed once every participant publishes a later one.
//!
//! Why that is safe: an operation with an epoch later than the tag began after its thread had read,
//! with a fence, an epoch that was raised after the tag was read, hence after the unlinking; it
//! cannot find what was unlinked. And operations of many tasks may be in flight on one thread,
//! across suspensions: each is counted under the epoch it began in.

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

use crate::memory::{Kind, MemoryCounters};
use crate::planted::{Bug, is_planted};
use crate::sched::engine_call;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// What a participant without operations in flight publishes while it sleeps.
const QUIESCENT: u64 = u64::MAX;

/// Something to be freed.
enum Garbage {
    /// A block of memory, which is most of it.
    Block { kind: Kind, block: NonNull<u8>, layout: Layout },
    /// Anything else: this frees it.
    Other(Box<dyn FnOnce() + Send>),
}

// SAFETY: a block that nobody uses any more may be freed by any thread (`retire_block`).
unsafe impl Send for Garbage {}

impl Garbage {
    fn free(self, memory: &MemoryCounters) {
        match self {
            // SAFETY: of this layout, allocated with the counters of the domain, unlinked when it was
            // retired, and retired once (`retire_block`); the grace period is over.
            Garbage::Block { kind, block, layout } => unsafe { memory.free(kind, block, layout) },
            Garbage::Other(free) => free(),
        }
    }
}

/// What one participating thread publishes.
#[derive(Debug)]
struct Participant {
    taken: AtomicBool,
    published: AtomicU64,
}

/// The threads and the garbage of one database.
pub(crate) struct Domain {
    epoch: CachePadded<AtomicU64>,
    participants: Box<[CachePadded<Participant>]>,
    /// With which the blocks that are retired were allocated.
    memory: Arc<MemoryCounters>,
    /// Garbage of threads that left, with its tags.
    orphans: Mutex<Vec<(u64, Garbage)>>,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({} participants)", self.participants.len())
    }
}

#[cfg(not(loom))]
thread_local! {
    static CURRENT: Cell<*const Local> = const { Cell::new(std::ptr::null()) };
}
#[cfg(loom)]
loom::thread_local! {
    static CURRENT: Cell<*const Local> = Cell::new(std::ptr::null());
}

/// A participating thread's own state.
struct Local {
    domain: Arc<Domain>,
    number: usize,
    /// The epoch that operations begin in now, and how many are in flight that did.
    epoch: Cell<u64>,
    in_flight: Cell<u64>,
    /// The same for earlier epochs that are still in use, oldest first.
    earlier: RefCell<VecDeque<(u64, u64)>>,
    garbage: RefCell<VecDeque<(u64, Garbage)>>,
}

impl Domain {
    /// A domain for at most `threads` threads at a time, whose blocks of memory `memory` counts.
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
            memory,
            orphans: Mutex::default(),
        }
    }

    /// Makes this thread a participant until the result is dropped.
    ///
    /// # Panics
    /// If the thread participates already, or more threads do than the domain was made for.
    pub(crate) fn participate(self: &Arc<Self>) -> Participation {
        assert!(CURRENT.with(Cell::get).is_null(), "a thread participates once");
        let free = |number: &usize| {
            // AcqRel pairs with the Release of the thread that leaves it. Relaxed on failure: another is looked at.
            let taken = &self.participants[*number].taken;
            taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let number = (0..self.participants.len()).find(free);
        let number = number.expect("the domain was made for this many threads");
        let local = Box::new(Local {
            domain: self.clone(),
            number,
            epoch: Cell::new(0),
            in_flight: Cell::new(0),
            earlier: RefCell::default(),
            garbage: RefCell::default(),
        });
        local.publish_current();
        CURRENT.with(|current| current.set(&raw const *local));
        Participation { local, bound: PhantomData }
    }

    /// The oldest epoch an operation in flight anywhere may have begun in.
    fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst);
        let published =
            |participant: &CachePadded<Participant>| participant.published.load(Ordering::SeqCst);
        self.participants.iter().map(published).min().unwrap_or(QUIESCENT)
    }

    /// Frees what is left when nobody participates any more; part of closing a database.
    ///
    /// # Panics
    /// If a thread still participates.
    pub(crate) fn drain(&self) {
        assert_eq!(self.oldest(), QUIESCENT, "nobody may participate any more");
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

impl Local {
    fn participant(&self) -> &Participant {
        &self.domain.participants[self.number]
    }

    /// Moves this thread to the current epoch and publishes the oldest it still uses.
    fn publish_current(&self) {
        let now = self.domain.epoch.load(Ordering::SeqCst);
        let mut earlier = self.earlier.borrow_mut();
        let before = self.epoch.replace(now);
        if before != now && self.in_flight.get() > 0 {
            earlier.push_back((before, self.in_flight.take()));
        }
        while earlier.pop_front_if(|(_, count)| *count == 0).is_some() {}
        let oldest = earlier.front().map_or(now, |(epoch, _)| *epoch);
        self.participant().published.store(oldest, Ordering::SeqCst);
        // Operations that begin from here on read what was unlinked before `now` was reached.
        fence(Ordering::SeqCst);
    }

    fn retire(&self, garbage: Garbage) {
        // Orders the unlinking before the reading of the tag.
        fence(Ordering::SeqCst);
        let tag = self.domain.epoch.load(Ordering::SeqCst);
        self.garbage.borrow_mut().push_back((tag, garbage));
    }

    fn is_quiet(&self) -> bool {
        let earlier = self.earlier.borrow();
        self.in_flight.get() == 0 && earlier.iter().all(|(_, count)| *count == 0)
    }
}

/// This thread's membership in a domain.
pub(crate) struct Participation {
    local: Box<Local>,
    /// Belongs to the thread that made it.
    bound: PhantomData<*const ()>,
}

impl Participation {
    /// A quiescent point: publishes this thread's oldest epoch and frees what is due. Returns
    /// whether garbage is left.
    pub(crate) fn turn(&self) -> bool {
        self.local.publish_current();
        let newest = self.local.garbage.borrow().back().map(|(tag, _)| *tag);
        let Some(newest) = newest else { return false };
        let domain = &self.local.domain;
        if newest >= domain.epoch.load(Ordering::SeqCst) {
            domain.epoch.fetch_add(1, Ordering::SeqCst);
        }
        let oldest = domain.oldest();
        loop {
            let early = u64::from(is_planted(Bug::FreedOneEpochEarly));
            let due =
                self.local.garbage.borrow_mut().pop_front_if(|(tag, _)| *tag < oldest + early);
            let Some((_, garbage)) = due else { break };
            garbage.free(&domain.memory);
        }
        !self.local.garbage.borrow().is_empty()
    }

    /// Before this thread sleeps: holds nothing back any more, if nothing is in flight on it.
    pub(crate) fn sleep(&self) {
        if self.local.is_quiet() {
            // Release pairs with the load in `oldest`: a thread that sees it sees the operations' end.
            self.local.participant().published.store(QUIESCENT, Ordering::Release);
        }
    }

    /// After this thread slept, before its next operation.
    pub(crate) fn wake(&self) {
        self.local.publish_current();
    }
}

impl Drop for Participation {
    fn drop(&mut self) {
        // Operations belong to tasks, which are all over: one that still counts was forgotten
        // (`mem::forget`), and nobody can go on with it.
        let mut garbage = self.local.garbage.borrow_mut();
        self.local.domain.orphans.lock().extend(garbage.drain(..));
        // Release pairs with the load in `oldest` and the exchange in `participate`.
        self.local.participant().published.store(QUIESCENT, Ordering::Release);
        self.local.participant().taken.store(false, Ordering::Release);
        CURRENT.with(|current| current.set(std::ptr::null()));
    }
}

/// An operation in flight: what it finds linked stays allocated until it is over.
#[derive(Debug)]
pub(crate) struct OperationGuard {
    epoch: u64,
    /// Operations never change threads.
    bound: PhantomData<*const ()>,
}

#[inline(always)]
fn local<R>(look: impl FnOnce(&Local) -> R) -> R {
    // SAFETY: null, or set by `participate` on this thread to state that its `Participation` owns,
    // boxed, and cleared when that is dropped.
    look(
        unsafe { CURRENT.with(Cell::get).as_ref() }
            .expect("operations run on participating threads"),
    )
}

/// Begins an operation; its end is the drop of the guard.
///
/// # Panics
/// If this thread does not participate in a domain.
#[inline]
pub(crate) fn enter() -> OperationGuard {
    local(|local| {
        local.in_flight.set(local.in_flight.get() + 1);
        OperationGuard { epoch: local.epoch.get(), bound: PhantomData }
    })
}

impl Drop for OperationGuard {
    #[inline]
    fn drop(&mut self) {
        // A user's code may drop it, with the future that holds it.
        engine_call(|| {
            local(|local| {
                if self.epoch == local.epoch.get() {
                    local.in_flight.set(local.in_flight.get() - 1);
                    return;
                }
                let mut earlier = local.earlier.borrow_mut();
                let mine = earlier.iter_mut().find(|(epoch, _)| *epoch == self.epoch);
                let count = &mut mine.expect("kept while in use").1;
                assert!(*count > 0, "entered before it leaves");
                *count -= 1;
            });
        });
    }
}

/// Runs `garbage`, which frees something just unlinked, once no operation can hold it any more.
///
/// # Panics
/// If this thread does not participate in a domain.
pub(crate) fn retire_with(garbage: impl FnOnce() + Send + 'static) {
    local(|local| local.retire(Garbage::Other(Box::new(garbage))));
}

/// Frees a block of memory that was just unlinked, once no operation can hold it any more.
///
/// # Safety
/// `block` was allocated with `memory`, for this kind and with this layout; nothing leads to it any more,
/// and it is retired once.
///
/// # Panics
/// If this thread does not participate in the domain whose blocks `memory` counts.
pub(crate) unsafe fn retire_block(
    memory: &MemoryCounters,
    kind: Kind,
    block: NonNull<u8>,
    layout: Layout,
) {
    local(|local| {
        let same = std::ptr::eq(memory, &*local.domain.memory);
        assert!(same, "a block is retired in the domain of its database");
        local.retire(Garbage::Block { kind, block, layout });
    });
}
