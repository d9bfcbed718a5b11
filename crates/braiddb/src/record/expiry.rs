//! When records expire. In a table whose records do, every stored value begins with the moment from which on its
//! record is unseen, and the user's value follows. So the moment is as durable as the record, moves with it, and may be
//! another for each.
//!
//! Invariant: whether a table's records expire is settled before anybody writes one, and never changes.

use super::Records;
use crate::sync::statistic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of the moment at the start of a stored value.
pub(crate) const EXPIRY_BYTES: usize = size_of::<u64>();

/// How long a table's records live, and what sweeping knows of them. Moments are milliseconds since 1970.
#[derive(Debug)]
pub(super) struct Lifetime {
    /// Milliseconds; 0 if records do not expire.
    milliseconds: AtomicU64,
    /// No record of the table that was there at the last sweep, or was written since, expires before this, but those
    /// that cannot be swept.
    earliest: AtomicU64,
    /// When the table is to be swept, as the sweeps count time (`transaction/sweep.rs`).
    next_sweep: AtomicU64,
    /// Whether there was a record that could not be swept.
    has_unswept: AtomicBool,
}

impl Default for Lifetime {
    fn default() -> Self {
        // What is recovered is not known.
        Self {
            milliseconds: AtomicU64::new(0),
            earliest: AtomicU64::new(0),
            next_sweep: AtomicU64::new(0),
            has_unswept: AtomicBool::new(false),
        }
    }
}

impl Records {
    /// Makes the table one whose records expire so many milliseconds after they were written, unless it is said
    /// otherwise of one. To be called before anybody else may use the table.
    pub(crate) fn set_lifetime(&self, milliseconds: u64) {
        assert!(milliseconds > 0, "records live for some time");
        // Relaxed: whoever uses the table got it later, by a commit or by a message to his worker.
        self.lifetime.milliseconds.store(milliseconds, Ordering::Relaxed);
    }

    /// Whether the table's records expire.
    #[inline(always)]
    pub(crate) fn expires(&self) -> bool {
        self.lifetime_ms() != 0
    }

    /// How long its records live; 0 if they do not expire.
    #[inline(always)]
    pub(crate) fn lifetime_ms(&self) -> u64 {
        // Relaxed: see `set_lifetime`.
        self.lifetime.milliseconds.load(Ordering::Relaxed)
    }

    /// Notes that there is a record that expires at this moment: once it is visible to those who begin later, so that a
    /// sweep that forgets what was noted before finds it.
    pub(crate) fn note_expiry(&self, expiry: u64) {
        // Not a load first, which might see what is being forgotten. AcqRel, of which the Release pairs with the Acquire
        // of `begin_sweep`.
        self.lifetime.earliest.fetch_min(expiry, Ordering::AcqRel);
    }

    /// Whether a record may have expired by `now`, as far as is known.
    pub(crate) fn may_have_expired(&self, now: u64) -> bool {
        // Relaxed: seen late, the sweep comes an interval later.
        self.lifetime.earliest.load(Ordering::Relaxed) <= now
    }

    /// Begins a sweep of the table: what is committed from here on, and what the sweep finds, is noted for the next.
    pub(crate) fn begin_sweep(&self) {
        // Not a store: whoever sees it forgotten, and begins then, sees what was visible when it was noted (AcqRel,
        // of which the Acquire pairs with the Release of `note_expiry`).
        self.lifetime.earliest.swap(u64::MAX, Ordering::AcqRel);
    }

    /// Milliseconds after the sweeps' beginning at which the table is to be swept.
    pub(crate) fn next_sweep(&self) -> u64 {
        // Relaxed: it tells when to sweep, which loses nothing by being late.
        self.lifetime.next_sweep.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next_sweep(&self, milliseconds: u64) {
        // Relaxed: see `next_sweep`.
        self.lifetime.next_sweep.store(milliseconds, Ordering::Relaxed);
    }

    /// Notes that a record cannot be swept; whether it is the first.
    pub(crate) fn is_first_unswept(&self) -> bool {
        // Relaxed: it is told once, and nothing depends on it.
        !self.lifetime.has_unswept.swap(true, Ordering::Relaxed)
    }

    /// The user's value in a stored one.
    #[inline(always)]
    pub(crate) fn value_of<'v>(&self, stored: &'v [u8]) -> &'v [u8] {
        if self.expires() { split_expiry(stored).1 } else { stored }
    }
}

/// The moment at which a record expires, and its value; of a table whose records do.
#[inline]
pub(crate) fn split_expiry(stored: &[u8]) -> (u64, &[u8]) {
    let (expiry, value) =
        stored.split_first_chunk().expect("every value of the table was stored with its expiry");
    (u64::from_le_bytes(*expiry), value)
}

/// A value as it is stored in a table whose records expire.
pub(crate) fn with_expiry(expiry: u64, value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(EXPIRY_BYTES + value.len());
    stored.extend_from_slice(&expiry.to_le_bytes());
    stored.extend_from_slice(value);
    stored
}
