//! Checkpoints: the address of every record in the log, so that recovery need not replay the whole
//! log.
//!
//! A checkpoint is fuzzy. For every table it has the keys in order, each with the record id and the
//! address of the record. It reads a few keys at a time, each time in a new transaction that reads
//! no values. So it does not prevent old versions from being freed, regardless of its duration.
//!
//! A checkpoint starts at LSN `c` and ends at LSN `e`. A change that was committed before `c` is in
//! the checkpoint, or was superseded between `c` and `e`. Of the changes committed between `c` and
//! `e`, any part may be in it. Replay from `c` restores the state of the log, because it repeats
//! later changes in the same order and keeps the later of two addresses of a record. A record id
//! may be listed under two keys, if the first key was deleted and its id was reused in the interim;
//! the log has both changes. `docs/format.md` documents the bytes.
//!
//! For a paged table, a checkpoint lists the places of its leaves. Each image has only changes that
//! were committed when the leaf was read (`page/listing`). Replay puts and deletes records by key,
//! so the reasoning above holds for them too. Their records in the log before the checkpoint are
//! not referenced any more, so they are dead.
//!
//! Invariant: a file gets a checkpoint's name only after the whole file, all images that it lists,
//! and the log before `e` are durable.

mod chunk;
#[cfg(all(test, not(loom)))]
mod earlier;
mod list;
mod load;
mod load_leaves;
mod output;
mod read;
mod write;

#[cfg(all(test, not(loom)))]
pub(crate) use earlier::{rewrite_as_earlier_build, write_records_of_earlier_build};
pub(super) use load::{load_newest, newest};
pub(super) use read::CheckpointReader;
pub(crate) use read::check;
#[cfg(all(test, not(loom)))]
pub(crate) use write::estimate;
pub(crate) use write::estimate_file;
pub(super) use write::{remove_superseded, write};

use super::compact::LiveSegments;
use crate::log::{CHECKPOINT_NAME, CHECKPOINT_SUFFIX, Lsn};

/// A checkpoint that was written or loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointInfo {
    /// Start of replay; all earlier commits are in the checkpoint.
    pub(crate) lsn: Lsn,
    /// No change committed at or after this LSN is in the checkpoint; the log is not shorter.
    pub(crate) end: Lsn,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Bytes of sections of paged tables, and of images written for the checkpoint. The next
    /// checkpoint writes about as many.
    pub(crate) paged_bytes: u64,
    /// Approximate bytes of all records: those in the log, and those on pages.
    pub(crate) data_bytes: u64,
}

/// A checkpoint that was written, with the live data of the log's segments.
#[derive(Clone, Debug)]
pub(super) struct WrittenCheckpoint {
    pub(super) checkpoint: CheckpointInfo,
    pub(super) live: LiveSegments,
}

const MAGIC: [u8; 8] = *b"BRAIDCKP";

/// Returns the name of the checkpoint at `lsn`.
pub(crate) fn name(lsn: Lsn) -> String {
    format!("{CHECKPOINT_NAME}-{:016x}{CHECKPOINT_SUFFIX}", lsn.0)
}

/// Returns the LSN in a checkpoint's name; `None` if the name is not a checkpoint's.
fn parse_name(name: &str) -> Option<Lsn> {
    let name = name.strip_prefix(CHECKPOINT_NAME)?.strip_prefix('-')?;
    let digits = name.strip_suffix(CHECKPOINT_SUFFIX)?;
    u64::from_str_radix(digits, 16).ok().map(Lsn)
}
