//! Progress and result of opening a database.

use std::time::Duration;

use crate::durability::{CheckpointInfo, RecoveryResult, RecoveryStep};

/// The stage of an opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenStage {
    /// Loading the newest checkpoint; progress counts records.
    Checkpoint,
    /// Replaying the log after the checkpoint; progress counts bytes. Log files are preallocated,
    /// so the log may end before the total is reached.
    Log,
}

/// Progress of an opening, as reported by
/// [`Database::open_watched`](super::Database::open_watched).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenProgress {
    /// The current stage.
    pub stage: OpenStage,
    /// The completed amount.
    pub done: u64,
    /// The total amount, at most.
    pub total: u64,
}

impl From<RecoveryStep> for OpenProgress {
    fn from(step: RecoveryStep) -> Self {
        let (stage, done, total) = match step {
            RecoveryStep::Checkpoint { loaded, records } => {
                (OpenStage::Checkpoint, loaded, records)
            }
            RecoveryStep::Log { read, bytes } => (OpenStage::Log, read, bytes),
        };
        Self { stage, done, total }
    }
}

/// A written checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The checkpoint contains all commits before this LSN.
    pub lsn: u64,
    /// Records in the checkpoint, including those of the catalog.
    pub records: u64,
    /// The size of its file in bytes.
    pub bytes: u64,
}

impl From<CheckpointInfo> for Checkpoint {
    fn from(checkpoint: CheckpointInfo) -> Self {
        let CheckpointInfo { lsn, records, bytes, .. } = checkpoint;
        Self { lsn: lsn.0, records, bytes }
    }
}

/// The result of opening a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Recovery {
    /// The checkpoint that was loaded, if any.
    pub checkpoint: Option<Checkpoint>,
    /// Transactions that were replayed from the log.
    pub transactions: u64,
    /// Records written by these transactions.
    pub records: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Duration of the opening.
    pub elapsed: Duration,
}

impl Recovery {
    pub(super) fn new(recovered: &RecoveryResult, elapsed: Duration) -> Self {
        let RecoveryResult { checkpoint, replayed } = recovered;
        Self {
            checkpoint: checkpoint.map(Checkpoint::from),
            transactions: replayed.transactions,
            records: replayed.records,
            log_bytes: replayed.end.0 - replayed.start.0,
            elapsed,
        }
    }
}
