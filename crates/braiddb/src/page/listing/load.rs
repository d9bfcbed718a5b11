//! Loading of trees from the leaves that a checkpoint lists, when the database is opened. The
//! leaves stay on disk, and the inner pages are rebuilt.

use std::sync::Arc;

use crate::memory::MemoryCounters;
use crate::page::error::PageError;
use crate::page::large::LargeValues;
use crate::page::layout::{
    ChildrenWords, KeyBytes, PAGE_ID_LIMIT, PageFormat, StoredOnPage, max_key_bytes,
};
use crate::page::map::{DiskPlace, PageId};
use crate::page::resident_set::PageNeeds;
use crate::page::space::PageSpace;
use crate::page::table::PagedTable;
use crate::page::tree::{PageTree, StoredSize};
use crate::rid::TableId;

/// A leaf as a file lists it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafFromFile<'l> {
    pub(crate) low: &'l [u8],
    /// Number of the page.
    pub(crate) page: u64,
    /// Word of the page's place.
    pub(crate) place: u64,
    pub(crate) stored: StoredOnPage,
}

/// Reason why a leaf cannot be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The list is inconsistent.
    Damaged(&'static str),
    Page(PageError),
}

impl From<PageError> for LoadError {
    fn from(error: PageError) -> Self {
        Self::Page(error)
    }
}

/// A tree under construction from its leaves, in key order.
#[derive(Debug)]
pub(crate) struct TreeLoader {
    space: Arc<PageSpace>,
    table: TableId,
    last: Option<KeyBytes>,
    /// For each level above the leaves, the children of its last page, which is not created yet.
    levels: Vec<LoadedLevel>,
    pages: Vec<u64>,
    stored: StoredSize,
}

#[derive(Debug, Default)]
struct LoadedLevel {
    children: Vec<(KeyBytes, PageId)>,
    words: ChildrenWords,
}

impl TreeLoader {
    /// Starts a tree for the records of a table, without leaves.
    pub(crate) fn of_table(space: Arc<PageSpace>, table: TableId) -> Self {
        let (last, levels, pages, stored) = Default::default();
        Self { space, table, last, levels, pages, stored }
    }

    /// Starts a tree for the pieces of a table's large values.
    pub(crate) fn of_pieces(space: Arc<PageSpace>, table: TableId) -> Self {
        Self::of_table(space, LargeValues::pieces_of(table))
    }

    /// Adds the next leaf.
    ///
    /// # Errors
    /// If it is inconsistent with the previous leaf, or its place or page is already used; when no
    /// page is available.
    pub(crate) async fn add(&mut self, leaf: LeafFromFile<'_>) -> Result<(), LoadError> {
        let LeafFromFile { low, page, place, stored } = leaf;
        let damaged = |why| Err(LoadError::Damaged(why));
        let is_next = self.last.as_ref().map_or(low.is_empty(), |last| &last[..] < low);
        if !is_next || low.len() > max_key_bytes(self.space.page_bytes()) {
            return damaged("leaves are not in order");
        }
        let Some(place) = DiskPlace::from_file(place) else {
            return damaged("the place of a leaf makes no sense");
        };
        let zones = self.space.zones.as_ref().expect("a database that was written has zones");
        if !zones.claim(place.slot) {
            return damaged("the place of a leaf is in no file, or another's");
        }
        let is_new = page > 0 && page < PAGE_ID_LIMIT && {
            self.space.map.claim(PageId::new(page), place, stored)
        };
        if !is_new {
            return damaged("the page of a leaf is another's");
        }
        self.stored.records += u64::from(stored.records);
        self.stored.bytes += u64::from(stored.bytes);
        self.count(0);
        let low = KeyBytes::from_slice(low);
        self.last = Some(low.clone());
        Ok(self.push(1, low, PageId::new(page)).await?)
    }

    fn count(&mut self, level: usize) {
        self.pages.resize(self.pages.len().max(level + 1), 0);
        self.pages[level] += 1;
    }

    /// Adds a child to the last page of a level.
    async fn push(
        &mut self,
        mut level: usize,
        mut low: KeyBytes,
        mut child: PageId,
    ) -> Result<(), PageError> {
        loop {
            if self.levels.len() < level {
                self.levels.push(LoadedLevel::default());
            }
            let last = &mut self.levels[level - 1];
            let page_bytes = self.space.page_bytes();
            let is_full = last.children.first().is_some_and(|(first, _)| {
                last.children.len() > 1 && !last.words.have_room(page_bytes, first, &low)
            });
            let full = is_full.then(|| std::mem::take(last));
            let last = &mut self.levels[level - 1];
            last.words.add(&low);
            last.children.push((low.clone(), child));
            let Some(full) = full else { return Ok(()) };
            child = self.make(level, &full, Some(&low)).await?;
            low = full.children.into_iter().next().expect("a full page has children").0;
            level += 1;
        }
    }

    /// Creates an inner page from its children.
    async fn make(
        &mut self,
        level: usize,
        page: &LoadedLevel,
        high: Option<&[u8]>,
    ) -> Result<PageId, PageError> {
        self.count(level);
        let space = &self.space;
        let new = match space.take(1) {
            Ok(new) => new,
            Err(why) => space.retry(PageNeeds::new(0), why, || space.take(1)).await?,
        };
        let latched = new.into_latched();
        let (id, low) = (latched.id(), &page.children[0].0);
        let (number, table, level) = (id.number(), self.table, level as u8);
        latched.page.format(&PageFormat { level, page: number, table, low, high });
        for (place, (separator, child)) in page.children.iter().enumerate() {
            latched.page.insert_child(place, separator, child.number());
        }
        Ok(id)
    }

    /// Returns the tree, after all leaves are added.
    pub(super) async fn finish(mut self) -> Result<PageTree, LoadError> {
        let mut level = 1;
        let root = loop {
            let Some(last) = self.levels.get_mut(level - 1).map(std::mem::take) else {
                return Err(LoadError::Damaged("a tree has no leaves"));
            };
            if level == self.levels.len()
                && let [(_, root)] = last.children[..]
            {
                break root;
            }
            let page = self.make(level, &last, None).await?;
            let low = last.children.into_iter().next().expect("there is one").0;
            self.push(level + 1, low, page).await?;
            level += 1;
        };
        Ok(PageTree::of_pages(self.space, root, self.table, &self.pages, self.stored))
    }

    /// Returns the table of the tree. `large` has the pieces of its large values, and the number of
    /// the next one.
    ///
    /// # Errors
    /// If the tree has no leaf; when no page is available.
    pub(crate) async fn into_table(
        self,
        large: Option<(Option<TreeLoader>, u64)>,
        memory: Arc<MemoryCounters>,
    ) -> Result<PagedTable, LoadError> {
        let (id, space) = (self.table, self.space.clone());
        let tree = self.finish().await?;
        let large = match large {
            None => None,
            Some((Some(pieces), next)) => Some(LargeValues::of_tree(pieces.finish().await?, next)),
            Some((None, next)) => Some(LargeValues::create_from(space, id, next).await?),
        };
        Ok(PagedTable::of_trees(tree, large, id, memory))
    }
}

impl PageSpace {
    /// Starts to load the leaves that a checkpoint lists, with page ids below `id_limit`. Returns
    /// `false` if the map has fewer ids.
    pub(crate) fn begin_loading(&self, id_limit: u64) -> bool {
        self.map.reserve_below(id_limit)
    }

    /// Ends the loading: ids below `id_limit` without a page become free. Must be called before the
    /// log is replayed, because replay frees ids too.
    pub(crate) fn finish_loading(&self, id_limit: u64) {
        self.map.free_unclaimed(id_limit);
    }

    /// Ends recovery: zones that the checkpoint does not list are removed, and the others become
    /// writable.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(crate) fn finish_opening(&self) -> Result<(), PageError> {
        match &self.zones {
            Some(zones) => Ok(zones.finish_opening()?),
            None => Ok(()),
        }
    }
}
