//! Paged tables while a checkpoint is loaded and the log replayed, and until they are listed.
//!
//! Both bring records of paged tables back by their keys, to trees that no table has yet. Afterwards the
//! catalog says which tables there are; what is left belonged to tables that are gone, and is empty. So it does
//! not matter what had a table's id before, should it have been used again. Checkpoints leave tables out whose creator took
//! them back; should records be left under an id that is not listed all the same, it is not given to another table.

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

/// Trees of pages by the tables that they are of.
pub(super) struct RecoveringPages<'r> {
    engine: &'r Engine,
    files: &'r LogFiles,
    trees: RwLock<BTreeMap<TableId, Arc<PagedTable>>>,
    /// Where the pages are, and the number above all ids, once the checkpoint says so.
    leaves: OnceLock<(Arc<PageSpace>, u64)>,
    /// Large values that belong to no record once the log is replayed.
    unowned: Mutex<Vec<(TableId, LargeRef)>>,
}

/// Bytes of records that are brought back until it is looked again whether pages take more memory than they may.
const LOOK_BYTES: usize = 64 << 10;

/// Who looks after the memory that pages take, while a thread brings records back.
pub(super) struct PageMemoryWatch<'e> {
    engine: &'e Engine,
    bytes: usize,
}

impl<'e> PageMemoryWatch<'e> {
    pub(super) fn new(engine: &'e Engine) -> Self {
        Self { engine, bytes: 0 }
    }

    /// A record of so many bytes is brought back; returns whether that was time to look.
    pub(super) fn count(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let is_due = self.bytes >= LOOK_BYTES;
        if is_due {
            self.bytes = 0;
            self.engine.share_with_recovered_pages();
        }
        is_due
    }
}

/// What was recovered of paged tables, and is not listed yet.
#[derive(Debug, Default)]
pub(crate) struct RecoveredPages(BTreeMap<TableId, PagedTable>);

impl<'r> RecoveringPages<'r> {
    pub(super) fn new(engine: &'r Engine, files: &'r LogFiles) -> Self {
        let (trees, leaves, unowned) = Default::default();
        Self { engine, files, trees, leaves, unowned }
    }

    /// Says where the pages are whose leaves the checkpoint lists, and that all ids are below `id_limit`; `false` if that makes
    /// no sense, or was said before.
    pub(super) fn begin_leaves(&self, space: &Arc<PageSpace>, id_limit: u64) -> bool {
        space.begin_loading(id_limit) && self.leaves.set((space.clone(), id_limit)).is_ok()
    }

    /// The checkpoint is loaded.
    pub(super) fn finish_loading(&self) {
        if let Some((space, id_limit)) = self.leaves.get() {
            space.finish_loading(*id_limit);
        }
    }

    /// Where the pages are, if the checkpoint lists leaves.
    pub(super) fn leaves_begun(&self) -> Option<&Arc<PageSpace>> {
        self.leaves.get().map(|(space, _)| space)
    }

    /// Adds a table whose leaves the checkpoint lists, with large values that belong to no record once the log is replayed.
    pub(super) fn add_table(&self, id: TableId, pages: PagedTable, unowned: Vec<LargeRef>) {
        let before = self.trees.write().insert(id, Arc::new(pages));
        assert!(before.is_none(), "tables are listed once, before anything is replayed");
        self.unowned.lock().extend(unowned.into_iter().map(|large| (id, large)));
    }

    /// That the operating system refused a thread.
    pub(super) fn no_threads(&self, error: std::io::Error) -> RecoveryError {
        LogError::io("start a thread to recover", self.files.directory().path(), 0, error).into()
    }

    /// Looks whether there may be a record of a paged table at `lsn`.
    ///
    /// # Errors
    /// `Corrupt`, if the database has no paged tables by its version.
    pub(super) fn expect(&self, lsn: Lsn) -> Result<(), RecoveryError> {
        self.files.unexpected_paged(lsn).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Gives a key of a paged table this value, or takes its record away.
    ///
    /// # Errors
    /// That there are no pages.
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

    /// The records of a table.
    ///
    /// # Errors
    /// That there are no pages.
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

    /// The trees, when everything is replayed.
    ///
    /// # Errors
    /// When a page cannot be had; the operating system's.
    pub(super) fn into_recovered(self) -> Result<RecoveredPages, RecoveryError> {
        for (id, unowned) in self.unowned.lock().drain(..) {
            let tree = self.trees.read().get(&id).cloned();
            if let Some(large) = tree.as_ref().and_then(|tree| tree.large()) {
                run_now(large.remove(unowned))?;
            }
        }
        match self.engine.pages() {
            Some(space) => space.finish_opening()?,
            None if self.files.is_read_only() => {}
            None => remove_zones(self.files)?,
        }
        let own = |(id, tree)| (id, Arc::into_inner(tree).expect("nobody replays any more"));
        let trees = std::mem::take(&mut *self.trees.write());
        Ok(RecoveredPages(trees.into_iter().map(own).collect()))
    }
}

impl RecoveredPages {
    /// Lists a table that is paged by the catalog, with the records that were recovered of it.
    ///
    /// # Errors
    /// When there are no pages for it.
    pub(crate) fn list(&mut self, engine: &Engine, id: TableId) -> Result<(), PageError> {
        let pages = self.0.remove(&id).map_or_else(|| run_now(engine.empty_pages(id)), Ok)?;
        engine.list_recovered(id, pages);
        Ok(())
    }

    /// Gives up what was recovered of a table that was dropped, if it was paged: nobody can have begun to use it. Its pages are
    /// free at once, but for those to which the newest checkpoint leads. Returns whether there were any.
    pub(crate) fn give_up(&mut self, id: TableId) -> bool {
        self.0.remove(&id).is_some()
    }

    /// Whether there are pages of tables that are gone, when all that there are were listed.
    pub(crate) fn has_unlisted(&self) -> bool {
        !self.0.is_empty()
    }

    /// Tables of which records are left, when all that there are were listed: the log leads to none.
    ///
    /// # Errors
    /// When a page cannot be had.
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
