//! Flags of the workers with transactions that wait for the log. The worker that advances the log
//! wakes only those workers.
//!
//! Invariant: no waiter is forgotten. A worker raises its flag, and then checks the log a last time
//! before its transaction waits. A worker that advanced the log, or saw it fail, checks the flags
//! afterwards. A sequentially consistent fence separates the two steps of each, so one sees the
//! other: the waiter sees the advance and does not wait, or its worker is woken and its turn checks
//! the log.

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// A flag for each worker, written only by that worker.
#[derive(Debug)]
pub(crate) struct WaitingWorkers(Box<[CachePadded<AtomicBool>]>);

impl WaitingWorkers {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| CachePadded::new(AtomicBool::new(false))).collect())
    }

    /// Returns the number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.0.len()
    }

    /// Records that transactions of `worker` wait. The caller must check the log again afterwards.
    pub(crate) fn raise(&self, worker: usize) {
        let flag = &self.0[worker];
        // Relaxed: only this worker writes it. If the flag was already raised, the earlier fence
        // also stands between the flag and this check of the log.
        if !flag.load(Ordering::Relaxed) {
            // Relaxed: ordered by the fence, which pairs with the one in `others`.
            flag.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    /// Records that no transaction of `worker` waits.
    pub(crate) fn lower(&self, worker: usize) {
        let flag = &self.0[worker];
        // Relaxed, both: only this worker writes it, and a worker that is woken without need only
        // takes a turn.
        if flag.load(Ordering::Relaxed) {
            flag.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the workers other than `me` to wake, after the log advanced or failed.
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
    /// the durable LSN. loom reports a deadlock if an advance is neither seen nor signalled.
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
                        // Release, at least as strong as the log's own store.
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
                // As the worker does in its turn when no transaction waits.
                shared.waiting.lower(WAITER);
            }
            leader.join().unwrap();
        });
    }
}
