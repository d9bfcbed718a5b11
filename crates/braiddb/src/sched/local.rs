//! Thread-local state of a worker about the task that it polls.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::task::{Context, Waker};

use super::caller::CurrentCaller;
use super::counters::SchedulerCounters;
use super::failure::Failure;
use super::observers::Observers;
use super::wait_cause::WaitCause;

/// Maximum number of steps of a task before its worker checks for new arrivals. A step is an
/// operation, a possible wait for a cache line, or a similar amount of work: about a tenth of a
/// microsecond. A task that is alone on its worker is interrupted about ten thousand times per
/// second. With other tasks, its turns are shorter and more frequent.
pub(super) const MAX_STEPS_ALONE: u32 = 256;
pub(super) const MAX_STEPS_SHARED: u32 = 32;

/// A slot of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    pub(super) worker: u32,
    pub(super) index: u32,
}

/// A step at which a task has paused; `step.rs` states the invariant.
#[derive(Clone, Copy, Debug)]
pub(super) struct PausedStep {
    step: *mut (),
    advance: unsafe fn(*mut ()) -> bool,
}

impl PausedStep {
    /// Creates a paused step.
    ///
    /// # Safety
    /// `advance` may be called with `step` while the invariant of `step.rs` holds for it.
    #[inline(always)]
    pub(super) unsafe fn new(step: *mut (), advance: unsafe fn(*mut ()) -> bool) -> Self {
        Self { step, advance }
    }

    /// Continues the step; returns whether it has paused again.
    ///
    /// # Safety
    /// The task of the step was not polled since the step has paused, and is not being dropped.
    #[inline(always)]
    pub(super) unsafe fn advance(self) -> bool {
        // SAFETY: the caller's contract, and the invariant of `step.rs`.
        unsafe { (self.advance)(self.step) }
    }
}

/// The state of a worker that its tasks access through the thread. [`WorkerServices`] has the rest.
///
/// [`WorkerServices`]: super::services::WorkerServices
#[derive(Debug)]
pub(super) struct WorkerLocal {
    pub(super) worker: u32,
    /// True if a task that accesses memory should suspend, because other tasks can run.
    pub(super) interleave: Cell<bool>,
    /// Steps that a task may take between two suspensions.
    pub(super) slice: Cell<u32>,
    /// Remaining steps of the task that is being polled.
    pub(super) steps_left: Cell<u32>,
    /// True if the task that is being polled does upkeep of the engine.
    pub(super) urgent: Cell<bool>,
    /// Failed attempts of tasks since the last turn, which are retried.
    pub(super) failed_attempts: Cell<u64>,
    /// The cause for which the task that is being polled suspends.
    pub(super) cause: Cell<WaitCause>,
    /// The step that the task being polled has paused at, if it may be continued alone.
    pub(super) step: Cell<Option<PausedStep>>,
    /// The slot that is being polled.
    slot: Cell<u32>,
    /// The address of that slot's waker; only compared.
    waker: Cell<*const Waker>,
    /// Number of polls of tasks; wraps.
    pub(super) task_polls: Cell<u32>,
    /// The caller of the task that is being polled.
    pub(super) caller: CurrentCaller,
    /// The address, only compared, of the waker with which a part of a task was polled last that
    /// waits for the engine, and the number of that poll of the task.
    pub(super) waiting_part: Cell<(*const Waker, u32)>,
    /// For each slot, the number of events of the engine that its task waits for (`waiter.rs`).
    waits: RefCell<Vec<u32>>,
    pub(super) counters: Arc<SchedulerCounters>,
    pub(super) failure: Arc<Failure>,
    /// True if the engine's code has panicked on this thread.
    pub(super) engine_panicked: Cell<bool>,
    /// Values to drop once that panic is recorded; see `UntilRecorded`.
    pub(super) until_recorded: RefCell<Vec<Box<dyn Any>>>,
    /// Observers of polls.
    pub(super) observers: Observers,
}

impl WorkerLocal {
    pub(super) fn new(
        worker: usize,
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
            step: Cell::new(None),
            slot: Cell::new(0),
            waker: Cell::new(std::ptr::null()),
            task_polls: Cell::new(0),
            caller: CurrentCaller::default(),
            waiting_part: Cell::new((std::ptr::null(), 0)),
            waits: RefCell::default(),
            counters,
            failure,
            engine_panicked: Cell::new(false),
            until_recorded: RefCell::default(),
            observers: Observers::default(),
        }
    }

    /// Called before the task in a slot is polled with the slot's own waker.
    #[inline(always)]
    pub(super) fn begin_poll(&self, slot: u32, waker: &Waker) {
        self.slot.set(slot);
        self.waker.set(waker);
        self.task_polls.set(self.task_polls.get().wrapping_add(1));
        self.steps_left.set(self.slice.get());
        // A future that sets no cause waits for something foreign.
        self.cause.set(WaitCause::Foreign);
        self.step.set(None);
    }

    /// Sets how tasks suspend that are polled from here on.
    pub(super) fn set_interleaved(&self, interleave: bool) {
        self.interleave.set(interleave);
        self.slice.set(if interleave { MAX_STEPS_SHARED } else { MAX_STEPS_ALONE });
    }

    /// Counts steps of the task that is being polled. Returns whether it must suspend, so that its
    /// worker can check for new arrivals.
    #[inline(always)]
    pub(super) fn take_steps(&self, steps: u32) -> bool {
        let left = self.steps_left.get().saturating_sub(steps);
        self.steps_left.set(left);
        left == 0
    }

    /// Returns the steps of the task in its last poll.
    pub(super) fn steps_taken(&self) -> u32 {
        self.slice.get().saturating_sub(self.steps_left.get())
    }

    /// Returns the slot that is being polled.
    pub(super) fn current_slot(&self) -> SlotId {
        SlotId { worker: self.worker, index: self.slot.get() }
    }

    /// Returns whether `context` is that of the worker's own poll, rather than that of an executor
    /// inside the task. A clone of the slot's waker counts as foreign, which is slower but correct.
    #[inline(always)]
    pub(super) fn polls_task(&self, context: &Context<'_>) -> bool {
        std::ptr::eq(context.waker(), self.waker.get())
    }

    /// Counts an event of the engine that the task in a slot waits for.
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

    /// Returns whether the task in a slot waits for an event of the engine.
    pub(super) fn has_waits(&self, slot: u32) -> bool {
        self.waits.borrow().get(slot as usize).is_some_and(|waits| *waits > 0)
    }

    /// Notes that the part of the task that is being polled with `context` waits for the engine.
    pub(super) fn waits_as_part(&self, context: &Context<'_>) {
        self.waiting_part.set((context.waker(), self.task_polls.get()));
    }

    /// Suspends a part of the task that is being polled. If any of several parts wants to be polled
    /// again soon, its cause takes precedence, because the other parts are resumed separately.
    #[inline(always)]
    pub(super) fn suspend(&self, cause: WaitCause) {
        // A step is continued alone only if no other part of the task suspends.
        self.step.set(None);
        if !self.cause.get().is_hot() {
            self.cause.set(cause);
        }
    }
}

thread_local! {
    static LOCAL: Cell<*const WorkerLocal> = const { Cell::new(std::ptr::null()) };
}

/// Makes `local` the state of this thread while the returned guard exists.
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

/// Calls `look` with this thread's worker state, if it is a worker.
#[inline(always)]
pub(super) fn local<R>(look: impl FnOnce(Option<&WorkerLocal>) -> R) -> R {
    // SAFETY: the pointer is null or was set by `enter`, whose guard borrows the state and clears
    // the pointer when it is dropped, on this thread.
    look(unsafe { LOCAL.get().as_ref() })
}

/// Returns whether this thread is a worker.
pub(crate) fn on_worker() -> bool {
    local(|local| local.is_some())
}
