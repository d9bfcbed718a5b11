//! Horizon: the oldest begin stamp in use. It determines which versions no transaction can see any
//! more, and which worker may act on that.
//!
//! Each worker publishes a lower bound of its active transactions' begin stamps, lazily. Invariant:
//! a worker's published stamp is never later than the begin stamp of any of its active
//! transactions, nor of any that it will begin. [`Lsn::MAX`] means that it has none and will
//! publish before it begins one. A guest, which reads one record's newest version on its caller's
//! thread, publishes a stamp for the duration of that read.
//!
//! # Rights to change a version chain
//!
//! Let the *horizon* be a stamp such that no begin stamp in use, now or later, is older. For one
//! record:
//!
//! | actor | change | condition |
//! |---|---|---|
//! | a writer | installs a version in flight at the head; undoes it | its transaction is active |
//! | the collector | frees a version superseded at `c`; the link to it stays, but is never followed | `c` is before the horizon |
//! | the reclaimer | marks the record dead, where the head is a tombstone deleted at `c` | `c` is before the horizon |
//! | an evictor | replaces a head committed at `c` by its address, visible to every transaction | `c` is before the horizon |
//! | an evictor | replaces a durable head by its header, with the same link; and back | always |
//! | compaction | replaces a head, or its address, by the address of a copy at `c` | `c` is before the horizon |
//! | the pruner | cuts a superseded version out from between two others | no begin stamp in use sees it, and one steps over it |
//! | the pruner | replaces a durable superseded version by its header | a begin stamp in use sees it |
//!
//! All except the writer and the pruner *act* on a horizon, also to exclude the pruner. Afterwards
//! a chain is valid only for begin stamps from that horizon on; the rest of it may be freed. The
//! pruner relies on the opposite: that the chain is complete from its head to the version that a
//! listed reader needs. Lists are published lazily, so a listed reader may have ended, and a worker
//! may then have acted on a later horizon. Therefore:
//!
//! - a worker that acts holds an [`Acting`], which records the horizon before it is used;
//! - the pruner holds a [`Pruning`], which excludes every `Acting`, and discards listed begin
//!   stamps that are older than any recorded horizon. No worker has acted on a horizon later than
//!   the remaining ones, so their chains are complete, whether or not the readers are active.
//!
//! Neither waits for the other: a worker that does not obtain the right tries again at a later
//! turn.

use crossbeam_utils::CachePadded;

use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim::GuestBounds;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The published state of one worker, written only by that worker.
#[derive(Debug)]
struct WorkerHorizon {
    /// A lower bound of its begin stamps.
    published: AtomicU64,
    /// Set while it acts on a horizon.
    acting: AtomicBool,
    /// The latest horizon it has acted on.
    acted_on: AtomicU64,
}

/// Lower bounds of begin stamps, one per worker and guest.
#[derive(Debug)]
pub(crate) struct Horizon {
    workers: Box<[CachePadded<WorkerHorizon>]>,
    guests: GuestBounds,
    pruning: CachePadded<AtomicBool>,
}

/// The right to act on a horizon; excludes pruning while held.
#[derive(Debug)]
#[must_use = "others may prune as soon as it is dropped"]
pub(crate) struct Acting<'h> {
    worker: &'h WorkerHorizon,
    oldest: Lsn,
}

/// The right to prune; excludes acting on a horizon while held.
#[derive(Debug)]
#[must_use = "others may act on the horizon as soon as it is dropped"]
pub(crate) struct Pruning<'h>(&'h Horizon);

impl Horizon {
    pub(crate) fn new(workers: usize) -> Self {
        let idle = || {
            CachePadded::new(WorkerHorizon {
                published: AtomicU64::new(Lsn::MAX.0),
                acting: AtomicBool::new(false),
                acted_on: AtomicU64::new(0),
            })
        };
        let pruning = CachePadded::new(AtomicBool::new(false));
        let workers = (0..workers).map(|_| idle()).collect();
        Self { workers, guests: GuestBounds::new(), pruning }
    }

    /// Publishes the oldest begin stamp of `worker`; its later transactions are not older.
    pub(crate) fn publish(&self, worker: usize, oldest: Lsn) {
        // Release pairs with the Acquire in `oldest`: a thread that sees a later stamp sees that the
        // transactions before it have finished with their versions.
        self.workers[worker].published.store(oldest.0, Ordering::Release);
    }

    /// Publishes for a worker that had published [`Lsn::MAX`]; must be called before it reads the
    /// tail for a begin stamp.
    pub(crate) fn wake(&self, worker: usize, tail: Lsn) {
        if is_planted(Bug::BeginNotPublished) {
            return;
        }
        self.workers[worker].published.store(tail.0, Ordering::SeqCst);
        // Orders the store before the load of the tail that becomes a begin stamp: either `oldest`
        // sees the store, or that load follows the tail that `oldest` was given.
        fence(Ordering::SeqCst);
    }

    /// Publishes a lower bound for the guest in a place. The guest then passes a `SeqCst` fence,
    /// before it loads the head of a chain. Until `release_guest`, no version that it finds as a
    /// head is freed:
    ///
    /// - If `oldest` sees the bound, a version superseded before `tail` is no head for the guest,
    ///   because the guest read `tail` from the log after that commit drew its LSN.
    /// - If `oldest` misses it, the loads of the guest follow the fence in `oldest`. The heads that
    ///   it finds then are superseded after the tail that `oldest` was given, if ever.
    pub(crate) fn admit_guest(&self, place: usize, tail: Lsn) {
        self.guests.publish(place, tail.0);
    }

    /// Ends `admit_guest`.
    pub(crate) fn release_guest(&self, place: usize) {
        self.guests.withdraw(place);
    }

    /// A stamp such that no active or future begin stamp is older, for waiting. A worker that acts
    /// on it must use [`Horizon::act`] instead. `tail` was read from the log before the call.
    pub(crate) fn oldest(&self, tail: Lsn) -> Lsn {
        fence(Ordering::SeqCst);
        // Acquire pairs with the Release in `publish`.
        let stamps = self.workers.iter().map(|p| Lsn(p.published.load(Ordering::Acquire)));
        stamps.fold(tail, Lsn::min).min(Lsn(self.guests.oldest()))
    }

    /// Takes the right to act on the horizon, for `worker`; `None` while another worker prunes.
    /// `tail` was read from the log before the call.
    ///
    /// # Panics
    /// Panics if the worker has this right already.
    pub(crate) fn act(&self, worker: usize, tail: Lsn) -> Option<Acting<'_>> {
        let own = &*self.workers[worker];
        // Relaxed: written by this worker alone.
        assert!(!own.acting.load(Ordering::Relaxed), "a worker acts on one horizon at a time");
        // Relaxed, like the load of `pruning` below: ordered by the fence, with its partner in
        // `prune`. Either this worker sees the pruning one, or that one sees this.
        own.acting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut acting = Acting { worker: own, oldest: Lsn::ZERO };
        // Acquire pairs with the Release of the last pruner: its cuts are seen.
        if self.pruning.load(Ordering::Acquire) && !is_planted(Bug::EvictionBesidePruning) {
            return None;
        }
        acting.oldest = self.oldest(tail);
        // Relaxed: written by this worker alone; read by a worker that prunes, after the end of `acting`.
        let before = own.acted_on.load(Ordering::Relaxed);
        if is_planted(Bug::EvictionBesidePruning) {
            return Some(acting);
        }
        own.acted_on.store(before.max(acting.oldest.0), Ordering::Relaxed);
        Some(acting)
    }

    /// Takes the right to prune; `None` while another worker prunes or acts on a horizon.
    pub(crate) fn prune(&self) -> Option<Pruning<'_>> {
        // Acquire pairs with the Release of the last pruner.
        if self.pruning.swap(true, Ordering::Acquire) {
            return None;
        }
        let pruning = Pruning(self);
        // See `act`.
        fence(Ordering::SeqCst);
        // Acquire pairs with the Release at the end of `Acting`: the recorded horizon and its
        // effects are seen.
        let quiet = is_planted(Bug::EvictionBesidePruning)
            || self.workers.iter().all(|each| !each.acting.load(Ordering::Acquire));
        quiet.then_some(pruning)
    }
}

impl Acting<'_> {
    /// A stamp such that no begin stamp in use, now or later, is older.
    pub(crate) fn oldest(&self) -> Lsn {
        self.oldest
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `prune`.
        self.worker.acting.store(false, Ordering::Release);
    }
}

impl Pruning<'_> {
    /// The latest horizon that any worker has acted on. For begin stamps from there on, every chain
    /// is complete; no older one is in use.
    pub(crate) fn acted_on(&self) -> Lsn {
        // Relaxed: no worker acts, and `prune` saw what was recorded before.
        let each = self.0.workers.iter().map(|each| Lsn(each.acted_on.load(Ordering::Relaxed)));
        each.max().unwrap_or(Lsn::ZERO)
    }
}

impl Drop for Pruning<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `act` and `prune`.
        self.0.pruning.store(false, Ordering::Release);
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

    #[test]
    fn pruning_and_acting_exclude_each_other() {
        let horizon = Horizon::new(2);
        horizon.publish(0, Lsn(300));
        let one = horizon.act(0, Lsn(500)).unwrap();
        assert_eq!(one.oldest(), Lsn(300));
        let other = horizon.act(1, Lsn(500)).unwrap();
        assert!(horizon.prune().is_none(), "two act");
        drop(one);
        assert!(horizon.prune().is_none(), "one acts");
        drop(other);
        let pruning = horizon.prune().unwrap();
        assert_eq!(pruning.acted_on(), Lsn(300));
        assert!(horizon.prune().is_none() && horizon.act(1, Lsn(500)).is_none(), "one prunes");
        drop(pruning);
        horizon.publish(0, Lsn(200));
        assert!(horizon.act(0, Lsn(500)).is_some());
        assert_eq!(horizon.prune().unwrap().acted_on(), Lsn(300), "it never decreases");
    }
}
