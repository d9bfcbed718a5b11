//! The tree: its root, what it counts, how it is descended.

use smallvec::SmallVec;
use std::sync::Arc;

use super::key::SearchKey;
use super::latch::{NodeVersion, Restart};
use super::node::NodeRef;
use crate::memory::MemoryCounters;
use crate::reclaim;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Levels whose nodes take less than this stay in the caches and are not suspended on.
const CACHED_BYTES: u64 = 2 << 20;
const MOST_LEVELS: usize = 16;

/// An index: a map from keys to record ids that many workers read and change at once.
///
/// Invariant: every key is in the one leaf to which its descent from the root leads. Every call takes
/// the caller's operation guard: what it reaches through validated links stays allocated meanwhile.
#[derive(Debug)]
pub(crate) struct Index {
    pub(super) root: AtomicU64,
    /// Bit `l` is set while level `l` is too large to stay cached.
    cold_levels: AtomicU64,
    nodes: [AtomicU64; MOST_LEVELS],
    pub(super) memory: Arc<MemoryCounters>,
}

/// A node on the way from the root to a leaf, and the child that was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) node: NodeRef,
    pub(super) version: NodeVersion,
    /// The child's place; in a leaf, where the key is or would be.
    pub(super) place: usize,
}

/// The way from the root to a leaf; the last step is the leaf.
pub(super) type Path = SmallVec<[Step; 8]>;

impl Index {
    /// An empty index.
    pub(crate) fn new(memory: Arc<MemoryCounters>) -> Self {
        let root = NodeRef::allocate(&memory, 0);
        let nodes = std::array::from_fn(|level| AtomicU64::new(u64::from(level == 0)));
        Self { root: AtomicU64::new(root.0), cold_levels: AtomicU64::new(0), nodes, memory }
    }

    /// The root and its version.
    #[inline(always)]
    pub(super) fn root(&self) -> Result<(NodeRef, NodeVersion), Restart> {
        // Acquire pairs with the Release in `set_root`.
        let root = NodeRef(self.root.load(Ordering::Acquire));
        // SAFETY: linked when loaded, under the caller's guard.
        let version = unsafe { root.get() }.latch.version()?;
        self.check_root(root)?;
        Ok((root, version))
    }

    /// Whether `node` is the root: one that was split or removed before its version was taken is
    /// no root any more.
    #[inline(always)]
    pub(super) fn check_root(&self, node: NodeRef) -> Result<(), Restart> {
        // Acquire pairs with the Release in `set_root`.
        if self.root.load(Ordering::Acquire) == node.0 { Ok(()) } else { Err(Restart) }
    }

    /// Makes `root` the root; the caller holds the latch of the one before.
    pub(super) fn set_root(&self, root: NodeRef) {
        // Release pairs with the Acquire in `root`: the node is whole.
        self.root.store(root.0, Ordering::Release);
    }

    /// Whether nodes of this level are probably not cached.
    #[inline(always)]
    pub(super) fn is_cold(&self, level: u64) -> bool {
        // Relaxed: a hint.
        self.cold_levels.load(Ordering::Relaxed) >> level & 1 != 0
    }

    /// Counts nodes of a level, and decides whether it stays cached.
    pub(super) fn count_nodes(&self, level: u64, change: i64) {
        // Relaxed: statistics and hints.
        let nodes = &self.nodes[level as usize];
        let count = nodes.fetch_add(change as u64, Ordering::Relaxed).wrapping_add(change as u64);
        let (bytes, bit) = (count * NodeRef::bytes(level), 1 << level);
        let was_cold = self.is_cold(level);
        if bytes > CACHED_BYTES && !was_cold {
            self.cold_levels.fetch_or(bit, Ordering::Relaxed);
        } else if bytes < CACHED_BYTES / 2 && was_cold {
            self.cold_levels.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Nodes on each level, leaves first.
    #[cfg(test)]
    pub(crate) fn nodes_by_level(&self) -> Vec<u64> {
        // Relaxed: statistics.
        let counts = self.nodes.iter().map(|nodes| nodes.load(Ordering::Relaxed));
        counts.take_while(|count| *count > 0).collect()
    }

    /// The way to the leaf in whose range `key` is, without suspensions.
    pub(super) fn path(&self, key: &SearchKey<'_>) -> Result<Path, Restart> {
        let mut path = Path::new();
        let (mut node, mut version) = self.root()?;
        loop {
            // SAFETY: reached through validated links, under the caller's guard.
            let here = unsafe { node.get() };
            if node.level() == 0 {
                // SAFETY: as above.
                let (place, _) = unsafe { node.lower_bound(key) };
                path.push(Step { node, version, place });
                return Ok(path);
            }
            // SAFETY: as above.
            let place = unsafe { node.child_place(key, here.group(key.head)) };
            let child = here.child(place);
            here.latch.validate(version)?;
            path.push(Step { node, version, place });
            // SAFETY: as above: the link was validated.
            let child_version = unsafe { child.get() }.latch.version()?;
            here.latch.validate(version)?;
            (node, version) = (child, child_version);
        }
    }

    /// Hands a node that is no part of the tree any more to reclamation.
    ///
    /// # Safety
    /// No link leads to the node, and it is retired once.
    pub(super) unsafe fn retire_node(&self, node: NodeRef) {
        self.count_nodes(node.level(), -1);
        let memory = self.memory.clone();
        // SAFETY: unlinked, and freed once, after the grace period.
        reclaim::retire_with(move || unsafe { node.free(&memory) });
    }

    /// Frees a node and all below it.
    fn free_all(&self, node: NodeRef) {
        // SAFETY: the tree is being dropped: nobody else reaches its nodes.
        let here = unsafe { node.get() };
        for place in 0..here.count() {
            if node.level() > 0 {
                self.free_all(here.child(place));
            }
            // SAFETY: as above; each cell belongs to one entry.
            unsafe {
                if let Some(cell) = node.key_word(place).cell() {
                    cell.free(&self.memory);
                }
            }
        }
        // SAFETY: as above.
        unsafe { node.free(&self.memory) };
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        // Relaxed: nobody else is there.
        self.free_all(NodeRef(self.root.load(Ordering::Relaxed)));
    }
}
