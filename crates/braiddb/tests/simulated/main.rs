//! Tests on a simulated disk: crashes at each disk operation, disk errors, and futures dropped at
//! each poll.
#![cfg(braid_simulation)]

#[path = "../common/abort.rs"]
mod abort;
mod bulk_crash;
mod cancellation;
mod cancelled_handles;
mod cancelled_index_changes;
mod changes_crash;
mod commit_unknown;
#[path = "../common/mod.rs"]
mod common;
mod drop_table_crash;
mod dropped_operations;
mod durable_results;
mod guest_writes;
mod paged_crash;
#[path = "../common/polls.rs"]
mod polls;
#[path = "../common/settled.rs"]
mod settled;
mod staged_tables_crash;
#[path = "../common/table_kind.rs"]
mod table_kind;
