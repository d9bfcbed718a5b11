//! Durability: recovery, checkpoints, compaction, eviction, backups, and answers that are returned
//! only when they are durable.

mod backup;
mod checkpoint;
mod closing;
mod cold;
mod cold_scans;
#[path = "../common/mod.rs"]
mod common;
mod compaction;
mod damage;
mod disk_statistics;
mod eviction;
#[path = "../common/expiring.rs"]
#[allow(dead_code, reason = "a table of another type is made here")]
mod expiring;
mod formats;
mod log_failure;
mod memory;
mod read_admission;
mod read_only;
mod read_only_pages;
mod recovery;
mod reopening;
mod small_database;
#[path = "../common/table_kind.rs"]
mod table_kind;
mod write_admission;
