//! The database on simulated disks that misbehave.

#[path = "../../../tests/common/mod.rs"]
mod common;
mod full_disk;
