//! Detection of executors that block a worker: a `block_on` inside a task polls a future whose
//! result only the blocked worker, or its equally blocked neighbours, can produce.
//!
//! An executor inside a task (`FuturesUnordered`, `LocalSet`) polls its parts with other wakers than
//! the task's, as `block_on` does. The difference: it returns to the worker, so after a wake-up it
//! polls the part in a later poll of the task. A blocking executor polls again within the same poll
//! of the task, without end. So the probe wakes each waker that it does not know, and counts the
//! polls within one poll of the task. A poll in a later one shows that the executor returned. Until
//! then, the future is not polled, so it has no effects if the probe fails.
//!
//! Operations of a transaction run on its worker, and need no other poll unless they wait. So the
//! probe of an operation begins when it waits for an event for the first time.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::failure::Failure;
use super::local::{WorkerLocal, local};
use super::waiter::wake_polled;

/// Number of polls within one poll of the task that show a blocking executor. Others also poll a
/// woken part several times before they return: tokio's `LocalSet` 61 times, smol's
/// `LocalExecutor` 200 times.
const MAX_POLLS: u32 = 1024;

thread_local! {
    /// True while this thread, which is no worker, must not wait for workers.
    static REFUSES_WAITS: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of the caller's types that must not wait for workers, because they may wait for what
/// this thread holds.
pub(crate) fn refusing_waits<R>(code: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            REFUSES_WAITS.set(self.0);
        }
    }
    let _restore = Restore(REFUSES_WAITS.replace(true));
    code()
}

/// Returns whether this thread must not wait for workers.
pub(crate) fn refuses_waits() -> bool {
    REFUSES_WAITS.get()
}

/// The future would wait for the thread that polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlocksWorker;

/// The probe of one future that waits for the workers of a database.
#[derive(Debug)]
pub(crate) struct BlockingProbe {
    /// Identity of the database's workers: the address of their shared failure state.
    workers: usize,
    /// Identity of the last waker that was not the task's own.
    waker: usize,
    /// True if the executor of that waker returns to the worker.
    is_known: bool,
    /// True if any executor has returned to the worker, so that the future may be polled.
    has_returned: bool,
    /// The poll of the task in which the probe was last called, and the calls in it.
    task_poll: u32,
    calls: u32,
}

impl BlockingProbe {
    /// Creates the probe of a future that keeps `failure` alive.
    pub(crate) fn new(failure: &Arc<Failure>) -> Self {
        let workers = Arc::as_ptr(failure).addr();
        let (waker, task_poll, calls) = (0, 0, 0);
        Self { workers, waker, is_known: false, has_returned: false, task_poll, calls }
    }

    /// Returns the probe of an operation that was just polled and is not ready, if it waits for an
    /// event in an executor inside the task. The executor will poll it again.
    #[inline(always)]
    pub(super) fn of_wait(context: &Context<'_>) -> Option<Box<Self>> {
        local(|local| {
            let local = local?;
            let waits = std::ptr::eq(local.waiting_part.get().0, context.waker());
            if waits { Self::of_waiting_part(local, context) } else { None }
        })
    }

    #[cold]
    fn of_waiting_part(local: &WorkerLocal, context: &Context<'_>) -> Option<Box<Self>> {
        // The address may be that of an earlier waker.
        let (_, task_poll) = local.waiting_part.replace((std::ptr::null(), 0));
        if task_poll != local.task_polls.get() {
            return None;
        }
        let mut probe = Box::new(Self::new(&local.failure));
        // The first of many polls, so it cannot fail.
        _ = probe.look(local, context);
        Some(probe)
    }

    /// Called before each poll of the future. `Ready(Ok)` if it may be polled now; `Pending` if the
    /// executor must poll again first, for which it has been woken.
    ///
    /// # Errors
    /// `BlocksWorker` if the executor blocks a worker of the database, or if this thread must not wait
    /// for one.
    #[inline]
    pub(crate) fn before_poll(&mut self, context: &Context<'_>) -> Poll<Result<(), BlocksWorker>> {
        local(|local| match local {
            Some(local) if !local.polls_task(context) => self.look(local, context),
            None if refuses_waits() => Poll::Ready(Err(BlocksWorker)),
            _ => Poll::Ready(Ok(())),
        })
    }

    #[cold]
    fn look(
        &mut self,
        local: &WorkerLocal,
        context: &Context<'_>,
    ) -> Poll<Result<(), BlocksWorker>> {
        let (waker, task_poll) = (context.waker().data().addr(), local.task_polls.get());
        let is_same = waker == self.waker;
        if Arc::as_ptr(&local.failure).addr() != self.workers || is_same && self.is_known {
            return Poll::Ready(Ok(()));
        }
        if task_poll != self.task_poll {
            self.has_returned |= self.calls > 0;
            self.is_known = self.calls > 0 && is_same;
            (self.task_poll, self.calls) = (task_poll, 0);
            if self.is_known {
                return Poll::Ready(Ok(()));
            }
        }
        (self.waker, self.is_known) = (waker, false);
        self.calls += 1;
        if self.calls > MAX_POLLS {
            // It may use the same waker in a later poll of the task.
            self.calls = 0;
            return Poll::Ready(Err(BlocksWorker));
        }
        wake_polled(context);
        if self.has_returned { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}
