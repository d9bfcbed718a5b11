//! What opening a database does, while it does it and afterwards.

use std::time::Duration;

use super::Checkpoint;
use crate::durability::{RecoveryResult, RecoveryStep};

/// What an opening is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenStage {
    /// Loading the newest checkpoint; progress counts records.
    Checkpoint,
    /// Replaying the log after it; progress counts bytes, and the log may end before the last of
    /// them, as its files are made ahead.
    Log,
}

/// How far an opening is, as [`Database::open_watched`](super::Database::open_watched) tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenProgress {
    /// What is done now.
    pub stage: OpenStage,
    /// How much of it.
    pub done: u64,
    /// Of how much, at most.
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

/// What opening a database did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Recovery {
    /// The checkpoint that was loaded, if there was one.
    pub checkpoint: Option<Checkpoint>,
    /// Transactions that were replayed from the log.
    pub transactions: u64,
    /// Records they wrote.
    pub records: u64,
    /// Bytes of log that were read.
    pub log_bytes: u64,
    /// How long all that took.
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
