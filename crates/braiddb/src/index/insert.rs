//! Insertion, and splits of full nodes.
//!
//! A full node is split before an insertion below it, from the top down. So a split always finds
//! room for its separator in the parent, and holds two latches at most.

use super::key::{HeldKey, KeyCell, KeyWord, SearchKey};
use super::node::{FANOUT, LatchedNode, NodeRef};
use super::search::Scalar;
use super::tree::{IndexPath, IndexPathStep, IndexTree};
use crate::latch::Restart;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;

/// Lower end of a new right sibling's range.
pub(super) struct Separator {
    pub(super) head: u64,
    pub(super) word: KeyWord,
}

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
        let (place, found) = node.lower_bound::<Scalar>(key);
        if found {
            return Ok(Err(node.key(place).rid()));
        }
        if node.count() == FANOUT {
            drop(node);
            self.split(&path, path.len() - 1, key)?;
            return Err(Restart);
        }
        let word = self.leaf_word(key, rid);
        node.changed();
        node.insert_at(place, key.head, word.0, word);
        Ok(Ok(()))
    }

    /// Returns the word of a leaf's entry.
    pub(super) fn leaf_word(&self, key: &SearchKey<'_>, rid: Rid) -> KeyWord {
        if key.is_long() {
            KeyWord::long(KeyCell::allocate(&self.memory, key.bytes, rid.number()))
        } else {
            KeyWord::inline(key.bytes.len(), rid.number())
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
        let (right, separator) = self.split_latched(&node, full.place, key);
        // Not full: its version has not changed since that was read.
        parent_node.insert_at(parent.place + 1, separator.head, right.0, separator.word);
        Ok(())
    }

    fn split_root(&self, full: IndexPathStep<'_>, key: &SearchKey<'_>) -> Result<(), Restart> {
        // It is still the root, because a root that is replaced changes its version.
        let mut node = full.node.acquire(full.version)?;
        if !is_planted(Bug::SplitUnnoticedByReaders) {
            node.changed();
        }
        let (right, separator) = self.split_latched(&node, full.place, key);
        let root = LatchedNode::allocate(&self.memory, node.level() + 1);
        root.insert_at(0, 0, node.reference().0, KeyWord::NONE);
        root.insert_at(1, separator.head, right.0, separator.word);
        self.count_nodes(root.level(), 1);
        self.set_root(root.release());
        Ok(())
    }

    /// Moves the upper part of a full node to a new right sibling. If `key` is greater than all
    /// entries, the part is as small as possible, so that loading in key order fills its nodes.
    /// `place` is the place of the child that is being split.
    fn split_latched(
        &self,
        node: &LatchedNode<'_>,
        place: usize,
        key: &SearchKey<'_>,
    ) -> (NodeRef, Separator) {
        let right = LatchedNode::allocate(&self.memory, node.level());
        self.count_nodes(node.level(), 1);
        if node.level() > 0 {
            let appends = place == FANOUT - 1;
            let from = if appends { FANOUT - 1 } else { FANOUT / 2 };
            let separator = Separator { head: node.head(from), word: node.key(from).word() };
            node.move_tail(from, &right);
            right.set_separator(0, 0, KeyWord::NONE);
            return (right.release(), separator);
        }
        let (place, _) = node.lower_bound::<Scalar>(key);
        if place == FANOUT {
            let separator = self.separator_after(node.key(place - 1), key.bytes);
            return (right.release(), separator);
        }
        let from = FANOUT / 2;
        let separator =
            node.key(from).with_bytes(|bytes| self.separator_after(node.key(from - 1), bytes));
        node.move_tail(from, &right);
        (right.release(), separator)
    }

    /// Returns the separator between a key and the next one, whose bytes are `right`.
    pub(super) fn separator_after(&self, left: HeldKey<'_>, right: &[u8]) -> Separator {
        left.with_bytes(|left| self.separator(left, right))
    }

    /// Returns the shortest key above `left` that is at most `right`.
    fn separator(&self, left: &[u8], right: &[u8]) -> Separator {
        assert!(left < right, "entries are sorted");
        let common = left.iter().zip(right).take_while(|(l, r)| l == r).count();
        let key = SearchKey::new(&right[..=common]);
        let word = if key.is_long() {
            KeyWord::long(KeyCell::allocate(&self.memory, key.bytes, 0))
        } else {
            KeyWord::inline(key.bytes.len(), 0)
        };
        Separator { head: key.head, word }
    }
}
