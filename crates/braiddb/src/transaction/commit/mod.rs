//! Commit: the end of a transaction by commit or abort, rollbacks to savepoints, waits for durability
//! and disk space, and rollbacks and cleanups that wait for pages.
//!
//! May import `validation`, `context`, `sets`, `memory` and `schedule`.

mod abort;
mod bulk_end;
pub(super) mod committing;
mod created_tables;
mod deferred_rollback;
pub(super) mod disk_room;
mod durable;
mod ending;
mod leaf_cleanup;
mod log_writes;
