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

use crate::log::Lsn;
use crate::sched::Job;
use crate::transaction::{OperationError, Worker};

/// A checkpoint that was written or loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// What was committed before is in it; the log is replayed from here on.
    pub(crate) lsn: Lsn,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

/// Writes a checkpoint of the database whose worker's thread this is.
///
/// # Errors
/// `Unlogged` if the database logs nothing; `CheckpointUnderWay`; the device's.
pub(crate) async fn run() -> Result<Checkpoint, OperationError> {
    let engine = Worker::current().engine().clone();
    let files = engine.log.files().ok_or(OperationError::Unlogged)?;
    let _under_way = engine.checkpoints.begin().ok_or(OperationError::CheckpointUnderWay)?;
    let written = write::write(&files).await?;
    engine.checkpoints.note(written.lsn);
    Ok(written)
}

/// A task that writes a checkpoint and says in the program's trace what became of it.
pub(crate) fn job() -> Job {
    Box::new(|| {
        Box::pin(async {
            match run().await {
                Ok(Checkpoint { lsn, records, bytes }) => {
                    tracing::info!(lsn = lsn.0, records, bytes, "wrote a checkpoint");
                }
                Err(OperationError::CheckpointUnderWay) => {}
                Err(error) => tracing::warn!("no checkpoint could be written: {error}"),
            }
        })
    })
}

const MAGIC: [u8; 8] = *b"BRAIDCKP";
const PREFIX: &str = "checkpoint-";
const SUFFIX: &str = ".ckpt";

fn name(lsn: Lsn) -> String {
    format!("{PREFIX}{:016x}{SUFFIX}", lsn.0)
}

/// The LSN in a checkpoint's name; `None` if the name is no checkpoint's.
fn parse_name(name: &str) -> Option<Lsn> {
    let digits = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    u64::from_str_radix(digits, 16).ok().map(Lsn)
}
