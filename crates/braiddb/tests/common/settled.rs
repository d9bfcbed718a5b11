//! Futures that are dropped after a number of polls, on a simulated disk.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use braiddb::simulation::SimulatedDisk;

/// Polls a future at most this number of times. Before each poll except the first, all pending
/// operations end.
pub fn poll_settled<F: Future>(disk: &SimulatedDisk, future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        disk.settle();
    }
    None
}
