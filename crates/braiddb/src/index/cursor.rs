//! Cursors: iteration over the entries of a key range, one leaf at a time, forward or in reverse.
//!
//! Between leaves a cursor keeps only the key at which it continues. It descends to the leaf of
//! that key and copies the leaf's entries. The next key is the end of the leaf's range, according
//! to the separators on the path. So a cursor tolerates splits and removals: a key that is in the
//! range during the whole scan is visited once, in key order.

use std::ops::Bound;

use smallvec::SmallVec;

use super::key::{HeldKey, KeyWord, SearchKey};
use super::node::{HeldNode, IndexNode, NodeRef};
use super::tree::IndexTree;
use crate::latch::Restart;
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
    pub(crate) rid: Rid,
}

impl LeafEntry<'_> {
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
    #[inline(always)]
    pub(crate) fn append_key(&self, keys: &mut Vec<u8>) {
        match self.key.whole() {
            Some(bytes) => keys.extend_from_slice(&bytes),
            None => self.key.with_bytes(|bytes| keys.extend_from_slice(bytes)),
        }
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
struct LeafVisit {
    /// End of the leaf's range in scan direction; `None` if the tree has no keys beyond it.
    fence: Option<Bytes>,
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
        assert!(most > 0);
        while let Some(start) = &self.next {
            out.clear();
            let visited = match self.visit(operation, start, out, most).await {
                Ok(visited) => visited,
                Err(Restart) => continue,
            };
            let after = match (visited.stopped, visited.fence) {
                (LeafVisitEnd::Full, _) => Some(behind(&out[most - 1])),
                (LeafVisitEnd::LeafEnd, Some(fence)) if self.can_continue(&fence) => {
                    Some(if self.reverse { Bound::Excluded(fence) } else { Bound::Included(fence) })
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

    /// Descends to the leaf at `start` and copies its entries in the range.
    async fn visit<'g>(
        &self,
        operation: &'g OperationGuard,
        start: &Bound<Bytes>,
        out: &mut Vec<LeafEntry<'g>>,
        most: usize,
    ) -> Result<LeafVisit, Restart> {
        let (mut node, mut version) = self.index.root(operation)?;
        let mut fence = None;
        loop {
            if node.level() == 0 {
                let stopped = self.copy_leaf(node, start, out, most);
                node.latch.validate(version)?;
                return Ok(LeafVisit { fence, stopped });
            }
            let (place, boundary) = self.child_place(node, start);
            let child = node.child(place, version)?;
            fence = boundary.or(fence);
            if self.index.is_cold(child.level()) {
                prefetch_node(child.reference());
                sched::suspend_memory().await;
            }
            let child_version = child.latch.version()?;
            node.latch.validate(version)?;
            (node, version) = (child, child_version);
        }
    }

    /// Returns the child in which the scan continues, and the end of that child's range in scan
    /// direction if this node defines it. Meaningless until validated.
    fn child_place(&self, node: HeldNode<'_>, start: &Bound<Bytes>) -> (usize, Option<Bytes>) {
        let last = node.count().saturating_sub(1);
        let place = match start {
            Bound::Unbounded if self.reverse => last,
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => {
                let (place, equal) = node.lower_bound(&SearchKey::new(key));
                // If an excluded upper bound equals a separator, the scan continues in the child
                // before it.
                let inside = equal && !(self.reverse && matches!(start, Bound::Excluded(_)));
                if inside { place } else { place.saturating_sub(1) }
            }
        };
        let boundary = match (self.reverse, place) {
            (true, 0) => None,
            (true, place) => Some(place),
            (false, place) => (place < last).then_some(place + 1),
        };
        (place, boundary.map(|place| key_at(node, place)))
    }

    /// Copies a leaf's first `most` entries in the range, in scan direction. They are meaningless
    /// until validated.
    fn copy_leaf<'g>(
        &self,
        node: HeldNode<'g>,
        start: &Bound<Bytes>,
        out: &mut Vec<LeafEntry<'g>>,
        most: usize,
    ) -> LeafVisitEnd {
        let count = node.count();
        // The number of entries before a bound, which is the lower or the upper end of a range.
        let before = |bound: &Bound<Bytes>, is_lower: bool| match bound {
            Bound::Unbounded => None,
            Bound::Included(key) | Bound::Excluded(key) => {
                let (place, equal) = node.lower_bound(&SearchKey::new(key));
                let included = matches!(bound, Bound::Included(_));
                Some(place + usize::from(equal && (included != is_lower)))
            }
        };
        let beyond_end =
            |place: Option<usize>| place.is_some_and(|place| self.is_beyond_end(node.key(place)));
        let (places, stopped) = if self.reverse {
            let high = before(start, false).unwrap_or(count);
            let beyond = beyond_end((high > 0).then_some(0));
            let low = if beyond { before(&self.end, true).unwrap_or(0).min(high) } else { 0 };
            let stopped = if beyond { LeafVisitEnd::RangeEnd } else { LeafVisitEnd::LeafEnd };
            (low..high, stopped)
        } else {
            let low = before(start, true).unwrap_or(0);
            let beyond = beyond_end((low < count).then(|| count - 1));
            let high = if beyond { before(&self.end, false).unwrap_or(count) } else { count };
            let stopped = if beyond { LeafVisitEnd::RangeEnd } else { LeafVisitEnd::LeafEnd };
            (low..high.max(low), stopped)
        };
        let (left, stopped) = match places.len() {
            len if len > most => (most, LeafVisitEnd::Full),
            len => (len, stopped),
        };
        let entry = |place| {
            let key = node.key(place);
            // A place that is being emptied has no key, and validation will fail.
            (key.word() != KeyWord::NONE).then(|| LeafEntry { key, rid: key.rid() })
        };
        if self.reverse {
            out.extend(places.rev().take(left).filter_map(entry));
        } else {
            out.extend(places.take(left).filter_map(entry));
        }
        stopped
    }

    fn is_beyond_end(&self, key: HeldKey<'_>) -> bool {
        let (end, included) = match &self.end {
            Bound::Unbounded => return false,
            Bound::Included(end) => (end, true),
            Bound::Excluded(end) => (end, false),
        };
        let order = key.compared_with(&SearchKey::new(end));
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

fn key_at(node: HeldNode<'_>, place: usize) -> Bytes {
    let key = node.key(place);
    if key.word() == KeyWord::NONE {
        return Bytes::new();
    }
    key.with_bytes(Bytes::from_slice)
}

fn prefetch_node(node: NodeRef) {
    let start = node.pointer().cast::<u8>();
    for offset in (0..size_of::<IndexNode>()).step_by(CACHE_LINE_BYTES) {
        sched::prefetch(start.wrapping_add(offset));
    }
}
