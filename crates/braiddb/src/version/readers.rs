//! The begin stamps in use, exactly enough to tell which versions between two readers nobody sees.
//!
//! The [`Horizon`](super::Horizon) bounds them from below, and costs a store a turn. While one old
//! reader holds it back, workers that find much garbage ask for more, and each worker tells.
//! Invariant: every active transaction of a worker is listed, or began at or after `recent`.

use crossbeam_utils::CachePadded;

use crate::log::Lsn;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// What one worker told last.
#[derive(Debug)]
struct Told {
    listed: Vec<Lsn>,
    /// [`Lsn::MAX`] while the worker begins none without saying so first.
    recent: Lsn,
}

/// Begin stamps of all workers' active transactions.
#[derive(Debug)]
pub(crate) struct Readers {
    /// The log's tail when somebody last asked.
    asked: AtomicU64,
    workers: Box<[CachePadded<Mutex<Told>>]>,
}

/// The begin stamps in use at one moment.
#[derive(Debug)]
pub(crate) struct BeginStamps {
    /// Ascending.
    listed: Vec<Lsn>,
    /// Every other one is at least this.
    recent: Lsn,
}

impl Readers {
    pub(crate) fn new(workers: usize) -> Self {
        let silent = || CachePadded::new(Mutex::new(Told { listed: vec![], recent: Lsn::MAX }));
        Self { asked: AtomicU64::new(0), workers: (0..workers).map(|_| silent()).collect() }
    }

    /// Asks every worker to tell its begin stamps as of `tail` or later.
    pub(crate) fn ask(&self, tail: Lsn) {
        // Relaxed: a hint; a worker that misses it tells at a later turn.
        self.asked.store(tail.0, Ordering::Relaxed);
    }

    /// Whether a worker that last told at `told` has been asked since.
    pub(crate) fn asks(&self, told: Lsn) -> bool {
        // Relaxed: see `ask`.
        self.asked.load(Ordering::Relaxed) > told.0
    }

    /// Tells a worker's begin stamps. What it begins from here on is at or after `recent`, or, if
    /// that is [`Lsn::MAX`], announced by `wake`.
    pub(crate) fn tell(&self, worker: usize, listed: &[Lsn], recent: Lsn) {
        let told = &mut *self.workers[worker].lock();
        told.listed.clear();
        // A context without a transaction says so with the latest stamp.
        told.listed.extend(listed.iter().filter(|begin| **begin != Lsn::MAX));
        told.recent = recent;
    }

    /// To be called by a worker that has told [`Lsn::MAX`], before it reads the tail for a begin
    /// stamp: that read comes after every `stamps` that missed this call, under the same lock.
    pub(crate) fn wake(&self, worker: usize, tail: Lsn) {
        self.workers[worker].lock().recent = tail;
    }

    /// The begin stamps in use. `tail` was read from the log before the call.
    pub(crate) fn stamps(&self, tail: Lsn) -> BeginStamps {
        let mut stamps = BeginStamps { listed: Vec::new(), recent: tail };
        for worker in &self.workers {
            let told = worker.lock();
            stamps.listed.extend_from_slice(&told.listed);
            stamps.recent = stamps.recent.min(told.recent);
        }
        stamps.listed.sort_unstable();
        stamps.listed.dedup();
        stamps
    }
}

impl BeginStamps {
    /// Forgets stamps that are known to be out of use because they are older than `oldest`.
    pub(crate) fn retain_from(&mut self, oldest: Lsn) {
        self.listed.retain(|begin| *begin >= oldest);
    }

    /// Whether a version committed at `committed` and superseded at `superseded` is one that
    /// somebody steps over to reach an older one, but that nobody sees or ever will.
    pub(crate) fn only_pass(&self, committed: Lsn, superseded: Lsn) -> bool {
        let older = self.listed.partition_point(|begin| *begin <= committed);
        let sees = self.listed.get(older).is_some_and(|begin| *begin <= superseded);
        older > 0 && !sees && superseded < self.recent
    }

    /// Begin stamps at or after this one may be missing.
    pub(crate) fn recent(&self) -> Lsn {
        self.recent
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn versions_between_readers_are_only_passed() {
        let readers = Readers::new(3);
        readers.tell(0, &[Lsn(700), Lsn::MAX, Lsn(100)], Lsn(1000));
        readers.tell(1, &[Lsn(400)], Lsn::MAX);
        let stamps = readers.stamps(Lsn(2000));
        assert_eq!(stamps.recent(), Lsn(1000));
        for (committed, superseded, expected, why) in [
            (100, 300, true, "between the first two"),
            (100, 400, false, "the second began when it was the newest but one"),
            (400, 699, true, "between the last two"),
            (50, 99, false, "older than every reader"),
            (99, 100, false, "the first reader's"),
            (700, 999, true, "after the last"),
            (700, 1000, false, "perhaps seen by one that is not listed"),
        ] {
            assert_eq!(stamps.only_pass(Lsn(committed), Lsn(superseded)), expected, "{why}");
        }
    }

    #[test]
    fn a_worker_that_wakes_lists_from_there() {
        let readers = Readers::new(1);
        assert_eq!(readers.stamps(Lsn(500)).recent(), Lsn(500));
        readers.wake(0, Lsn(400));
        assert_eq!(readers.stamps(Lsn(500)).recent(), Lsn(400));
        readers.ask(Lsn(450));
        assert!(readers.asks(Lsn(400)) && !readers.asks(Lsn(450)));
    }
}
