//! What keeps recovery short and the disk small: checkpoints, and compaction after them, one at a
//! time, as tasks among the transactions.

use super::checkpoint::{self, Checkpoint, Written};
use super::compact::{self, Compacted};
use crate::page::HolesFrom;
use crate::sched::{self, Cause, Job};
use crate::transaction::{OperationError, WorkerTransactions};

/// Writes a checkpoint of the database whose worker's thread this is.
///
/// # Errors
/// `Unlogged` if the database logs nothing; `CheckpointUnderWay`; the device's.
pub(crate) async fn checkpoint() -> Result<Checkpoint, OperationError> {
    let engine = WorkerTransactions::current().engine().clone();
    let files = engine.log.files().ok_or(OperationError::Unlogged)?;
    let _under_way = engine.checkpoints.begin().ok_or(OperationError::CheckpointUnderWay)?;
    let _loan = files.end_loan_when_dropped();
    Ok(sched::upkeep(checkpoint::write(&files)).await?.checkpoint)
}

/// Writes a checkpoint, frees segments of the log that hold little that is alive, and keeps none of
/// their files for the log to come, nor much room of places that are free in the files of pages.
///
/// # Errors
/// As [`checkpoint()`].
pub(crate) async fn compact() -> Result<Compacted, OperationError> {
    compact_as(true).await
}

async fn compact_as(waits_for_snapshots: bool) -> Result<Compacted, OperationError> {
    let mut compacted = sched::upkeep(keep_small(waits_for_snapshots)).await?;
    let engine = WorkerTransactions::current().engine().clone();
    let files = engine.log.files().ok_or(OperationError::Unlogged)?;
    while files.remove_spare() {
        // A file system may take milliseconds for it.
        sched::yield_now(Cause::Memory).await;
    }
    if let Some(pages) = engine.pages() {
        let mut from = HolesFrom::default();
        // Closing waits for this.
        while !engine.checkpoints.stopping()
            && let Some(bytes) = pages.give_back_between(&mut from)
        {
            compacted.page_bytes += bytes;
            sched::yield_now(Cause::Memory).await;
        }
        engine.expect_checkpoint();
    }
    files.hold_reserve();
    Ok(compacted)
}

/// The same for what an earlier opening left, once a checkpoint that is under way is over: it may have begun before something
/// was deleted. Snapshots that are open are not waited for.
///
/// # Errors
/// As [`checkpoint()`]; `CheckpointUnderWay` only if the database is closing.
pub(crate) async fn compact_in_turn() -> Result<Compacted, OperationError> {
    let engine = WorkerTransactions::current().engine().clone();
    loop {
        match compact_as(false).await {
            Err(OperationError::CheckpointUnderWay) if !engine.checkpoints.stopping() => {
                engine.checkpoints.until_over().await;
            }
            compacted => return compacted,
        }
    }
}

/// Writes a checkpoint, and frees segments of the log that hold little that is alive. Unless that was asked for,
/// snapshots that are open are not waited for, which may be held for ever, and keep others from upkeep.
async fn keep_small(waits_for_snapshots: bool) -> Result<Compacted, OperationError> {
    let engine = WorkerTransactions::current().engine().clone();
    let files = engine.log.files().ok_or(OperationError::Unlogged)?;
    let _under_way = engine.checkpoints.begin().ok_or(OperationError::CheckpointUnderWay)?;
    let _loan = files.end_loan_when_dropped();
    let written = checkpoint::write(&files).await?;
    let Written { checkpoint: Checkpoint { lsn, records, bytes, .. }, .. } = written;
    tracing::info!(lsn = lsn.0, records, bytes, "wrote a checkpoint");
    let compacted = compact::compact(&files, written, waits_for_snapshots).await?;
    if compacted.segments > 0 {
        let Compacted { segments, moved, bytes, .. } = compacted;
        tracing::info!(segments, moved, bytes, "freed segments of the log");
    }
    Ok(compacted)
}

/// A task that does so, and says in the program's trace if it could not.
pub(crate) fn job() -> Job {
    Box::new(|| {
        Box::pin(async {
            match sched::upkeep(keep_small(false)).await {
                Ok(_) | Err(OperationError::CheckpointUnderWay) => {}
                Err(error) => tracing::warn!("no checkpoint could be written: {error}"),
            }
        })
    })
}
