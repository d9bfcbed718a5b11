//! The oldest begin stamp in use, which decides what nobody can see any more.
//!
//! Each worker publishes a lower bound of its active transactions' begin stamps, lazily. Invariant:
//! a worker's published stamp is never later than the begin stamp of one of its active
//! transactions, nor than that of any it will begin; [`Lsn::MAX`] means it has none and will
//! publish before it begins one.

use crossbeam_utils::CachePadded;

use crate::log::Lsn;
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// Lower bounds of begin stamps, one a worker.
#[derive(Debug)]
pub(crate) struct Horizon {
    published: Box<[CachePadded<AtomicU64>]>,
    /// Up to where each worker has freed.
    collected: Box<[CachePadded<AtomicU64>]>,
}

impl Horizon {
    pub(crate) fn new(workers: usize) -> Self {
        let idle = || CachePadded::new(AtomicU64::new(Lsn::MAX.0));
        let nothing = || CachePadded::new(AtomicU64::new(0));
        Self {
            published: (0..workers).map(|_| idle()).collect(),
            collected: (0..workers).map(|_| nothing()).collect(),
        }
    }

    /// Publishes the oldest begin stamp of `worker`; what it begins from here on is not older.
    pub(crate) fn publish(&self, worker: usize, oldest: Lsn) {
        // Release pairs with the Acquire in `oldest`: whoever sees a later stamp sees that the
        // transactions before it have finished with their versions.
        self.published[worker].store(oldest.0, Ordering::Release);
    }

    /// Publishes for a worker that had published [`Lsn::MAX`]; to be called before it reads the
    /// tail for a begin stamp.
    pub(crate) fn wake(&self, worker: usize, tail: Lsn) {
        self.published[worker].store(tail.0, Ordering::SeqCst);
        // Orders the store before the load of the tail that becomes a begin stamp: either `oldest`
        // sees the store, or that load comes after the tail that `oldest` was given.
        fence(Ordering::SeqCst);
    }

    /// A stamp that no active or future transaction's begin is older than. `tail` was read from
    /// the log before the call.
    pub(crate) fn oldest(&self, tail: Lsn) -> Lsn {
        fence(Ordering::SeqCst);
        // Acquire pairs with the Release in `publish`.
        let stamps = self.published.iter().map(|p| Lsn(p.load(Ordering::Acquire)));
        stamps.fold(tail, Lsn::min)
    }

    /// Notes that `worker` frees what no begin stamp from `oldest` on needs.
    pub(crate) fn collect(&self, worker: usize, oldest: Lsn) {
        // Relaxed: ordered by the lock under which this is called and `collected` is.
        self.collected[worker].store(oldest.0, Ordering::Relaxed);
    }

    /// A stamp that no active transaction's begin is older than, and from which on everything that
    /// a begin stamp needs is still there. Nobody frees during the call.
    pub(crate) fn collected(&self) -> Lsn {
        // Relaxed: see `collect`.
        let each = self.collected.iter().map(|worker| Lsn(worker.load(Ordering::Relaxed)));
        each.max().unwrap_or(Lsn::ZERO)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_published_stamp_bounds_the_tail() {
        let horizon = Horizon::new(2);
        assert_eq!(horizon.oldest(Lsn(500)), Lsn(500));
        horizon.wake(0, Lsn(100));
        horizon.publish(1, Lsn(300));
        assert_eq!(horizon.oldest(Lsn(500)), Lsn(100));
        horizon.publish(0, Lsn::MAX);
        assert_eq!(horizon.oldest(Lsn(500)), Lsn(300));
    }
}
