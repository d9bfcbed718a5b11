//! Steps of a task: work that pauses for cache lines and that the worker continues directly,
//! without polling the whole task.
//!
//! A poll of a task passes through the futures of the request, of its attempts, of the user's
//! closure and of the operation. A lookup pauses several times, a few dozen instructions apart. So
//! its innermost future registers itself when it pauses, and in the next round the worker calls it
//! alone.
//!
//! Invariant: the worker calls a registered step only if nothing of the task has run since it
//! paused, and it was the only part of the task that suspended in that poll. So the step is pinned
//! and alive when it is called, and so is all that it borrows:
//!
//! - a step that is dropped removes its registration;
//! - another suspension in the same poll, and the end of a transaction ([`forget_step`]), remove
//!   it too. So a step that was leaked instead of dropped is not called after the end of what it
//!   borrows.

use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::local::{PausedStep, local};
use super::wait_cause::WaitCause;
use super::waiter::wake_polled;

/// Work that pauses for cache lines.
pub(crate) trait Steps {
    type Output;

    /// Continues until cache lines are probably missing. They are prefetched then, and the result
    /// is `false`; it is `true` once the work has ended.
    fn advance(&mut self) -> bool;

    /// Returns the result, once the work has ended.
    fn output(&self) -> Self::Output;
}

/// The future of steps.
#[derive(Debug)]
pub(crate) struct Stepped<S: Steps> {
    steps: S,
    /// True while it may be registered.
    is_paused: bool,
    _pinned: PhantomPinned,
}

/// Returns a future that runs `steps` to their result.
#[inline(always)]
pub(crate) fn stepped<S: Steps>(steps: S) -> Stepped<S> {
    Stepped { steps, is_paused: false, _pinned: PhantomPinned }
}

/// # Safety
/// `step` is a registered `Stepped<S>` (the invariant of this module).
unsafe fn advance<S: Steps>(step: *mut ()) -> bool {
    // SAFETY: alive, and not otherwise accessed during the call.
    let step = unsafe { &mut *step.cast::<Stepped<S>>() };
    !step.steps.advance()
}

impl<S: Steps> Future for Stepped<S> {
    type Output = S::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<S::Output> {
        // SAFETY: nothing is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        if this.steps.advance() {
            this.is_paused = false;
            return Poll::Ready(this.steps.output());
        }
        this.is_paused = true;
        // SAFETY: this step is pinned, and removes its registration when it is dropped.
        let step = unsafe { PausedStep::new(std::ptr::from_mut(this).cast(), advance::<S>) };
        local(|local| {
            let local = local.expect("only a worker's tasks suspend");
            let is_first = local.cause.get() == WaitCause::Foreign;
            local.suspend(WaitCause::Memory);
            if !local.polls_task(context) {
                // The executor inside the task polls this part only if it is woken.
                wake_polled(context);
            } else if is_first {
                local.step.set(Some(step));
            }
        });
        Poll::Pending
    }
}

impl<S: Steps> Drop for Stepped<S> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_paused {
            forget_step();
        }
    }
}

/// Removes the registration of the task that is being polled, if any.
#[inline(always)]
pub(crate) fn forget_step() {
    local(|local| {
        if let Some(local) = local {
            local.step.set(None);
        }
    });
}
