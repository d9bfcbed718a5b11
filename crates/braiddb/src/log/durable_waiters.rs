//! Waiters, on any thread, for a later durable LSN.
//!
//! Invariant: no wake-up is lost. A waiter registers its waker, raises the count of wakers, and
//! then checks the durable LSN a last time. A notifier makes the advance visible, and then checks
//! the count of wakers. A sequentially consistent fence separates the two steps of each, so either
//! the waiter sees the advance, or the notifier sees the waker. The count is written only under the
//! lock of the wakers, so it is never less than their number. A waker is removed before it is
//! called, and called without the lock, because it is user code.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Lsn;
use crate::sched::{self, Panic};
use crate::sync::ModelMutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The state that waiters check.
#[derive(Debug, Default)]
pub(crate) struct LogWatch {
    durable: AtomicU64,
    /// True if no more of the log will become durable, because the database is closing or its log
    /// failed.
    ended: AtomicBool,
    /// The number of wakers; changed under their lock.
    waiting: AtomicU64,
    wakers: ModelMutex<LogWakers>,
}

#[derive(Debug, Default)]
struct LogWakers {
    next: u64,
    by_number: BTreeMap<u64, (Lsn, Waker)>,
}

impl LogWatch {
    /// Records that everything before `durable` is durable.
    pub(crate) fn advance(&self, durable: Lsn) {
        self.durable.fetch_max(durable.0, Ordering::SeqCst);
        self.wake();
    }

    /// Records that the log has ended, and wakes all waiters.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Returns a future that is ready when more than `position` is durable, or the log has ended.
    pub(crate) fn beyond(self: &Arc<Self>, position: Lsn) -> WaitBeyond {
        WaitBeyond { watch: self.clone(), position, number: None }
    }

    fn is_beyond(&self, position: Lsn) -> bool {
        self.durable.load(Ordering::SeqCst) > position.0 || self.ended.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        // Pairs with the fence in `leave`.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let due: Vec<Waker> = {
            let mut wakers = self.wakers.lock();
            let due = wakers.by_number.extract_if(.., |_, (position, _)| self.is_beyond(*position));
            let due = due.map(|(_, (_, waker))| waker).collect();
            self.count(&wakers);
            due
        };
        for waker in due {
            if let Err(Panic { message }) = sched::contain(|| waker.wake()) {
                tracing::error!("a waker panicked, and its task may wait forever: {message}");
            }
        }
    }

    /// Registers a waker, in place of an earlier one if given. Returns its number.
    fn leave(&self, number: Option<u64>, position: Lsn, waker: Waker) -> u64 {
        let mut wakers = self.wakers.lock();
        let number = number.unwrap_or_else(|| {
            wakers.next += 1;
            wakers.next
        });
        let before = wakers.by_number.insert(number, (position, waker));
        self.count(&wakers);
        drop(wakers);
        // Before the caller's last check; pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        // User code, called without the lock.
        drop(before);
        number
    }

    fn deregister(&self, number: u64) {
        let mut wakers = self.wakers.lock();
        let taken = wakers.by_number.remove(&number);
        self.count(&wakers);
        drop(wakers);
        // User code, called without the lock.
        drop(taken);
    }

    fn count(&self, wakers: &LogWakers) {
        self.waiting.store(wakers.by_number.len() as u64, Ordering::SeqCst);
    }
}

/// See [`LogWatch::beyond`].
#[derive(Debug)]
pub(crate) struct WaitBeyond {
    watch: Arc<LogWatch>,
    position: Lsn,
    number: Option<u64>,
}

impl Future for WaitBeyond {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.watch.is_beyond(self.position) {
            return Poll::Ready(());
        }
        let number = self.watch.leave(self.number, self.position, context.waker().clone());
        self.number = Some(number);
        if self.watch.is_beyond(self.position) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for WaitBeyond {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.watch.deregister(number);
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::future::block_on;
    use loom::thread;

    use super::*;

    /// A waiter waits for one advance after another, or for the end. loom reports a deadlock if a
    /// wake-up is lost.
    #[test]
    fn model_every_watcher_of_the_log_is_woken() {
        loom::model(|| {
            let watch = Arc::new(LogWatch::default());
            let teller = {
                let watch = watch.clone();
                thread::spawn(move || {
                    watch.advance(Lsn(1));
                    watch.end();
                })
            };
            block_on(watch.beyond(Lsn(0)));
            block_on(watch.beyond(Lsn(1)));
            teller.join().unwrap();
        });
    }
}
