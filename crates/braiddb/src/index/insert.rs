//! Inserting, and splitting what is full.
//!
//! A full node is split before anything is inserted below it, from the top down: so a split always
//! finds room for its separator in the parent, and holds two latches at most.

use super::key::{KeyCell, SearchKey, Word, inline_bytes};
use super::latch::Restart;
use super::node::{FANOUT, NodeRef};
use super::tree::{Index, Path, Step};
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;

/// The lower end of a new right sibling's range.
pub(super) struct Separator {
    pub(super) head: u64,
    pub(super) word: Word,
}

impl Index {
    /// Maps `key` to `rid`, unless it is mapped already. Does not suspend: a look-up before has
    /// brought the path near.
    ///
    /// # Errors
    /// The record id that `key` is mapped to.
    pub(crate) fn insert(
        &self,
        key: &[u8],
        rid: Rid,
        _operation: &OperationGuard,
    ) -> Result<(), Rid> {
        assert!(key.len() <= super::MAX_KEY_BYTES);
        let key = SearchKey::new(key);
        loop {
            if let Ok(inserted) = self.try_insert(&key, rid) {
                return inserted;
            }
        }
    }

    fn try_insert(&self, key: &SearchKey<'_>, rid: Rid) -> Result<Result<(), Rid>, Restart> {
        let path = self.path(key)?;
        let leaf = *path.last().expect("a path ends in a leaf");
        // SAFETY: reached through validated links, under the caller's guard.
        let node = unsafe { leaf.node.get() };
        let mut latched = node.latch.acquire(leaf.version)?;
        // SAFETY: as above, and latched: what is read holds.
        let (place, found) = unsafe { leaf.node.lower_bound(key) };
        if found {
            // SAFETY: as above.
            return Ok(Err(unsafe { Word(node.word(place)).rid() }));
        }
        if node.count() == FANOUT {
            drop(latched);
            self.split(&path, path.len() - 1, key)?;
            return Err(Restart);
        }
        let word = if key.is_long() {
            Word::long(KeyCell::allocate(&self.memory, key.bytes, rid.number()))
        } else {
            Word::inline(key.bytes.len(), rid.number())
        };
        latched.changed();
        // SAFETY: latched, and not full.
        unsafe { leaf.node.insert_at(place, key.head, word.0, word) };
        Ok(Ok(()))
    }

    /// Splits the node at a depth of a path, or first the lowest ancestor that has no room for
    /// another separator.
    fn split(&self, path: &Path, depth: usize, key: &SearchKey<'_>) -> Result<(), Restart> {
        let full = path[depth];
        let Some(above) = depth.checked_sub(1) else { return self.split_root(full, key) };
        let parent = path[above];
        // SAFETY: reached through validated links, under the caller's guard.
        let (parent_node, node) = unsafe { (parent.node.get(), full.node.get()) };
        if parent_node.count() == FANOUT {
            return self.split(path, above, key);
        }
        let mut parent_latched = parent_node.latch.acquire(parent.version)?;
        let mut latched = node.latch.acquire(full.version)?;
        if !is_planted(Bug::SplitUnnoticedByReaders) {
            parent_latched.changed();
            latched.changed();
        }
        let (right, separator) = self.split_latched(full, key);
        let (place, head) = (parent.place + 1, separator.head);
        // SAFETY: latched, and not full (its version has not changed since that was read).
        unsafe { parent.node.insert_at(place, head, right.0, separator.word) };
        Ok(())
    }

    fn split_root(&self, full: Step, key: &SearchKey<'_>) -> Result<(), Restart> {
        // SAFETY: reached as the root, under the caller's guard.
        let node = unsafe { full.node.get() };
        // It is still the root: a root that stops being one changes its version.
        let mut latched = node.latch.acquire(full.version)?;
        if !is_planted(Bug::SplitUnnoticedByReaders) {
            latched.changed();
        }
        let (right, separator) = self.split_latched(full, key);
        let root = NodeRef::allocate(&self.memory, full.node.level() + 1);
        // SAFETY: unshared, and empty.
        unsafe {
            root.insert_at(0, 0, full.node.0, Word::NONE);
            root.insert_at(1, separator.head, right.0, separator.word);
        }
        self.count_nodes(root.level(), 1);
        self.set_root(root);
        Ok(())
    }

    /// Moves the upper part of a full, latched node to a new right sibling. When `key` comes after
    /// all entries, the part is as small as can be: loading in key order fills its nodes.
    fn split_latched(&self, full: Step, key: &SearchKey<'_>) -> (NodeRef, Separator) {
        let node = full.node;
        let right = NodeRef::allocate(&self.memory, node.level());
        self.count_nodes(node.level(), 1);
        // SAFETY: latched by the caller; `right` is unshared.
        unsafe {
            if node.level() > 0 {
                let appends = full.place == FANOUT - 1;
                let from = if appends { FANOUT - 1 } else { FANOUT / 2 };
                let separator =
                    Separator { head: node.get().head(from), word: node.key_word(from) };
                node.move_tail(from, right);
                right.set_separator(0, 0, Word::NONE);
                return (right, separator);
            }
            let (place, _) = node.lower_bound(key);
            if place == FANOUT {
                let (left_head, left_word) = (node.get().head(place - 1), node.key_word(place - 1));
                let separator = self.separator_after(left_head, left_word, key.bytes);
                return (right, separator);
            }
            let from = FANOUT / 2;
            let (head, word) = (node.get().head(from), node.key_word(from));
            let (left_head, left_word) = (node.get().head(from - 1), node.key_word(from - 1));
            let separator = with_bytes(left_head, left_word, |left| {
                with_bytes(head, word, |right| self.separator(left, right))
            });
            node.move_tail(from, right);
            (right, separator)
        }
    }

    /// The separator between the key that `head` and `word` hold and `right`.
    ///
    /// # Safety
    /// As for [`with_bytes`].
    pub(super) unsafe fn separator_after(&self, head: u64, word: Word, right: &[u8]) -> Separator {
        // SAFETY: the caller's contract.
        unsafe { with_bytes(head, word, |left| self.separator(left, right)) }
    }

    /// The shortest key above `left` that is not above `right`.
    fn separator(&self, left: &[u8], right: &[u8]) -> Separator {
        assert!(left < right, "entries are sorted");
        let common = left.iter().zip(right).take_while(|(l, r)| l == r).count();
        let key = SearchKey::new(&right[..=common]);
        let word = if key.is_long() {
            Word::long(KeyCell::allocate(&self.memory, key.bytes, 0))
        } else {
            Word::inline(key.bytes.len(), 0)
        };
        Separator { head: key.head, word }
    }
}

/// The bytes of the key that `head` and `word` hold.
///
/// # Safety
/// The word's cell, if it has one, is alive.
pub(super) unsafe fn with_bytes<R>(head: u64, word: Word, look: impl FnOnce(&[u8]) -> R) -> R {
    match word.cell() {
        // SAFETY: the caller's contract.
        Some(cell) => look(unsafe { cell.bytes() }),
        None => {
            let (bytes, length) = inline_bytes(head, word);
            look(&bytes[..length])
        }
    }
}
