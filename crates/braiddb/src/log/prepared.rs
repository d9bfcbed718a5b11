//! The end of the prepared space, and the handover between the worker that prepares space and the
//! flush that needs it.
//!
//! Invariant: no flush is forgotten. The flush leader announces a flush that needs unprepared
//! space, and then checks whether a worker prepares. That worker records its end, and then checks
//! for an announced flush. A sequentially consistent fence separates the two steps of each, so one
//! sees the other. Either the leader sees that no worker prepares, and repeats its turn, which
//! prepares; or the preparing worker sees the flush and continues it. Neither relies on a tail or
//! an extent that it read before.

use super::Lsn;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The end of the prepared space, and whether a flush waits for more.
#[derive(Debug, Default)]
pub(super) struct PreparedSpace {
    end: AtomicU64,
    /// True while a worker prepares space beyond `end`; only that worker advances `end`.
    preparing: AtomicBool,
    /// True while a flush is padded and not submitted.
    announced: AtomicBool,
}

/// The state of the space that a flush needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpaceAvailability {
    /// All of it is prepared.
    Prepared,
    /// Not prepared yet; the preparing worker will check for the announced flush at its end.
    UnderPreparation,
    /// Not prepared, and no worker is preparing: the caller must.
    Missing,
}

impl PreparedSpace {
    /// Returns the end of the prepared space.
    pub(super) fn end(&self) -> Lsn {
        // Acquire pairs with the Release of `advance`: the files exist.
        Lsn(self.end.load(Ordering::Acquire))
    }

    /// Sets the end of the prepared space. Called by the preparing worker, or before the workers
    /// start.
    pub(super) fn advance(&self, end: Lsn) {
        // Release pairs with the Acquire in `end`.
        self.end.store(end.0, Ordering::Release);
    }

    /// Begins a preparation, unless another worker is preparing or none is due.
    pub(super) fn begin(&self, is_due: impl FnOnce() -> bool) -> bool {
        // Acquire pairs with the Release of `finish`: `end` has the value set by the previous
        // preparer. Relaxed on failure: it implies only that another worker prepares, or did until
        // now.
        let (taken, not_taken) = (Ordering::Acquire, Ordering::Relaxed);
        is_due() && self.preparing.compare_exchange(false, true, taken, not_taken).is_ok()
    }

    /// Ends a preparation. The caller must check `is_announced` afterwards.
    pub(super) fn finish(&self) {
        // Release pairs with the Acquire in `begin`.
        self.preparing.store(false, Ordering::Release);
        // Pairs with the fence in `find`.
        fence(Ordering::SeqCst);
    }

    /// Announces a flush that is about to look for its space.
    pub(super) fn announce(&self) {
        // Relaxed: ordered by the fence in `find`.
        self.announced.store(true, Ordering::Relaxed);
    }

    /// Withdraws the announcement: the flush is submitted. Called under the leader's lock, as
    /// `announce`.
    pub(super) fn withdraw(&self) {
        // Relaxed: a worker that still sees the announcement looks for a flush and finds none.
        self.announced.store(false, Ordering::Relaxed);
    }

    /// Returns whether a flush is announced.
    pub(super) fn is_announced(&self) -> bool {
        // Relaxed: after `finish`, ordered by its fence; at other times a hint.
        self.announced.load(Ordering::Relaxed)
    }

    /// Returns the state of the space up to `target` for the announced flush.
    pub(super) fn find(&self, target: Lsn) -> SpaceAvailability {
        if self.end() >= target {
            return SpaceAvailability::Prepared;
        }
        // Pairs with the fence in `finish`.
        fence(Ordering::SeqCst);
        // Acquire pairs with the Release of `finish`: if the preparation has ended, its extent is
        // seen below.
        if self.preparing.load(Ordering::Acquire) {
            return SpaceAvailability::UnderPreparation;
        }
        if self.end() >= target { SpaceAvailability::Prepared } else { SpaceAvailability::Missing }
    }
}
