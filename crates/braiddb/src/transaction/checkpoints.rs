//! When a checkpoint is due, that there is one at a time, and from where replay goes on after it.
//!
//! A transaction that is logged in parts commits long after its first part. Recovery must meet all
//! of them, so a checkpoint's LSN is not later than the first part of any such transaction that may
//! commit after the checkpoint's snapshot.
//!
//! A checkpoint lists all leaves of paged tables, and writes images of those that have changed. The next one is due when as much was
//! logged as that took, if that is more than what checkpoints are set to be due after.

use std::sync::Arc;

use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, oneshot};

/// The state of a database's checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// Bytes of log after which the next one is due.
    every: u64,
    /// Where the log will be when it is.
    due_at: AtomicU64,
    /// Where it was when the last one was begun.
    begun_at: AtomicU64,
    under_way: AtomicBool,
    /// Who waits until none is.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    newest: AtomicU64,
    newest_bytes: AtomicU64,
    /// All tables are listed.
    listed: AtomicBool,
    /// The database is closing: nothing long is to be begun.
    stopping: AtomicBool,
    /// A bound of the first part of each transaction that is being logged in parts.
    parts: Mutex<Vec<Lsn>>,
}

/// A transaction that is being logged in parts.
#[derive(Debug)]
pub(super) struct InParts {
    checkpoints: Arc<Checkpoints>,
    bound: Lsn,
}

/// A checkpoint under way.
#[derive(Debug)]
pub(crate) struct UnderWay<'c>(&'c Checkpoints);

impl Checkpoints {
    pub(super) fn new(every: u64) -> Self {
        Self {
            every,
            due_at: AtomicU64::new(every),
            begun_at: AtomicU64::new(0),
            under_way: AtomicBool::new(false),
            waiting: Mutex::default(),
            newest: AtomicU64::new(0),
            newest_bytes: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            parts: Mutex::default(),
        }
    }

    /// Bytes of log after which a checkpoint is due.
    pub(crate) fn every(&self) -> u64 {
        self.every
    }

    /// Notes, until the result is dropped, that a transaction is logged in parts. To be called
    /// before its first part is reserved; `tail` reads the log's tail.
    pub(super) fn log_in_parts(self: &Arc<Self>, tail: impl FnOnce() -> Lsn) -> InParts {
        let mut parts = self.parts.lock();
        let bound = tail();
        parts.push(bound);
        InParts { checkpoints: self.clone(), bound }
    }

    /// From where the log is to be replayed on top of a snapshot that is begun afterwards.
    pub(crate) fn replay_from(&self, tail: impl FnOnce() -> Lsn) -> Lsn {
        let parts = self.parts.lock();
        parts.iter().copied().fold(tail(), Lsn::min)
    }

    /// Whether so much was logged that the caller should begin a checkpoint; says so once, and not
    /// when the database is closing, nor before its paged tables are listed, which would not be in it. Where there is
    /// hardly room for the log, `step` bytes are enough: compaction, which follows, may find some.
    pub(super) fn take_due(&self, tail: Lsn, step: Option<u64>) -> bool {
        // Acquire pairs with the Release in `note_listed`.
        let listed =
            self.listed.load(Ordering::Acquire) || is_planted(Bug::CheckpointBeforeTablesListed);
        if self.stopping() || !listed {
            return false;
        }
        // Relaxed, all: only one exchange succeeds, and that is all that matters.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if let Some(step) = step {
            let begun_at = self.begun_at.load(failure);
            return tail.0 >= begun_at.saturating_add(step)
                && self.begun_at.compare_exchange(begun_at, tail.0, success, failure).is_ok();
        }
        let due_at = self.due_at.load(failure);
        if tail.0 < due_at || self.would_free_nothing() {
            return false;
        }
        let next = tail.0.saturating_add(self.every);
        tail.0 >= due_at && self.due_at.compare_exchange(due_at, next, success, failure).is_ok()
    }

    /// Whether another checkpoint would leave as much of the log to be replayed as the newest: a transaction is being logged
    /// in parts since before that.
    fn would_free_nothing(&self) -> bool {
        let newest = self.newest();
        self.parts.lock().iter().any(|bound| *bound <= newest)
    }

    /// Says that all tables are listed that the database had when it was opened.
    pub(crate) fn note_listed(&self) {
        // Release pairs with the Acquire in `take_due`: who takes a checkpoint finds them.
        self.listed.store(true, Ordering::Release);
    }

    /// Begins one; `None` if one is under way.
    pub(crate) fn begin(&self) -> Option<UnderWay<'_>> {
        // Acquire pairs with the Release at the end of the one before: its files are in place.
        let taken = self.under_way.swap(true, Ordering::Acquire);
        // Made only if taken here: its drop gives the turn back.
        (!taken).then(|| UnderWay(self))
    }

    /// Waits until the one that is under way is over; then another may be.
    pub(crate) async fn until_over(&self) {
        let over = {
            let mut waiting = self.waiting.lock();
            // Relaxed: its end comes under the lock, so it is seen here, or resumes who is on the list.
            if !self.under_way.load(Ordering::Relaxed) {
                return;
            }
            let (end, over) = oneshot::channel();
            waiting.push(end);
            over
        };
        _ = over.await;
    }

    /// Says that the database is closing.
    pub(crate) fn stop(&self) {
        // Relaxed: a worker that goes on looks again soon.
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the database is closing.
    pub(crate) fn stopping(&self) -> bool {
        // Relaxed: see `stop`.
        self.stopping.load(Ordering::Relaxed)
    }

    /// Where the newest checkpoint is: what was logged before need not be replayed.
    pub(crate) fn newest(&self) -> Lsn {
        // Relaxed: a statistic.
        Lsn(self.newest.load(Ordering::Relaxed))
    }

    /// Bytes of the newest checkpoint's file; 0 if there is none.
    pub(crate) fn newest_bytes(&self) -> u64 {
        // Relaxed: a statistic.
        self.newest_bytes.load(Ordering::Relaxed)
    }

    /// Notes that there is a checkpoint of `lsn`, in a file of `bytes`, of which it took so many for paged
    /// tables, with images.
    pub(crate) fn note(&self, lsn: Lsn, bytes: u64, paged_bytes: u64) {
        // Relaxed: a statistic, and a hint to `take_due`.
        self.newest.store(lsn.0, Ordering::Relaxed);
        self.newest_bytes.store(bytes, Ordering::Relaxed);
        self.begun_at.store(lsn.0, Ordering::Relaxed);
        let every = self.every.max(paged_bytes);
        self.due_at.store(lsn.0.saturating_add(every), Ordering::Relaxed);
    }
}

impl Drop for InParts {
    fn drop(&mut self) {
        let parts = &mut *self.checkpoints.parts.lock();
        let position = parts.iter().position(|bound| *bound == self.bound);
        parts.swap_remove(position.expect("noted when this was made"));
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        // Release pairs with the Acquire in `begin`.
        self.0.under_way.store(false, Ordering::Release);
        for end in waiting.drain(..) {
            // Who does not wait any more need not know.
            _ = end.send(());
        }
    }
}
