//! Recovery of the engine's tables: the newest checkpoint, then the log after it.

use super::checkpoint::{self, CheckpointInfo};
use super::progress::{RecoveryError, RecoveryObserver};
use super::recovered_pages::{RecoveredPages, RecoveringPages};
use super::replay::{self, ReplayResult};
use crate::log::{LogFiles, LogReader};
use crate::transaction::Engine;

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
    let replayed = replay::replay(engine, &pages, reader, watch)?;
    if let Some(checkpoint) = checkpoint.filter(|checkpoint| replayed.end < checkpoint.end) {
        return Err(files.cut_short(replayed.end, checkpoint.end).into());
    }
    Ok((RecoveryResult { checkpoint, replayed }, pages.into_recovered()?))
}
