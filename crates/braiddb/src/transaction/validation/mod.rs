//! Validation: checks that everything that a transaction read is unchanged at its commit LSN;
//! extension of snapshots; doomed transactions.
//!
//! May import `context`, `sets`, `memory` and `schedule`.

pub(super) mod certify;
mod certify_paged;
mod doomed;
mod extend;
#[cfg(feature = "experiment")]
mod serial_bounds;
