//! Progress and failures of a recovery.

use crate::log::LogError;
use crate::page::PageError;
use crate::record::TableFull;

/// Failure of a recovery.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RecoveryError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Table(#[from] TableFull),
    #[error(transparent)]
    Pages(#[from] PageError),
}

/// Progress of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryStep {
    /// Number of records of the checkpoint that are loaded.
    Checkpoint { loaded: u64, records: u64 },
    /// Number of bytes of the log that are read; the log may be shorter than `bytes`.
    Log { read: u64, bytes: u64 },
}

/// Callback that receives the progress of a recovery.
pub(crate) type RecoveryObserver<'w> = &'w mut dyn FnMut(RecoveryStep);
