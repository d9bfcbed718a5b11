//! Upkeep tasks: checkpoints, which shorten recovery, and subsequent compaction, which reduces disk
//! usage. One runs at a time, as a task among the transactions.

use super::checkpoint::{self, CheckpointInfo, WrittenCheckpoint};
use super::compact::{self, CompactionResult};
use crate::page::HoleSearch;
use crate::sched::{self, Job, WaitCause};
use crate::transaction::{Engine, OperationError, WorkerTransactions};

/// Writes a checkpoint of the database to which the current worker thread belongs. If `frees_log`,
/// also frees segments of the log that have no live record then, and in which no transaction sees a
/// version.
///
/// # Errors
/// `Unlogged` if the database has no log; `CheckpointUnderWay`; errors of the device.
pub(crate) async fn checkpoint(frees_log: bool) -> Result<CheckpointInfo, OperationError> {
    let engine = WorkerTransactions::current().engine().clone();
    let files = engine.log.files().ok_or(OperationError::Unlogged)?;
    let _under_way = engine.checkpoints.begin().ok_or(OperationError::CheckpointUnderWay)?;
    let _loan = files.end_loan_when_dropped();
    let write = async {
        let written = checkpoint::write(&files).await?;
        if frees_log && let Err(error) = compact::free_unseen(&files, &written).await {
            tracing::warn!(
                "cannot free the log before a checkpoint, so the next one does: {error}"
            );
        }
        Ok(written.checkpoint)
    };
    sched::upkeep(write).await
}

/// Writes a checkpoint and frees segments of the log with few live records. Keeps no spare segment
/// files, and little disk space for free places in zone files.
///
/// # Errors
/// The errors of [`checkpoint()`].
pub(crate) async fn compact() -> Result<CompactionResult, OperationError> {
    compact_as(true).await
}

async fn compact_as(waits_for_snapshots: bool) -> Result<CompactionResult, OperationError> {
    let mut compacted = sched::upkeep(keep_small(waits_for_snapshots)).await?;
    let engine = WorkerTransactions::current().engine().clone();
    let files = engine.log.files().ok_or(OperationError::Unlogged)?;
    while files.remove_spare() {
        // A file system may take milliseconds to remove a file.
        sched::yield_now(WaitCause::Memory).await;
    }
    compacted.page_bytes += release_holes(&engine).await;
    engine.expect_checkpoint();
    files.shrink_reserve().map_err(OperationError::storage)?;
    files.hold_reserve();
    Ok(compacted)
}

/// Frees disk space of places in zone files that the next checkpoint does not need. Returns the
/// freed bytes.
pub(super) async fn release_holes(engine: &Engine) -> u64 {
    let (mut from, mut freed) = (HoleSearch::default(), 0);
    // Closing the database waits for this task.
    while !engine.checkpoints.stopping()
        && let Some(bytes) = engine.pages().and_then(|pages| pages.release_holes(&mut from))
    {
        freed += bytes;
        sched::yield_now(WaitCause::Memory).await;
    }
    freed
}

/// Compacts what an earlier opening left, after a checkpoint in progress ends, because that may
/// have begun before a deletion. Does not wait for open snapshots.
///
/// # Errors
/// The errors of [`checkpoint()`]; `CheckpointUnderWay` only if the database is closing.
pub(crate) async fn compact_in_turn() -> Result<CompactionResult, OperationError> {
    let engine = WorkerTransactions::current().engine().clone();
    loop {
        match compact_as(false).await {
            Err(OperationError::CheckpointUnderWay) if !engine.checkpoints.stopping() => {
                engine.checkpoints.wait_until_finished().await;
            }
            compacted => return compacted,
        }
    }
}

/// Writes a checkpoint, and frees segments of the log with few live records. Waits for open
/// snapshots only on an explicit request, because they may be held forever and would prevent other
/// upkeep.
async fn keep_small(waits_for_snapshots: bool) -> Result<CompactionResult, OperationError> {
    let engine = WorkerTransactions::current().engine().clone();
    let files = engine.log.files().ok_or(OperationError::Unlogged)?;
    let _under_way = engine.checkpoints.begin().ok_or(OperationError::CheckpointUnderWay)?;
    let _loan = files.end_loan_when_dropped();
    let written = checkpoint::write(&files).await?;
    let WrittenCheckpoint { checkpoint: CheckpointInfo { lsn, records, bytes, .. }, .. } = written;
    tracing::info!(lsn = lsn.0, records, bytes, "wrote a checkpoint");
    let compacted = compact::compact(&files, written, waits_for_snapshots).await?;
    if engine.log.is_short() || engine.log.is_stalled() {
        release_holes(&engine).await;
        engine.expect_checkpoint();
    }
    if compacted.segments > 0 {
        let CompactionResult { segments, moved, bytes, .. } = compacted;
        tracing::info!(segments, moved, bytes, "freed segments of the log");
    }
    Ok(compacted)
}

/// Returns a task that does this, and logs a warning if it fails.
pub(crate) fn job() -> Job {
    Box::new(|| {
        Box::pin(async {
            match sched::upkeep(keep_small(false)).await {
                Ok(_) | Err(OperationError::CheckpointUnderWay) => {}
                Err(error) => tracing::warn!("cannot write a checkpoint: {error}"),
            }
        })
    })
}
