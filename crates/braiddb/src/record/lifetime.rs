//! The lifetime of a table's records, which `expiry` uses.

use crate::sync::statistic::{AtomicBool, AtomicU64};

/// The lifetime of a table's records, and the state of sweeping. Times are milliseconds since 1970.
#[derive(Debug)]
pub(super) struct Lifetime {
    /// Milliseconds; 0 if records do not expire.
    pub(super) milliseconds: AtomicU64,
    /// A lower bound of the expiry of every record that existed at the last sweep or was written
    /// since, except records that cannot be swept.
    pub(super) earliest: AtomicU64,
    /// When to sweep the table next, on the time scale of `transaction/schedule/sweep_schedule.rs`.
    pub(super) next_sweep: AtomicU64,
    /// Set once a record could not be swept.
    pub(super) has_unswept: AtomicBool,
}

impl Default for Lifetime {
    fn default() -> Self {
        // Recovered records may expire at any time.
        Self {
            milliseconds: AtomicU64::new(0),
            earliest: AtomicU64::new(0),
            next_sweep: AtomicU64::new(0),
            has_unswept: AtomicBool::new(false),
        }
    }
}
