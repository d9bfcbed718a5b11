//! Durability: recovery, checkpoints and compaction. Recovery loads the newest checkpoint and then
//! replays the log after it. `ARCHITECTURE.md` has a table of on-disk states and their recovery,
//! which `tests/durability/recovery.rs` tests.

mod backup;
mod check;
mod checkpoint;
mod compact;
mod key_batch;
mod progress;
mod recover;
mod recovered_pages;
mod replay;
mod upkeep;

/// Steps that the visit of a table counts, in addition to those of its records.
const STEPS_PER_TABLE: u32 = 4;

pub(crate) use backup::{BackupCopy, back_up};
pub(crate) use check::check_tables;
pub(crate) use checkpoint::{
    CheckpointInfo, check as check_checkpoint, estimate_file as estimate_checkpoint_file,
    name as checkpoint_name,
};
#[cfg(all(test, not(loom)))]
pub(crate) use checkpoint::{
    estimate as estimate_checkpoint, rewrite_as_earlier_build, write_records_of_earlier_build,
};
pub(crate) use compact::CompactionResult;
pub(crate) use progress::{RecoveryError, RecoveryObserver, RecoveryStep};
pub(crate) use recover::{RecoveryResult, recover};
pub(crate) use recovered_pages::RecoveredPages;
pub(crate) use replay::{ReplayResult, max_recovery_threads};
pub(crate) use upkeep::{checkpoint, compact, compact_in_turn, job};
