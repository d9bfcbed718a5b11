//! Calls that block their thread.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::error::{Error, Misuse, Result};
use crate::sched;
use crate::sync::thread::{self, Thread};

/// Fails on a worker's thread, which a blocking call would stop.
pub(super) fn refuse_on_worker() -> Result<()> {
    if sched::on_worker() { Err(Error::Misuse(Misuse::WouldBlock)) } else { Ok(()) }
}

/// Runs a future on the calling thread, which sleeps while it waits.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
