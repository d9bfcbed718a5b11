//! Checkpoints: where every record was in the log at one LSN, so that recovery need not replay
//! what is before it.
//!
//! A checkpoint is the snapshot of a transaction that reads no value: for every table, the keys it
//! sees in order, each with its record id and the address of its record. Its LSN is not later than
//! the snapshot: replaying the log from there on brings what is in the checkpoint to what is in the
//! log, because what was done between the two is done again in the same order. `docs/format.md` has
//! the bytes. Invariant: a file has a checkpoint's name only once all of it, and all of the log
//! before its snapshot, is durable.

mod chunk;
mod load;
mod write;

pub(super) use load::load_newest;
pub(super) use write::write;

use super::compact::Live;
use crate::log::Lsn;

/// A checkpoint that was written or loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// What was committed before is in it; the log is replayed from here on.
    pub(crate) lsn: Lsn,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// A checkpoint that was written, and what it found in the log.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) checkpoint: Checkpoint,
    pub(super) live: Live,
}

const MAGIC: [u8; 8] = *b"BRAIDCKP";
const PREFIX: &str = "checkpoint-";
const SUFFIX: &str = ".ckpt";

/// The name of the checkpoint at `lsn`.
pub(crate) fn name(lsn: Lsn) -> String {
    format!("{PREFIX}{:016x}{SUFFIX}", lsn.0)
}

/// The LSN in a checkpoint's name; `None` if the name is no checkpoint's.
fn parse_name(name: &str) -> Option<Lsn> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    u64::from_str_radix(digits, 16).ok().map(Lsn)
}
