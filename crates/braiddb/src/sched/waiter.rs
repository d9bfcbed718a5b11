//! Which task is to be resumed when what a task waits for has happened.
//!
//! A task's future is polled with the waker of its slot, or, where the task runs an executor of its
//! own inside (`join_all`, `FuturesUnordered`, `select`), parts of it are polled with wakers of that
//! executor, which polls a part again only if that waker was woken. So a part that waits hands over the
//! waker it was polled with, unless it is the slot's own: then the slot's number is enough, and costs
//! no reference count.
//!
//! A worker counts for each slot what its task waits for that the engine will bring about: each [`Waiter`] but those of
//! [`current_foreign_waiter`], and each registration of [`wait_remotely`], from when it is made to when its worker has
//! resumed the task or woken the part, or it is given up. A task that waits, and for which nothing is counted, waits for
//! something foreign, whatever the engine's futures said when it was polled last.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::local::{SlotId, WaitCause, WorkerLocal, local};
use super::mailbox::Mailbox;
use super::panics::{Contained, Panic, contain};
use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::yield_thread;

/// A task, or a part of one, that waits on a worker.
///
/// A resumption that comes late finds the slot's next task, which takes it for the spurious wake-up that
/// every waiting task must expect.
#[derive(Debug)]
pub(crate) struct Waiter {
    slot: SlotId,
    /// What another executor polls inside the task; the whole task, if none.
    part: Option<PartWaker>,
    /// Whether it counts among what its slot waits for.
    counts: bool,
}

/// The waker of an executor inside a task: a user's code, whose panics are contained.
#[derive(Debug)]
pub(crate) struct PartWaker(Contained<Waker>);

impl PartWaker {
    /// `None` if the waker panics instead of being cloned.
    fn of(context: &Context<'_>) -> Option<Self> {
        let cloned = log_panic(contain(|| context.waker().clone()))?;
        Some(Self(Contained::new(cloned)))
    }

    pub(super) fn wake(self) {
        log_panic(contain(|| self.0.wake_by_ref()));
    }
}

/// Wakes what is being polled with `context`, so that its executor polls it again.
pub(super) fn wake_polled(context: &Context<'_>) {
    log_panic(contain(|| context.waker().wake_by_ref()));
}

fn log_panic<T>(result: Result<T, Panic>) -> Option<T> {
    let log = |Panic { message }: &Panic| {
        tracing::error!("a waker panicked, and what it was to wake may wait for ever: {message}");
    };
    result.inspect_err(log).ok()
}

impl Waiter {
    /// Who is being polled with `context` now.
    pub(super) fn polled(local: &WorkerLocal, context: &Context<'_>) -> Self {
        let mut waiter = Self::uncounted(local, context);
        waiter.counts = true;
        local.count_wait(waiter.slot.index);
        waiter
    }

    fn uncounted(local: &WorkerLocal, context: &Context<'_>) -> Self {
        let part = if local.polls_task(context) { None } else { PartWaker::of(context) };
        Self { slot: local.current_slot(), part, counts: false }
    }

    /// Whether it is who is being polled with `context` now: the same future may be polled by another
    /// executor each time, and only the last one counts.
    pub(super) fn is_polled(&self, local: &WorkerLocal, context: &Context<'_>) -> bool {
        self.slot == local.current_slot()
            && match &self.part {
                None => local.polls_task(context),
                Some(waker) => waker.0.will_wake(context.waker()),
            }
    }

    /// On its worker, when what it waits for has happened: wakes it if it is a part. It is no longer counted then.
    #[inline]
    pub(super) fn resume(mut self) -> ResumedWaiter {
        let (slot, part) = (self.slot.index, self.part.take());
        if std::mem::take(&mut self.counts) {
            uncount_wait(slot);
        }
        ResumedWaiter::of(slot, part)
    }
}

/// Given up, if it has not gone on.
impl Drop for Waiter {
    #[inline]
    fn drop(&mut self) {
        if self.counts && !is_planted(Bug::GivenUpWaitCounted) {
            uncount_wait(self.slot.index);
        }
    }
}

/// Whom a waiter was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResumedWaiter {
    /// The task in a slot, which is to be staged.
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

/// Uncounts a wait of this worker. What is dropped with the state that a worker's tasks reach through their thread counts
/// no more: that thread is no worker then.
fn uncount_wait(slot: u32) {
    local(|local| local.into_iter().for_each(|local| local.uncount_wait(slot)));
}

/// A task, or a part of one, that any thread can let go on.
#[derive(Debug)]
pub(crate) struct RemoteWaiter {
    mailbox: Arc<Mailbox>,
    resumption: Resumption,
}

/// What a [`RemoteWaiter`] tells its worker.
#[derive(Debug)]
pub(super) struct Resumption {
    slot: u32,
    part: Option<PartWaker>,
    over: Arc<AtomicBool>,
}

impl RemoteWaiter {
    /// Lets it look again at what it waits for. Its own worker resumes the task or wakes the part, at once if it sleeps: a
    /// part's waker is a user's code, and the caller may have a lock.
    pub(crate) fn wake(self) {
        let Self { mailbox, resumption } = self;
        mailbox.resumed.push(resumption);
        mailbox.ring();
    }
}

impl Resumption {
    /// As [`Waiter::resume`].
    pub(super) fn resume(self) -> ResumedWaiter {
        let Self { slot, part, over } = self;
        WaitRegistration { slot, over }.end();
        ResumedWaiter::of(slot, part)
    }
}

/// That a task waits for what [`wait_remotely`] does. Counted until the first of its two handles is dropped: its future's,
/// or the one made when the worker is told that it may go on. Both are on the same worker.
struct WaitRegistration {
    slot: u32,
    over: Arc<AtomicBool>,
}

impl WaitRegistration {
    fn new(local: &WorkerLocal, context: &Context<'_>) -> (Self, RemoteWaiter) {
        let (slot, over) = (local.current_slot().index, Arc::default());
        let part = if local.polls_task(context) { None } else { PartWaker::of(context) };
        let mailbox = local.mailbox.clone();
        local.count_wait(slot);
        let resumption = Resumption { slot, part, over: Arc::clone(&over) };
        (Self { slot, over }, RemoteWaiter { mailbox, resumption })
    }
}

impl WaitRegistration {
    fn end(&self) {
        // Relaxed: looked at by its own worker alone.
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

/// Waits until `look` finds something. What it is given it leaves, in one stretch with finding nothing, where it will
/// be found and woken by whoever brings something about, on any thread. It may look for nothing. Off the workers
/// there is nobody to be woken: it looks again and again.
pub(crate) async fn wait_remotely<T>(
    cause: WaitCause,
    mut look: impl FnMut(Option<RemoteWaiter>) -> Option<T>,
) -> T {
    assert!(!cause.is_hot(), "{cause:?} is not waited for");
    let mut registered = None;
    std::future::poll_fn(move |context| {
        local(|local| {
            let Some(local) = local else {
                loop {
                    if let Some(found) = look(None) {
                        return Poll::Ready(found);
                    }
                    yield_thread();
                }
            };
            let (registration, waiter) = WaitRegistration::new(local, context);
            let found = look(Some(waiter));
            registered = found.is_none().then_some(registration);
            if found.is_none() {
                local.suspend(cause);
            }
            found.map_or(Poll::Pending, Poll::Ready)
        })
    })
    .await
}

/// The task, or the part of one, that awaits this, to wait for what the engine will bring about.
///
/// # Panics
/// Off the workers.
pub(crate) async fn current_waiter() -> Waiter {
    waiter_by(Waiter::polled).await
}

/// The same, to wait for what is up to others than the engine.
///
/// # Panics
/// Off the workers.
pub(crate) async fn current_foreign_waiter() -> Waiter {
    waiter_by(Waiter::uncounted).await
}

async fn waiter_by(make: fn(&WorkerLocal, &Context<'_>) -> Waiter) -> Waiter {
    std::future::poll_fn(|context| {
        local(|local| Poll::Ready(make(local.expect("only a worker's tasks wait"), context)))
    })
    .await
}

/// Lets what waits on this thread's worker go on.
///
/// # Panics
/// On another thread than that of the waiter's worker.
pub(crate) fn resume(waiter: Waiter) {
    local(|local| {
        let local = local.expect("a worker resumes its own tasks");
        assert_eq!(local.worker, waiter.slot.worker, "a worker resumes its own tasks");
        local.resumed.borrow_mut().push(waiter);
    });
}
