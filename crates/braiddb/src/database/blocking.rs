//! Calls that block their thread.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::error::{Error, Misuse, Result};
use crate::sched;
use crate::sync::thread::{self, Thread};

/// Fails on a worker's thread, which a blocking call would stop, and on a thread for which workers
/// may wait.
pub(super) fn refuse_on_worker() -> Result<()> {
    let blocks = sched::on_worker() || sched::refuses_waits();
    if blocks { Err(Error::Misuse(Misuse::WouldBlock)) } else { Ok(()) }
}

/// Runs a future on the calling thread, which sleeps while it waits. It makes each operation of a
/// database a blocking call in a program without async code. Within a transaction's closure, await the
/// operations instead: there, a future that must wait fails with
/// [`Misuse::WouldBlock`](crate::Misuse).
///
/// ```
/// use braiddb::{Database, Error, Options, Table, block_on};
///
/// fn main() -> Result<(), Error> {
///     let db = Database::in_memory(Options::default().workers(1))?;
///     let names: Table<u64, str> = block_on(db.open_or_create_table("names"))?;
///     block_on(db.put(&names, &1, "ada"))?;
///     assert_eq!(block_on(db.get(&names, &1))?.as_deref(), Some("ada"));
///     Ok(())
/// }
/// ```
pub fn block_on<T>(future: impl IntoFuture<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = std::pin::pin!(future.into_future());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
