//! Checkpoint entries of paged tables: the list of their leaves.

use std::rc::Rc;

use super::chunk::{ChunkKind, LEAF_BYTES, SECTION_BYTES};
use super::output::{CheckpointOutput, sync_directory};
use crate::log::{LogError, LogFiles};
use crate::page::{LeafWalk, Listing, PagedTable};
use crate::record::PagedRecords;
use crate::rid::TableId;
use crate::sched::{self, WaitCause};
use crate::transaction::{Engine, OperationError, WorkerTransactions};

/// Limits of the work between two turns of the worker: listings of some leaves, and bytes of images.
const MAX_SPANS: u64 = 4;
const MAX_IMAGE_BYTES: u64 = 256 << 10;

/// Starts the listing of paged tables, if the database has any. Raises the database's format
/// version first, so that it allows leaves.
///
/// # Errors
/// Errors of the device.
pub(super) fn begin_listing(
    engine: &Engine,
    files: &LogFiles,
) -> Result<Option<Listing>, OperationError> {
    let Some(pages) = engine.pages() else { return Ok(None) };
    files.allow_leaves().map_err(OperationError::storage)?;
    Ok(Some(Listing::begin(pages.clone())?))
}

/// Returns the number of image writes that may be in flight. On a nearly full disk there is one at a
/// time, because the next image may take the place that a write frees.
fn max_writes(engine: &Engine) -> usize {
    match engine.log.files().is_none_or(|files| files.is_nearly_full()) {
        true => 1,
        false => engine.checkpoints.max_writes(engine.log.tail()),
    }
}

/// Returns the approximate bytes of the sections that list the leaves of a table.
pub(super) fn bytes_of_leaves(pages: &PagedTable) -> u64 {
    let bytes = |leaves: u64, key: u64| SECTION_BYTES as u64 + leaves * (LEAF_BYTES as u64 + key);
    // On average, keys are not longer than records.
    let stored = pages.stored();
    let average = stored.bytes / stored.records.max(1);
    let key = average.min(pages.max_key_bytes() as u64);
    let pieces = pages.large().map_or(0, |large| bytes(large.leaves(), 12) + bytes(1, 0));
    bytes(pages.leaves(), key) + pieces
}

impl CheckpointOutput {
    /// Lists the leaves of a paged table, unless it was dropped or its creation is rolled back by
    /// then. A table whose creating transaction is still active is listed, because that transaction
    /// may have drawn an LSN before the checkpoint's.
    pub(super) async fn list_paged_table_if_created(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        table: &PagedRecords,
        listing: &mut Listing,
    ) -> Result<(), OperationError> {
        if table.is_gone() {
            // The commit of the drop is durable before the checkpoint is published.
            return Ok(());
        }
        let is_being_created = table.is_being_created();
        if is_being_created {
            // Its sections are in separate chunks, which can be removed again.
            self.write_chunk().await?;
        }
        let before = self.written;
        let start = self.bytes();
        let listed = self.list_paged_table(worker, table, listing).await;
        if listed.is_err() {
            // Stops recording unowned values.
            table.pages().large().map(|large| large.end_listing());
        }
        listed?;
        self.written.paged_bytes += self.bytes() - start;
        if is_being_created && table.creation_was_aborted() {
            // The next chunks overwrite those of this table; chunks after the last are not read.
            self.chunk.clear();
            self.written = before;
        }
        Ok(())
    }

    async fn list_paged_table(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        table: &PagedRecords,
        listing: &mut Listing,
    ) -> Result<(), OperationError> {
        let (table, pages) = (table.id, table.pages());
        // Before any leaf is read, so that every value whose slot may be missing in a listed leaf
        // is recorded.
        let large = pages.large().cloned();
        large.iter().for_each(|large| large.begin_listing());
        let mut walk = pages.walk_leaves();
        self.list_leaves(worker, table, ChunkKind::Leaves, &mut walk, listing).await?;
        let mut unowned = walk.take_left_out();
        if let Some(large) = &large {
            let mut walk = large.walk_leaves();
            self.list_leaves(worker, table, ChunkKind::Pieces, &mut walk, listing).await?;
        }
        // If the store of large values was created after the listing began, no listed leaf
        // references a value, and its records are replayed. But the next value must get an unused
        // number.
        if let Some(large) = pages.large() {
            let (next, listed) = large.end_listing();
            self.chunk.begin_section(table, ChunkKind::Unowned);
            self.push(|chunk| chunk.push_next_value(next)).await?;
            let (end, since) = listed.unwrap_or_default();
            // No pieces of later values are listed.
            unowned.retain(|large| large.number() < end);
            unowned.extend(since);
            unowned.sort_unstable();
            unowned.dedup();
            for large in unowned {
                self.push(|chunk| chunk.push_unowned(large)).await?;
            }
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
        self.chunk.begin_section(table, kind);
        let listed = self.list_until_end(worker, kind, walk, listing).await;
        if listed.is_err() {
            walk.give_up().await;
        }
        listed
    }

    async fn list_until_end(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        kind: ChunkKind,
        walk: &mut LeafWalk<'_>,
        listing: &mut Listing,
    ) -> Result<(), OperationError> {
        let (mut leaves, mut more) = (Vec::new(), true);
        let (mut spans, mut images) = (0, listing.images());
        while more {
            let max_writes = max_writes(worker.engine());
            walk.allow_writes(max_writes);
            let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
            more = walk.list_some(listing, transaction.view(), &mut leaves).await?;
            transaction.end_uncounted();
            for leaf in leaves.drain(..) {
                self.push(|chunk| chunk.push_leaf(&leaf)).await?;
                self.written.data_bytes += u64::from(leaf.stored.bytes);
                if kind == ChunkKind::Leaves {
                    self.written.records += u64::from(leaf.stored.records);
                }
            }
            spans += 1;
            let image_bytes = (listing.images() - images) * listing.page_bytes() as u64;
            if spans >= MAX_SPANS.min(max_writes as u64) || image_bytes >= MAX_IMAGE_BYTES {
                sched::yield_now(WaitCause::Memory).await;
                (spans, images) = (0, listing.images());
            }
        }
        Ok(())
    }

    /// Makes the listed images durable.
    pub(super) async fn finish_listing(
        &mut self,
        files: &LogFiles,
        listing: &mut Listing,
    ) -> Result<(), OperationError> {
        self.written.paged_bytes += listing.images() * listing.page_bytes() as u64;
        let zones = listing.files_to_sync();
        for zone in &zones {
            if let Err(error) = sched::sync(zone.clone()).await {
                let error = LogError::io("sync", zone.path(), 0, error);
                return Err(listing.note_failed_sync(error).into());
            }
        }
        // The directory must durably contain the names of new zones.
        if zones.is_empty() { Ok(()) } else { sync_directory(files).await }
    }
}
