//! Sets: what a transaction read and wrote, and the log records of its bulk writes.
//!
//! May import `schedule`.

pub(super) mod bulk_log;
pub(super) mod bulk_writes;
pub(super) mod read_set;
pub(super) mod savepoints;
pub(super) mod write_set;
