//! Progress and failures of a recovery.

use crate::log::LogError;
use crate::page::PageError;
use crate::record::TableFull;
use crate::rid::TableId;

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

/// Returns the id of the table or index that a catalog row defines, from the row's key and value.
pub(crate) type TableIdOf = fn(&[u8], &[u8]) -> Option<TableId>;

/// Callback that receives the progress of a recovery.
pub(crate) type RecoveryObserver<'w> = &'w mut dyn FnMut(RecoveryStep);
