//! Loading of the leaf lists of paged tables: builds trees whose leaves stay on disk.

use super::chunk::ChunkKind;
use super::load::{CheckpointInput, NO_PAGED_TABLES};
use super::read::{NOTHING_SAID_OF_PAGES, PagesInCheckpoint};
use crate::durability::{RecoveryError, RecoveryObserver};
use crate::page::{LargeRef, LoadError, TreeLoader};
use crate::rid::TableId;
use crate::sched::run_now;

impl CheckpointInput<'_> {
    /// Prepares the page space for the leaves that the checkpoint lists, if it lists any.
    pub(super) fn begin_leaves(&mut self) -> Result<(), RecoveryError> {
        let Some(PagesInCheckpoint { id_limit, page_bytes }) = self.reader.pages else {
            return Ok(());
        };
        let space = self.engine.page_space()?;
        let wrong = if !self.files.allows_paged() {
            NO_PAGED_TABLES
        } else if space.page_bytes() != page_bytes {
            "its pages have another size"
        } else if !self.pages.begin_leaves(space, id_limit) {
            "it has too many pages"
        } else {
            return Ok(());
        };
        Err(self.reader.damaged_as_a_whole(wrong).into())
    }

    /// Loads the sections that list the leaves of a paged table, starting with the next one.
    pub(super) fn load_leaves(
        &mut self,
        table: TableId,
        watch: RecoveryObserver<'_>,
    ) -> Result<(), RecoveryError> {
        let Some(space) = self.pages.leaves_begun() else {
            return Err(self.reader.damaged(NOTHING_SAID_OF_PAGES).into());
        };
        let mut leaves = TreeLoader::of_table(space.clone(), table);
        self.load_tree(table, ChunkKind::Leaves, &mut leaves, watch)?;
        let mut pieces = None;
        if self.reader.next_table()? == Some((table, ChunkKind::Pieces)) {
            let pieces = pieces.insert(TreeLoader::of_pieces(space.clone(), table));
            self.load_tree(table, ChunkKind::Pieces, pieces, watch)?;
        }
        let (next, unowned) = self.load_unowned(table, watch)?;
        if pieces.is_some() && next.is_none() {
            return Err(self
                .reader
                .damaged("the number of the next large value is missing")
                .into());
        }
        let large = next.map(|next| (pieces, next));
        let pages = run_now(leaves.into_table(large, self.engine.memory.clone()));
        let pages = pages.map_err(|error| self.failed(error))?;
        self.pages.add_table(table, pages, unowned);
        Ok(())
    }

    fn load_tree(
        &mut self,
        table: TableId,
        kind: ChunkKind,
        tree: &mut TreeLoader,
        watch: RecoveryObserver<'_>,
    ) -> Result<(), RecoveryError> {
        while self.reader.next_table()? == Some((table, kind)) {
            let (mut chunk, mut records) = (self.reader.entries(), 0);
            while let Some(leaf) = chunk.next_leaf() {
                let leaf = leaf.map_err(|why| self.reader.damaged(why))?;
                if kind == ChunkKind::Leaves {
                    records += u64::from(leaf.stored.records);
                }
                self.data_bytes += u64::from(leaf.stored.bytes);
                run_now(tree.add(leaf)).map_err(|error| self.failed(error))?;
            }
            self.paged_bytes += self.pass(records, watch)?;
        }
        Ok(())
    }

    /// Loads the large values that belong to no record, and the number of the next one, if the
    /// checkpoint has sections of them.
    fn load_unowned(
        &mut self,
        table: TableId,
        watch: RecoveryObserver<'_>,
    ) -> Result<(Option<u64>, Vec<LargeRef>), RecoveryError> {
        let (mut next, mut unowned) = (None, Vec::new());
        while self.reader.next_table()? == Some((table, ChunkKind::Unowned)) {
            let mut chunk = self.reader.entries();
            while let Some(large) = chunk.next_unowned() {
                let large = large.map_err(|why| self.reader.damaged(why))?;
                match next {
                    None if large.number() > 0 => next = Some(large.number()),
                    Some(next) if large.number() < next => unowned.push(large),
                    _ => return Err(self.reader.damaged("a large value makes no sense").into()),
                }
            }
            self.paged_bytes += self.pass(0, watch)?;
        }
        Ok((next, unowned))
    }

    fn failed(&self, error: LoadError) -> RecoveryError {
        match error {
            LoadError::Damaged(why) => self.reader.damaged(why).into(),
            LoadError::Page(error) => error.into(),
        }
    }
}
