//! Tests of the database on simulated disks with faults, and of its files.

mod changes;
mod dropped;
mod expiry;
mod failing;
mod full_disk;
mod full_disk_cycles;
mod full_disk_pages;
mod full_disk_waits;
mod growth;
mod guest_failures;
mod guest_writes;
mod guests;
mod guests_beside;
mod image_demand;
mod interrupted;
mod killed;
mod missing_tables;
mod page_checkpoints;
mod paged_deep;
mod paged_disk;
mod paged_large;
mod paused_calls;
mod pauses;
#[path = "../../../tests/common/polls.rs"]
mod polls;
mod read_only;
mod reserve;
mod tickets;
