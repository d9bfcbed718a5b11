//! Lists of the begin stamps in use, exact enough to find versions between two readers that neither
//! sees.
//!
//! The [`Horizon`](super::Horizon) bounds them from below, at the cost of one store per turn. While
//! one old reader holds it back, workers with much garbage request lists, and each worker publishes
//! one. Invariant: every active transaction of a worker is listed, or began at or after `recent`. A
//! listed one may have ended.

use crossbeam_utils::CachePadded;

use super::horizon::Pruning;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The last publication of one worker.
#[derive(Debug)]
struct Published {
    listed: Vec<Lsn>,
    oldest_extended: Lsn,
    /// [`Lsn::MAX`] while the worker announces each transaction before it begins.
    recent: Lsn,
}

/// Begin stamps of all workers' active transactions.
#[derive(Debug)]
pub(crate) struct Readers {
    /// The log's tail when a worker last requested lists.
    requested: AtomicU64,
    workers: Box<[CachePadded<Mutex<Published>>]>,
}

/// The begin stamps in use at one moment.
#[derive(Debug)]
pub(crate) struct BeginStamps {
    /// In ascending order. A transaction whose snapshot was extended has its first and its last.
    listed: Vec<Lsn>,
    /// The first begin stamp of the oldest transaction whose snapshot was extended. Extended
    /// transactions may hold addresses that they found under begin stamps that are not listed.
    oldest_extended: Lsn,
    /// All other begin stamps are at or after this one.
    recent: Lsn,
}

impl Readers {
    pub(crate) fn new(workers: usize) -> Self {
        let silent = || Published { listed: vec![], oldest_extended: Lsn::MAX, recent: Lsn::MAX };
        let workers = (0..workers).map(|_| CachePadded::new(Mutex::new(silent())));
        Self { requested: AtomicU64::new(0), workers: workers.collect() }
    }

    /// Requests that every worker publishes its begin stamps as of `tail` or later.
    pub(crate) fn request(&self, tail: Lsn) {
        // Relaxed: a hint; a worker that misses it publishes at a later turn.
        self.requested.store(tail.0, Ordering::Relaxed);
    }

    /// Returns whether a list was requested after a worker's last publication at `published_at`.
    pub(crate) fn is_requested_since(&self, published_at: Lsn) -> bool {
        // Relaxed: see `request`.
        self.requested.load(Ordering::Relaxed) > published_at.0
    }

    /// Publishes a worker's begin stamps. Its later transactions begin at or after `recent`; if
    /// that is [`Lsn::MAX`], `wake` announces them.
    pub(crate) fn publish(
        &self,
        worker: usize,
        listed: impl Iterator<Item = Lsn>,
        oldest_extended: Lsn,
        recent: Lsn,
    ) {
        let published = &mut *self.workers[worker].lock();
        published.listed.clear();
        published.listed.extend(listed);
        (published.oldest_extended, published.recent) = (oldest_extended, recent);
        if is_planted(Bug::YoungerReadersNotListed) {
            published.listed.sort_unstable();
            published.listed.truncate(1);
        }
    }

    /// Must be called by a worker that has published [`Lsn::MAX`], before it reads the tail for a
    /// begin stamp. That read follows every `stamps` that missed this call, under the same lock.
    pub(crate) fn wake(&self, worker: usize, tail: Lsn) {
        self.workers[worker].lock().recent = tail;
    }

    /// The begin stamps in use, and some whose transactions have ended. `tail` was read from the log
    /// before the call.
    pub(crate) fn all_stamps(&self, tail: Lsn) -> BeginStamps {
        let mut stamps =
            BeginStamps { listed: Vec::new(), oldest_extended: Lsn::MAX, recent: tail };
        for worker in &self.workers {
            let published = worker.lock();
            stamps.listed.extend_from_slice(&published.listed);
            stamps.oldest_extended = stamps.oldest_extended.min(published.oldest_extended);
            stamps.recent = stamps.recent.min(published.recent);
        }
        stamps.listed.sort_unstable();
        stamps.listed.dedup();
        stamps
    }

    /// The begin stamps in use for which every chain of a table in memory is complete while
    /// `pruning` lasts. `tail` was read from the log before the call.
    pub(crate) fn stamps(&self, tail: Lsn, pruning: &Pruning<'_>) -> BeginStamps {
        let mut stamps = self.all_stamps(tail);
        // Older ones have ended: a worker acted on that, and may have freed the versions they
        // needed.
        let acted_on = pruning.acted_on();
        stamps.listed.retain(|begin| *begin >= acted_on);
        stamps
    }
}

impl BeginStamps {
    /// Returns whether a version committed at `committed` and superseded at `superseded` is never
    /// seen, now or later, but a transaction steps over it to reach an older one.
    pub(crate) fn is_only_stepped_over(&self, committed: Lsn, superseded: Lsn) -> bool {
        let steps_over = self.listed.first().is_some_and(|begin| *begin <= committed);
        steps_over && self.is_unseen(committed, superseded)
    }

    /// Returns whether a listed begin stamp sees a version committed at `committed` and superseded
    /// at `superseded`.
    pub(crate) fn sees(&self, committed: Lsn, superseded: Lsn) -> bool {
        let older = self.listed.partition_point(|begin| *begin <= committed);
        self.listed.get(older).is_some_and(|begin| *begin <= superseded)
    }

    /// Returns whether no transaction, now or later, sees a version committed at `committed` and
    /// superseded at `superseded`.
    pub(crate) fn is_unseen(&self, committed: Lsn, superseded: Lsn) -> bool {
        let covered = superseded < self.recent || is_planted(Bug::ReadersAfterListsIgnored);
        covered && !self.sees(committed, superseded)
    }

    /// Returns whether no transaction, now or later, sees or reads any version committed at or
    /// after `from` and superseded before `until`.
    pub(crate) fn are_unseen(&self, from: Lsn, until: Lsn) -> bool {
        let older = self.listed.partition_point(|begin| *begin <= from);
        let covered = until < self.recent && until < self.oldest_extended;
        if is_planted(Bug::FreedSegmentOfSnapshot) {
            return covered;
        }
        covered && self.listed.get(older).is_none_or(|begin| *begin > until)
    }

    /// Begin stamps at or after this one may be missing.
    pub(crate) fn recent(&self) -> Lsn {
        self.recent
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::version::Horizon;

    fn stamps(readers: &Readers, tail: Lsn) -> BeginStamps {
        let horizon = Horizon::new(1);
        readers.stamps(tail, &horizon.prune().unwrap())
    }

    #[test]
    fn a_reader_is_forgotten_after_its_end_was_acted_on() {
        let (readers, horizon) = (Readers::new(1), Horizon::new(1));
        readers.publish(0, [Lsn(100), Lsn(200)].into_iter(), Lsn::MAX, Lsn(1000));
        horizon.publish(0, Lsn(200));
        drop(horizon.act(0, Lsn(2000)).unwrap());
        let stamps = readers.stamps(Lsn(2000), &horizon.prune().unwrap());
        assert!(
            !stamps.is_only_stepped_over(Lsn(120), Lsn(150)),
            "no reader steps over it any more"
        );
        assert!(
            stamps.is_only_stepped_over(Lsn(200), Lsn(300)),
            "the second reader does over this one"
        );
    }

    #[test]
    fn versions_between_readers_are_only_passed() {
        let readers = Readers::new(3);
        readers.publish(0, [Lsn(700), Lsn(100)].into_iter(), Lsn::MAX, Lsn(1000));
        readers.publish(1, [Lsn(400)].into_iter(), Lsn::MAX, Lsn::MAX);
        let stamps = stamps(&readers, Lsn(2000));
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
            assert_eq!(
                stamps.is_only_stepped_over(Lsn(committed), Lsn(superseded)),
                expected,
                "{why}"
            );
        }
    }

    #[test]
    fn versions_are_unseen_between_begin_stamps() {
        let readers = Readers::new(2);
        readers.publish(0, [Lsn(100), Lsn(400)].into_iter(), Lsn::MAX, Lsn(1000));
        let are_unseen =
            |from, until| readers.all_stamps(Lsn(2000)).are_unseen(Lsn(from), Lsn(until));
        assert!(are_unseen(100, 399), "both began before or after");
        assert!(!are_unseen(100, 400), "the second may have read at the end");
        assert!(!are_unseen(99, 399), "the first sees some");
        assert!(are_unseen(400, 999) && !are_unseen(400, 1000), "begin stamps may be missing");
        readers.publish(1, [Lsn(350), Lsn(900)].into_iter(), Lsn(350), Lsn(1000));
        assert!(are_unseen(100, 349) && !are_unseen(400, 800), "began again between the two");
    }

    #[test]
    fn a_worker_that_wakes_lists_from_there() {
        let readers = Readers::new(1);
        assert_eq!(stamps(&readers, Lsn(500)).recent(), Lsn(500));
        readers.wake(0, Lsn(400));
        assert_eq!(stamps(&readers, Lsn(500)).recent(), Lsn(400));
        readers.request(Lsn(450));
        assert!(readers.is_requested_since(Lsn(400)) && !readers.is_requested_since(Lsn(450)));
    }
}
