//! Futures that are given up after a number of polls, on a simulated disk.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use braiddb::simulation::SimulatedDisk;

/// Polls a future so often at most; before each poll but the first, all that is under way ends.
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
