//! Index nodes: layout, access under a guard, and changes under a latch.
//!
//! ```text
//! line  0      latch word, 6 hints: the heads of entries 8, 16, … 48; count, length of the prefix
//! line  1      the prefix: the address of its cell, and its words
//! lines 2-15   7 groups of 8 entries: a line of heads, in key order, all ones past the last entry;
//!              and a line of words: key words with record ids (leaf) or children (inner node)
//! lines 16-22  inner nodes only: 56 key words of the separators
//! ```
//!
//! A leaf takes 1 KiB and an inner node 2 KiB, aligned to its size. So no node crosses the end of a
//! memory page. A lookup reads the first line and one group of each node, and the prefix unless the
//! node is marked (see below). It needs one address translation for them.
//!
//! Invariants:
//!
//! - Entries are sorted and distinct.
//! - In an inner node, child `i` has the keys from separator `i` up to, but excluding, separator `i
//!   + 1`. Separator 0 represents minus infinity within the node's range.
//! - A child's address has its level in its low six bits.
//! - All keys begin with the prefix, and heads are behind it. Separator 0 of an inner node counts as
//!   no key.
//! - Places past the last entry have heads of all ones and words without a tag.
//! - If a node is marked, all keys of its range begin with the prefix, whether they exist or not.
//!
//! Contents are atomics because readers do not latch: they read Relaxed and validate. Words with
//! addresses are stored with Release and loaded with Acquire. So the memory at that address is
//! initialised even for a reader whose validation will fail.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

use super::key::{HeldKey, KeyCell, KeyWord, MAX_PREFIX_BYTES, PREFIX_WORDS, word_of};
use crate::latch::{Latch, LatchGuard, LatchVersion, Restart};
use crate::memory::{MemoryCounters, MemoryKind};
use crate::reclaim::{self, OperationGuard};
use crate::sync;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Number of entries of a node; few in models and simulations, so that few keys suffice for splits
/// and merges.
pub(super) const FANOUT: usize = match (cfg!(loom), cfg!(braid_simulation)) {
    (true, _) => 4,
    (_, true) => 8,
    _ => 56,
};
/// Number of entries of a group of a node; their heads and their words are one cache line each.
pub(super) const GROUP: usize = if cfg!(any(loom, braid_simulation)) { 2 } else { 8 };
const LINE_BYTES: usize = 64;
/// Position of the prefix's length in the word of counts.
const PREFIX_SHIFT: u32 = 32;
/// Bit of the word of counts that is set if all keys of the node's range have the prefix.
const PREFIX_OF_RANGE: u64 = 1 << 63;

/// A leaf, or the common part of an inner node.
#[derive(Debug)]
#[cfg_attr(not(any(loom, braid_simulation)), repr(C, align(128)))]
#[cfg_attr(any(loom, braid_simulation), repr(C, align(64)))]
pub(super) struct IndexNode {
    pub(super) latch: Latch,
    pub(super) hints: [AtomicU64; FANOUT / GROUP - 1],
    counts: AtomicU64,
    pub(super) prefix: NodePrefix,
    pub(super) groups: [EntryGroup; FANOUT / GROUP],
}

/// The bytes with which all keys of a node begin.
#[derive(Debug)]
#[cfg_attr(not(any(loom, braid_simulation)), repr(C, align(64)))]
pub(super) struct NodePrefix {
    /// Address of the cell from which keys are composed; 0 without a prefix.
    cell: AtomicU64,
    /// The bytes, big-endian and padded with zeros, for comparisons.
    pub(super) words: [AtomicU64; PREFIX_WORDS],
}

/// A group of entries; the head of its first entry is a hint.
#[derive(Debug)]
#[cfg_attr(not(any(loom, braid_simulation)), repr(C, align(128)))]
#[cfg_attr(any(loom, braid_simulation), repr(C))]
pub(super) struct EntryGroup {
    pub(super) heads: [AtomicU64; GROUP],
    pub(super) words: [AtomicU64; GROUP],
}

impl EntryGroup {
    fn new() -> Self {
        Self {
            heads: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Returns the head and the word at a place, for a move.
    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> (u64, u64) {
        // Relaxed: the node is latched.
        (self.heads[at].load(Ordering::Relaxed), self.words[at].load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn set(&self, at: usize, (head, word): (u64, u64)) {
        store(&self.heads[at], head);
        store(&self.words[at], word);
    }
}

#[repr(C, align(64))]
struct InnerNode {
    node: IndexNode,
    tails: [AtomicU64; FANOUT],
}

#[cfg(not(any(loom, braid_simulation)))]
const _: () = {
    assert!(std::mem::offset_of!(IndexNode, groups) == 2 * LINE_BYTES);
    assert!(size_of::<EntryGroup>() == 2 * LINE_BYTES);
    assert!(size_of::<IndexNode>() == 1 << 10);
    assert!(size_of::<InnerNode>() <= 2 << 10);
};

/// Address of a node and its level; leaves are level 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeRef(pub(super) u64);

const LEVEL_MASK: u64 = LINE_BYTES as u64 - 1;

impl NodeRef {
    /// Allocates an empty node.
    pub(super) fn allocate(memory: &MemoryCounters, level: u64) -> Self {
        assert!(level <= LEVEL_MASK);
        let block = memory.allocate(MemoryKind::Node, Self::layout(level));
        fn zeros<const N: usize>() -> [AtomicU64; N] {
            std::array::from_fn(|_| AtomicU64::new(0))
        }
        let node = IndexNode {
            latch: Latch::new(),
            hints: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            counts: AtomicU64::new(0),
            prefix: NodePrefix { cell: AtomicU64::new(0), words: zeros() },
            groups: std::array::from_fn(|_| EntryGroup::new()),
        };
        // SAFETY: fresh memory of the layout of what is written.
        unsafe {
            if level == 0 {
                block.cast::<IndexNode>().write(node);
            } else {
                block.cast::<InnerNode>().write(InnerNode { node, tails: zeros() });
            }
        }
        Self(block.as_ptr() as u64 | level)
    }

    /// Frees the node, but nothing that it references.
    ///
    /// # Safety
    /// Allocated with the same counters; unreachable; freed once.
    pub(super) unsafe fn free(self, memory: &MemoryCounters) {
        let block = NonNull::new(self.pointer().cast_mut().cast()).expect("never null");
        // SAFETY: allocated with this layout; the rest is the caller's contract.
        unsafe { memory.free(MemoryKind::Node, block, Self::layout(self.level())) }
    }

    /// Frees the node, but nothing that it references, after no operation can hold it any more.
    ///
    /// # Safety
    /// Allocated with the same counters; no longer referenced; retired once.
    pub(super) unsafe fn retire(self, memory: &MemoryCounters) {
        let block = NonNull::new(self.pointer().cast_mut().cast()).expect("never null");
        // SAFETY: allocated with this layout; the rest is the caller's contract.
        unsafe {
            reclaim::retire_block(memory, MemoryKind::Node, block, Self::layout(self.level()))
        }
    }

    fn layout(level: u64) -> Layout {
        let whole =
            if level == 0 { Layout::new::<IndexNode>() } else { Layout::new::<InnerNode>() };
        // Nodes of models and simulations stay small, because their memory budgets assume that.
        if cfg!(any(loom, braid_simulation)) {
            return whole;
        }
        let size = whole.size().next_power_of_two();
        Layout::from_size_align(size, size).expect("a power of two")
    }

    /// Returns the size of a node at a level in bytes.
    pub(super) fn bytes(level: u64) -> u64 {
        Self::layout(level).size() as u64
    }

    #[inline(always)]
    pub(super) fn level(self) -> u64 {
        self.0 & LEVEL_MASK
    }

    #[inline(always)]
    pub(super) fn pointer(self) -> *const IndexNode {
        (self.0 & !LEVEL_MASK) as *const IndexNode
    }

    /// Returns the node, for access.
    ///
    /// # Safety
    /// The node was linked when the reference was loaded. The caller has held an operation guard
    /// since before, or owns the tree, for all of `'n`.
    #[inline(always)]
    pub(super) unsafe fn hold<'n>(self) -> HeldNode<'n> {
        HeldNode { reference: self, held: PhantomData }
    }
}

/// A node that stays allocated for `'n`.
///
/// Invariant: it was reached through validated links under an operation guard that lasts for `'n`,
/// or belongs to a tree to which the caller has exclusive access. So everything that it references
/// is allocated for `'n` too, even if it is unlinked during that time. In particular, a long key is
/// retired after the node that referenced it, or together with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldNode<'n> {
    reference: NodeRef,
    held: PhantomData<&'n OperationGuard>,
}

impl<'n> HeldNode<'n> {
    /// Returns the address and level, as links store them.
    #[inline(always)]
    pub(super) fn reference(self) -> NodeRef {
        self.reference
    }

    #[inline(always)]
    pub(super) fn level(self) -> u64 {
        self.reference.level()
    }

    /// Returns the node's contents.
    #[inline(always)]
    pub(super) fn node(self) -> &'n IndexNode {
        // SAFETY: a node's first word is its latch.
        unsafe { sync::assert_not_freed(self.reference.pointer().cast()) };
        // SAFETY: allocated for `'n` (the type's invariant), and made of atomics alone.
        unsafe { &*self.reference.pointer() }
    }

    /// Returns the words of an inner node's separators.
    fn tails(self) -> &'n [AtomicU64; FANOUT] {
        assert!(self.level() > 0, "leaves have no separators");
        // SAFETY: allocated for `'n` (the type's invariant), and as `InnerNode`, as all nodes above
        // level 0 are.
        unsafe { &(*self.reference.pointer().cast::<InnerNode>()).tails }
    }

    /// Returns the word of a key of a leaf, or of a separator. Meaningless until validated, unless
    /// latched.
    #[inline(always)]
    pub(super) fn key_word(self, place: usize) -> KeyWord {
        // Acquire: pairs with the Release in `store`; the module's invariants give the reason.
        KeyWord(match self.level() {
            0 => self.word(place),
            _ => self.tails()[place].load(Ordering::Acquire),
        })
    }

    /// Returns the key of a leaf's entry, or a separator of an inner node. Meaningless until
    /// validated, unless latched.
    #[inline(always)]
    pub(super) fn key(self, place: usize) -> HeldKey<'n> {
        let word = self.key_word(place);
        // The cell of a long key has all of its bytes.
        let prefix = if word.cell().is_some() { None } else { self.prefix_cell() };
        // SAFETY: cells that a node references are allocated as long as the node may be accessed
        // (this type's invariant).
        unsafe { HeldKey::new(prefix, self.head(place), word) }
    }

    /// Returns the cell of the node's prefix.
    #[inline(always)]
    pub(super) fn prefix_cell(self) -> Option<KeyCell> {
        if !self.has_prefix() {
            return None;
        }
        // Acquire: pairs with the Release in `store`; the module's invariants give the reason.
        KeyCell::at(self.node().prefix.cell.load(Ordering::Acquire))
    }

    /// Returns the node's prefix as a key.
    pub(super) fn prefix(self) -> Option<HeldKey<'n>> {
        // SAFETY: a cell that a node references is allocated as long as the node may be accessed (this
        // type's invariant).
        self.prefix_cell().map(|cell| unsafe { HeldKey::new(None, 0, KeyWord::of_prefix(cell)) })
    }

    /// Appends the entries of a leaf at some places to `out`. Meaningless until validated.
    #[inline(always)]
    pub(super) fn copy_entries<T>(
        self,
        places: Range<usize>,
        entry: impl Fn(HeldKey<'n>) -> T,
        out: &mut Vec<T>,
    ) {
        let (mut place, prefix) = (places.start, self.prefix_cell());
        while place < places.end {
            let group = &self.node().groups[place / GROUP];
            let at = place % GROUP..(place % GROUP + places.end - place).min(GROUP);
            place += at.len();
            let entries = group.heads[at.clone()].iter().zip(&group.words[at]);
            out.extend(entries.map(|(head, word)| {
                // Relaxed: validated by the caller. Acquire: as in `word`.
                let (head, word) = (head.load(Ordering::Relaxed), word.load(Ordering::Acquire));
                // SAFETY: cells that a node references are allocated as long as the node may be
                // accessed (this type's invariant).
                entry(unsafe { HeldKey::new(prefix, head, KeyWord(word)) })
            }));
        }
    }

    /// Returns the child at `place`, if the node has not changed since `version` was taken.
    #[inline(always)]
    pub(super) fn child(self, place: usize, version: LatchVersion) -> Result<Self, Restart> {
        let child = self.child_reference(place);
        self.latch.validate(version)?;
        // SAFETY: linked when it was loaded, from a node that is part of the tree, since it is not
        // obsolete; and under the guard for which this node is held.
        Ok(unsafe { child.hold() })
    }

    /// Latches the node if it has not changed since `version` was taken.
    pub(super) fn acquire(self, version: LatchVersion) -> Result<LatchedNode<'n>, Restart> {
        let latched = self.node().latch.acquire(version)?;
        Ok(LatchedNode { node: self, latched })
    }
}

impl Deref for HeldNode<'_> {
    type Target = IndexNode;

    #[inline(always)]
    fn deref(&self) -> &IndexNode {
        self.node()
    }
}

/// A node that the holder may change exclusively: its latch is held until this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct LatchedNode<'n> {
    node: HeldNode<'n>,
    latched: LatchGuard<'n>,
}

impl<'n> LatchedNode<'n> {
    /// Allocates an empty node that is not linked yet.
    pub(super) fn allocate(memory: &MemoryCounters, level: u64) -> Self {
        let reference = NodeRef::allocate(memory, level);
        // SAFETY: no other thread knows the node; it is freed, as all nodes, only after it was
        // linked.
        let node = unsafe { reference.hold::<'n>() };
        let latched = node.node().latch.acquire_unshared();
        Self { node, latched }
    }

    /// Returns the child at `place`.
    pub(super) fn latched_child(&self, place: usize) -> HeldNode<'n> {
        // SAFETY: linked from a latched node, which is part of the tree; and under the guard for
        // which that node is held.
        unsafe { self.child_reference(place).hold() }
    }

    /// Releases the latch; for a new node, before it is linked.
    pub(super) fn release(self) -> NodeRef {
        self.node.reference
    }

    /// Announces a change of the node: readers of the previous version restart.
    pub(super) fn changed(&mut self) {
        self.latched.changed();
    }

    /// Marks the node as removed from the tree.
    pub(super) fn obsolete(&mut self) {
        self.latched.obsolete();
    }

    /// Inserts an entry at `place`; `word` is a leaf's key word or an inner node's child.
    ///
    /// # Panics
    /// If the node is full.
    pub(super) fn insert_at(&self, place: usize, head: u64, word: u64, tail: KeyWord) {
        let count = self.count();
        assert!(place <= count && count < FANOUT);
        self.open_place(place, count);
        store(self.head_at(place), head);
        store(self.word_at(place), word);
        if self.level() > 0 {
            shift_up(self.tails(), place, count, tail.0);
        }
        self.set_count(count + 1);
        self.refresh_hints(place, count + 1);
    }

    /// Removes the entry at `place`.
    pub(super) fn remove_at(&self, place: usize) {
        let count = self.count();
        assert!(place < count);
        self.close_place(place, count);
        if self.level() > 0 {
            shift_down(self.tails(), place, count, 0);
        }
        self.set_count(count - 1);
        self.refresh_hints(place, count);
    }

    /// Moves the entries from `from` upwards to `right`, which is empty.
    pub(super) fn move_tail(&self, from: usize, right: &LatchedNode<'_>) {
        let count = self.count();
        for place in from..count {
            let (head, word) = (self.head(place), self.word(place));
            right.insert_at(place - from, head, word, self.key(place).word());
        }
        for place in from..count {
            self.set_key(place, u64::MAX, KeyWord::NONE);
            store(self.word_at(place), 0);
        }
        self.set_count(from);
        self.refresh_hints(0, FANOUT);
        assert_eq!(right.count(), count - from);
    }

    /// Replaces a key, but not its hint.
    pub(super) fn set_key(&self, place: usize, head: u64, word: KeyWord) {
        store(self.head_at(place), head);
        match self.level() {
            0 => store(self.word_at(place), word.0),
            _ => store(&self.tails()[place], word.0),
        }
    }

    /// Makes separator 0 of an inner node minus infinity, and returns its former word.
    pub(super) fn clear_separator(&self) -> KeyWord {
        let word = self.key(0).word();
        self.set_key(0, 0, KeyWord::NONE);
        word
    }

    /// Sets whether all keys of the node's range begin with the prefix.
    pub(super) fn mark_prefix_of_range(&self, is_of_range: bool) {
        // Relaxed: the node is latched.
        let counts = self.counts.load(Ordering::Relaxed) & !PREFIX_OF_RANGE;
        store(&self.counts, if is_of_range { counts | PREFIX_OF_RANGE } else { counts });
    }

    /// Stores the prefix, not yet marked; the heads are changed by the caller.
    pub(super) fn store_prefix(&self, cell: Option<KeyCell>, prefix: &[u8]) {
        for (number, word) in self.prefix.words.iter().enumerate() {
            store(word, word_of(prefix, number * 8));
        }
        store(&self.prefix.cell, cell.map_or(0, KeyCell::address));
        store(&self.counts, self.count() as u64 | (prefix.len() as u64) << PREFIX_SHIFT);
    }
}

impl<'n> Deref for LatchedNode<'n> {
    type Target = HeldNode<'n>;

    #[inline(always)]
    fn deref(&self) -> &HeldNode<'n> {
        &self.node
    }
}

impl IndexNode {
    /// Returns the number of entries; a reader validates before it relies on it.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        // Relaxed: validated, or latched.
        (self.counts.load(Ordering::Relaxed) as u32 as usize).min(FANOUT)
    }

    /// Returns whether the prefix is not empty; a reader validates before it relies on it.
    #[inline(always)]
    pub(super) fn has_prefix(&self) -> bool {
        // Relaxed: validated, or latched.
        self.counts.load(Ordering::Relaxed) >> PREFIX_SHIFT != 0
    }

    /// Returns the length of the prefix; a reader validates before it relies on it.
    #[inline(always)]
    pub(super) fn prefix_bytes(&self) -> usize {
        // Relaxed: validated, or latched.
        let bytes = (self.counts.load(Ordering::Relaxed) >> PREFIX_SHIFT) as u8;
        usize::from(bytes).min(MAX_PREFIX_BYTES)
    }

    /// Returns whether all keys of the node's range begin with the prefix; a reader validates before
    /// it relies on it.
    #[inline(always)]
    pub(super) fn has_prefix_of_range(&self) -> bool {
        // Relaxed: validated, or latched.
        self.counts.load(Ordering::Relaxed) & PREFIX_OF_RANGE != 0
    }

    #[inline(always)]
    fn head_at(&self, place: usize) -> &AtomicU64 {
        &self.groups[place / GROUP].heads[place % GROUP]
    }

    #[inline(always)]
    fn word_at(&self, place: usize) -> &AtomicU64 {
        &self.groups[place / GROUP].words[place % GROUP]
    }

    fn set_count(&self, count: usize) {
        // Relaxed: the node is latched.
        let prefix = self.counts.load(Ordering::Relaxed) >> PREFIX_SHIFT << PREFIX_SHIFT;
        store(&self.counts, count as u64 | prefix);
    }

    #[inline(always)]
    pub(super) fn head(&self, place: usize) -> u64 {
        // Relaxed: validated, or latched.
        self.head_at(place).load(Ordering::Relaxed)
    }

    /// Returns a leaf's key word, or an inner node's child.
    #[inline(always)]
    pub(super) fn word(&self, place: usize) -> u64 {
        // Acquire: pairs with the Release in `store`; the module's invariants give the reason.
        self.word_at(place).load(Ordering::Acquire)
    }

    /// Returns an inner node's child. Meaningless until validated, unless latched.
    #[inline(always)]
    pub(super) fn child_reference(&self, place: usize) -> NodeRef {
        NodeRef(self.word(place))
    }

    /// Returns the addresses of a group's lines of heads and words, for a prefetch.
    #[inline(always)]
    pub(super) fn group_lines(&self, group: usize) -> [*const AtomicU64; 2] {
        let group = &self.groups[group];
        [&raw const group.heads[0], &raw const group.words[0]]
    }

    /// Recomputes the hints for entries from `place` up to `end`.
    pub(super) fn refresh_hints(&self, place: usize, end: usize) {
        for group in (place / GROUP).max(1)..end.div_ceil(GROUP) {
            store(&self.hints[group - 1], self.head(group * GROUP));
        }
    }
}

fn store(word: &AtomicU64, value: u64) {
    // Release: pairs with the Acquire in `word` and `key`; the module's invariants give the reason.
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
