//! Operations that mostly end in their first poll.
//!
//! A plain function tries the operation. The future of the part that may wait is created only if
//! the function cannot end it. So an operation that ends immediately costs the user's future no
//! call of another future's state machine.

use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

/// An operation that a plain function may end.
///
/// A trait, because its function is always inlined. A closure or a function that is passed as a
/// value is behind a call.
pub(crate) trait ImmediateOperation: Copy {
    type Output;

    /// Ends the operation; `None` if it may have to wait.
    fn now(self) -> Option<Self::Output>;
}

/// An operation that `later` continues if it does not end immediately.
pub(crate) struct ImmediateOr<O, L, F> {
    operation: O,
    later: L,
    /// Pinned with the whole.
    progress: ManuallyDrop<ImmediateProgress<F>>,
}

enum ImmediateProgress<F> {
    New,
    /// `now` could not end the operation.
    Rest(F),
    /// `now` has ended the operation, or panicked.
    Ended,
}

/// Creates the future of an operation. If it does not end in the first poll, it continues with the
/// future of `later`.
#[inline(always)]
pub(crate) fn immediate_or<O, L, F>(operation: O, later: L) -> ImmediateOr<O, L, F>
where
    O: ImmediateOperation,
    L: Fn(O) -> F,
    F: Future<Output = O::Output>,
{
    ImmediateOr { operation, later, progress: ManuallyDrop::new(ImmediateProgress::New) }
}

impl<O, L, F> Future for ImmediateOr<O, L, F>
where
    O: ImmediateOperation,
    L: Fn(O) -> F,
    F: Future<Output = O::Output>,
{
    type Output = O::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O::Output> {
        // SAFETY: `progress` is pinned with the whole: it is never moved out, and is dropped in
        // place. The other fields are never pinned.
        let this = unsafe { self.get_unchecked_mut() };
        if matches!(*this.progress, ImmediateProgress::New) {
            // `New` has nothing to drop.
            this.progress = ManuallyDrop::new(ImmediateProgress::Ended);
            if let Some(output) = this.operation.now() {
                return Poll::Ready(output);
            }
            this.progress =
                ManuallyDrop::new(ImmediateProgress::Rest((this.later)(this.operation)));
        }
        let ImmediateProgress::Rest(rest) = &mut *this.progress else {
            panic!("an operation is not polled after its end");
        };
        // SAFETY: `self` was pinned, and with it `rest`, which is never moved out.
        unsafe { Pin::new_unchecked(rest) }.poll(context)
    }
}

impl<O, L, F> Drop for ImmediateOr<O, L, F> {
    #[inline(always)]
    fn drop(&mut self) {
        if matches!(*self.progress, ImmediateProgress::Rest(_)) {
            // SAFETY: dropped once, here, in place.
            unsafe { ManuallyDrop::drop(&mut self.progress) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Ends;

    impl ImmediateOperation for Ends {
        type Output = u64;

        fn now(self) -> Option<u64> {
            Some(7)
        }
    }

    #[test]
    #[should_panic(expected = "not polled after its end")]
    fn an_operation_that_has_ended_is_not_repeated() {
        let mut operation = std::pin::pin!(immediate_or(Ends, |_| std::future::ready(8)));
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert_eq!(operation.as_mut().poll(&mut context), Poll::Ready(7));
        _ = operation.poll(&mut context);
    }
}
