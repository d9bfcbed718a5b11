//! Writing where the leaves of paged tables are.

use std::rc::Rc;

use super::chunk::{CHUNK_BYTES, ChunkKind, ChunkWriter, LEAF_BYTES};
use super::write::{Output, sync_directory};
use crate::log::{LogError, LogFiles};
use crate::page::{LeafWalk, Listing, PagedTable};
use crate::record::Records;
use crate::rid::TableId;
use crate::sched::{self, Cause};
use crate::transaction::{Engine, OperationError, WorkerTransactions};

/// What is listed of paged tables, if there are some. The database's version says then that there may be.
///
/// # Errors
/// The device's.
pub(super) fn begin_listing(
    engine: &Engine,
    files: &LogFiles,
) -> Result<Option<Listing>, OperationError> {
    let Some(pages) = engine.pages() else { return Ok(None) };
    files.allow_leaves().map_err(OperationError::storage)?;
    Ok(Some(Listing::begin(pages.clone())?))
}

/// Bytes of chunks that list the leaves of a table, about.
pub(super) fn bytes_of_leaves(pages: &PagedTable) -> u64 {
    let bytes = |leaves: u64, key: u64| {
        (leaves * (LEAF_BYTES as u64 + key)).next_multiple_of(CHUNK_BYTES as u64)
    };
    // Keys are not longer than records, on an average.
    let stored = pages.stored();
    let average = stored.bytes / stored.records.max(1);
    let key = average.min(pages.max_key_bytes() as u64);
    let pieces = pages.large().map_or(0, |large| bytes(large.leaves(), 12) + CHUNK_BYTES as u64);
    bytes(pages.leaves(), key) + pieces
}

impl Output {
    /// Lists the leaves of a paged table, unless its creator has taken it back by then. A table that is still its creator's is
    /// listed: it may have drawn an LSN before the checkpoint's.
    pub(super) async fn list_paged_table_if_created(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        table: &Records,
        pages: &PagedTable,
        listing: &mut Listing,
    ) -> Result<(), OperationError> {
        let before = (self.chunks, self.records, self.paged_bytes);
        let listed = self.list_paged_table(worker, table.id, pages, listing).await;
        if listed.is_err() {
            // What is unowned is noted no more.
            pages.large().map(|large| large.end_listing());
        }
        listed?;
        if table.creation_was_aborted() {
            // The next table's chunks are written over those of this one; what is behind the last is not read.
            (self.chunks, self.records, self.paged_bytes) = before;
        }
        Ok(())
    }

    async fn list_paged_table(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        table: TableId,
        pages: &PagedTable,
        listing: &mut Listing,
    ) -> Result<(), OperationError> {
        // Before any leaf is looked at: whose slots lead to a value then is known by what it is.
        let large = pages.large().cloned();
        large.iter().for_each(|large| large.begin_listing());
        let mut walk = pages.walk_leaves();
        self.list_leaves(worker, table, ChunkKind::Leaves, &mut walk, listing).await?;
        let mut unowned = walk.take_left_out();
        if let Some(large) = &large {
            let mut walk = large.walk_leaves();
            self.list_leaves(worker, table, ChunkKind::Pieces, &mut walk, listing).await?;
        }
        // Made meanwhile: no value that a leaf leads to is older than the checkpoint, so that its record is replayed; but what gets
        // its number then is to be another.
        if let Some(large) = pages.large() {
            let (since, next) = large.end_listing();
            let new_chunk = || ChunkWriter::new(table, ChunkKind::Unowned);
            let mut chunk = new_chunk();
            chunk.push_next_value(next);
            if since.is_none() {
                // Their pieces are not listed.
                unowned.clear();
            }
            unowned.extend(since.into_iter().flatten());
            unowned.sort_unstable();
            unowned.dedup();
            for large in unowned {
                if !chunk.push_unowned(large) {
                    self.write_leaf_chunk(std::mem::replace(&mut chunk, new_chunk())).await?;
                    assert!(chunk.push_unowned(large), "a chunk has room for one");
                }
            }
            self.write_leaf_chunk(chunk).await?;
        }
        Ok(())
    }

    async fn list_leaves(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        table: TableId,
        kind: ChunkKind,
        walk: &mut LeafWalk<'_>,
        listing: &mut Listing,
    ) -> Result<(), OperationError> {
        let new_chunk = || ChunkWriter::new(table, kind);
        let (mut chunk, mut leaves, mut more) = (new_chunk(), Vec::new(), true);
        while more {
            let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
            more = walk.list_some(listing, transaction.view(), &mut leaves).await?;
            transaction.end_uncounted();
            for leaf in leaves.drain(..) {
                if !chunk.push_leaf(&leaf) {
                    self.write_leaf_chunk(std::mem::replace(&mut chunk, new_chunk())).await?;
                    assert!(chunk.push_leaf(&leaf), "a chunk has room for one");
                }
                if kind == ChunkKind::Leaves {
                    self.records += u64::from(leaf.stored.records);
                }
            }
            sched::yield_now(Cause::Memory).await;
        }
        self.write_leaf_chunk(chunk).await
    }

    async fn write_leaf_chunk(&mut self, chunk: ChunkWriter) -> Result<(), OperationError> {
        self.paged_bytes += CHUNK_BYTES as u64;
        self.write_chunk(chunk).await
    }

    /// Makes images durable that are listed.
    pub(super) async fn finish_listing(
        &mut self,
        files: &LogFiles,
        listing: &mut Listing,
    ) -> Result<(), OperationError> {
        self.paged_bytes += listing.images() * listing.page_bytes() as u64;
        let zones = listing.files_to_sync();
        for zone in &zones {
            if let Err(error) = sched::sync(zone.clone()).await {
                let error = LogError::io("sync", zone.path(), 0, error);
                return Err(listing.note_failed_sync(error).into());
            }
        }
        // Zones that were made since the last time have to be found by their names.
        if zones.is_empty() { Ok(()) } else { sync_directory(files).await }
    }
}
