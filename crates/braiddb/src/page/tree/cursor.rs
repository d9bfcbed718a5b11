//! Cursors: iteration over the slots of a key range, one leaf at a time, forward or in reverse.
//!
//! Between leaves a cursor keeps only the key at which it continues. It descends to the leaf of
//! that key and visits the leaf's slots. The next key is the end of the leaf's range, according to
//! the leaf's fences. So a cursor tolerates splits and merges: a record that is in the range during
//! the whole scan is visited once, in key order.

use std::ops::{Bound, Range};

use smallvec::SmallVec;

use super::descend::DescentTarget;
use super::leaf::LeafView;
use super::{PageTree, start_again};
use crate::latch::LatchVersion;
use crate::page::error::{Interrupted, PageError};
use crate::page::frame::ResidentPage;
use crate::page::layout::{KeyBytes, Page};
use crate::page::map::{PageId, PageLocation};
use crate::page::resident_set::HeldPages;

/// Position in a key range of a tree of pages.
#[derive(Debug)]
pub(crate) struct PageCursor<'t> {
    tree: &'t PageTree,
    /// Start of the next leaf's slots, in scan direction; `None` at the end.
    next: Option<Bound<KeyBytes>>,
    /// Position after the slots of the last peek.
    after: Option<Bound<KeyBytes>>,
    /// End of the range, in scan direction.
    end: Bound<KeyBytes>,
    reverse: bool,
}

impl PageTree {
    /// Returns a cursor over the keys between two bounds, from the lower to the upper one, or in
    /// reverse.
    pub(crate) fn cursor(
        &self,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
    ) -> PageCursor<'_> {
        let (start, end) = if reverse { (high, low) } else { (low, high) };
        let own = |bound: Bound<&[u8]>| bound.map(KeyBytes::from_slice);
        PageCursor { tree: self, next: Some(own(start)), after: None, end: own(end), reverse }
    }
}

impl PageTree {
    /// Returns the last key, which may belong to a deleted record; `None` in an empty tree.
    ///
    /// # Errors
    /// When a page is not available.
    pub(in crate::page) async fn last_key(&self) -> Result<Option<KeyBytes>, PageError> {
        let mut cursor = self.cursor(Bound::Unbounded, Bound::Unbounded, true);
        let copy_key = |leaf: LeafView<'_>, places: Range<usize>| {
            let mut key = KeyBytes::new();
            leaf.copy_key(places.start, &mut key);
            key
        };
        cursor.peek(1, copy_key).await
    }
}

/// Result of a visit to one leaf.
struct PageVisit<R> {
    /// Result of the caller's closure; `None` if the leaf has no slots in the range.
    result: Option<R>,
    /// Position at which to continue; `None` at the end.
    after: Option<Bound<KeyBytes>>,
}

impl PageCursor<'_> {
    /// Like `peek`, and moves past the slots. Dropping the future loses no slots: the cursor moves
    /// when the call ends.
    ///
    /// # Errors
    /// When a page is not available.
    #[cfg(test)]
    pub(crate) async fn next<R>(
        &mut self,
        most: usize,
        look: impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<Option<R>, PageError> {
        let found = self.peek(most, look).await?;
        if found.is_some() {
            self.pass_all();
        }
        Ok(found)
    }

    /// Passes the next slots of the range, at most `most` and all of one leaf, to `look`. Returns
    /// `None` at the end. The places are in key order in reverse scans too. The cursor does not
    /// move until the slots are passed.
    ///
    /// Like [`PageTree::read_if_in_memory`], it may call `look` with inconsistent data, but returns
    /// the result of a validated call only.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn peek<R>(
        &mut self,
        most: usize,
        mut look: impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<Option<R>, PageError> {
        let mut needs = self.tree.needs(0);
        let mut held = None::<HeldPages>;
        loop {
            match self.peek_if_in_memory(most, held.is_some(), &mut look).await {
                Ok(found) => return Ok(found),
                Err(Interrupted::Restart) => held = None,
                Err(why) => {
                    drop(held.take());
                    held = Some(self.tree.space.hold_pages(&mut needs, &[why], None).await?);
                }
            }
        }
    }

    /// Like `peek`, for resident pages only: it does not wait for pages, and does not suspend if
    /// `now` is true.
    ///
    /// # Errors
    /// When a page is not available now. Returns `Restart` if `now` is true and a leaf had no slots
    /// in the range; the cursor has then moved past that leaf.
    pub(crate) async fn peek_if_in_memory<R>(
        &mut self,
        most: usize,
        now: bool,
        mut look: impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<Option<R>, Interrupted> {
        assert!(most > 0);
        if now {
            return self.peek_now(most, look);
        }
        while let Some(start) = &self.next {
            let visited = match self.visit(start, most, &mut look).await {
                Err(Interrupted::Restart) => {
                    start_again();
                    continue;
                }
                visited => visited?,
            };
            match visited {
                PageVisit { result: Some(result), after } => {
                    self.after = after;
                    return Ok(Some(result));
                }
                PageVisit { result: None, after } => self.next = after,
            }
        }
        Ok(None)
    }

    /// Like `peek_if_in_memory`, without suspending.
    ///
    /// # Errors
    /// When a page is not available now. Returns `Restart` if a leaf had no slots in the range; the
    /// cursor has then moved past that leaf. Many such leaves may follow.
    pub(crate) fn peek_now<R>(
        &mut self,
        most: usize,
        mut look: impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<Option<R>, Interrupted> {
        let Some(start) = &self.next else { return Ok(None) };
        match self.visit_now(start, most, &mut look)? {
            PageVisit { result: Some(result), after } => {
                self.after = after;
                Ok(Some(result))
            }
            PageVisit { result: None, after } => {
                self.next = after;
                if self.next.is_none() { Ok(None) } else { Err(Interrupted::Restart) }
            }
        }
    }

    /// Returns up to `most` of the leaves that follow the current one in scan order, have the same
    /// parent, and are on disk. A hint: they may change at any time.
    pub(crate) fn leaves_ahead(&self, most: usize) -> SmallVec<[PageId; 4]> {
        let mut ahead = SmallVec::new();
        let Some(start) = self.next.as_ref().filter(|_| most > 0) else { return ahead };
        let target = self.target(start);
        let Ok(path) = self.tree.path_to(target, 1) else { return ahead };
        let parent = path.last().expect("a path ends in a page");
        let (page, shape) = (parent.page.page, parent.page.shape());
        if shape.level != 1 {
            return ahead;
        }
        let place = target.child_place(page, shape);
        for step in 1..=most {
            let next = if self.reverse { place.checked_sub(step) } else { Some(place + step) };
            let Some(next) = next.filter(|next| *next < shape.count) else { break };
            // Fence between a leaf and its predecessor in scan order.
            let fence = page.key(if self.reverse { next + 1 } else { next });
            if !self.can_continue(&fence) {
                break;
            }
            let id = PageId::new(page.child(next));
            if matches!(self.tree.space.map.get(id), PageLocation::OnDisk(_)) {
                ahead.push(id);
            }
        }
        if parent.page.validate(parent.version).is_err() {
            ahead.clear();
        }
        ahead
    }

    /// Moves past all slots of the last `peek`.
    pub(crate) fn pass_all(&mut self) {
        self.next = self.after.take();
    }

    /// Moves past the slot with key `key`, which was among the slots of the last `peek`.
    pub(crate) fn pass_to(&mut self, key: &[u8]) {
        self.next = Some(Bound::Excluded(KeyBytes::from_slice(key)));
    }

    /// Returns the target of the descent to the leaf at which a scan continues.
    fn target<'k>(&self, start: &'k Bound<KeyBytes>) -> DescentTarget<'k> {
        match start {
            Bound::Unbounded if self.reverse => DescentTarget::Last,
            Bound::Unbounded => DescentTarget::Key(&[]),
            Bound::Excluded(key) if self.reverse => DescentTarget::Before(key),
            Bound::Included(key) | Bound::Excluded(key) => DescentTarget::Key(key),
        }
    }

    async fn visit<R>(
        &self,
        start: &Bound<KeyBytes>,
        most: usize,
        look: &mut impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<PageVisit<R>, Interrupted> {
        let (_, leaf, version) = self.tree.leaf(self.target(start)).await?;
        self.look_at(leaf, version, start, most, look)
    }

    /// Like `visit`, without suspending; never returns `Restart`.
    fn visit_now<R>(
        &self,
        start: &Bound<KeyBytes>,
        most: usize,
        look: &mut impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<PageVisit<R>, Interrupted> {
        loop {
            let leaf = self.tree.leaf_now(self.target(start));
            let visited =
                leaf.and_then(|(leaf, version)| self.look_at(leaf, version, start, most, look));
            match visited {
                Err(Interrupted::Restart) => start_again(),
                visited => return visited,
            }
        }
    }

    fn look_at<R>(
        &self,
        leaf: ResidentPage<'_>,
        version: LatchVersion,
        start: &Bound<KeyBytes>,
        most: usize,
        look: &mut impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<PageVisit<R>, Interrupted> {
        let page = leaf.page;
        let all = match (self.reverse, start) {
            (true, _) => first_place(page, &self.end)..end_place(page, start),
            // The leaf's range contains the key at which the scan continues.
            (false, Bound::Included(key) | Bound::Excluded(key)) => {
                let (place, equal) = page.lower_bound(leaf.shape(), key);
                let is_passed = equal && matches!(start, Bound::Excluded(_));
                place + usize::from(is_passed)..end_place(page, &self.end)
            }
            (false, Bound::Unbounded) => 0..end_place(page, &self.end),
        };
        let places = match self.reverse {
            _ if all.len() <= most => all.clone(),
            false => all.start..all.start + most,
            true => all.end - most..all.end,
        };
        let last = if self.reverse { places.start } else { places.end.saturating_sub(1) };
        let after = if places == all {
            self.behind_leaf(page)
        } else {
            Some(Bound::Excluded(page.key(last)))
        };
        let result = (!places.is_empty()).then(|| look(LeafView::new(leaf), places));
        leaf.validate(version)?;
        Ok(PageVisit { result, after })
    }

    /// Returns the position after a leaf; `None` if the range ends there.
    fn behind_leaf(&self, page: Page<'_>) -> Option<Bound<KeyBytes>> {
        let fence = if self.reverse {
            // The first leaf's low fence is the empty key, and no key is below it.
            Some(page.low_fence()).filter(|fence| !fence.is_empty())?
        } else {
            page.high_fence()?
        };
        let can_continue = self.can_continue(&fence);
        let bound = if self.reverse { Bound::Excluded(fence) } else { Bound::Included(fence) };
        can_continue.then_some(bound)
    }

    /// Returns whether the range may continue beyond a fence.
    fn can_continue(&self, fence: &KeyBytes) -> bool {
        match &self.end {
            Bound::Unbounded => true,
            Bound::Included(end) | Bound::Excluded(end) if self.reverse => fence > end,
            Bound::Included(end) => fence <= end,
            Bound::Excluded(end) => fence < end,
        }
    }
}

/// Returns the first place of a leaf at or above a lower bound.
fn first_place(page: Page<'_>, low: &Bound<KeyBytes>) -> usize {
    match low {
        Bound::Unbounded => 0,
        Bound::Included(key) => lower_bound(page, key).0,
        Bound::Excluded(key) => {
            let (place, equal) = lower_bound(page, key);
            place + usize::from(equal)
        }
    }
}

/// Returns the end of the places of a leaf that are within an upper bound.
fn end_place(page: Page<'_>, high: &Bound<KeyBytes>) -> usize {
    match high {
        Bound::Unbounded => page.count(),
        Bound::Excluded(key) => lower_bound(page, key).0,
        Bound::Included(key) => {
            let (place, equal) = lower_bound(page, key);
            place + usize::from(equal)
        }
    }
}

/// Searches the page like `Page::lower_bound`, for a key that may be outside the page's range.
fn lower_bound(page: Page<'_>, key: &[u8]) -> (usize, bool) {
    if key < page.low_fence().as_slice() {
        (0, false)
    } else if page.high_fence().is_some_and(|high| key >= high.as_slice()) {
        (page.count(), false)
    } else {
        page.lower_bound(page.shape(), key)
    }
}
