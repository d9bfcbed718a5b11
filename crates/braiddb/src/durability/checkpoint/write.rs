//! Checkpoint writer, as a task among the transactions.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::chunk::{CHUNK_BYTES, ChunkKind, ChunkWriter, ENTRY_BYTES, SECTION_BYTES};
use super::list::{begin_listing, bytes_of_leaves};
use super::{CheckpointInfo, MAGIC, WrittenCheckpoint, name, parse_name};
use crate::durability::compact::LiveSegments;
use crate::durability::upkeep::release_holes;
use crate::io::{AlignedBuffer, File, OpenMode, SECTOR_BYTES};
use crate::log::{CHECKPOINT_NAME, LogError, LogFiles, Lsn, UNFINISHED_SUFFIX};
use crate::memory::MemoryKind;
use crate::page::Listing;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::record::Records;
use crate::sched::{self, WaitCause};
use crate::transaction::{Engine, OperationError, PanicPoint, WorkerTransactions};
use crate::types::KeyBuffer;
use crate::version::DEFAULT_KEY_BYTES;

/// Number of index entries examined before the task yields.
const BATCH: usize = 32;
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
        match table.paged() {
            Some(pages) => {
                // If the first paged table was created after the checkpoint began, it is replayed.
                let Some(listing) = &mut listing else { continue };
                output.list_paged_table_if_created(&worker, &table, pages, listing).await?;
            }
            None => output.write_table(&worker, &table).await?,
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

/// Makes the names in the database's directory durable.
pub(super) async fn sync_directory(files: &LogFiles) -> Result<(), OperationError> {
    let synced = sched::sync(files.directory().clone()).await;
    synced.map_err(|error| failed("sync", files.directory().path(), error))
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
        bytes += match table.paged() {
            Some(_) if table.is_gone() => 0,
            Some(pages) => bytes_of_leaves(pages),
            None => SECTION_BYTES as u64 + table.rids().in_use() * (ENTRY_BYTES + 8) as u64,
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

/// The checkpoint file being written.
pub(super) struct CheckpointOutput {
    file: Arc<File>,
    segment_bytes: u64,
    /// The chunk being filled.
    pub(super) chunk: ChunkWriter,
    pub(super) written: WrittenSections,
    /// End of the last chunk that was written, including those of tables whose creation was rolled
    /// back.
    max_end: u64,
    live: LiveSegments,
}

/// Totals of what a checkpoint contains so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenSections {
    chunks: u32,
    /// End of the last chunk.
    end: u64,
    pub(super) records: u64,
    /// Bytes of sections of paged tables, and of images.
    pub(super) paged_bytes: u64,
    /// Approximate bytes of all records.
    pub(super) data_bytes: u64,
}

impl CheckpointOutput {
    fn new(file: Arc<File>, segment_bytes: u64, live: LiveSegments) -> Self {
        let (end, records) = (SECTOR_BYTES as u64, 0);
        let written = WrittenSections { chunks: 0, end, records, paged_bytes: 0, data_bytes: 0 };
        Self { file, segment_bytes, chunk: ChunkWriter::new(), written, max_end: end, live }
    }

    /// Returns the bytes of the chunks so far.
    pub(super) fn bytes(&self) -> u64 {
        self.written.end + self.chunk.used() as u64
    }

    /// Adds an entry to the chunk, or to the next one if it does not fit. `push` returns whether
    /// it fitted.
    pub(super) async fn push(
        &mut self,
        push: impl Fn(&mut ChunkWriter) -> bool,
    ) -> Result<(), OperationError> {
        if !push(&mut self.chunk) {
            self.write_chunk().await?;
            assert!(push(&mut self.chunk), "a chunk holds any entry");
        }
        Ok(())
    }

    async fn write(&self, offset: u64, bytes: AlignedBuffer) -> Result<(), OperationError> {
        let written = sched::write(self.file.clone(), offset, bytes).await;
        written.map_err(|error| failed_at("write", self.file.path(), offset, error))
    }

    /// Writes the chunk, if it has entries.
    pub(super) async fn write_chunk(&mut self) -> Result<(), OperationError> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let bytes = self.chunk.finish(self.written.chunks);
        let written = &mut self.written;
        let offset = written.end;
        written.chunks += 1;
        written.end += bytes.len() as u64;
        self.max_end = self.max_end.max(written.end);
        self.write(offset, bytes).await
    }

    /// Truncates the file after the last chunk. The chunks beyond it belong to tables whose
    /// creation was rolled back; they are never read, and their space would not be accounted for.
    fn cut_off_rolled_back(&self) -> Result<(), OperationError> {
        let end = self.written.end;
        if self.max_end == end {
            return Ok(());
        }
        let cut = self.file.truncate(end);
        cut.map_err(|error| failed_at("cut", self.file.path(), end, error))
    }

    async fn write_table(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        table: &Records,
    ) -> Result<(), OperationError> {
        // Later keys are replayed, so writers that append keys do not prolong this.
        let mut cursor = table.index.cursor_to_last_key(&reclaim::enter()).await;
        self.chunk.begin_section(table.id, ChunkKind::Addresses);
        let mut key = KeyBuffer::new();
        loop {
            let operation = reclaim::enter();
            let mut entries = Vec::with_capacity(BATCH);
            let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
            if !cursor.next_batch(&operation, &mut entries, BATCH).await {
                break;
            }
            table.prefetch(entries.iter().map(|entry| entry.rid())).await;
            for entry in &entries {
                let located = transaction.locate(table, entry.rid(), &operation).await?;
                let Some(address) = located else { continue };
                key.inner_mut().clear();
                entry.copy_key(key.inner_mut());
                self.push(|chunk| chunk.push(&key, entry.rid(), address)).await?;
                self.written.records += 1;
                let bytes = address.read_bytes() - DEFAULT_KEY_BYTES + key.len();
                self.written.data_bytes += bytes as u64;
                self.live.add(address.lsn(), bytes as u64, self.segment_bytes);
            }
            transaction.end_uncounted();
            sched::yield_now(WaitCause::Memory).await;
        }
        Ok(())
    }
}

/// Returns the error for a failed operation on a whole file.
fn failed(action: &'static str, path: &Path, error: std::io::Error) -> OperationError {
    failed_at(action, path, 0, error)
}

fn failed_at(
    action: &'static str,
    path: &Path,
    offset: u64,
    error: std::io::Error,
) -> OperationError {
    OperationError::storage(LogError::io(action, path, offset, error))
}
