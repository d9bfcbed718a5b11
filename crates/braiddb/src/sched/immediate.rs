//! Operations that mostly end in their first poll.
//!
//! A plain function tries the operation. The future of the part that may wait is created only if
//! the function cannot end it. So an operation that ends immediately costs the user's future no
//! call of another future's state machine.

use std::pin::Pin;
use std::task::{Context, Poll};

/// An operation on `arguments`, which `now` may end and `later` continues otherwise.
pub(crate) struct ImmediateOr<A, N, L, F> {
    arguments: A,
    now: N,
    later: L,
    /// Present once `now` could not end the operation. Pinned with the whole.
    rest: Option<F>,
}

/// Creates an operation that `now` ends in the first poll. If it returns `None`, the operation
/// continues with the future of `later`.
#[inline(always)]
pub(crate) fn immediate_or<A, N, L, F>(arguments: A, now: N, later: L) -> ImmediateOr<A, N, L, F>
where
    A: Copy,
    N: Fn(A) -> Option<F::Output>,
    L: Fn(A) -> F,
    F: Future,
{
    ImmediateOr { arguments, now, later, rest: None }
}

impl<A, N, L, F> ImmediateOr<A, N, L, F>
where
    A: Copy,
    L: Fn(A) -> F,
    F: Future,
{
    // Not inlined, because the function around it is compiled for each operation of each closure.
    #[inline(never)]
    fn poll_rest(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        let (arguments, later) = (self.arguments, &self.later);
        let rest = self.rest.get_or_insert_with(|| later(arguments));
        // SAFETY: `poll` has pinned the whole, `rest` is never moved out, and its destructor runs
        // in place.
        unsafe { Pin::new_unchecked(rest) }.poll(context)
    }
}

impl<A, N, L, F> Future for ImmediateOr<A, N, L, F>
where
    A: Copy,
    N: Fn(A) -> Option<F::Output>,
    L: Fn(A) -> F,
    F: Future,
{
    type Output = F::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: nothing is moved out of `this`, and only `poll_rest` accesses the pinned field.
        let this = unsafe { self.get_unchecked_mut() };
        if this.rest.is_none()
            && let Some(output) = (this.now)(this.arguments)
        {
            return Poll::Ready(output);
        }
        this.poll_rest(context)
    }
}
