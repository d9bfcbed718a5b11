//! Index construction from keys in order, by one thread that has exclusive access: during recovery.

use std::cmp::Ordering as Order;

use smallvec::SmallVec;

use super::insert::Separator;
use super::key::{KeyWord, SearchKey};
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
        let mut count = self.spine[0].count();
        if let Some(last) = count.checked_sub(1) {
            let last = self.spine[0].key(last);
            if last.compared_with(&key) != Order::Greater {
                return Err(OutOfOrder);
            }
            if count == FANOUT {
                let separator = self.index.separator_after(last, key.bytes);
                let leaf = self.allocate(0);
                self.link(1, &separator, leaf.reference());
                self.spine[0] = leaf;
                count = 0;
            }
        }
        let word = self.index.leaf_word(&key, rid);
        self.spine[0].insert_at(count, key.head, word.0, word);
        Ok(())
    }

    fn allocate(&self, level: u64) -> LatchedNode<'i> {
        self.index.count_nodes(level, 1);
        LatchedNode::allocate(&self.index.memory, level)
    }

    /// Makes `child`, whose range starts at `separator`, the last child on `level`.
    fn link(&mut self, level: usize, separator: &Separator, child: NodeRef) {
        let Some(node) = self.spine.get(level) else {
            let root = self.allocate(level as u64);
            root.insert_at(0, 0, self.spine[level - 1].reference().0, KeyWord::NONE);
            root.insert_at(1, separator.head, child.0, separator.word);
            self.index.set_root(root.reference());
            self.spine.push(root);
            return;
        };
        let count = node.count();
        if count < FANOUT {
            node.insert_at(count, separator.head, child.0, separator.word);
            return;
        }
        let right = self.allocate(level as u64);
        // The separator of its first child is stored in its parent.
        right.insert_at(0, 0, child.0, KeyWord::NONE);
        self.link(level + 1, separator, right.reference());
        self.spine[level] = right;
    }
}
