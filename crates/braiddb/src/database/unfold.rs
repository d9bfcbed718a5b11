//! A stream built from an asynchronous step.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use pin_project_lite::pin_project;

pin_project! {
    /// A stream of the items that `step` returns. Each call receives the state left by the previous
    /// call. The stream ends when `step` returns `None` or leaves no state, and stays ended.
    pub(super) struct Unfold<S, F, R> {
        state: Option<S>,
        step: F,
        #[pin]
        running: Option<R>,
    }
}

/// Creates a stream from `step`, which returns an item and the state for the next call.
pub(super) fn unfold<T, S, F, R>(state: S, step: F) -> Unfold<S, F, R>
where
    F: FnMut(S) -> R,
    R: Future<Output = Option<(T, Option<S>)>>,
{
    Unfold { state: Some(state), step, running: None }
}

impl<T, S, F, R> Stream for Unfold<S, F, R>
where
    F: FnMut(S) -> R,
    R: Future<Output = Option<(T, Option<S>)>>,
{
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut this = self.project();
        if let Some(state) = this.state.take() {
            this.running.set(Some((this.step)(state)));
        }
        let Some(running) = this.running.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let done = ready!(running.poll(context));
        this.running.set(None);
        Poll::Ready(done.map(|(item, state)| {
            *this.state = state;
            item
        }))
    }
}
