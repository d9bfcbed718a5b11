//! Checkpoints: where every record was in the log, so that recovery need not replay all of it.
//!
//! A checkpoint is fuzzy. It has for every table the keys in order, each with its record id and the
//! address of its record, a few keys at a time as a transaction of their own sees them that reads no
//! value: so it holds no old version back, however long it takes. It starts at the LSN `c` and ends
//! at `e`. What was committed before `c` is in it, or superseded by what was committed between `c`
//! and `e`; of that, any part may be in it. Replaying the log from `c` on brings all of it to what is
//! in the log, as what was done since is done again in the same order, and of two addresses for one
//! record the later one stays. A record id may be listed under two keys, if the first was deleted
//! and its id taken by the second meanwhile: the log has both. `docs/format.md` has the bytes.
//!
//! Of a paged table it has where its leaves are, each with what was committed when it was looked at, and nothing else
//! (`page/listing`). Replay puts and deletes records by key, so what was said above holds for them too; and nothing leads to their
//! records in the log, which are dead from then on.
//!
//! Invariant: a file has a checkpoint's name only once all of it, all images that it leads to, and all of the log before `e`, is
//! durable.

mod chunk;
#[cfg(all(test, not(loom)))]
mod earlier;
mod list;
mod load;
mod load_leaves;
mod read;
mod write;

#[cfg(all(test, not(loom)))]
pub(crate) use earlier::write_records_of_earlier_build;
pub(crate) use load::is_newest;
pub(super) use load::load_newest;
pub(crate) use read::check;
#[cfg(all(test, not(loom)))]
pub(crate) use write::estimate;
pub(crate) use write::estimate_file;
pub(super) use write::write;

use super::compact::Live;
use crate::log::{CHECKPOINT_NAME, CHECKPOINT_SUFFIX, Lsn};

/// A checkpoint that was written or loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// What was committed before is in it; the log is replayed from here on.
    pub(crate) lsn: Lsn,
    /// Nothing that was committed from here on is in it; the log is not shorter.
    pub(crate) end: Lsn,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Bytes of what it has of paged tables, and of images that were written for it: about what the next one writes again.
    pub(crate) paged_bytes: u64,
}

/// A checkpoint that was written, and what it found in the log.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) checkpoint: Checkpoint,
    pub(super) live: Live,
}

const MAGIC: [u8; 8] = *b"BRAIDCKP";

/// The name of the checkpoint at `lsn`.
pub(crate) fn name(lsn: Lsn) -> String {
    format!("{CHECKPOINT_NAME}-{:016x}{CHECKPOINT_SUFFIX}", lsn.0)
}

/// The LSN in a checkpoint's name; `None` if the name is no checkpoint's.
fn parse_name(name: &str) -> Option<Lsn> {
    let name = name.strip_prefix(CHECKPOINT_NAME)?.strip_prefix('-')?;
    let digits = name.strip_suffix(CHECKPOINT_SUFFIX)?;
    u64::from_str_radix(digits, 16).ok().map(Lsn)
}
