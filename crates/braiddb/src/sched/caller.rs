//! The caller of the task that is being polled: a task whose caller has dropped its future must do
//! no further work, although no suspension lets it notice that.

use std::cell::Cell;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::local::{WaitCause, WorkerLocal, local};
use super::waiter::wake_polled;
use crate::sync::oneshot;

/// A caller that waits for a task's result.
pub(crate) trait Caller {
    /// Returns whether the caller has dropped its future.
    fn is_gone(&self) -> bool;
}

impl<T> Caller for oneshot::Sender<T> {
    fn is_gone(&self) -> bool {
        self.is_canceled()
    }
}

/// The caller of the task that is being polled, if it has one.
#[derive(Debug, Default)]
pub(super) struct CurrentCaller(Cell<Option<NonNull<dyn Caller>>>);

/// Restores the previous caller.
struct RestoredCaller<'w>(&'w WorkerLocal, Option<NonNull<dyn Caller>>);

impl Drop for RestoredCaller<'_> {
    fn drop(&mut self) {
        self.0.caller.0.set(self.1);
    }
}

/// Polls the work of a task for its caller, to which [`unless_caller_gone`] then refers. If the
/// caller is gone, the code around this poll drops the work.
pub(crate) fn poll_for<R>(caller: &(dyn Caller + 'static), poll: impl FnOnce() -> R) -> R {
    local(|local| {
        // Restored before `caller` ends, also by a panic.
        let _restored = local.map(|local| {
            let before = local.caller.0.replace(Some(NonNull::from(caller)));
            RestoredCaller(local, before)
        });
        poll()
    })
}

/// Ready, unless the caller of the task that is being polled has dropped its future. Then the task
/// never continues: it suspends, and is dropped at its next poll.
#[inline(always)]
pub(crate) fn poll_unless_caller_gone(context: &Context<'_>) -> Poll<()> {
    local(|local| match local {
        Some(local) if caller_is_gone(local) => suspend_forever(local, context),
        _ => Poll::Ready(()),
    })
}

/// Waits as [`poll_unless_caller_gone`] does.
pub(crate) async fn unless_caller_gone() {
    std::future::poll_fn(|context| poll_unless_caller_gone(context)).await;
}

/// Returns whether the caller of the task that is being polled has dropped its future.
#[inline(always)]
pub(crate) fn is_caller_gone() -> bool {
    local(|local| local.is_some_and(caller_is_gone))
}

#[inline(always)]
pub(super) fn caller_is_gone(local: &WorkerLocal) -> bool {
    // SAFETY: `poll_for` sets the pointer only while the reference is valid.
    local.caller.0.get().is_some_and(|caller| unsafe { caller.as_ref() }.is_gone())
}

#[cold]
fn suspend_forever(local: &WorkerLocal, context: &Context<'_>) -> Poll<()> {
    local.suspend(WaitCause::Undecided);
    if !local.polls_task(context) {
        local.waits_as_part(context);
        wake_polled(context);
    }
    Poll::Pending
}
