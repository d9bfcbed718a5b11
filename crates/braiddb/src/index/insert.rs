//! Insertion, and splits of full nodes.
//!
//! A full node is split before an insertion below it, from the top down. So a split always finds
//! room for its separator in the parent, and holds two latches at most.

use smallvec::SmallVec;

use super::key::{HeldKey, KeyWord, SearchKey, UnusedCells};
use super::node::{FANOUT, LatchedNode, NodeRef};
use super::prefix::common_bytes;
use super::search::Baseline;
use super::tree::{IndexPath, IndexPathStep, IndexTree};
use crate::latch::Restart;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;

/// Lower end of a new right sibling's range.
pub(super) type Separator = SmallVec<[u8; 24]>;

impl IndexTree {
    /// Maps `key` to `rid`, unless it is mapped already. Does not suspend, because an earlier
    /// lookup has prefetched the path.
    ///
    /// # Errors
    /// The record id to which `key` is mapped.
    pub(crate) fn insert(
        &self,
        key: &[u8],
        rid: Rid,
        operation: &OperationGuard,
    ) -> Result<(), Rid> {
        assert!(key.len() <= super::MAX_KEY_BYTES);
        let key = SearchKey::new(key);
        loop {
            if let Ok(inserted) = self.try_insert(&key, rid, operation) {
                return inserted;
            }
        }
    }

    fn try_insert(
        &self,
        key: &SearchKey<'_>,
        rid: Rid,
        operation: &OperationGuard,
    ) -> Result<Result<(), Rid>, Restart> {
        let path = self.path(key, operation)?;
        let leaf = *path.last().expect("a path ends in a leaf");
        let mut node = leaf.node.acquire(leaf.version)?;
        let (place, found) = node.lower_bound::<Baseline>(key);
        if found {
            return Ok(Err(node.key(place).rid()));
        }
        if node.count() == FANOUT {
            drop(node);
            self.split(&path, path.len() - 1, key)?;
            return Err(Restart);
        }
        node.changed();
        self.insert_entry(&node, place, key, rid);
        Ok(Ok(()))
    }

    /// Inserts an entry at its place in a leaf.
    #[inline(always)]
    pub(super) fn insert_entry(
        &self,
        leaf: &LatchedNode<'_>,
        place: usize,
        key: &SearchKey<'_>,
        rid: Rid,
    ) {
        if leaf.has_prefix() {
            let mut unused = UnusedCells::new();
            self.insert_behind_prefix(leaf, place, key, rid, &mut unused);
            return self.retire_cells(&mut unused);
        }
        let word = key.word(rid.number(), &self.memory);
        leaf.insert_at(place, key.head, word.0, word);
    }

    #[inline(never)]
    pub(super) fn insert_behind_prefix(
        &self,
        leaf: &LatchedNode<'_>,
        place: usize,
        key: &SearchKey<'_>,
        rid: Rid,
        unused: &mut UnusedCells,
    ) {
        let key = self.share_prefix(leaf, key, unused);
        let word = key.word(rid.number(), &self.memory);
        leaf.insert_at(place, key.head, word.0, word);
    }

    /// Inserts a separator and its child at their place in an inner node.
    pub(super) fn insert_separator(
        &self,
        node: &LatchedNode<'_>,
        place: usize,
        separator: &[u8],
        child: NodeRef,
        unused: &mut UnusedCells,
    ) {
        let key = self.share_prefix(node, &SearchKey::new(separator), unused);
        node.insert_at(place, key.head, child.0, key.word(0, &self.memory));
        if key.is_long() && !node.has_prefix() {
            self.choose_prefix(node, [None, None], unused);
        }
    }

    /// Splits the node at a depth of a path. If its parent is full, splits the parent instead, and
    /// so on upwards.
    fn split(
        &self,
        path: &IndexPath<'_>,
        depth: usize,
        key: &SearchKey<'_>,
    ) -> Result<(), Restart> {
        let full = path[depth];
        let Some(above) = depth.checked_sub(1) else { return self.split_root(full, key) };
        let parent = path[above];
        if parent.node.count() == FANOUT {
            return self.split(path, above, key);
        }
        let mut parent_node = parent.node.acquire(parent.version)?;
        let mut node = full.node.acquire(full.version)?;
        if !is_planted(Bug::SplitUnnoticedByReaders) {
            parent_node.changed();
            node.changed();
        }
        let mut unused = UnusedCells::new();
        let (right, separator) = self.split_latched(&node, full.place, key, &mut unused);
        let place = parent.place + 1;
        let low = parent_node.separator(parent.place);
        let high = parent_node.separator(place);
        let middle = Some(&separator[..]);
        self.choose_prefix(&node, [low.as_deref(), middle], &mut unused);
        self.choose_prefix(&right, [middle, high.as_deref()], &mut unused);
        // Not full: its version has not changed since that was read.
        self.insert_separator(&parent_node, place, &separator, right.release(), &mut unused);
        self.retire_cells(&mut unused);
        Ok(())
    }

    fn split_root(&self, full: IndexPathStep<'_>, key: &SearchKey<'_>) -> Result<(), Restart> {
        // It is still the root, because a root that is replaced changes its version.
        let mut node = full.node.acquire(full.version)?;
        if !is_planted(Bug::SplitUnnoticedByReaders) {
            node.changed();
        }
        let mut unused = UnusedCells::new();
        let (right, separator) = self.split_latched(&node, full.place, key, &mut unused);
        let middle = Some(&separator[..]);
        self.choose_prefix(&node, [None, middle], &mut unused);
        self.choose_prefix(&right, [middle, None], &mut unused);
        self.set_root(self.root_above(&node, &separator, right.release(), &mut unused).release());
        self.retire_cells(&mut unused);
        Ok(())
    }

    /// Allocates a root above the present one and its new right sibling.
    pub(super) fn root_above<'n>(
        &self,
        left: &LatchedNode<'_>,
        separator: &[u8],
        right: NodeRef,
        unused: &mut UnusedCells,
    ) -> LatchedNode<'n> {
        let root = LatchedNode::allocate(&self.memory, left.level() + 1);
        self.count_nodes(root.level(), 1);
        root.insert_at(0, 0, left.reference().0, KeyWord::NONE);
        self.insert_separator(&root, 1, separator, right, unused);
        root
    }

    /// Moves the upper part of a full node to a new right sibling. If `key` is greater than all
    /// entries, the part is as small as possible, so that loading in key order fills its nodes.
    /// `place` is the place of the child that is being split. The caller chooses the prefixes.
    fn split_latched<'n>(
        &self,
        node: &LatchedNode<'n>,
        place: usize,
        key: &SearchKey<'_>,
        unused: &mut UnusedCells,
    ) -> (LatchedNode<'n>, Separator) {
        let right = LatchedNode::allocate(&self.memory, node.level());
        self.count_nodes(node.level(), 1);
        self.copy_prefix(node, &right);
        let (from, separator) = if node.level() > 0 {
            let from = if place == FANOUT - 1 { FANOUT - 1 } else { node.split_place() };
            (from, node.key(from).with_bytes(Separator::from_slice))
        } else {
            let (place, _) = node.lower_bound::<Baseline>(key);
            let from = if place == FANOUT { FANOUT } else { node.split_place() };
            let separator = match from {
                FANOUT => separator_after(node.key(from - 1), key.bytes),
                _ => node.key(from).with_bytes(|key| separator_after(node.key(from - 1), key)),
            };
            (from, separator)
        };
        node.move_tail(from, &right);
        if node.level() > 0 {
            unused.extend(right.clear_separator().cell());
        }
        (right, separator)
    }
}

impl LatchedNode<'_> {
    /// Returns a separator of an inner node; `None` at its ends, whose fences are farther up.
    pub(super) fn separator(&self, place: usize) -> Option<Separator> {
        let is_inside = 0 < place && place < self.count();
        is_inside.then(|| self.key(place).with_bytes(Separator::from_slice))
    }
}

/// Returns the shortest key above `left` that is at most `right`.
pub(super) fn separator_after(left: HeldKey<'_>, right: &[u8]) -> Separator {
    left.with_bytes(|left| {
        assert!(left < right, "entries are sorted");
        Separator::from_slice(&right[..=common_bytes(left, right)])
    })
}
