//! Checkpoint writer, as a task among the transactions.

use std::sync::Arc;

use super::chunk::{CHUNK_BYTES, ENTRY_BYTES, SECTION_BYTES};
use super::list::{begin_listing, bytes_of_leaves};
use super::output::{CheckpointOutput, WrittenSections, failed, sync_directory};
use super::{CheckpointInfo, MAGIC, WrittenCheckpoint, name, parse_name};
use crate::durability::STEPS_PER_TABLE;
use crate::durability::compact::LiveSegments;
use crate::durability::upkeep::release_holes;
use crate::io::{OpenMode, SECTOR_BYTES};
use crate::log::{CHECKPOINT_NAME, LogError, LogFiles, Lsn, UNFINISHED_SUFFIX};
use crate::memory::MemoryKind;
use crate::page::Listing;
use crate::planted::{Bug, is_planted};
use crate::record::TableKind;
use crate::sched::{self, WaitCause};
use crate::transaction::{Engine, OperationError, PanicPoint, WorkerTransactions};

/// Number of times that a checkpoint is written again although its space was available.
const MAX_RETRIES: u32 = 3;

/// Writes a checkpoint of the database to which the current worker thread belongs, into its
/// directory. On a full disk, it may use the reserve.
///
/// # Errors
/// Errors of the device. Incomplete files are then removed, overwritten by the next checkpoint, or
/// removed by recovery.
pub(crate) async fn write(files: &LogFiles) -> Result<WrittenCheckpoint, OperationError> {
    let unfinished = format!("{CHECKPOINT_NAME}{UNFINISHED_SUFFIX}");
    let is_full = |written: &Result<_, OperationError>| {
        written.as_ref().is_err_and(OperationError::is_disk_full)
    };
    let worker = WorkerTransactions::current();
    let _writing = worker.engine().checkpoints.begin_writing();
    let mut written = write_as(files, &unfinished).await;
    if is_full(&written) {
        files.lend_reserve();
        // Even without a reserve, because page writes now prefer places that have disk blocks.
        written = write_as(files, &unfinished).await;
    }
    if is_full(&written) && files.remove_spare() {
        // Space of spare segments: without a checkpoint, the log cannot use it either.
        while files.remove_spare() {
            sched::yield_now(WaitCause::Memory).await;
        }
        written = write_as(files, &unfinished).await;
    }
    if is_full(&written) && release_holes(WorkerTransactions::current().engine()).await > 0 {
        written = write_as(files, &unfinished).await;
    }
    // Another writer may have taken the space for a moment, for example for a segment that could not
    // be completed. Some file systems allocate freed space only after they have recorded its release.
    for _ in 0..MAX_RETRIES {
        if !is_full(&written) {
            break;
        }
        _ = files.remove(&unfinished);
        if files.room_for_checkpoint() < estimate(WorkerTransactions::current().engine()) {
            break;
        }
        sync_directory(files).await?;
        written = write_as(files, &unfinished).await;
    }
    if written.is_err() {
        // The incomplete file takes room and is useless. The returned error is the reason why it
        // could not be completed.
        _ = files.remove(&unfinished);
    }
    written.map_err(|error| match error {
        OperationError::Storage(error) => {
            let needed = estimate(WorkerTransactions::current().engine());
            let available = files.room_for_checkpoint();
            OperationError::storage(error.no_room_for_checkpoint(needed, available))
        }
        other => other,
    })
}

/// Writes a checkpoint, under the name `unfinished` until it is complete.
async fn write_as(files: &LogFiles, unfinished: &str) -> Result<WrittenCheckpoint, OperationError> {
    let worker = WorkerTransactions::current();
    let engine = worker.engine();
    let lsn = engine.checkpoints.replay_from(|| engine.log.tail());
    // A write of an earlier checkpoint that was given up may still be in flight to the earlier file.
    _ = files.remove(unfinished);
    let file = files.open(unfinished, OpenMode::Emptied).map_err(OperationError::storage)?;
    let (file, live) = (Arc::new(file), LiveSegments::default());
    let segment_bytes = files.segment_bytes();
    let mut output = CheckpointOutput::new(file, segment_bytes, live);
    let mut listing = begin_listing(engine, files)?;
    engine.planted_panic.panic_if_planted(PanicPoint::Checkpoint);
    // A transaction that publishes a table after this commits the table's contents at an LSN that
    // is replayed.
    for table in engine.tables() {
        sched::count_steps(STEPS_PER_TABLE).await;
        match table.kind() {
            TableKind::Memory(table) => output.write_table(&worker, table).await?,
            TableKind::Paged(table) => {
                // If the first paged table was created after the checkpoint began, it is replayed.
                let Some(listing) = &mut listing else { continue };
                output.list_paged_table_if_created(&worker, table, listing).await?;
            }
        }
    }
    output.write_chunk().await?;
    output.cut_off_rolled_back()?;
    if let Some(listing) = &mut listing {
        output.finish_listing(files, listing).await?;
    }
    // After a crash, the log must include everything that is listed, and every deletion because of
    // which a record was not listed.
    let end = engine.log.tail();
    if !is_planted(Bug::CheckpointAheadOfLog) {
        worker.wait_durable(Lsn(end.0 - 1)).await?;
    }
    let lsn = if is_planted(Bug::CheckpointRace) { engine.log.durable() } else { lsn };
    let WrittenSections { chunks, end: bytes, records, .. } = output.written;
    let next_table = engine.next_table_id().0.into();
    let (id_limit, page_bytes) = match &listing {
        Some(listing) => (listing.id_limit(), listing.page_bytes() as u64),
        None => (0, 0),
    };
    let own = [records, chunks.into(), end.0, next_table, id_limit, page_bytes];
    let header = files.checkpoint_sector(MAGIC, lsn, own);
    output.write(0, header).await?;
    let synced = sched::sync(output.file.clone()).await;
    synced.map_err(|error| failed("sync", output.file.path(), error))?;
    listing.iter_mut().for_each(Listing::note_named);
    files.rename(unfinished, &name(lsn)).map_err(OperationError::storage)?;
    sync_directory(files).await?;
    let WrittenSections { paged_bytes, data_bytes, .. } = output.written;
    // Before the places are freed that only the previous checkpoint lists: from here on it is not
    // read.
    engine.checkpoints.note(lsn, bytes, paged_bytes, data_bytes);
    listing.into_iter().for_each(Listing::publish);
    remove_older(files, lsn).map_err(OperationError::storage)?;
    engine.expect_checkpoint();
    files.give_up_excess_reserve();
    let checkpoint = CheckpointInfo { lsn, end, records, bytes, paged_bytes, data_bytes };
    Ok(WrittenCheckpoint { checkpoint, live: output.live })
}

/// Returns the approximate size of an engine's next checkpoint: its file, and the page images that
/// it may have to write.
pub(crate) fn estimate(engine: &Engine) -> u64 {
    estimate_file(engine) + engine.missing_images(0)
}

/// Maximum of unused chunks in the estimated size of a checkpoint's file.
const MAX_SLACK_CHUNKS: usize = 2;

/// Returns the approximate size of the checkpoint file.
pub(crate) fn estimate_file(engine: &Engine) -> u64 {
    // On a full disk, compaction makes little progress without some slack. A database with only the
    // catalog takes less.
    let slack = MAX_SLACK_CHUNKS.min(engine.tables().len()) * CHUNK_BYTES;
    let mut bytes = (SECTOR_BYTES + slack) as u64;
    // Keys of up to eight bytes are stored in the index; the memory of longer ones is counted.
    let long_keys = engine.memory.bytes(MemoryKind::Key);
    for table in engine.tables() {
        bytes += match table.kind() {
            TableKind::Memory(_) => {
                SECTION_BYTES as u64 + table.stored() * (ENTRY_BYTES + 8) as u64
            }
            TableKind::Paged(_) if table.is_gone() => 0,
            TableKind::Paged(table) => bytes_of_leaves(table.pages()),
        };
    }
    // Each full chunk may have unused room for an entry, and another header of the section.
    bytes += bytes / 64;
    (bytes + long_keys).next_multiple_of(SECTOR_BYTES as u64)
}

fn remove_older(files: &LogFiles, newest: Lsn) -> Result<(), LogError> {
    for name in files.list()? {
        if parse_name(&name).is_some_and(|lsn| lsn < newest) {
            files.remove(&name)?;
        }
    }
    Ok(())
}

/// Removes checkpoints that a killed process left although a newer one exists, once the name of the
/// newest is durable. On a full disk, the next checkpoint may need their space.
///
/// # Errors
/// Errors of the operating system.
pub(in crate::durability) fn remove_superseded(
    files: &LogFiles,
    newest: Lsn,
) -> Result<(), LogError> {
    let mut names = files.list()?.into_iter().filter_map(|name| parse_name(&name));
    if !names.any(|lsn| lsn < newest) {
        return Ok(());
    }
    let synced = files.directory().sync();
    synced.map_err(|error| LogError::io("sync", files.directory().path(), 0, error))?;
    remove_older(files, newest)
}
