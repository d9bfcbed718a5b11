//! Nodes: their layout, and the changes made under a latch.
//!
//! ```text
//! line  0      latch word, 7 hints: the heads of entries 8, 16, … 56
//! lines 1-8    64 heads, in key order; past the last entry all ones
//! lines 9-16   64 words: a leaf's key words with record ids, an inner node's children
//! line  17     count
//! lines 18-25  inner nodes only: 64 key words of the separators
//! ```
//!
//! Invariants: entries are sorted and distinct. In an inner node, child `i` holds the keys from
//! separator `i` up to, not including, separator `i + 1`; separator 0 stands for minus infinity
//! within the node's own range. A child's address carries its level in its low six bits.
//!
//! Contents are atomics because readers do not latch: they read Relaxed and validate. Words that
//! lead to other memory are stored with Release and loaded with Acquire, so that what they lead to
//! is initialised even for a reader that will fail its validation.

use std::alloc::Layout;
use std::ptr::NonNull;

use super::key::Word;
use super::latch::Latch;
use crate::memory::{Kind, MemoryCounters};
use crate::sync;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Entries of a node.
#[cfg(not(loom))]
pub(super) const FANOUT: usize = 64;
#[cfg(loom)]
pub(super) const FANOUT: usize = 4;
/// Entries that one hint stands for; their heads and their words are one cache line each.
#[cfg(not(loom))]
pub(super) const GROUP: usize = 8;
#[cfg(loom)]
pub(super) const GROUP: usize = 2;
const LINE_BYTES: usize = 64;

/// A leaf, or the common part of an inner node.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Node {
    pub(super) latch: Latch,
    pub(super) hints: [AtomicU64; FANOUT / GROUP - 1],
    pub(super) heads: [[AtomicU64; GROUP]; FANOUT / GROUP],
    words: [AtomicU64; FANOUT],
    count: AtomicU64,
}

#[repr(C, align(64))]
struct InnerNode {
    node: Node,
    tails: [AtomicU64; FANOUT],
}

#[cfg(not(loom))]
const _: () = {
    assert!(std::mem::offset_of!(Node, heads) == LINE_BYTES);
    assert!(std::mem::offset_of!(Node, words) == 9 * LINE_BYTES);
    assert!(size_of::<Node>() == 18 * LINE_BYTES);
    assert!(std::mem::offset_of!(InnerNode, tails) == 18 * LINE_BYTES);
};

/// The address of a node and its level; leaves are level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeRef(pub(super) u64);

const LEVEL_MASK: u64 = LINE_BYTES as u64 - 1;

impl NodeRef {
    /// A new, empty node.
    pub(super) fn allocate(memory: &MemoryCounters, level: u64) -> Self {
        assert!(level <= LEVEL_MASK);
        let block = memory.allocate(Kind::Node, Self::layout(level));
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        let node = Node {
            latch: Latch::new(),
            hints: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            heads: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(u64::MAX))),
            words: zeros(),
            count: AtomicU64::new(0),
        };
        // SAFETY: fresh memory of the layout of what is written.
        unsafe {
            if level == 0 {
                block.cast::<Node>().write(node);
            } else {
                block.cast::<InnerNode>().write(InnerNode { node, tails: zeros() });
            }
        }
        Self(block.as_ptr() as u64 | level)
    }

    /// Frees the node, not what it leads to.
    ///
    /// # Safety
    /// Allocated with the same counters; nobody can reach it any more; freed once.
    pub(super) unsafe fn free(self, memory: &MemoryCounters) {
        let block = NonNull::new(self.pointer().cast_mut().cast()).expect("never null");
        // SAFETY: allocated with this layout; the rest is the caller's contract.
        unsafe { memory.free(Kind::Node, block, Self::layout(self.level())) }
    }

    fn layout(level: u64) -> Layout {
        if level == 0 { Layout::new::<Node>() } else { Layout::new::<InnerNode>() }
    }

    /// Bytes of a node at a level.
    pub(super) fn bytes(level: u64) -> u64 {
        Self::layout(level).size() as u64
    }

    #[inline(always)]
    pub(super) fn level(self) -> u64 {
        self.0 & LEVEL_MASK
    }

    #[inline(always)]
    pub(super) fn pointer(self) -> *const Node {
        (self.0 & !LEVEL_MASK) as *const Node
    }

    /// The node.
    ///
    /// # Safety
    /// The node was linked when the reference was loaded, and the caller has held an operation
    /// guard since before, or owns the tree, for all of `'n`.
    #[inline(always)]
    pub(super) unsafe fn get<'n>(self) -> &'n Node {
        // SAFETY: a node's first word is its latch.
        unsafe { sync::assert_not_freed(self.pointer().cast()) };
        // SAFETY: allocated by `allocate`, and freed only after every guard that could have found
        // it is gone (the caller's contract).
        unsafe { &*self.pointer() }
    }

    /// The separators' words of an inner node.
    ///
    /// # Safety
    /// As for `get`.
    unsafe fn tails<'n>(self) -> &'n [AtomicU64; FANOUT] {
        assert!(self.level() > 0, "leaves have no separators");
        // SAFETY: nodes above level 0 are allocated as `InnerNode`; the rest as for `get`.
        unsafe { &(*self.pointer().cast::<InnerNode>()).tails }
    }

    /// The word that tells, with its head, the key of entry `place`.
    ///
    /// # Safety
    /// As for `get`.
    pub(super) unsafe fn key_word(self, place: usize) -> Word {
        if self.level() == 0 {
            // SAFETY: the caller's contract.
            return Word(unsafe { self.get() }.word(place));
        }
        // Acquire: see the module's invariants.
        // SAFETY: the caller's contract.
        Word(unsafe { self.tails() }[place].load(Ordering::Acquire))
    }

    /// Inserts an entry at `place`; `word` is a leaf's key word or an inner node's child.
    ///
    /// # Safety
    /// As for `get`; the node is latched and not full.
    pub(super) unsafe fn insert_at(self, place: usize, head: u64, word: u64, tail: Word) {
        // SAFETY: the caller's contract.
        let node = unsafe { self.get() };
        let count = node.count();
        assert!(place <= count && count < FANOUT);
        shift_up(node.heads.as_flattened(), place, count, head);
        shift_up(&node.words, place, count, word);
        if self.level() > 0 {
            // SAFETY: the caller's contract.
            shift_up(unsafe { self.tails() }, place, count, tail.0);
        }
        node.set_count(count + 1);
        node.refresh_hints(place);
    }

    /// Removes the entry at `place`.
    ///
    /// # Safety
    /// As for `get`; the node is latched.
    pub(super) unsafe fn remove_at(self, place: usize) {
        // SAFETY: the caller's contract.
        let node = unsafe { self.get() };
        let count = node.count();
        assert!(place < count);
        shift_down(node.heads.as_flattened(), place, count, u64::MAX);
        shift_down(&node.words, place, count, 0);
        if self.level() > 0 {
            // SAFETY: the caller's contract.
            shift_down(unsafe { self.tails() }, place, count, 0);
        }
        node.set_count(count - 1);
        node.refresh_hints(place);
    }

    /// Moves the entries from `from` on to `right`, which is empty and unshared.
    ///
    /// # Safety
    /// As for `get`; the node is latched.
    pub(super) unsafe fn move_tail(self, from: usize, right: NodeRef) {
        // SAFETY: the caller's contract, for both nodes.
        let (node, target) = unsafe { (self.get(), right.get()) };
        let count = node.count();
        for place in from..count {
            let (head, word) = (node.head(place), node.word(place));
            // SAFETY: the caller's contract; `right` is unshared.
            unsafe { right.insert_at(place - from, head, word, self.key_word(place)) };
        }
        for place in from..count {
            store(&node.heads.as_flattened()[place], u64::MAX);
            store(&node.words[place], 0);
        }
        node.set_count(from);
        node.refresh_hints(0);
        assert_eq!(target.count(), count - from);
    }

    /// Gives entry `place` of a latched inner node another separator.
    ///
    /// # Safety
    /// As for `get`; the node is latched.
    pub(super) unsafe fn set_separator(self, place: usize, head: u64, tail: Word) {
        // SAFETY: the caller's contract.
        unsafe {
            store(&self.get().heads.as_flattened()[place], head);
            store(&self.tails()[place], tail.0);
            self.get().refresh_hints(place);
        }
    }
}

impl Node {
    /// Entries of the node; a reader validates before it trusts it.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        // Relaxed: validated, or latched.
        (self.count.load(Ordering::Relaxed) as usize).min(FANOUT)
    }

    fn set_count(&self, count: usize) {
        store(&self.count, count as u64);
    }

    #[inline(always)]
    pub(super) fn head(&self, place: usize) -> u64 {
        // Relaxed: validated, or latched.
        self.heads.as_flattened()[place].load(Ordering::Relaxed)
    }

    /// A leaf's key word, or an inner node's child.
    #[inline(always)]
    pub(super) fn word(&self, place: usize) -> u64 {
        // Acquire: see the module's invariants.
        self.words[place].load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(super) fn child(&self, place: usize) -> NodeRef {
        NodeRef(self.word(place))
    }

    /// The lines of heads and words of a group, to be prefetched.
    #[inline(always)]
    pub(super) fn group_lines(&self, group: usize) -> [*const AtomicU64; 2] {
        [&raw const self.heads[group][0], &raw const self.words[group * GROUP]]
    }

    /// Brings the hints up to date for entries from `place` on.
    fn refresh_hints(&self, place: usize) {
        for group in (place / GROUP).max(1)..FANOUT / GROUP {
            store(&self.hints[group - 1], self.head(group * GROUP));
        }
    }
}

fn store(word: &AtomicU64, value: u64) {
    // Release: see the module's invariants.
    word.store(value, Ordering::Release);
}

fn shift_up(words: &[AtomicU64], place: usize, count: usize, value: u64) {
    for from in (place..count).rev() {
        // Relaxed: the node is latched.
        store(&words[from + 1], words[from].load(Ordering::Relaxed));
    }
    store(&words[place], value);
}

fn shift_down(words: &[AtomicU64], place: usize, count: usize, last: u64) {
    for from in place + 1..count {
        // Relaxed: the node is latched.
        store(&words[from - 1], words[from].load(Ordering::Relaxed));
    }
    store(&words[count - 1], last);
}
