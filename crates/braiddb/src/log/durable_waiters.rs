//! Who waits, on any thread, for more of the log to be durable.
//!
//! Invariant (no wake-up is lost): who waits leaves its waker, says that there is one, and then looks a last time; who
//! tells of an advance makes it visible, and then looks whether there are wakers. A sequentially consistent fence stands
//! between the two steps of each, so one sees the other: the waiter sees the advance, or is woken. How many wakers there
//! are is written under their lock only, so it is never less than there are. A waker is taken out before it is called, without the
//! lock: it is a user's code.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Lsn;
use crate::sched::{self, Panic};
use crate::sync::ModelMutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// What those look at who wait.
#[derive(Debug, Default)]
pub(crate) struct LogWatch {
    durable: AtomicU64,
    /// There is nothing to be waited for any more: the database is closing, or its log has failed.
    ended: AtomicBool,
    /// How many wakers there are; changed under their lock.
    waiting: AtomicU64,
    wakers: ModelMutex<LogWakers>,
}

#[derive(Debug, Default)]
struct LogWakers {
    next: u64,
    by_number: BTreeMap<u64, (Lsn, Waker)>,
}

impl LogWatch {
    /// Says that everything before `durable` is durable.
    pub(crate) fn advance(&self, durable: Lsn) {
        self.durable.fetch_max(durable.0, Ordering::SeqCst);
        self.wake();
    }

    /// Says that nothing is to be waited for any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Ready once more than `position` is durable, or there is nothing to be waited for.
    pub(crate) fn beyond(self: &Arc<Self>, position: Lsn) -> WaitBeyond {
        WaitBeyond { watch: self.clone(), position, number: None }
    }

    fn is_beyond(&self, position: Lsn) -> bool {
        self.durable.load(Ordering::SeqCst) > position.0 || self.ended.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        // Pairs with the one in `leave`.
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
                tracing::error!(
                    "a waker panicked, and what it was to wake may wait for ever: {message}"
                );
            }
        }
    }

    /// Leaves a waker, in the place of an earlier one; its number.
    fn leave(&self, number: Option<u64>, position: Lsn, waker: Waker) -> u64 {
        let mut wakers = self.wakers.lock();
        let number = number.unwrap_or_else(|| {
            wakers.next += 1;
            wakers.next
        });
        let before = wakers.by_number.insert(number, (position, waker));
        self.count(&wakers);
        drop(wakers);
        // Before the caller's last look; pairs with the one in `wake`.
        fence(Ordering::SeqCst);
        // A user's code, without the lock.
        drop(before);
        number
    }

    fn deregister(&self, number: u64) {
        let mut wakers = self.wakers.lock();
        let taken = wakers.by_number.remove(&number);
        self.count(&wakers);
        drop(wakers);
        // A user's code, without the lock.
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

    /// One who waits for one advance after another, or the end; loom finds the deadlock if none of them tells him.
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
