//! What a worker's thread and the tasks on it tell each other.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Waker};

use super::counters::SchedulerCounters;
use super::mailbox::Mailbox;
use super::observe::Observers;
use super::panics::Failure;
use super::storage::Transfers;
use super::waiter::Waiter;

/// Steps that a task takes at most before its worker looks for new arrivals: each is an operation,
/// a cache line it may have to wait for, or as much work, about a tenth of a microsecond. Alone on
/// its worker it is interrupted some ten thousand times a second; beside others it has its turn
/// more often, and short.
pub(super) const MAX_STEPS_ALONE: u32 = 256;
pub(super) const MAX_STEPS_SHARED: u32 = 32;

/// Why a transaction, or other task of a worker, suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum WaitCause {
    /// A cache line it asked for is on the way.
    Memory,
    /// Another worker is about to decide what it wants to know, or it stands back for a few rounds after a conflict.
    Undecided,
    /// A block of storage is on the way.
    Storage,
    /// Its commit is not durable yet.
    Commit,
    /// The log has no room for its commit yet.
    LogSpace,
    /// Transactions that were active are not over yet.
    GracePeriod,
    /// It stands back after many conflicts, until a moment.
    BackOff,
    /// It awaits a future from outside the engine.
    Foreign,
}

impl WaitCause {
    pub(crate) const COUNT: usize = 8;

    /// Whether a task suspended for it is polled again soon without being resumed.
    pub(super) fn is_hot(self) -> bool {
        matches!(self, WaitCause::Memory | WaitCause::Undecided)
    }
}

/// A slot of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    pub(super) worker: u32,
    pub(super) index: u32,
}

/// The state that tasks of a worker reach through the thread.
#[derive(Debug)]
pub(super) struct WorkerLocal {
    pub(super) worker: u32,
    /// Whether a task that touches memory should suspend: others are there to run meanwhile.
    pub(super) interleave: Cell<bool>,
    /// Steps that a task may take from one suspension to the next.
    pub(super) slice: Cell<u32>,
    /// Steps that are left to the task that is being polled.
    pub(super) steps_left: Cell<u32>,
    /// Whether the task that is being polled does the engine's upkeep.
    pub(super) urgent: Cell<bool>,
    /// Attempts of tasks that failed since the last turn, and are made again.
    pub(super) failed_attempts: Cell<u64>,
    /// Why the task that is being polled suspends.
    pub(super) cause: Cell<WaitCause>,
    /// The slot that is being polled.
    slot: Cell<u32>,
    /// Where that slot's waker is; only compared.
    waker: Cell<*const Waker>,
    /// For each slot, how much its task waits for that the engine will bring about (`waiter.rs`).
    waits: RefCell<Vec<u32>>,
    pub(super) mailbox: Arc<Mailbox>,
    /// Who was resumed by this worker's own tasks or housekeeping.
    pub(super) resumed: RefCell<Vec<Waiter>>,
    /// The tasks' reads and writes of storage.
    pub(super) transfers: Transfers,
    pub(super) counters: Arc<SchedulerCounters>,
    pub(super) failure: Arc<Failure>,
    /// Whether a panic has come out of the engine's code on this thread.
    pub(super) engine_panicked: Cell<bool>,
    /// What is dropped once that panic is recorded; see `UntilRecorded`.
    pub(super) until_recorded: RefCell<Vec<Box<dyn Any>>>,
    /// Who is told of polls.
    pub(super) observers: Observers,
}

impl WorkerLocal {
    pub(super) fn new(
        worker: usize,
        max_reads: usize,
        mailbox: Arc<Mailbox>,
        counters: Arc<SchedulerCounters>,
        failure: Arc<Failure>,
    ) -> Self {
        Self {
            worker: worker as u32,
            interleave: Cell::new(false),
            slice: Cell::new(MAX_STEPS_ALONE),
            steps_left: Cell::new(MAX_STEPS_ALONE),
            urgent: Cell::new(false),
            failed_attempts: Cell::new(0),
            cause: Cell::new(WaitCause::Foreign),
            slot: Cell::new(0),
            waker: Cell::new(std::ptr::null()),
            waits: RefCell::default(),
            mailbox,
            resumed: RefCell::default(),
            transfers: Transfers::new(max_reads),
            counters,
            failure,
            engine_panicked: Cell::new(false),
            until_recorded: RefCell::default(),
            observers: Observers::default(),
        }
    }

    /// The task in a slot is about to be polled with the slot's own waker.
    #[inline(always)]
    pub(super) fn begin_poll(&self, slot: u32, waker: &Waker) {
        self.slot.set(slot);
        self.waker.set(waker);
        self.steps_left.set(self.slice.get());
        // A future that says nothing waits for something foreign.
        self.cause.set(WaitCause::Foreign);
    }

    /// How tasks suspend that are polled from here on.
    pub(super) fn set_interleaved(&self, interleave: bool) {
        self.interleave.set(interleave);
        self.slice.set(if interleave { MAX_STEPS_SHARED } else { MAX_STEPS_ALONE });
    }

    /// Counts steps of the task that is being polled; whether it is to suspend, so that its worker
    /// looks at what has come meanwhile.
    #[inline(always)]
    pub(super) fn take_steps(&self, steps: u32) -> bool {
        let left = self.steps_left.get().saturating_sub(steps);
        self.steps_left.set(left);
        left == 0
    }

    /// Steps that the task took at its last poll before it suspended.
    pub(super) fn steps_taken(&self) -> u32 {
        self.slice.get().saturating_sub(self.steps_left.get())
    }

    /// The slot that is being polled.
    pub(super) fn current_slot(&self) -> SlotId {
        SlotId { worker: self.worker, index: self.slot.get() }
    }

    /// Whether `context` is the one the worker polls the task with, rather than one of an executor
    /// inside the task. A clone of the slot's waker counts as foreign, which costs more and is right.
    #[inline(always)]
    pub(super) fn polls_task(&self, context: &Context<'_>) -> bool {
        std::ptr::eq(context.waker(), self.waker.get())
    }

    /// The task in a slot waits for one thing more that the engine will bring about.
    pub(super) fn count_wait(&self, slot: u32) {
        let (mut waits, slot) = (self.waits.borrow_mut(), slot as usize);
        if waits.len() <= slot {
            waits.resize(slot + 1, 0);
        }
        waits[slot] += 1;
    }

    pub(super) fn uncount_wait(&self, slot: u32) {
        self.waits.borrow_mut()[slot as usize] -= 1;
    }

    /// Whether the task in a slot waits for something that the engine will bring about.
    pub(super) fn has_waits(&self, slot: u32) -> bool {
        self.waits.borrow().get(slot as usize).is_some_and(|waits| *waits > 0)
    }

    /// Keeps the room of an emptied list of resumed waiters for those to come.
    pub(super) fn release(&self, mut emptied: Vec<Waiter>) {
        let mut resumed = self.resumed.borrow_mut();
        std::mem::swap(&mut *resumed, &mut emptied);
        resumed.append(&mut emptied);
    }

    /// Part of the task that is being polled suspends. Of several parts one that wants to be polled
    /// again soon decides: the others are resumed besides.
    #[inline(always)]
    pub(super) fn suspend(&self, cause: WaitCause) {
        if !self.cause.get().is_hot() {
            self.cause.set(cause);
        }
    }
}

thread_local! {
    static LOCAL: Cell<*const WorkerLocal> = const { Cell::new(std::ptr::null()) };
}

/// Makes `local` the state of this thread for as long as the returned guard lives.
pub(super) fn enter(local: &WorkerLocal) -> EnteredWorker<'_> {
    let before = LOCAL.replace(local);
    assert!(before.is_null(), "a thread is one worker");
    EnteredWorker(local)
}

/// Keeps a thread's worker state in place.
pub(super) struct EnteredWorker<'w>(&'w WorkerLocal);

impl Drop for EnteredWorker<'_> {
    fn drop(&mut self) {
        assert!(std::ptr::eq(LOCAL.replace(std::ptr::null()), self.0));
    }
}

/// This thread's worker state, if it is a worker.
#[inline(always)]
pub(super) fn local<R>(look: impl FnOnce(Option<&WorkerLocal>) -> R) -> R {
    // SAFETY: the pointer is null or was set by `enter`, whose guard borrows the state and clears
    // the pointer when it is dropped, on this thread.
    look(unsafe { LOCAL.get().as_ref() })
}

/// Whether this thread is a worker.
pub(crate) fn on_worker() -> bool {
    local(|local| local.is_some())
}
