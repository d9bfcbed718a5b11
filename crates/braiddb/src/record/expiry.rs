//! Expiry of records. In a table with a lifetime, every stored value begins with the time at which
//! its record expires, followed by the user's value. So the expiry is as durable as the record,
//! moves with it, and may differ for each.
//!
//! Invariant: a table's lifetime is set before any record is written, and never changes.

use super::records::Records;
use crate::sync::statistic::Ordering;

/// Bytes of the expiry at the start of a stored value.
pub(crate) const EXPIRY_BYTES: usize = size_of::<u64>();

impl Records {
    /// Sets the default lifetime of the table's records. Must be called before the table is shared.
    pub(crate) fn set_lifetime(&self, milliseconds: u64) {
        assert!(milliseconds > 0, "records live for some time");
        // Relaxed: every user of the table obtained it later, by a commit or by a message to its
        // worker.
        self.lifetime.milliseconds.store(milliseconds, Ordering::Relaxed);
    }

    /// Returns whether the table's records expire.
    #[inline(always)]
    pub(crate) fn expires(&self) -> bool {
        self.lifetime_ms() != 0
    }

    /// The lifetime of its records; 0 if they do not expire.
    #[inline(always)]
    pub(crate) fn lifetime_ms(&self) -> u64 {
        // Relaxed: see `set_lifetime`.
        self.lifetime.milliseconds.load(Ordering::Relaxed)
    }

    /// Notes the expiry of a record, once the record is visible to transactions that begin later.
    /// So a sweep that resets the earlier bound finds the record.
    pub(crate) fn note_expiry(&self, expiry: u64) {
        // A preceding load might read a bound that is being reset. AcqRel, of which the Release
        // pairs with the Acquire of `begin_sweep`.
        self.lifetime.earliest.fetch_min(expiry, Ordering::AcqRel);
    }

    /// Returns whether a record may have expired by `now`.
    pub(crate) fn may_have_expired(&self, now: u64) -> bool {
        // Relaxed: if it is seen late, the sweep runs one interval later.
        self.lifetime.earliest.load(Ordering::Relaxed) <= now
    }

    /// Begins a sweep of the table: later commits, and records that the sweep finds, are noted for
    /// the next sweep.
    pub(crate) fn begin_sweep(&self) {
        // A store would not suffice: a sweep that resets the bound, and then begins, must see what
        // was visible when the bound was noted (AcqRel, of which the Acquire pairs with the Release
        // of `note_expiry`).
        self.lifetime.earliest.swap(u64::MAX, Ordering::AcqRel);
    }

    /// When to sweep the table, in milliseconds after the start of the sweeps.
    pub(crate) fn next_sweep(&self) -> u64 {
        // Relaxed: a late sweep loses nothing.
        self.lifetime.next_sweep.load(Ordering::Relaxed)
    }

    pub(crate) fn set_next_sweep(&self, milliseconds: u64) {
        // Relaxed: see `next_sweep`.
        self.lifetime.next_sweep.store(milliseconds, Ordering::Relaxed);
    }

    /// Notes that a record cannot be swept; returns whether it is the first.
    pub(crate) fn is_first_unswept(&self) -> bool {
        // Relaxed: reported once, and nothing depends on it.
        !self.lifetime.has_unswept.swap(true, Ordering::Relaxed)
    }

    /// The user's part of a stored value.
    #[inline(always)]
    pub(crate) fn value_of<'v>(&self, stored: &'v [u8]) -> &'v [u8] {
        if self.expires() { split_expiry(stored).1 } else { stored }
    }
}

/// Splits a stored value into its expiry and the user's value; only for tables with a lifetime.
#[inline]
pub(crate) fn split_expiry(stored: &[u8]) -> (u64, &[u8]) {
    let (expiry, value) =
        stored.split_first_chunk().expect("every value of the table was stored with its expiry");
    (u64::from_le_bytes(*expiry), value)
}

/// Encodes a value for a table with a lifetime.
pub(crate) fn with_expiry(expiry: u64, value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(EXPIRY_BYTES + value.len());
    stored.extend_from_slice(&expiry.to_le_bytes());
    stored.extend_from_slice(value);
    stored
}
