//! Orphans: the mapping tables of pages that are not in memory (Umbra MVCC §3.3).
//!
//! A page that leaves memory gives its mapping table to the orphans *before* its place is stored in the map: so
//! who finds the place and loads the page finds the table here. It is taken back, and the map told where the
//! page is, in one stretch under the lock here: so whoever finds nothing here for a page that is not in memory
//! then knows that it has no versions.
//!
//! Invariant: the mapping table of a page that is not in memory is here, and changes under the lock here only.

use std::collections::BTreeMap;

use super::mapping::Mapping;
use crate::page::map::PageId;
use crate::planted::{Bug, is_planted};
use crate::sync::ModelMutex;
use crate::sync::statistic::{AtomicU64, Ordering};

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// The mapping tables, by page.
#[derive(Debug)]
pub(in crate::page) struct Orphans {
    shards: Box<[ModelMutex<BTreeMap<PageId, Orphan>>]>,
    /// How many there are. Relaxed, all accesses: a statistic.
    count: AtomicU64,
}

/// The mapping table of a page that is not in memory.
#[derive(Clone, Copy, Debug)]
struct Orphan {
    word: u64,
    /// Whether all slots of the page are of deleted records: then nothing is on it when these have no chains any more.
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

    /// How many there are.
    pub(in crate::page) fn count(&self) -> u64 {
        // Relaxed: a statistic.
        self.count.load(Ordering::Relaxed)
    }

    /// Takes over the mapping table of a page that is about to leave memory, and is latched; with whether all of its slots
    /// are of deleted records.
    pub(in crate::page) fn put(&self, id: PageId, word: u64, all_deleted: bool) {
        if word == 0 || is_planted(Bug::OrphanDropped) {
            return;
        }
        let before = self.shard(id).lock().insert(id, Orphan { word, all_deleted });
        assert!(before.is_none(), "a page leaves memory once");
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives the mapping table of a page back, or 0, to `publish`, which hangs it on the page's frame and says that
    /// the page is in memory.
    pub(in crate::page) fn take(&self, id: PageId, publish: impl FnOnce(u64)) {
        let mut shard = self.shard(id).lock();
        let orphan = shard.remove(&id);
        publish(orphan.map_or(0, |orphan| orphan.word));
        if orphan.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes the chains off the mapping table of a page that nobody needs any more, if `is_absent` says that the page
    /// is not in memory; `None` if it does not say so, else whether nothing is left on the page by that.
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
        // SAFETY: the table is changed under this lock only, as long as it is here; it was loaded under it.
        *word = unsafe { Mapping::prune(*word, |_| {}) };
        let nothing_left = *word == 0 && *all_deleted;
        if *word == 0 {
            shard.remove(&id);
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Some(nothing_left)
    }

    /// Takes all of them, when nobody uses any page any more.
    pub(in crate::page) fn take_all(&self, mut free: impl FnMut(u64)) {
        for shard in &self.shards {
            std::mem::take(&mut *shard.lock()).values().for_each(|orphan| free(orphan.word));
        }
        self.count.store(0, Ordering::Relaxed);
    }
}
