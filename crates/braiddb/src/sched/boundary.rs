//! Futures at the boundary between user code and the engine: a user's future that a worker polls
//! ([`ContainedFuture`]), and an engine's future that user code awaits ([`EngineFuture`]).
//! `panics.rs` explains their treatment of panics.

use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::blocking::{BlockingProbe, BlocksWorker};
use super::panics::{Panic, contain, contain_destructor, drop_contained, engine_call};
use super::runtime::CallerRuntime;
use super::suspend::poll_unless_caller_gone;

/// The reason why a user's future returned no value.
#[derive(Debug)]
pub(crate) enum UserFailure<E> {
    /// It returned this error.
    Error(E),
    Panic(Panic),
}

/// A user's future, polled within its caller's runtime. Its creation and each poll are contained,
/// and so is its destructor, which runs as soon as the future is ready. A failure is boxed, because
/// the result moves several times and errors are larger than most values.
pub(crate) struct ContainedFuture<'f, M, F> {
    runtime: &'f CallerRuntime,
    /// Creates the future in its first poll.
    make: Option<M>,
    future: Pin<&'f mut Option<F>>,
}

// `make` is moved out before it is called, and never pinned.
impl<M, F> Unpin for ContainedFuture<'_, M, F> {}

impl<'f, M: FnOnce() -> F, F: Future> ContainedFuture<'f, M, F> {
    /// Creates it with the place of the future, which is empty.
    pub(crate) fn new(runtime: &'f CallerRuntime, future: Pin<&'f mut Option<F>>, make: M) -> Self {
        Self { runtime, make: Some(make), future }
    }
}

impl<M, F, T, E> Future for ContainedFuture<'_, M, F>
where
    M: FnOnce() -> F,
    F: Future<Output = Result<T, E>>,
{
    type Output = Result<T, Box<UserFailure<E>>>;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { runtime, make, future } = &mut *self;
        runtime.enter();
        let mut output = None;
        let polled = contain(|| {
            if let Some(make) = make.take() {
                future.set(Some(make()));
            }
            let pinned = future.as_mut().as_pin_mut().expect("not polled again once it is ready");
            if let Poll::Ready(result) = pinned.poll(context) {
                output = Some(result.map_err(|error| Box::new(UserFailure::Error(error))));
                future.set(None);
            }
        });
        match polled {
            Ok(()) => output.map_or(Poll::Pending, Poll::Ready),
            Err(panic) => {
                drop_contained(output);
                contain_destructor(|| self.future.set(None));
                Poll::Ready(Err(Box::new(UserFailure::Panic(panic))))
            }
        }
    }
}

impl<M, F> Drop for ContainedFuture<'_, M, F> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.make.is_some() {
            contain_destructor(|| self.make = None);
        }
        if self.future.is_some() {
            contain_destructor(|| self.future.set(None));
        }
    }
}

/// Result of an operation that user code awaits.
pub(crate) trait OperationResult {
    /// Returns the result of an operation that waits in an executor that blocks its worker.
    fn of_blocked() -> Self;
}

impl<T, E: From<BlocksWorker>> OperationResult for Result<T, E> {
    fn of_blocked() -> Self {
        Err(BlocksWorker.into())
    }
}

/// `None` lets the caller try an operation that reports it.
impl<T> OperationResult for Option<T> {
    fn of_blocked() -> Self {
        None
    }
}

/// The engine's part of a future that user code awaits. A panic in it is the engine's; so is a
/// panic in its destructor if it is dropped before it is ready. It does not begin once the caller of
/// the task has dropped its future. If it waits in an executor that blocks its worker, it fails.
pub(crate) struct EngineFuture<F> {
    future: ManuallyDrop<F>,
    has_begun: bool,
    /// Present once it has waited in an executor other than the worker.
    probe: Option<Box<BlockingProbe>>,
}

/// Marks a future as the engine's, for user code to await.
#[inline(always)]
pub(crate) fn engine_code<F: Future<Output: OperationResult>>(future: F) -> EngineFuture<F> {
    EngineFuture { future: ManuallyDrop::new(future), has_begun: false, probe: None }
}

impl<F: Future<Output: OperationResult>> Future for EngineFuture<F> {
    type Output = F::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `future` is pinned with the whole: it is never moved out, is dropped in place, and
        // cannot be accessed otherwise. The other fields are never pinned.
        let (future, has_begun, probe) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut *this.future), &mut this.has_begun, &mut this.probe)
        };
        if let Some(probe) = probe
            && std::task::ready!(probe.before_poll(context)).is_err()
        {
            return Poll::Ready(F::Output::of_blocked());
        }
        *has_begun = *has_begun || poll_unless_caller_gone(context).is_ready();
        let polled = if *has_begun { engine_call(|| future.poll(context)) } else { Poll::Pending };
        if polled.is_pending() && probe.is_none() {
            *probe = BlockingProbe::of_wait(context);
        }
        polled
    }
}

impl<F> Drop for EngineFuture<F> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: dropped once, here, in place.
        engine_call(|| unsafe { ManuallyDrop::drop(&mut self.future) });
    }
}
