//! Schedules: due times of checkpoints, sweeps and timers; queues of deferred work and of waiting
//! tasks; state of the disk reserve and of dead segments.
//!
//! May import no other room.

pub(super) mod checkpoints;
pub(super) mod dead_segments;
pub(super) mod deferred_work;
pub(super) mod disk_reserve;
pub(super) mod marked_tables;
pub(super) mod ordered_admission;
pub(super) mod sweep_schedule;
pub(super) mod timers;
pub(super) mod waiters;
