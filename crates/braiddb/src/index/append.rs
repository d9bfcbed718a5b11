//! Index construction from keys in order, by one thread that has exclusive access: during recovery.

use std::cmp::Ordering as Order;

use smallvec::SmallVec;

use super::insert::separator_after;
use super::key::{KeyWord, SearchKey, UnusedCells};
use super::node::{FANOUT, LatchedNode, NodeRef};
use super::tree::IndexTree;
use crate::rid::Rid;
use crate::sync::atomic::Ordering;

/// Appends entries to an index to which it has exclusive access.
///
/// Invariant: `spine[l]` is the rightmost node of level `l`, and is latched while it is the
/// rightmost. The last one is the root.
#[derive(Debug)]
pub(crate) struct Appender<'i> {
    index: &'i IndexTree,
    spine: SmallVec<[LatchedNode<'i>; 8]>,
}

/// Error: a key is not greater than the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl IndexTree {
    /// Returns an appender to this index, which must be empty and must not be used otherwise until
    /// the appender is dropped.
    pub(crate) fn appender(&self) -> Appender<'_> {
        // Relaxed: exclusive access.
        let root = NodeRef(self.root.load(Ordering::Relaxed));
        // SAFETY: nodes are freed only when they are unlinked, which an appender never does, or
        // with the index, which is borrowed.
        let root = unsafe { root.hold() };
        assert_eq!((root.level(), root.count()), (0, 0), "the index is empty");
        let version = root.latch.version().expect("the root is not obsolete");
        let root = root.acquire(version).expect("the appender has exclusive access");
        Appender { index: self, spine: SmallVec::from_iter([root]) }
    }
}

impl<'i> Appender<'i> {
    /// Maps `key`, which is larger than all previous keys, to `rid`.
    ///
    /// # Errors
    /// When it is not larger; then nothing has changed.
    pub(crate) fn append(&mut self, key: &[u8], rid: Rid) -> Result<(), OutOfOrder> {
        assert!(key.len() <= super::MAX_KEY_BYTES);
        let key = SearchKey::new(key);
        let mut unused = UnusedCells::new();
        let mut count = self.spine[0].count();
        if let Some(last) = count.checked_sub(1) {
            if self.spine[0].compare(&key, last) != Order::Greater {
                return Err(OutOfOrder);
            }
            if count == FANOUT {
                let separator = separator_after(self.spine[0].key(last), key.bytes);
                let leaf = self.successor(0, &separator, &mut unused);
                self.link(1, &separator, leaf.reference(), &mut unused);
                self.spine[0] = leaf;
                count = 0;
            }
        }
        self.index.insert_behind_prefix(&self.spine[0], count, &key, rid, &mut unused);
        for cell in unused {
            // SAFETY: no longer referenced, and no other thread has access.
            unsafe { cell.free(&self.index.memory) };
        }
        Ok(())
    }

    /// Allocates the node after the rightmost one of a level, which is complete and ends before
    /// `separator`.
    fn successor(
        &self,
        level: usize,
        separator: &[u8],
        unused: &mut UnusedCells,
    ) -> LatchedNode<'i> {
        let complete = &self.spine[level];
        let parent = self.spine.get(level + 1);
        let low = parent.and_then(|parent| parent.separator(parent.count() - 1));
        self.index.choose_prefix(complete, [low.as_deref(), Some(separator)], unused);
        self.index.count_nodes(level as u64, 1);
        let node = LatchedNode::allocate(&self.index.memory, level as u64);
        self.index.copy_prefix(complete, &node);
        node
    }

    /// Makes `child`, whose range starts at `separator`, the last child on `level`.
    fn link(&mut self, level: usize, separator: &[u8], child: NodeRef, unused: &mut UnusedCells) {
        let Some(node) = self.spine.get(level) else {
            let root = self.index.root_above(&self.spine[level - 1], separator, child, unused);
            self.index.set_root(root.reference());
            self.spine.push(root);
            return;
        };
        let count = node.count();
        if count < FANOUT {
            return self.index.insert_separator(node, count, separator, child, unused);
        }
        let right = self.successor(level, separator, unused);
        // The separator of its first child is stored in its parent.
        right.insert_at(0, 0, child.0, KeyWord::NONE);
        self.link(level + 1, separator, right.reference(), unused);
        self.spine[level] = right;
    }
}
