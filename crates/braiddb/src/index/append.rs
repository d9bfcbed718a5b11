//! Building an index from keys in order, by one thread that alone knows it: recovery.

use std::cmp::Ordering as Order;

use smallvec::SmallVec;

use super::insert::Separator;
use super::key::{KeyCell, SearchKey, Word};
use super::node::{FANOUT, NodeRef};
use super::tree::Index;
use crate::rid::Rid;
use crate::sync::atomic::Ordering;

/// Appends entries to an index that nobody else uses.
///
/// Invariant: `spine[l]` is the rightmost node of level `l`; the last one is the root.
#[derive(Debug)]
pub(crate) struct Appender<'i> {
    index: &'i Index,
    spine: SmallVec<[NodeRef; 8]>,
}

/// A key does not come after the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl Index {
    /// An appender to this index, which is empty.
    pub(crate) fn appender(&self) -> Appender<'_> {
        // Relaxed: nobody else is there.
        let root = NodeRef(self.root.load(Ordering::Relaxed));
        assert_eq!(root.level(), 0, "the index is empty");
        Appender { index: self, spine: SmallVec::from_slice(&[root]) }
    }
}

impl Appender<'_> {
    /// Maps `key`, which is larger than all before, to `rid`.
    ///
    /// # Errors
    /// When it is not larger; then nothing is changed.
    pub(crate) fn append(&mut self, key: &[u8], rid: Rid) -> Result<(), OutOfOrder> {
        assert!(key.len() <= super::MAX_KEY_BYTES);
        let key = SearchKey::new(key);
        let mut leaf = self.spine[0];
        // SAFETY: nodes of an index that this thread alone uses, not freed while it is built.
        let mut count = unsafe { leaf.get() }.count();
        if count > 0 {
            // SAFETY: as above.
            let (head, word) = unsafe { (leaf.get().head(count - 1), leaf.key_word(count - 1)) };
            // SAFETY: as above; cells live as long as the index.
            if unsafe { key.compare(head, word) } != Order::Greater {
                return Err(OutOfOrder);
            }
            if count == FANOUT {
                // SAFETY: as above.
                let separator = unsafe { self.index.separator_after(head, word, key.bytes) };
                leaf = self.allocate(0);
                self.link(1, &separator, leaf);
                self.spine[0] = leaf;
                count = 0;
            }
        }
        let word = if key.is_long() {
            Word::long(KeyCell::allocate(&self.index.memory, key.bytes, rid.number()))
        } else {
            Word::inline(key.bytes.len(), rid.number())
        };
        // SAFETY: as above; not full.
        unsafe { leaf.insert_at(count, key.head, word.0, word) };
        Ok(())
    }

    fn allocate(&self, level: u64) -> NodeRef {
        self.index.count_nodes(level, 1);
        NodeRef::allocate(&self.index.memory, level)
    }

    /// Makes `child`, whose range starts at `separator`, the last child on `level`.
    fn link(&mut self, level: usize, separator: &Separator, child: NodeRef) {
        let Some(&node) = self.spine.get(level) else {
            let root = self.allocate(level as u64);
            let left = self.spine[level - 1];
            // SAFETY: unshared, and empty.
            unsafe {
                root.insert_at(0, 0, left.0, Word::NONE);
                root.insert_at(1, separator.head, child.0, separator.word);
            }
            self.spine.push(root);
            self.index.set_root(root);
            return;
        };
        // SAFETY: this thread's alone.
        let count = unsafe { node.get() }.count();
        if count < FANOUT {
            // SAFETY: as above; not full.
            unsafe { node.insert_at(count, separator.head, child.0, separator.word) };
            return;
        }
        let right = self.allocate(level as u64);
        // SAFETY: unshared, and empty. Its first child's separator stands above it.
        unsafe { right.insert_at(0, 0, child.0, Word::NONE) };
        self.link(level + 1, separator, right);
        self.spine[level] = right;
    }
}
