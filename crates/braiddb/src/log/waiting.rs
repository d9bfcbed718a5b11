//! Which workers have transactions that wait for the log, so that the worker that advances it wakes those
//! and no others.
//!
//! Invariant (no waiter is forgotten): a worker raises its flag and then looks at the log a last
//! time before its transaction waits; a worker that advanced the log, or saw it fail, looks at the
//! flags afterwards. A sequentially consistent fence stands between the two steps of each, so one
//! sees the other: the waiter sees the advance and does not wait, or its worker is woken, whose turn
//! then looks at the log.

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// A flag for each worker, written by that worker alone.
#[derive(Debug)]
pub(crate) struct WaitingWorkers(Box<[CachePadded<AtomicBool>]>);

impl WaitingWorkers {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| CachePadded::new(AtomicBool::new(false))).collect())
    }

    /// How many workers there are.
    pub(crate) fn workers(&self) -> usize {
        self.0.len()
    }

    /// Says that transactions of `worker` wait. Its caller looks at the log again afterwards.
    pub(crate) fn raise(&self, worker: usize) {
        let flag = &self.0[worker];
        // Relaxed: only this worker writes it. Where the flag was raised before, so was the fence
        // passed, and it stands between the flag and this look at the log too.
        if !flag.load(Ordering::Relaxed) {
            // Relaxed: ordered by the fence, which pairs with the one in `others`.
            flag.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Says that no transaction of `worker` waits.
    pub(crate) fn lower(&self, worker: usize) {
        let flag = &self.0[worker];
        // Relaxed, both: only this worker writes it, and one that is woken for nothing takes a turn.
        if flag.load(Ordering::Relaxed) {
            flag.store(false, Ordering::Relaxed);
        }
    }

    /// After the log advanced or failed: the workers, other than `me`, that are to be woken.
    pub(crate) fn others(&self, me: usize) -> impl Iterator<Item = usize> + '_ {
        // Pairs with the fence in `raise`.
        fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        let waits = |worker: usize| self.0[worker].load(Ordering::Relaxed);
        (0..self.0.len()).filter(move |&worker| worker != me && waits(worker))
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Notify};
    use loom::thread;

    use super::*;
    use crate::sync::atomic::AtomicU64;

    const WAITER: usize = 0;
    const LEADER: usize = 1;

    struct Shared {
        waiting: WaitingWorkers,
        durable: AtomicU64,
        doorbell: Notify,
    }

    /// One worker's transactions wait for one LSN after another, while the other worker advances
    /// the durable LSN; loom finds the deadlock if an advance is neither seen nor told.
    #[test]
    fn model_every_waiter_for_the_log_is_woken() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                waiting: WaitingWorkers::new(2),
                durable: AtomicU64::new(0),
                doorbell: Notify::new(),
            });
            let leader = {
                let shared = shared.clone();
                thread::spawn(move || {
                    for lsn in 1..=2 {
                        // Release, as the log's own store at the least.
                        shared.durable.store(lsn, Ordering::Release);
                        if shared.waiting.others(LEADER).next().is_some() {
                            shared.doorbell.notify();
                        }
                    }
                })
            };
            for lsn in 1..=2 {
                let is_durable = || shared.durable.load(Ordering::Acquire) >= lsn;
                while !is_durable() {
                    shared.waiting.raise(WAITER);
                    if !is_durable() {
                        shared.doorbell.wait();
                    }
                }
                // As its worker's turn, once nobody waits.
                shared.waiting.lower(WAITER);
            }
            leader.join().unwrap();
        });
    }
}
