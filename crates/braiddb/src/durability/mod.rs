//! Durability: recovery, checkpoints and compaction. Recovery loads the newest checkpoint and then
//! replays the log after it. `ARCHITECTURE.md` has a table of on-disk states and their recovery,
//! which `tests/durability/recovery.rs` tests.

mod check;
mod checkpoint;
mod compact;
mod key_batch;
mod recovered_pages;
mod replay;
mod upkeep;

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
pub(crate) use recovered_pages::RecoveredPages;
pub(crate) use replay::ReplayResult;
pub(crate) use upkeep::{checkpoint, compact, compact_in_turn, job};

use recovered_pages::RecoveringPages;

use crate::log::{LogError, LogFiles, LogReader};
use crate::page::PageError;
use crate::record::TableFull;
use crate::rid::TableId;
use crate::transaction::Engine;

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

/// Result of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecoveryResult {
    pub(crate) checkpoint: Option<CheckpointInfo>,
    pub(crate) replayed: ReplayResult,
}

/// Recovers the engine's tables, which are empty, from the disk. Paged tables are returned, because
/// the catalog defines which of them exist.
///
/// # Errors
/// When something cannot be read, or is damaged.
pub(crate) fn recover(
    engine: &Engine,
    files: &LogFiles,
    catalog: TableIdOf,
    mut reader: LogReader,
    watch: RecoveryObserver<'_>,
) -> Result<(RecoveryResult, RecoveredPages), RecoveryError> {
    let pages = RecoveringPages::new(engine, files);
    pages.free_reserve();
    let checkpoint = checkpoint::load_newest(engine, files, &pages, watch)
        .inspect_err(|_| pages.abandon_loading())?;
    if let Some(checkpoint) = checkpoint.filter(|_| !files.is_read_only()) {
        // Before replay overwrites places that only the older checkpoint lists.
        checkpoint::remove_superseded(files, checkpoint.lsn)?;
    }
    pages.finish_loading()?;
    if let Some(checkpoint) = checkpoint {
        reader.check_before(checkpoint.lsn)?;
        reader.start_at(checkpoint.lsn);
        let CheckpointInfo { lsn, bytes, paged_bytes, data_bytes, .. } = checkpoint;
        engine.checkpoints.note(lsn, bytes, paged_bytes, data_bytes);
    }
    let replayed = replay::replay(engine, &pages, catalog, reader, watch)?;
    if let Some(checkpoint) = checkpoint.filter(|checkpoint| replayed.end < checkpoint.end) {
        return Err(files.cut_short(replayed.end, checkpoint.end).into());
    }
    Ok((RecoveryResult { checkpoint, replayed }, pages.into_recovered()?))
}
