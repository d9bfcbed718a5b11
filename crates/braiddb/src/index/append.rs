//! Building an index from keys in order, by one thread that alone knows it: recovery.

use std::cmp::Ordering as Order;

use smallvec::SmallVec;

use super::insert::Separator;
use super::key::{SearchKey, Word};
use super::node::{FANOUT, LatchedNode, NodeRef};
use super::tree::Index;
use crate::rid::Rid;
use crate::sync::atomic::Ordering;

/// Appends entries to an index that nobody else uses.
///
/// Invariant: `spine[l]` is the rightmost node of level `l`, latched as long as it is; the last one is
/// the root.
#[derive(Debug)]
pub(crate) struct Appender<'i> {
    index: &'i Index,
    spine: SmallVec<[LatchedNode<'i>; 8]>,
}

/// A key does not come after the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl Index {
    /// An appender to this index, which is empty, and which nobody else uses until it is dropped.
    pub(crate) fn appender(&self) -> Appender<'_> {
        // Relaxed: nobody else is there.
        let root = NodeRef(self.root.load(Ordering::Relaxed));
        // SAFETY: nodes are freed only when they are unlinked, which an appender never does, or with
        // the index, which is borrowed.
        let root = unsafe { root.hold() };
        assert_eq!((root.level(), root.count()), (0, 0), "the index is empty");
        let version = root.latch.version().expect("the root is not obsolete");
        let root = root.acquire(version).expect("nobody else uses the index");
        Appender { index: self, spine: SmallVec::from_iter([root]) }
    }
}

impl<'i> Appender<'i> {
    /// Maps `key`, which is larger than all before, to `rid`.
    ///
    /// # Errors
    /// When it is not larger; then nothing is changed.
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
            root.insert_at(0, 0, self.spine[level - 1].reference().0, Word::NONE);
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
        // Its first child's separator stands above it.
        right.insert_at(0, 0, child.0, Word::NONE);
        self.link(level + 1, separator, right.reference());
        self.spine[level] = right;
    }
}
