//! Index tree: its root, its counters, and the descent to a leaf.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;

use super::key::SearchKey;
use super::node::{HeldNode, LatchedNode, NodeRef};
use super::search::Baseline;
use crate::latch::{LatchVersion, Restart};
use crate::memory::MemoryCounters;
use crate::reclaim::OperationGuard;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Levels smaller than this stay in the processor's caches, so a descent does not suspend for their
/// nodes.
const CACHED_BYTES: u64 = 2 << 20;
const MAX_LEVELS: usize = 16;

/// An index: an ordered map from keys to record ids that many workers read and change concurrently.
///
/// Invariant: every key is in the one leaf that its descent from the root reaches. Every call takes
/// the caller's operation guard. Everything that it reaches through validated links stays allocated
/// as long as the guard lasts.
#[derive(Debug)]
pub(crate) struct IndexTree {
    pub(super) root: AtomicU64,
    /// Bit `l` is set while level `l` is too large for the processor's caches.
    cold_levels: AtomicU64,
    nodes: CachePadded<[AtomicU64; MAX_LEVELS]>,
    pub(super) memory: Arc<MemoryCounters>,
}

/// A node on the path from the root to a leaf, and the child on that path.
#[derive(Clone, Copy, Debug)]
pub(super) struct IndexPathStep<'g> {
    pub(super) node: HeldNode<'g>,
    pub(super) version: LatchVersion,
    /// Place of the child; in a leaf, the place of the key or of its insertion.
    pub(super) place: usize,
}

/// Path from the root to a leaf; the last step is the leaf.
pub(super) type IndexPath<'g> = SmallVec<[IndexPathStep<'g>; 8]>;

impl IndexTree {
    /// Creates an empty index.
    pub(crate) fn new(memory: Arc<MemoryCounters>) -> Self {
        let root = NodeRef::allocate(&memory, 0);
        let nodes = std::array::from_fn(|level| AtomicU64::new(u64::from(level == 0))).into();
        Self { root: AtomicU64::new(root.0), cold_levels: AtomicU64::new(0), nodes, memory }
    }

    /// Returns the root. The caller takes its version, and then checks that it is still the root.
    #[inline(always)]
    pub(super) fn unchecked_root<'g>(&self, _operation: &'g OperationGuard) -> HeldNode<'g> {
        // Acquire pairs with the Release in `set_root`.
        let root = NodeRef(self.root.load(Ordering::Acquire));
        // SAFETY: linked when it was loaded, under a guard that lasts for `'g`.
        unsafe { root.hold::<'g>() }
    }

    /// Returns the root and its version.
    #[inline(always)]
    pub(super) fn root<'g>(
        &self,
        operation: &'g OperationGuard,
    ) -> Result<(HeldNode<'g>, LatchVersion), Restart> {
        let root = self.unchecked_root(operation);
        let version = root.latch.version()?;
        self.check_root(root)?;
        Ok((root, version))
    }

    /// Returns an error unless `node` is still the root. A root that was split or removed before
    /// its version was taken is not the root any more.
    #[inline(always)]
    pub(super) fn check_root(&self, node: HeldNode<'_>) -> Result<(), Restart> {
        // Acquire pairs with the Release in `set_root`.
        if self.root.load(Ordering::Acquire) == node.reference().0 { Ok(()) } else { Err(Restart) }
    }

    /// Replaces the root; the caller holds the latch of the previous one.
    pub(super) fn set_root(&self, root: NodeRef) {
        // Release pairs with the Acquire in `root`: the node is initialised.
        self.root.store(root.0, Ordering::Release);
    }

    /// Returns whether nodes of this level are probably not in the processor's caches.
    #[inline(always)]
    pub(super) fn is_cold(&self, level: u64) -> bool {
        // Relaxed: a hint.
        self.cold_levels.load(Ordering::Relaxed) >> level & 1 != 0
    }

    /// Returns whether nodes of any level are probably not in the processor's caches.
    #[inline(always)]
    pub(crate) fn has_cold_levels(&self) -> bool {
        // Relaxed: a hint.
        self.cold_levels.load(Ordering::Relaxed) != 0
    }

    /// Counts nodes of a level, and decides whether the level fits in the caches.
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

    /// Returns the number of levels, and the approximate bytes of the nodes: concurrent operations
    /// may split and merge nodes.
    pub(crate) fn size(&self) -> (u64, u64) {
        let nodes = self.nodes_by_level();
        let bytes = (0..).zip(&nodes).map(|(level, nodes)| nodes * NodeRef::bytes(level)).sum();
        (nodes.len() as u64, bytes)
    }

    /// Returns the number of nodes on each level, leaves first.
    pub(super) fn nodes_by_level(&self) -> Vec<u64> {
        // Relaxed: statistics.
        let counts = self.nodes.iter().map(|nodes| nodes.load(Ordering::Relaxed));
        counts.take_while(|count| *count > 0).collect()
    }

    /// Returns the path to the leaf whose range contains `key`, without suspending.
    pub(super) fn path<'g>(
        &self,
        key: &SearchKey<'_>,
        operation: &'g OperationGuard,
    ) -> Result<IndexPath<'g>, Restart> {
        let mut path = IndexPath::new();
        let (mut node, mut version) = self.root(operation)?;
        loop {
            if node.level() == 0 {
                let (place, _) = node.lower_bound::<Baseline>(key);
                path.push(IndexPathStep { node, version, place });
                return Ok(path);
            }
            let place = node.child_place::<Baseline>(key);
            let child = node.child(place, version)?;
            path.push(IndexPathStep { node, version, place });
            let child_version = child.latch.version()?;
            // The child keeps its range as long as the link to it has not changed.
            node.latch.validate(version)?;
            (node, version) = (child, child_version);
        }
    }

    /// Retires an obsolete node, and releases its latch.
    ///
    /// # Safety
    /// The node is no longer linked, and it is retired once.
    pub(super) unsafe fn retire_node(&self, node: LatchedNode<'_>) {
        self.retire_cells(&mut node.prefix_cell().into_iter().collect());
        let node = node.release();
        self.count_nodes(node.level(), -1);
        // SAFETY: allocated with the tree's counters; the rest is the caller's contract.
        unsafe { node.retire(&self.memory) };
    }

    /// Frees a node and all nodes below it.
    fn free_all(&self, node: NodeRef) {
        // SAFETY: the tree is being dropped: no other thread reaches its nodes, and this one is
        // freed below.
        let here = unsafe { node.hold() };
        for place in 0..here.count() {
            if node.level() > 0 {
                self.free_all(here.child_reference(place));
            }
            if let Some(cell) = here.key(place).word().cell() {
                // SAFETY: each cell belongs to one entry, which is no longer accessed.
                unsafe { cell.free(&self.memory) };
            }
        }
        if let Some(cell) = here.prefix_cell() {
            // SAFETY: it belongs to this node, which is no longer accessed.
            unsafe { cell.free(&self.memory) };
        }
        // SAFETY: no remaining node references it, and its own entries were freed.
        unsafe { node.free(&self.memory) };
    }
}

impl Drop for IndexTree {
    fn drop(&mut self) {
        // Relaxed: exclusive access.
        self.free_all(NodeRef(self.root.load(Ordering::Relaxed)));
    }
}
