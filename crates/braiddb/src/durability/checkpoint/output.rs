//! The checkpoint file while it is written, chunk by chunk.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::chunk::{ChunkKind, ChunkWriter};
use crate::durability::compact::LiveSegments;
use crate::io::{AlignedBuffer, File, SECTOR_BYTES};
use crate::log::{LogError, LogFiles};
use crate::reclaim;
use crate::record::MemoryRecords;
use crate::sched::{self, WaitCause};
use crate::transaction::{OperationError, WorkerTransactions};
use crate::types::KeyBuffer;
use crate::version::DEFAULT_KEY_BYTES;

/// Number of index entries examined before the task yields.
const BATCH: usize = 32;

/// The checkpoint file being written.
pub(super) struct CheckpointOutput {
    pub(super) file: Arc<File>,
    segment_bytes: u64,
    /// The chunk being filled.
    pub(super) chunk: ChunkWriter,
    pub(super) written: WrittenSections,
    /// End of the last chunk that was written, including those of tables whose creation was rolled
    /// back.
    max_end: u64,
    pub(super) live: LiveSegments,
}

/// Totals of what a checkpoint contains so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrittenSections {
    pub(super) chunks: u32,
    /// End of the last chunk.
    pub(super) end: u64,
    pub(super) records: u64,
    /// Bytes of sections of paged tables, and of images.
    pub(super) paged_bytes: u64,
    /// Approximate bytes of all records.
    pub(super) data_bytes: u64,
}

impl CheckpointOutput {
    pub(super) fn new(file: Arc<File>, segment_bytes: u64, live: LiveSegments) -> Self {
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

    pub(super) async fn write(
        &self,
        offset: u64,
        bytes: AlignedBuffer,
    ) -> Result<(), OperationError> {
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
    pub(super) fn cut_off_rolled_back(&self) -> Result<(), OperationError> {
        let end = self.written.end;
        if self.max_end == end {
            return Ok(());
        }
        let cut = self.file.truncate(end);
        cut.map_err(|error| failed_at("cut", self.file.path(), end, error))
    }

    pub(super) async fn write_table(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        table: &MemoryRecords,
    ) -> Result<(), OperationError> {
        // Later keys are replayed, so writers that append keys do not prolong this.
        let mut cursor = table.index().cursor_to_last_key(&reclaim::enter()).await;
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

/// Makes the names in the database's directory durable.
pub(super) async fn sync_directory(files: &LogFiles) -> Result<(), OperationError> {
    let synced = sched::sync(files.directory().clone()).await;
    synced.map_err(|error| failed("sync", files.directory().path(), error))
}

/// Returns the error for a failed operation on a whole file.
pub(super) fn failed(action: &'static str, path: &Path, error: std::io::Error) -> OperationError {
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
