//! How far space for the log is prepared, and the handover between the worker that prepares it and the
//! flush that needs it.
//!
//! Invariant (no flush is forgotten): a flush that needs more than what is prepared is announced,
//! and then its leader looks whether a worker prepares; that worker says that it has ended, and
//! then looks whether a flush is announced. A sequentially consistent fence stands between the two
//! steps of each, so one sees the other: the leader sees that nobody prepares and repeats its turn,
//! which prepares; or who prepared sees the flush and carries it on. Neither relies on a tail or on
//! an extent it read before.

use super::Lsn;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The extent of the prepared space, and whether a flush waits for more of it.
#[derive(Debug, Default)]
pub(super) struct PreparedSpace {
    end: AtomicU64,
    /// A worker prepares space past `end`; it alone advances `end`.
    preparing: AtomicBool,
    /// A flush is padded and not submitted.
    announced: AtomicBool,
}

/// Whether a flush finds its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpaceAvailability {
    /// All of it.
    Prepared,
    /// Not yet; the worker that prepares will look at the announced flush when done.
    UnderPreparation,
    /// Not yet, and nobody prepares: the caller is to.
    Missing,
}

impl PreparedSpace {
    /// Up to where space is prepared.
    pub(super) fn end(&self) -> Lsn {
        // Acquire pairs with the Release of `advance`: the files are there.
        Lsn(self.end.load(Ordering::Acquire))
    }

    /// Says that space is prepared up to `end`. Called by the worker that prepares, or before there
    /// are workers.
    pub(super) fn advance(&self, end: Lsn) {
        // Release pairs with the Acquire in `end`.
        self.end.store(end.0, Ordering::Release);
    }

    /// Begins to prepare, unless another worker does or none is due.
    pub(super) fn begin(&self, is_due: impl FnOnce() -> bool) -> bool {
        // Acquire pairs with the Release of `finish`: `end` is what the last one made it. Relaxed on failure: nothing
        // is concluded but that another worker prepares, or did until now.
        let (taken, not_taken) = (Ordering::Acquire, Ordering::Relaxed);
        is_due() && self.preparing.compare_exchange(false, true, taken, not_taken).is_ok()
    }

    /// Ends preparing. The caller looks at `is_announced` afterwards.
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

    /// Takes the announcement back: the flush is submitted. Under the leader's lock, as `announce`.
    pub(super) fn withdraw(&self) {
        // Relaxed: a worker that still sees it looks for a flush and finds none.
        self.announced.store(false, Ordering::Relaxed);
    }

    /// Whether a flush is announced.
    pub(super) fn is_announced(&self) -> bool {
        // Relaxed: after `finish`, ordered by its fence; at other times a hint.
        self.announced.load(Ordering::Relaxed)
    }

    /// Whether the announced flush finds space up to `target`.
    pub(super) fn find(&self, target: Lsn) -> SpaceAvailability {
        if self.end() >= target {
            return SpaceAvailability::Prepared;
        }
        // Pairs with the fence in `finish`.
        fence(Ordering::SeqCst);
        // Acquire pairs with the Release of `finish`: if it has ended, its extent is seen below.
        if self.preparing.load(Ordering::Acquire) {
            return SpaceAvailability::UnderPreparation;
        }
        if self.end() >= target { SpaceAvailability::Prepared } else { SpaceAvailability::Missing }
    }
}
