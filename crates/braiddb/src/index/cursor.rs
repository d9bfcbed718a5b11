//! Cursors: iteration over the entries of a key range, one leaf at a time, forward or in reverse.
//!
//! Between leaves a cursor keeps only the key at which it continues. It descends to the leaf of
//! that key and copies the leaf's entries. The next key is the end of the leaf's range, according
//! to the separators on the path. So a cursor tolerates splits and removals: a key that is in the
//! range during the whole scan is visited once, in key order.

use std::ops::{Bound, Range};

use smallvec::SmallVec;

use super::key::{HeldKey, KeyWord, SearchKey};
use super::node::{HeldNode, IndexNode, NodeRef};
#[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation))))]
use super::search::wide;
use super::search::{Baseline, CountAtMost};
use super::tree::IndexTree;
use crate::latch::{LatchVersion, Restart};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched;
use crate::types::KeyBuffer;

type Bytes = SmallVec<[u8; 24]>;
const CACHE_LINE_BYTES: usize = 64;

/// An entry of a leaf, which a cursor copied under an operation guard that lasts for `'g`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafEntry<'g> {
    key: HeldKey<'g>,
}

impl LeafEntry<'_> {
    /// Returns an empty list of entries under another guard, with the memory of this list.
    pub(crate) fn reuse<'g>(mut entries: Vec<Self>) -> Vec<LeafEntry<'g>> {
        entries.clear();
        entries.into_iter().map(|_| -> LeafEntry<'g> { unreachable!("emptied") }).collect()
    }

    /// Returns the record id.
    #[inline(always)]
    pub(crate) fn rid(&self) -> Rid {
        self.key.rid()
    }

    /// Returns the bytes of a key of at most eight bytes, padded with zeros, and their number.
    #[inline(always)]
    pub(crate) fn short_key(&self) -> Option<([u8; 8], u32)> {
        self.key.short()
    }

    /// Returns the key.
    #[inline(always)]
    pub(crate) fn key(&self) -> KeyBuffer {
        let mut buffer = KeyBuffer::new();
        match self.key.whole() {
            Some(bytes) => buffer.extend_from_array(bytes),
            None => self.copy_key(buffer.inner_mut()),
        }
        buffer
    }

    /// Appends the key's bytes to a list of keys.
    pub(crate) fn append_key(&self, keys: &mut Vec<u8>) {
        self.key.with_bytes(|bytes| keys.extend_from_slice(bytes));
    }

    /// Appends the key's bytes to `out`.
    pub(crate) fn copy_key<A: smallvec::Array<Item = u8>>(&self, out: &mut SmallVec<A>) {
        self.key.with_bytes(|bytes| out.extend_from_slice(bytes));
    }
}

/// Position in a key range of an index.
#[derive(Debug)]
pub(crate) struct Cursor<'i> {
    index: &'i IndexTree,
    /// Start of the next leaf's entries, in scan direction; `None` at the end.
    next: Option<Bound<Bytes>>,
    /// Position after the entries of the last peek.
    after: Option<Bound<Bytes>>,
    /// End of the range, in scan direction.
    end: Bound<Bytes>,
    reverse: bool,
}

impl IndexTree {
    /// Returns a cursor over the keys between two bounds, from the lower to the upper one, or in
    /// reverse.
    pub(crate) fn cursor(
        &self,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
    ) -> Cursor<'_> {
        let (start, end) = if reverse { (high, low) } else { (low, high) };
        let own = |bound: Bound<&[u8]>| bound.map(Bytes::from_slice);
        Cursor { index: self, next: Some(own(start)), after: None, end: own(end), reverse }
    }
}

impl IndexTree {
    /// Returns a cursor over all keys up to the last one that exists now, so that a scan ends
    /// although writers append keys.
    pub(crate) async fn cursor_to_last_key(&self, operation: &OperationGuard) -> Cursor<'_> {
        let mut from_end = self.cursor(Bound::Unbounded, Bound::Unbounded, true);
        let (mut last, mut key) = (Vec::with_capacity(1), Bytes::new());
        if !from_end.next_batch(operation, &mut last, 1).await {
            return Cursor { next: None, ..from_end };
        }
        last[0].copy_key(&mut key);
        self.cursor(Bound::Unbounded, Bound::Included(&key), false)
    }
}

/// Reason why a visit to a leaf ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafVisitEnd {
    /// The requested number of entries was copied; the leaf has more.
    Full,
    /// End of the leaf.
    LeafEnd,
    /// An entry beyond the end of the range.
    RangeEnd,
}

/// Result of a visit to one leaf.
struct LeafVisit<'g> {
    /// End of the leaf's range in scan direction; `None` if the tree has no keys beyond it.
    fence: Option<HeldKey<'g>>,
    stopped: LeafVisitEnd,
}

impl Cursor<'_> {
    /// Copies the next entries, at most `most` and all from one leaf, to `out`, and moves past
    /// them. Returns `false` at the end.
    ///
    /// Dropping the future loses no entries: the cursor moves when the call ends.
    pub(crate) async fn next_batch<'g>(
        &mut self,
        operation: &'g OperationGuard,
        out: &mut Vec<LeafEntry<'g>>,
        most: usize,
    ) -> bool {
        let found = self.peek(operation, out, most).await;
        if found {
            self.next = self.after.take();
        }
        found
    }

    /// Like `next_batch`, but does not move until the entries are passed.
    pub(crate) async fn peek<'g>(
        &mut self,
        operation: &'g OperationGuard,
        out: &mut Vec<LeafEntry<'g>>,
        most: usize,
    ) -> bool {
        if self.index.has_cold_levels() && sched::interleaves() {
            self.prefetch_path(operation).await;
        }
        self.peek_now(operation, out, most)
    }

    /// Does what `peek` does, without a suspension for nodes that are not cached.
    pub(crate) fn peek_now<'g>(
        &mut self,
        operation: &'g OperationGuard,
        out: &mut Vec<LeafEntry<'g>>,
        most: usize,
    ) -> bool {
        assert!(most > 0);
        while let Some(start) = &self.next {
            out.clear();
            let Ok(visited) = self.visit(operation, start, out, most) else { continue };
            let after = match (visited.stopped, visited.fence) {
                (LeafVisitEnd::Full, _) => Some(behind(&out[most - 1])),
                (LeafVisitEnd::LeafEnd, Some(fence)) => {
                    let fence = separator(fence);
                    self.can_continue(&fence).then(|| match self.reverse {
                        true => Bound::Excluded(fence),
                        false => Bound::Included(fence),
                    })
                }
                _ => None,
            };
            if !out.is_empty() {
                self.after = after;
                return true;
            }
            self.next = after;
        }
        out.clear();
        false
    }

    /// Moves past all entries of the last `peek`.
    pub(crate) fn pass_all(&mut self) {
        self.next = self.after.take();
    }

    /// Moves past the entry with key `key`, which was among the entries of the last `peek`.
    pub(crate) fn pass_to(&mut self, key: &[u8]) {
        self.next = Some(Bound::Excluded(Bytes::from_slice(key)));
    }

    /// Returns whether the range may contain keys beyond `fence`.
    fn can_continue(&self, fence: &[u8]) -> bool {
        match &self.end {
            Bound::Unbounded => true,
            Bound::Included(end) | Bound::Excluded(end) if self.reverse => fence > end.as_slice(),
            Bound::Included(end) => fence <= end.as_slice(),
            Bound::Excluded(end) => fence < end.as_slice(),
        }
    }

    /// Descends towards the leaf of the next entries, and suspends while the lines of nodes that
    /// are not cached are loaded. A hint: nodes may change at any time.
    async fn prefetch_path(&self, operation: &OperationGuard) {
        let Some(start) = &self.next else { return };
        let Ok((mut node, mut version)) = self.index.root(operation) else { return };
        while node.level() > 0 {
            let place = self.child_place::<Baseline>(node, start);
            let Ok(child) = node.child(place, version) else { return };
            if self.index.is_cold(child.level()) {
                prefetch_node(child.reference());
                sched::suspend_memory().await;
            }
            let Ok(child_version) = child.latch.version() else { return };
            (node, version) = (child, child_version);
        }
    }

    /// Descends to the leaf at `start` and copies its entries in the range.
    fn visit<'g>(
        &self,
        operation: &'g OperationGuard,
        start: &Bound<Bytes>,
        out: &mut Vec<LeafEntry<'g>>,
        most: usize,
    ) -> Result<LeafVisit<'g>, Restart> {
        #[cfg(all(target_arch = "x86_64", not(any(loom, braid_simulation))))]
        if super::shift::has_avx2() {
            #[target_feature(enable = "avx2")]
            fn visit<'g>(
                cursor: &Cursor<'_>,
                operation: &'g OperationGuard,
                start: &Bound<Bytes>,
                out: &mut Vec<LeafEntry<'g>>,
                most: usize,
            ) -> Result<LeafVisit<'g>, Restart> {
                cursor.visit_with::<wide::Avx2>(operation, start, out, most)
            }
            // SAFETY: the processor has this feature.
            return unsafe { visit(self, operation, start, out, most) };
        }
        self.visit_with::<Baseline>(operation, start, out, most)
    }

    #[inline(always)]
    fn visit_with<'g, C: CountAtMost>(
        &self,
        operation: &'g OperationGuard,
        start: &Bound<Bytes>,
        out: &mut Vec<LeafEntry<'g>>,
        most: usize,
    ) -> Result<LeafVisit<'g>, Restart> {
        let (mut node, mut version) = self.index.root(operation)?;
        // The fence, and the node that it was read from.
        let mut fence: Option<(HeldKey<'g>, HeldNode<'g>, LatchVersion)> = None;
        while node.level() > 0 {
            let place = self.child_place::<C>(node, start);
            // The end of the child's range, if this node defines it.
            let boundary = match self.reverse {
                true => (place > 0).then_some(place),
                false => (place + 1 < node.count()).then_some(place + 1),
            };
            fence = boundary.map(|place| (node.key(place), node, version)).or(fence);
            let child = node.child(place, version)?;
            let child_version = child.latch.version()?;
            node.latch.validate(version)?;
            (node, version) = (child, child_version);
        }
        let (places, stopped) = self.places::<C>(node, start, most);
        node.copy_entries(places, |key| LeafEntry { key }, out);
        if self.reverse {
            out.reverse();
        }
        node.latch.validate(version)?;
        // The leaf's range has not grown beyond the fence.
        let fence =
            fence.map(|(fence, node, version)| node.latch.validate(version).map(|()| fence));
        Ok(LeafVisit { fence: fence.transpose()?, stopped })
    }

    /// Returns the child in which the scan continues. Meaningless until validated.
    #[inline(always)]
    fn child_place<C: CountAtMost>(&self, node: HeldNode<'_>, start: &Bound<Bytes>) -> usize {
        match start {
            Bound::Unbounded if self.reverse => node.count().saturating_sub(1),
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => {
                let key = &SearchKey::new(key);
                let place = node.child_place::<C>(key);
                // If an excluded upper bound equals a separator, the scan continues in the child
                // before it.
                let is_before = self.reverse
                    && matches!(start, Bound::Excluded(_))
                    && place > 0
                    && node.compare(key, place).is_eq();
                place.saturating_sub(usize::from(is_before))
            }
        }
    }

    /// Returns the places of a leaf's first `most` entries in the range, in scan direction.
    /// Meaningless until validated.
    #[inline(always)]
    fn places<C: CountAtMost>(
        &self,
        node: HeldNode<'_>,
        start: &Bound<Bytes>,
        most: usize,
    ) -> (Range<usize>, LeafVisitEnd) {
        let count = node.count();
        let (first, last) = (0, count.saturating_sub(1));
        // The number of entries before a bound, which is the lower or the upper end of a range.
        let before = |bound: &Bound<Bytes>, is_lower: bool| match bound {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => {
                let (place, equal) = node.lower_bound::<C>(&SearchKey::new(key));
                let included = matches!(bound, Bound::Included(_));
                Some((place + usize::from(equal && (included != is_lower))).min(count))
            }
        };
        let farthest = if self.reverse { first } else { last };
        let beyond = count > 0 && self.is_beyond_end(node, farthest);
        let end = if beyond { before(&self.end, self.reverse) } else { None };
        let places = match self.reverse {
            true => end.unwrap_or(0)..before(start, false).unwrap_or(count),
            false => before(start, true).unwrap_or(0)..end.unwrap_or(count),
        };
        let stopped = if beyond { LeafVisitEnd::RangeEnd } else { LeafVisitEnd::LeafEnd };
        match self.reverse {
            _ if places.len() <= most => (places, stopped),
            true => (places.end - most..places.end, LeafVisitEnd::Full),
            false => (places.start..places.start + most, LeafVisitEnd::Full),
        }
    }

    fn is_beyond_end(&self, node: HeldNode<'_>, place: usize) -> bool {
        let (end, included) = match &self.end {
            Bound::Unbounded => return false,
            Bound::Included(end) => (end, true),
            Bound::Excluded(end) => (end, false),
        };
        let order = node.compare(&SearchKey::new(end), place);
        let order = if self.reverse { order.reverse() } else { order };
        if included { order.is_lt() } else { order.is_le() }
    }
}

/// Returns the position after an entry.
fn behind(entry: &LeafEntry<'_>) -> Bound<Bytes> {
    let mut key = Bytes::new();
    entry.copy_key(&mut key);
    Bound::Excluded(key)
}

/// Returns the bytes of a separator.
fn separator(key: HeldKey<'_>) -> Bytes {
    // Minus infinity is below every key.
    if key.word() == KeyWord::NONE { Bytes::new() } else { key.with_bytes(Bytes::from_slice) }
}

fn prefetch_node(node: NodeRef) {
    let start = node.pointer().cast::<u8>();
    for offset in (0..size_of::<IndexNode>()).step_by(CACHE_LINE_BYTES) {
        sched::prefetch(start.wrapping_add(offset));
    }
}
