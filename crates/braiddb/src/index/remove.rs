//! Removing, and unlinking what is empty. What is only sparse is merged (`merge`).

use super::key::{SearchKey, Word};
use super::latch::Restart;
use super::merge;
use super::node::NodeRef;
use super::tree::Index;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::rid::Rid;

impl Index {
    /// Removes `key` if it is mapped to `rid`. Does not suspend.
    pub(crate) fn remove(&self, key: &[u8], rid: Rid, _operation: &OperationGuard) -> bool {
        let key = SearchKey::new(key);
        let left = loop {
            match self.try_remove(&key, rid) {
                Ok(None) => return false,
                Ok(Some(left)) => break left,
                Err(Restart) => {}
            }
        };
        if left == 0 {
            while self.try_unlink(&key).is_err() {}
            self.merge_from(1, &key);
        } else if merge::should_look(left) {
            self.merge_from(0, &key);
        }
        true
    }

    /// `None` if the key is not mapped to `rid`; else how many entries its leaf has left.
    fn try_remove(&self, key: &SearchKey<'_>, rid: Rid) -> Result<Option<usize>, Restart> {
        let path = self.path(key)?;
        let leaf = *path.last().expect("a path ends in a leaf");
        // SAFETY: reached through validated links, under the caller's guard.
        let node = unsafe { leaf.node.get() };
        let mut latched = node.latch.acquire(leaf.version)?;
        // SAFETY: as above, and latched: what is read holds.
        let (place, found) = unsafe { leaf.node.lower_bound(key) };
        // SAFETY: as above.
        if !found || unsafe { Word(node.word(place)).rid() } != rid {
            return Ok(None);
        }
        let word = Word(node.word(place));
        if !is_planted(Bug::RemovalUnnoticedByReaders) {
            latched.changed();
        }
        // SAFETY: latched.
        unsafe { leaf.node.remove_at(place) };
        self.retire_key(word);
        Ok(Some(node.count()))
    }

    /// Unlinks the leaf in whose range `key` is, if it is empty, with the inner nodes that lead
    /// nowhere else. Its range goes to a neighbour.
    fn try_unlink(&self, key: &SearchKey<'_>) -> Result<(), Restart> {
        let path = self.path(key)?;
        // SAFETY: all nodes of the path were reached through validated links, under the guard.
        let count = |depth: usize| unsafe { path[depth].node.get() }.count();
        let leaf = path.len() - 1;
        if count(leaf) > 0 {
            return Ok(());
        }
        // The lowest ancestor with another child keeps standing.
        let Some(above) = (0..leaf).rev().find(|&depth| count(depth) > 1) else { return Ok(()) };
        let mut latches = Vec::with_capacity(path.len() - above);
        for step in &path[above..] {
            // SAFETY: as above.
            latches.push(unsafe { step.node.get() }.latch.acquire(step.version)?);
        }
        let (ancestor, place) = (path[above].node, path[above].place);
        latches[0].changed();
        latches[1..].iter_mut().for_each(|latched| latched.obsolete());
        // SAFETY: latched.
        unsafe {
            if place == 0 {
                // The next child takes over the range, from its very start.
                self.retire_key(ancestor.key_word(1));
                ancestor.remove_at(0);
                ancestor.set_separator(0, 0, Word::NONE);
            } else {
                self.retire_key(ancestor.key_word(place));
                ancestor.remove_at(place);
            }
        }
        drop(latches);
        for step in &path[above + 1..] {
            // SAFETY: unlinked above, once, because the latches made it exclusive.
            unsafe { self.retire_node(step.node) };
        }
        Ok(())
    }

    /// Makes a root's only child the root; whether it had only one.
    pub(super) fn try_lower_root(&self) -> Result<bool, Restart> {
        let (root, version) = self.root()?;
        // SAFETY: linked when it was loaded, under the caller's guard.
        let node = unsafe { root.get() };
        if root.level() == 0 || node.count() > 1 {
            return Ok(false);
        }
        let mut latched = node.latch.acquire(version)?;
        if node.count() > 1 {
            return Ok(false);
        }
        latched.obsolete();
        let child: NodeRef = node.child(0);
        self.set_root(child);
        drop(latched);
        // SAFETY: no link leads to the old root any more.
        unsafe { self.retire_node(root) };
        Ok(true)
    }

    /// Hands a long key's memory to reclamation.
    pub(super) fn retire_key(&self, word: Word) {
        if let Some(cell) = word.cell() {
            let memory = self.memory.clone();
            // SAFETY: unlinked by the caller under the latch, and freed once, after the grace
            // period.
            reclaim::retire_with(move || unsafe { cell.free(&memory) });
        }
    }
}
