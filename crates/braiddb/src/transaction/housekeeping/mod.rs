//! Housekeeping of workers between transactions: garbage collection, eviction, deletions, sweeps.
//!
//! May import every other room.

mod bulk_sweep;
pub(super) mod clear;
mod collect;
pub(super) mod driver;
mod evict;
mod prune;
pub(super) mod sweep;
