//! Page tree: a B+tree whose nodes are pages, referenced by page ids.
//!
//! It uses the same methods as the in-memory index (`index`): optimistic lock coupling, writers
//! latch pages, and no task suspends while it holds a latch. It differs in three ways:
//!
//! - A page knows its range, by its fences, and its own number. So a task that finds the path
//!   changed after a suspension need not restart at the root.
//! - The root keeps its id for the life of the tree. A split of the root creates two children.
//! - No page is retired through reclamation, because frames are never unmapped.
//!
//! Invariants:
//!
//! - Every key is in the one leaf whose fences enclose it, and the inner pages route to that leaf.
//! - Latches are taken top down and left to right, and no task waits for a latch.
//! - Page ids and frames are taken before latches. No latch is held across a suspension.

mod ahead;
mod attached;
#[cfg(all(test, not(loom)))]
mod check;
mod cursor;
mod descend;
mod free;
mod insert;
mod leaf;
mod merge;
#[cfg(all(test, loom))]
pub(in crate::page) mod model;
mod resident_leaf;
mod split;
mod stored;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod version_tests;

use std::sync::Arc;

use crossbeam_utils::CachePadded;

pub(in crate::page) use cursor::PageCursor;
pub(crate) use leaf::LatchedLeaf;
pub(in crate::page) use leaf::{LeafRoom, LeafView};
pub(crate) use merge::MergeLevels;
use stored::StoredRecords;
pub(crate) use stored::StoredSize;

use super::error::PageError;
use super::layout::{self, PageFormat};
use super::map::PageId;
use super::resident_set::PageNeeds;
use super::space::PageSpace;
use crate::rid::TableId;
use crate::sync::statistic::{AtomicU64, Ordering};

/// Levels smaller than this stay in the processor's caches, so a descent does not suspend for their
/// pages.
const CACHED_BYTES: u64 = 2 << 20;
const MAX_LEVELS: usize = 16;

/// Called before stale state is read again: in models, the thread yields so that the state changes.
#[inline(always)]
pub(in crate::page) fn start_again() {
    #[cfg(loom)]
    crate::sync::yield_thread();
}

/// A tree of pages: an ordered map that many workers read and change concurrently.
#[derive(Debug)]
pub(crate) struct PageTree {
    space: Arc<PageSpace>,
    root: PageId,
    table: TableId,
    /// Bit `l` is set while level `l` is too large for the processor's caches.
    cold_levels: AtomicU64,
    pages: CachePadded<[AtomicU64; MAX_LEVELS]>,
    stored: StoredRecords,
}

impl PageTree {
    /// Creates an empty tree.
    ///
    /// # Errors
    /// When no frame, or no page id, is free.
    pub(crate) async fn create(space: Arc<PageSpace>, table: TableId) -> Result<Self, PageError> {
        let root = {
            let new = match space.take(1) {
                Ok(new) => new,
                Err(why) => space.retry(PageNeeds::new(0), why, || space.take(1)).await?,
            };
            let root = new.into_latched();
            let page = root.id().number();
            root.page.format(&PageFormat { level: 0, page, table, low: &[], high: None });
            root.id()
        };
        let pages = std::array::from_fn(|level| AtomicU64::new(u64::from(level == 0))).into();
        let (cold_levels, stored) = (AtomicU64::new(0), StoredRecords::default());
        Ok(Self { space, root, table, cold_levels, pages, stored })
    }

    /// Creates a tree from existing pages. `by_level` has the number of pages on each level, leaves
    /// first.
    pub(in crate::page) fn of_pages(
        space: Arc<PageSpace>,
        root: PageId,
        table: TableId,
        by_level: &[u64],
        stored: StoredSize,
    ) -> Self {
        let pages = std::array::from_fn(|_| AtomicU64::new(0)).into();
        let (cold_levels, sums) = (AtomicU64::new(0), StoredRecords::default());
        let tree = Self { space, root, table, cold_levels, pages, stored: sums };
        for (level, count) in by_level.iter().enumerate() {
            tree.count_pages(level as u8, *count as i64);
        }
        tree.stored.add(stored);
        tree
    }

    /// Returns the table id that its pages contain.
    pub(in crate::page) fn table(&self) -> TableId {
        self.table
    }

    pub(in crate::page) fn space(&self) -> &Arc<PageSpace> {
        &self.space
    }

    /// Returns the root's page id, which never changes.
    pub(crate) fn root(&self) -> PageId {
        self.root
    }

    /// Returns the maximum key length, in bytes.
    pub(crate) fn max_key_bytes(&self) -> usize {
        layout::max_key_bytes(self.space.page_bytes())
    }

    /// Returns the maximum length of a value that is stored next to its key, in bytes.
    pub(crate) fn max_inline_value_bytes(&self) -> usize {
        layout::max_inline_value_bytes(self.space.page_bytes())
    }

    /// Returns the maximum length of a cell with two values.
    pub(in crate::page) fn max_pair_bytes(&self) -> usize {
        layout::max_pair_bytes(self.space.page_bytes())
    }

    /// Returns the number of records on its leaves, and the bytes of their keys and values.
    pub(crate) fn stored(&self) -> StoredSize {
        self.stored.sums()
    }

    /// Returns whether pages of this level are probably not in the processor's caches.
    #[inline(always)]
    fn is_cold(&self, level: u8) -> bool {
        // Relaxed: a hint.
        self.cold_levels.load(Ordering::Relaxed) >> level & 1 != 0
    }

    /// Returns whether pages of any level are probably not in the processor's caches.
    #[inline(always)]
    pub(in crate::page) fn has_cold_levels(&self) -> bool {
        // Relaxed: a hint.
        self.cold_levels.load(Ordering::Relaxed) != 0
    }

    /// Counts pages of a level, and decides whether the level fits in the caches.
    fn count_pages(&self, level: u8, change: i64) {
        // Relaxed: statistics and hints.
        let pages = &self.pages[usize::from(level)];
        let count = pages.fetch_add(change as u64, Ordering::Relaxed).wrapping_add(change as u64);
        let (bytes, bit) = (count * self.space.page_bytes() as u64, 1 << level);
        let was_cold = self.is_cold(level);
        if bytes > CACHED_BYTES && !was_cold {
            self.cold_levels.fetch_or(bit, Ordering::Relaxed);
        } else if bytes < CACHED_BYTES / 2 && was_cold {
            self.cold_levels.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Returns the number of pages on each level, leaves first.
    pub(crate) fn pages_by_level(&self) -> Vec<u64> {
        // Relaxed: statistics.
        let counts = self.pages.iter().map(|pages| pages.load(Ordering::Relaxed));
        counts.take_while(|count| *count > 0).collect()
    }

    /// Returns the number of levels, including the leaves.
    fn levels(&self) -> usize {
        // Relaxed: a hint.
        self.pages.iter().take_while(|pages| pages.load(Ordering::Relaxed) > 0).count()
    }

    /// Returns the needs of an operation: the path from the root to a page, and the given number of
    /// further pages. Includes one page more, for a concurrent split of the root.
    pub(in crate::page) fn needs(&self, beside: usize) -> PageNeeds {
        PageNeeds::new(self.levels() + 1 + beside)
    }
}
