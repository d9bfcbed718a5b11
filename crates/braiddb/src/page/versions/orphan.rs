//! Orphans: mapping tables of pages that are not resident (Umbra MVCC §3.3).
//!
//! An evicted page hands its mapping table to the orphans *before* its place is stored in the map.
//! So a task that finds the place and loads the page finds the table here. The table is removed
//! from the orphans and the page is marked resident without suspending, under the lock of the
//! shard. So a missing entry for a page that is not resident means that the page has no versions.
//!
//! Invariant: the mapping table of a page that is not resident is stored here, and changes only
//! under the lock of its shard.

use std::collections::BTreeMap;

use super::mapping::Mapping;
use crate::page::map::PageId;
use crate::planted::{Bug, is_planted};
use crate::sync::ModelMutex;
use crate::sync::statistic::{AtomicU64, Ordering};

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// Mapping tables of pages that are not resident, by page.
#[derive(Debug)]
pub(in crate::page) struct Orphans {
    shards: Box<[ModelMutex<BTreeMap<PageId, Orphan>>]>,
    /// Number of mapping tables. Relaxed, all accesses: a statistic.
    count: AtomicU64,
}

/// Mapping table of a page that is not resident.
#[derive(Clone, Copy, Debug)]
struct Orphan {
    word: u64,
    /// True if all slots of the page belong to deleted records. The page is empty once these have
    /// no chains any more.
    all_deleted: bool,
}

impl Orphans {
    pub(in crate::page) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| ModelMutex::new(BTreeMap::new())).collect(),
            count: AtomicU64::new(0),
        }
    }

    fn shard(&self, id: PageId) -> &ModelMutex<BTreeMap<PageId, Orphan>> {
        &self.shards[id.number() as usize % SHARDS]
    }

    /// Returns the number of mapping tables.
    pub(in crate::page) fn count(&self) -> u64 {
        // Relaxed: a statistic.
        self.count.load(Ordering::Relaxed)
    }

    /// Takes the mapping table of a latched page that is about to be evicted, and whether all of
    /// its slots belong to deleted records.
    pub(in crate::page) fn put(&self, id: PageId, word: u64, all_deleted: bool) {
        if word == 0 || is_planted(Bug::OrphanDropped) {
            return;
        }
        let before = self.shard(id).lock().insert(id, Orphan { word, all_deleted });
        assert!(before.is_none(), "a page is evicted once");
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the mapping table of a page and passes its word, or 0, to `publish`, which attaches
    /// it to the page's frame and marks the page resident.
    pub(in crate::page) fn take(&self, id: PageId, publish: impl FnOnce(u64)) {
        let mut shard = self.shard(id).lock();
        let orphan = shard.remove(&id);
        publish(orphan.map_or(0, |orphan| orphan.word));
        if orphan.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Removes chains that no transaction needs from the mapping table of a page, if `is_absent`
    /// returns true: the page is not resident. Returns `None` otherwise. The result is whether the
    /// page has no records left.
    pub(in crate::page) fn prune(
        &self,
        id: PageId,
        is_absent: impl FnOnce() -> bool,
    ) -> Option<bool> {
        let mut shard = self.shard(id).lock();
        if !is_absent() {
            return None;
        }
        let Some(Orphan { word, all_deleted }) = shard.get_mut(&id) else { return Some(false) };
        // SAFETY: while the table is here, it is changed and loaded under this lock only.
        *word = unsafe { Mapping::prune(*word, |_| {}) };
        let nothing_left = *word == 0 && *all_deleted;
        if *word == 0 {
            shard.remove(&id);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Some(nothing_left)
    }

    /// Removes all mapping tables. No page may be in use any more.
    pub(in crate::page) fn take_all(&self, mut free: impl FnMut(u64)) {
        for shard in &self.shards {
            std::mem::take(&mut *shard.lock()).values().for_each(|orphan| free(orphan.word));
        }
        self.count.store(0, Ordering::Relaxed);
    }
}
