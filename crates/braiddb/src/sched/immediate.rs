//! Operations that mostly end in their first poll.
//!
//! A plain function tries the operation. The future of the part that may wait is created only if
//! the function cannot end it. So an operation that ends immediately costs the user's future no
//! call of another future's state machine.

use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An operation on `arguments`, which `now` may end and `later` continues otherwise.
pub(crate) struct ImmediateOr<A, N, L, F> {
    arguments: A,
    now: N,
    later: L,
    /// Present once `now` could not end the operation. Pinned with the whole.
    rest: ManuallyDrop<Option<F>>,
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
    ImmediateOr { arguments, now, later, rest: ManuallyDrop::new(None) }
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
        // SAFETY: `rest` is pinned with the whole: it is never moved out, and is dropped in place.
        // The other fields are never pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if this.rest.is_none() {
            if let Some(output) = (this.now)(this.arguments) {
                return Poll::Ready(output);
            }
            *this.rest = Some((this.later)(this.arguments));
        }
        let rest = this.rest.as_mut().expect("created above or before");
        // SAFETY: as above.
        unsafe { Pin::new_unchecked(rest) }.poll(context)
    }
}

impl<A, N, L, F> Drop for ImmediateOr<A, N, L, F> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.rest.is_some() {
            // SAFETY: dropped once, here, in place.
            unsafe { ManuallyDrop::drop(&mut self.rest) };
        }
    }
}
