//! Housekeeping of workers: log flushes, garbage collection, pruning, eviction, sweeps, and the
//! clearing of tables.
//!
//! May import every other room.

mod bulk_sweep;
pub(super) mod clear;
mod collect;
pub(super) mod driver;
mod evict;
mod prune;
pub(super) mod sweep;
