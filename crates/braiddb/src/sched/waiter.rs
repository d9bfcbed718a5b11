//! Which task is to be resumed when what a task waits for has happened.
//!
//! A task's future is polled with the waker of its slot, or, where the task runs an executor of its
//! own inside (`join_all`, `FuturesUnordered`, `select`), parts of it are polled with wakers of that
//! executor, which polls a part again only if that waker was woken. So a part that waits hands over the
//! waker it was polled with, unless it is the slot's own: then the slot's number is enough, and costs
//! no reference count.

use std::task::{Context, Poll, Waker};

use super::local::{Cause, SlotId, WorkerLocal, local};
use super::panics::{Contained, Panic, contain};
use crate::sync::yield_thread;

/// A task, or a part of one, that waits on a worker.
#[derive(Debug)]
pub(crate) enum Waiter {
    /// A whole task. A resumption that comes late finds the slot's next task, which takes it for the
    /// spurious wake-up that every waiting task must expect.
    Task(SlotId),
    /// What another executor polls inside a task.
    Part(PartWaker),
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
        let part = if local.polls_task(context) { None } else { PartWaker::of(context) };
        part.map_or_else(|| Self::Task(local.current_slot()), Self::Part)
    }

    /// Makes this who is being polled with `context` now: the same future may be polled by another
    /// executor each time, and only the last one counts.
    pub(super) fn update(&mut self, local: &WorkerLocal, context: &Context<'_>) {
        match self {
            Self::Task(slot) if local.polls_task(context) && *slot == local.current_slot() => {}
            Self::Part(waker) if waker.0.will_wake(context.waker()) => {}
            _ => *self = Self::polled(local, context),
        }
    }
}

/// A task, or a part of one, that any thread can let go on.
#[derive(Debug)]
pub(crate) enum RemoteWaiter {
    /// A whole task, by the waker of its slot.
    Task(Waker),
    /// What another executor polls inside a task.
    Part(PartWaker),
}

impl RemoteWaiter {
    /// Who is being polled with `context` now. `None` if the waker panics instead of being cloned.
    fn polled(local: &WorkerLocal, context: &Context<'_>) -> Option<Self> {
        if local.polls_task(context) {
            return Some(Self::Task(context.waker().clone()));
        }
        PartWaker::of(context).map(Self::Part)
    }

    /// Lets it look again at what it waits for: a task at once, on whatever worker it is; a part of one, if this is a worker,
    /// once the task that is being polled suspends: a user's waker may do anything, and the caller may have a lock.
    pub(crate) fn wake(self) {
        match self {
            Self::Task(waker) => waker.wake(),
            Self::Part(part) => local(|local| match local {
                Some(local) => local.resumed.borrow_mut().push(Waiter::Part(part)),
                None => part.wake(),
            }),
        }
    }
}

/// Waits until `look` finds something. What it is given it leaves, in one stretch with finding nothing, where it will
/// be found and woken by whoever brings something about, on any thread. It may look for nothing. Off the workers
/// there is nobody to be woken: it looks again and again.
pub(crate) async fn wait_remotely<T>(
    cause: Cause,
    mut look: impl FnMut(Option<RemoteWaiter>) -> Option<T>,
) -> T {
    assert!(!cause.is_hot(), "{cause:?} is not waited for");
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
            let found = look(RemoteWaiter::polled(local, context));
            if found.is_none() {
                local.suspend(cause);
            }
            found.map_or(Poll::Pending, Poll::Ready)
        })
    })
    .await
}

/// The task, or the part of one, that awaits this.
///
/// # Panics
/// Off the workers.
pub(crate) async fn current_waiter() -> Waiter {
    std::future::poll_fn(|context| {
        local(|local| {
            let local = local.expect("only a worker's tasks wait");
            Poll::Ready(Waiter::polled(local, context))
        })
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
        if let Waiter::Task(slot) = waiter {
            assert_eq!(local.worker, slot.worker, "a worker resumes its own tasks");
        }
        local.resumed.borrow_mut().push(waiter);
    });
}
