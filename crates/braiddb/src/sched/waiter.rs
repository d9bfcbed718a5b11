//! Waiters: the tasks to resume when an event has happened.
//!
//! A task's future is polled with the waker of its slot. If the task runs an inner executor
//! (`join_all`, `FuturesUnordered`, `select`), its parts are polled with wakers of that executor,
//! which polls a part again only if that waker was woken. A waiting part therefore registers the
//! waker it was polled with. If that is the slot's own waker, the slot's number suffices, and costs
//! no reference count.
//!
//! A worker counts for each slot the events of the engine that its task waits for: each [`Waiter`]
//! except those of [`current_foreign_waiter`], and each registration of `wait_remotely`. An event
//! counts from the creation of its waiter until its worker has resumed the task or woken the part,
//! or the waiter is dropped. A waiting task without counted events waits for something foreign,
//! whatever cause the engine's futures set at the last poll.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::local::{SlotId, WorkerLocal, local};
use super::panics::{Contained, Panic, contain};
use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicBool, Ordering};

/// A task, or a part of one, that waits on a worker.
///
/// A late resumption reaches the slot's next task, which treats it as a spurious wake-up, as every
/// waiting task must.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(super) slot: SlotId,
    /// The part polled by another executor inside the task; `None` for the whole task.
    part: Option<PartWaker>,
    /// True if it counts among the waits of its slot.
    counts: bool,
}

/// The waker of an executor inside a task. It is user code, so its panics are contained.
#[derive(Debug)]
pub(crate) struct PartWaker(Contained<Waker>);

impl PartWaker {
    /// Returns `None` if cloning the waker panics.
    fn of(context: &Context<'_>) -> Option<Self> {
        let cloned = log_panic(contain(|| context.waker().clone()))?;
        Some(Self(Contained::new(cloned)))
    }

    pub(super) fn wake(self) {
        log_panic(contain(|| self.0.wake_by_ref()));
    }
}

/// Wakes the future that is being polled with `context`, so that its executor polls it again.
pub(super) fn wake_polled(context: &Context<'_>) {
    log_panic(contain(|| context.waker().wake_by_ref()));
}

fn log_panic<T>(result: Result<T, Panic>) -> Option<T> {
    let log = |Panic { message }: &Panic| {
        tracing::error!("a waker panicked, and its task may wait forever: {message}");
    };
    result.inspect_err(log).ok()
}

impl Waiter {
    /// Returns the waiter for the future that is being polled with `context`.
    pub(super) fn polled(local: &WorkerLocal, context: &Context<'_>) -> Self {
        let mut waiter = Self::uncounted(local, context);
        if waiter.part.is_some() {
            local.waits_as_part(context);
        }
        waiter.counts = true;
        local.count_wait(waiter.slot.index);
        waiter
    }

    fn uncounted(local: &WorkerLocal, context: &Context<'_>) -> Self {
        let part = if local.polls_task(context) { None } else { PartWaker::of(context) };
        Self { slot: local.current_slot(), part, counts: false }
    }

    /// Returns whether it is the waiter for the future that is being polled with `context`. A
    /// future may be polled by another executor each time, and only the last one counts.
    pub(super) fn is_polled(&self, local: &WorkerLocal, context: &Context<'_>) -> bool {
        self.slot == local.current_slot()
            && match &self.part {
                None => local.polls_task(context),
                Some(waker) => waker.0.will_wake(context.waker()),
            }
    }

    /// Called on its worker when its event has happened: wakes it if it is a part. It is no longer
    /// counted then.
    #[inline]
    pub(super) fn resume(mut self) -> ResumedWaiter {
        let (slot, part) = (self.slot.index, self.part.take());
        if std::mem::take(&mut self.counts) {
            uncount_wait(slot);
        }
        ResumedWaiter::of(slot, part)
    }
}

/// Stops waiting, unless it was resumed.
impl Drop for Waiter {
    #[inline]
    fn drop(&mut self) {
        if self.counts && !is_planted(Bug::GivenUpWaitCounted) {
            uncount_wait(self.slot.index);
        }
    }
}

/// The target of a resumption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResumedWaiter {
    /// The task in a slot, which must be staged.
    Task(u32),
    /// A part of it, which has been woken.
    Part(u32),
}

impl ResumedWaiter {
    fn of(slot: u32, part: Option<PartWaker>) -> Self {
        match part {
            None => Self::Task(slot),
            Some(part) => {
                part.wake();
                Self::Part(slot)
            }
        }
    }
}

/// Removes a wait of this worker from the count. A waiter that is dropped together with the
/// worker's thread state no longer counts: that thread is no worker then.
fn uncount_wait(slot: u32) {
    local(|local| local.into_iter().for_each(|local| local.uncount_wait(slot)));
}

/// The message of a `RemoteWaiter` to its worker.
#[derive(Debug)]
pub(super) struct Resumption {
    slot: u32,
    part: Option<PartWaker>,
    over: Arc<AtomicBool>,
}

impl Resumption {
    /// As [`Waiter::resume`].
    pub(super) fn resume(self) -> ResumedWaiter {
        let Self { slot, part, over } = self;
        WaitRegistration { slot, over }.end();
        ResumedWaiter::of(slot, part)
    }
}

/// The registration of a wait in `wait_remotely`. It counts until the first of its two handles is
/// dropped: that of its future, or the one created when the worker learns that it may continue.
/// Both are on the same worker.
pub(super) struct WaitRegistration {
    slot: u32,
    over: Arc<AtomicBool>,
}

impl WaitRegistration {
    /// Counts the wait of the future that is being polled with `context`.
    pub(super) fn new(local: &WorkerLocal, context: &Context<'_>) -> (Self, Resumption) {
        let (slot, over) = (local.current_slot().index, Arc::default());
        let part = if local.polls_task(context) { None } else { PartWaker::of(context) };
        if part.is_some() {
            local.waits_as_part(context);
        }
        local.count_wait(slot);
        let resumption = Resumption { slot, part, over: Arc::clone(&over) };
        (Self { slot, over }, resumption)
    }

    fn end(&self) {
        // Relaxed: accessed only by its own worker.
        if !self.over.swap(true, Ordering::Relaxed) {
            uncount_wait(self.slot);
        }
    }
}

impl Drop for WaitRegistration {
    fn drop(&mut self) {
        if !is_planted(Bug::GivenUpWaitCounted) {
            self.end();
        }
    }
}

/// Returns the waiter of the task, or of the part of one, that awaits this, for an event of the
/// engine.
///
/// # Panics
/// Outside a worker.
pub(crate) async fn current_waiter() -> Waiter {
    waiter_by(Waiter::polled).await
}

/// Returns the same waiter, for an event outside the engine.
///
/// # Panics
/// Outside a worker.
pub(crate) async fn current_foreign_waiter() -> Waiter {
    waiter_by(Waiter::uncounted).await
}

async fn waiter_by(make: fn(&WorkerLocal, &Context<'_>) -> Waiter) -> Waiter {
    std::future::poll_fn(|context| {
        local(|local| Poll::Ready(make(local.expect("only a worker's tasks wait"), context)))
    })
    .await
}
