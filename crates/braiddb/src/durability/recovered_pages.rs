//! Recovered paged tables: state while a checkpoint is loaded and the log is replayed, until the
//! catalog lists the tables.
//!
//! Loading and replay write records by key into trees that belong to no table yet. Afterwards the
//! catalog defines the existing tables. The remaining trees belonged to tables that no longer
//! exist, and are empty. So it does not matter if a table id was used by an earlier table.
//! Checkpoints omit tables whose creation was rolled back. If records remain under an id that is
//! not listed, the id is not assigned to another table.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RecoveryError;
use crate::log::{LogError, LogFiles, Lsn};
use crate::page::{LargeRef, PageError, PageSpace, PagedTable, remove_zones};
use crate::planted::{Bug, is_planted};
use crate::rid::TableId;
use crate::sched::run_now;
use crate::sync::{Mutex, OnceLock, RwLock};
use crate::transaction::Engine;

/// Trees of pages, by table.
pub(super) struct RecoveringPages<'r> {
    engine: &'r Engine,
    files: &'r LogFiles,
    trees: RwLock<BTreeMap<TableId, Arc<PagedTable>>>,
    /// The page space and the upper bound of page ids, if the checkpoint lists leaves.
    leaves: OnceLock<(Arc<PageSpace>, u64)>,
    /// Large values that belong to no record after the replay.
    unowned: Mutex<Vec<(TableId, LargeRef)>>,
}

/// Bytes of records that are replayed between two checks of the pages' memory limit.
const BYTES_PER_CHECK: usize = 64 << 10;

/// Periodic check of the pages' memory limit, while a thread replays records.
pub(super) struct PageMemoryWatch<'e> {
    engine: &'e Engine,
    bytes: usize,
}

impl<'e> PageMemoryWatch<'e> {
    pub(super) fn new(engine: &'e Engine) -> Self {
        Self { engine, bytes: 0 }
    }

    /// Counts the bytes of a replayed record. Returns whether a check was due.
    pub(super) fn count(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let is_due = self.bytes >= BYTES_PER_CHECK;
        if is_due {
            self.bytes = 0;
            self.engine.share_with_recovered_pages();
        }
        is_due
    }
}

/// Recovered paged tables that are not listed yet.
#[derive(Debug, Default)]
pub(crate) struct RecoveredPages(BTreeMap<TableId, PagedTable>);

impl<'r> RecoveringPages<'r> {
    pub(super) fn new(engine: &'r Engine, files: &'r LogFiles) -> Self {
        let (trees, leaves, unowned) = Default::default();
        Self { engine, files, trees, leaves, unowned }
    }

    /// Frees the disk reserve if the disk is nearly full and pages may be written. Loading evicts
    /// inner pages to a new zone, because places of existing zones are not free before it ends.
    pub(super) fn free_reserve(&self) {
        if !self.files.is_read_only() && self.files.allows_paged() {
            self.files.free_reserve_for_recovery();
        }
    }

    /// Removes the zones to which pages were evicted while a checkpoint was loaded, after an error.
    /// Otherwise, each failed opening would leave one.
    pub(super) fn abandon_loading(&self) {
        self.engine.pages().into_iter().for_each(|pages| pages.remove_zones());
    }

    /// Sets the page space whose leaves the checkpoint lists, and the upper bound of page ids.
    /// Returns `false` if the bound is too large, or was set before.
    pub(super) fn begin_leaves(&self, space: &Arc<PageSpace>, id_limit: u64) -> bool {
        space.begin_loading(id_limit) && self.leaves.set((space.clone(), id_limit)).is_ok()
    }

    /// Ends the loading of the checkpoint. Replay may then write pages to the places that the
    /// checkpoint does not list.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(super) fn finish_loading(&self) -> Result<(), RecoveryError> {
        if let Some((space, id_limit)) = self.leaves.get() {
            space.finish_loading(*id_limit);
        }
        match self.engine.pages() {
            Some(space) => Ok(space.finish_opening()?),
            None if self.files.is_read_only() => Ok(()),
            None => Ok(remove_zones(self.files)?),
        }
    }

    /// Returns the page space, if the checkpoint lists leaves.
    pub(super) fn leaves_begun(&self) -> Option<&Arc<PageSpace>> {
        self.leaves.get().map(|(space, _)| space)
    }

    /// Adds a table whose leaves the checkpoint lists, with large values that belong to no record
    /// after the replay.
    pub(super) fn add_table(&self, id: TableId, pages: PagedTable, unowned: Vec<LargeRef>) {
        let before = self.trees.write().insert(id, Arc::new(pages));
        assert!(before.is_none(), "tables are listed once, before anything is replayed");
        self.unowned.lock().extend(unowned.into_iter().map(|large| (id, large)));
    }

    /// Returns the error for a thread that could not be started.
    pub(super) fn no_threads(&self, error: std::io::Error) -> RecoveryError {
        LogError::io("start a thread to recover", self.files.directory().path(), 0, error).into()
    }

    /// Checks whether a record of a paged table may exist at `lsn`.
    ///
    /// # Errors
    /// `Corrupt`, if the database's format version does not allow paged tables.
    pub(super) fn expect(&self, lsn: Lsn) -> Result<(), RecoveryError> {
        self.files.unexpected_paged(lsn).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Sets the value of a key in a paged table, or removes its record.
    ///
    /// # Errors
    /// When no pages are available.
    pub(super) fn replay(
        &self,
        table: TableId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), RecoveryError> {
        if value.is_none() && is_planted(Bug::DeletionByKeyNotReplayed) {
            return Ok(());
        }
        let tree = self.tree(table)?;
        Ok(run_now(tree.replay(key, value))?)
    }

    /// Returns the tree of a table, created if necessary.
    ///
    /// # Errors
    /// When no pages are available.
    pub(super) fn tree(&self, id: TableId) -> Result<Arc<PagedTable>, PageError> {
        if let Some(tree) = self.trees.read().get(&id) {
            return Ok(tree.clone());
        }
        let mut trees = self.trees.write();
        if let Some(tree) = trees.get(&id) {
            return Ok(tree.clone());
        }
        let tree = Arc::new(run_now(self.engine.empty_pages(id))?);
        Ok(trees.entry(id).or_insert(tree).clone())
    }

    /// Returns the trees, after everything is replayed.
    ///
    /// # Errors
    /// When a page is not available; errors of the operating system.
    pub(super) fn into_recovered(self) -> Result<RecoveredPages, RecoveryError> {
        for (id, unowned) in self.unowned.lock().drain(..) {
            let tree = self.trees.read().get(&id).cloned();
            if let Some(large) = tree.as_ref().and_then(|tree| tree.large()) {
                run_now(large.remove(unowned))?;
            }
        }
        let own = |(id, tree)| (id, Arc::into_inner(tree).expect("replay has ended"));
        let trees = std::mem::take(&mut *self.trees.write());
        Ok(RecoveredPages(trees.into_iter().map(own).collect()))
    }
}

impl RecoveredPages {
    /// Lists a table that is paged according to the catalog, with its recovered records.
    ///
    /// # Errors
    /// When no pages are available for it.
    pub(crate) fn list(&mut self, engine: &Engine, id: TableId) -> Result<(), PageError> {
        let pages = self.0.remove(&id).map_or_else(|| run_now(engine.empty_pages(id)), Ok)?;
        engine.list_recovered(id, pages);
        Ok(())
    }

    /// Frees the pages of a dropped table, if it was paged; it cannot be in use yet. They are free
    /// immediately, except for those that the newest checkpoint lists. Returns whether the table
    /// had pages.
    pub(crate) fn give_up(&mut self, id: TableId) -> bool {
        self.0.remove(&id).is_some()
    }

    /// Returns whether pages of nonexistent tables remain, after all existing tables were listed.
    pub(crate) fn has_unlisted(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the tables that still have records, after all existing tables were listed. No
    /// catalog row references them.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) fn unlisted(&self) -> Result<Vec<TableId>, PageError> {
        let mut left = Vec::new();
        for (id, pages) in &self.0 {
            if !run_now(pages.is_empty())? {
                left.push(*id);
            }
        }
        Ok(left)
    }
}
