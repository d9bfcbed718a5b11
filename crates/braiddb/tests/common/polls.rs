//! Futures that are dropped before they complete.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls a future, and drops it after `polls` polls without a result.
pub async fn poll_at_most<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left <= 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}
