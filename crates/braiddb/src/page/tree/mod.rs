//! Trees of pages: a B+tree whose nodes are pages, found by their ids.
//!
//! The index's sibling (`index`), and it goes about things in the same way: optimistic lock coupling,
//! writers latch, nobody suspends with a latch. What is different: a page knows its own range, by its
//! fences, and its own number, so who comes back from a suspension and finds the way there changed need
//! not start from the root; the root's id is the tree's for life, so that the root's split makes two
//! children; and nothing is retired, for frames are never unmapped.
//!
//! Invariants: every key is in the one leaf between whose fences it lies, and the inner pages lead
//! there. Latches are taken top down and left to right, and never waited for. Page ids and frames are
//! taken before latches, and none is held across a suspension.

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
pub(in crate::page) use free::PagesToFree;
pub(in crate::page) use leaf::{LatchedLeaf, LeafView, Room};
pub(crate) use stored::Stored;
use stored::StoredRecords;

use super::error::PageError;
use super::layout::{self, Format};
use super::map::PageId;
use super::resident_set::Needs;
use super::space::PageSpace;
use crate::rid::TableId;
use crate::sync::statistic::{AtomicU64, Ordering};

/// Levels whose pages take less than this stay in the caches and are not suspended on.
const CACHED_BYTES: u64 = 2 << 20;
const MAX_LEVELS: usize = 16;

/// To be called before what is stale is looked at again: in models, it does not stay so for ever.
#[inline(always)]
pub(in crate::page) fn start_again() {
    #[cfg(loom)]
    crate::sync::yield_thread();
}

/// A tree of pages: a map from keys to values that many workers read and change at once.
#[derive(Debug)]
pub(crate) struct PageTree {
    space: Arc<PageSpace>,
    root: PageId,
    table: TableId,
    /// Bit `l` is set while level `l` is too large to stay cached.
    cold_levels: AtomicU64,
    pages: CachePadded<[AtomicU64; MAX_LEVELS]>,
    stored: StoredRecords,
}

impl PageTree {
    /// An empty tree.
    ///
    /// # Errors
    /// When no frame, or no page id, is free.
    pub(crate) async fn create(space: Arc<PageSpace>, table: TableId) -> Result<Self, PageError> {
        let root = {
            let new = match space.take(1) {
                Ok(new) => new,
                Err(why) => space.retry(Needs::new(0), why, || space.take(1)).await?,
            };
            let root = new.into_latched();
            let page = root.id().number();
            root.page.format(&Format { level: 0, page, table, low: &[], high: None });
            root.id()
        };
        let pages = std::array::from_fn(|level| AtomicU64::new(u64::from(level == 0))).into();
        let (cold_levels, stored) = (AtomicU64::new(0), StoredRecords::default());
        Ok(Self { space, root, table, cold_levels, pages, stored })
    }

    /// The tree of these pages, so many on each level, leaves first, which hold so much.
    pub(in crate::page) fn of_pages(
        space: Arc<PageSpace>,
        root: PageId,
        table: TableId,
        by_level: &[u64],
        stored: Stored,
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

    /// Whose pages they are, as they say.
    pub(in crate::page) fn table(&self) -> TableId {
        self.table
    }

    pub(in crate::page) fn space(&self) -> &Arc<PageSpace> {
        &self.space
    }

    /// The root's page id, for the life of the tree.
    pub(crate) fn root(&self) -> PageId {
        self.root
    }

    /// The longest key, in bytes.
    pub(crate) fn max_key_bytes(&self) -> usize {
        layout::max_key_bytes(self.space.page_bytes())
    }

    /// The longest value that lies beside its key, in bytes.
    pub(crate) fn max_inline_value_bytes(&self) -> usize {
        layout::max_inline_value_bytes(self.space.page_bytes())
    }

    /// The longest cell of two values.
    pub(in crate::page) fn max_pair_bytes(&self) -> usize {
        layout::max_pair_bytes(self.space.page_bytes())
    }

    /// How many records are on its leaves, and what their keys and values take.
    pub(crate) fn stored(&self) -> Stored {
        self.stored.sums()
    }

    /// Whether pages of this level are probably not cached.
    #[inline(always)]
    fn is_cold(&self, level: u8) -> bool {
        // Relaxed: a hint.
        self.cold_levels.load(Ordering::Relaxed) >> level & 1 != 0
    }

    /// Counts pages of a level, and decides whether it stays cached.
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

    /// Pages on each level, leaves first.
    pub(crate) fn pages_by_level(&self) -> Vec<u64> {
        // Relaxed: statistics.
        let counts = self.pages.iter().map(|pages| pages.load(Ordering::Relaxed));
        counts.take_while(|count| *count > 0).collect()
    }

    /// Levels, of which the leaves are one.
    fn levels(&self) -> usize {
        // Relaxed: a hint.
        self.pages.iter().take_while(|pages| pages.load(Ordering::Relaxed) > 0).count()
    }

    /// What an operation needs at once: the way from the root to a page, and so many pages beside it. Not less, if the root
    /// is split meanwhile.
    pub(in crate::page) fn needs(&self, beside: usize) -> Needs {
        Needs::new(self.levels() + 1 + beside)
    }
}
