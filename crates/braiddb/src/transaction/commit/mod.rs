//! Commit: the end of a transaction, by commit or abort, its waits for durability and disk space,
//! and the work that an abort defers.
//!
//! May import `validation`, `context`, `sets`, `memory` and `schedule`.

mod abort;
mod bulk_end;
mod committing;
mod created_tables;
mod deferred_rollback;
pub(super) mod disk_room;
mod durable;
mod ending;
mod leaf_cleanup;
mod log_writes;
