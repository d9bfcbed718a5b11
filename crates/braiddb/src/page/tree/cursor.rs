//! Cursors: the slots of a range, a leaf at a time, forward or in reverse.
//!
//! A cursor holds no place in the tree between leaves, only a key: where to go on. It descends to the
//! leaf there, shows its slots, and takes as its next key the end of the leaf's range, which the leaf's
//! own fences tell. So it survives splits and merges: what is in its range for the whole scan is met
//! once, in order.

use std::ops::{Bound, Range};

use smallvec::SmallVec;

use super::descend::Target;
use super::leaf::LeafView;
use super::{PageTree, start_again};
use crate::latch::LatchVersion;
use crate::page::error::{Interrupted, PageError};
use crate::page::frame::ResidentPage;
use crate::page::layout::{KeyBytes, Page};
use crate::page::map::{PageId, Whereabouts};
use crate::page::resident_set::HeldPages;

/// A position in a range of a tree of pages.
#[derive(Debug)]
pub(crate) struct PageCursor<'t> {
    tree: &'t PageTree,
    /// Where the next leaf's slots start, in scan direction; `None` at the end.
    next: Option<Bound<KeyBytes>>,
    /// The same behind the slots that were peeked at.
    after: Option<Bound<KeyBytes>>,
    /// Where the range ends, in scan direction.
    end: Bound<KeyBytes>,
    reverse: bool,
}

impl PageTree {
    /// A cursor over the keys between two bounds, from the lower to the upper one, or in reverse.
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

/// What a visit to one leaf gave.
struct Visited<R> {
    /// What was said of the slots; `None` if there are none in the range.
    result: Option<R>,
    /// Where to go on; `None` at the end.
    after: Option<Bound<KeyBytes>>,
}

impl PageCursor<'_> {
    /// As `peek`, and moves behind the slots. Dropping the future does not move the cursor.
    ///
    /// # Errors
    /// If a page cannot be loaded.
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

    /// Calls `look` with the next slots of the range, `most` at most and all on one leaf, and returns its result;
    /// `None` at the end of the range. The places are in key order also for a reverse cursor. The cursor stays before
    /// the slots until they are passed.
    ///
    /// As in [`PageTree::read_if_in_memory`], `look` may see inconsistent bytes, but only the result of a call that
    /// saw a valid leaf is returned.
    ///
    /// # Errors
    /// If a page cannot be loaded.
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
                    held = Some(self.tree.space.gather(&mut needs, &[why], None).await?);
                }
            }
        }
    }

    /// The same, as far as all of it is in memory: it waits for no page, and does not suspend if it is `now`.
    ///
    /// # Errors
    /// When a page cannot be had now; `Restart` if it is `now`, and there was a leaf without slots in the range, behind
    /// which the cursor stands then.
    pub(crate) async fn peek_if_in_memory<R>(
        &mut self,
        most: usize,
        now: bool,
        mut look: impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<Option<R>, Interrupted> {
        assert!(most > 0);
        while let Some(start) = &self.next {
            let visited = match now {
                true => self.visit_now(start, most, &mut look),
                false => self.visit(start, most, &mut look).await,
            };
            let visited = match visited {
                Err(Interrupted::Restart) => {
                    start_again();
                    continue;
                }
                visited => visited?,
            };
            match visited {
                Visited { result: Some(result), after } => {
                    self.after = after;
                    return Ok(Some(result));
                }
                Visited { result: None, after } => self.next = after,
            }
            // There may be many such leaves.
            if now && self.next.is_some() {
                return Err(Interrupted::Restart);
            }
        }
        Ok(None)
    }

    /// Leaves that come behind the one in which the cursor goes on, and are on disk: of the same parent, in the order of the
    /// scan, `most` at most. A hint: it says nothing of what becomes of them meanwhile.
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
            // What lies between a leaf and the one before it in the order of the scan.
            let fence = page.key(if self.reverse { next + 1 } else { next });
            if !self.may_go_on(&fence) {
                break;
            }
            let id = PageId::new(page.child(next));
            if matches!(self.tree.space.map.get(id), Whereabouts::OnDisk(_)) {
                ahead.push(id);
            }
        }
        if parent.page.validate(parent.version).is_err() {
            ahead.clear();
        }
        ahead
    }

    /// Moves behind all of the slots that `peek` just showed.
    pub(crate) fn pass_all(&mut self) {
        self.next = self.after.take();
    }

    /// Moves behind that of the slots that `peek` just showed whose key is `key`.
    pub(crate) fn pass_to(&mut self, key: &[u8]) {
        self.next = Some(Bound::Excluded(KeyBytes::from_slice(key)));
    }

    /// The leaf in which a scan goes on.
    fn target<'k>(&self, start: &'k Bound<KeyBytes>) -> Target<'k> {
        match start {
            Bound::Unbounded if self.reverse => Target::Last,
            Bound::Unbounded => Target::Key(&[]),
            Bound::Excluded(key) if self.reverse => Target::Before(key),
            Bound::Included(key) | Bound::Excluded(key) => Target::Key(key),
        }
    }

    async fn visit<R>(
        &self,
        start: &Bound<KeyBytes>,
        most: usize,
        look: &mut impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<Visited<R>, Interrupted> {
        let (_, leaf, version) = self.tree.leaf(self.target(start)).await?;
        self.look_at(leaf, version, start, most, look)
    }

    /// The same without suspensions; never `Restart`.
    fn visit_now<R>(
        &self,
        start: &Bound<KeyBytes>,
        most: usize,
        look: &mut impl FnMut(LeafView<'_>, Range<usize>) -> R,
    ) -> Result<Visited<R>, Interrupted> {
        loop {
            let visited = self.tree.path_to(self.target(start), 0).and_then(|path| {
                let leaf = path.last().expect("a path ends in a leaf");
                self.look_at(leaf.page, leaf.version, start, most, look)
            });
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
    ) -> Result<Visited<R>, Interrupted> {
        let page = leaf.page;
        let (low, high) = if self.reverse { (&self.end, start) } else { (start, &self.end) };
        let all = first_place(page, low)..end_place(page, high);
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
        Ok(Visited { result, after })
    }

    /// Where to go on behind a leaf; `None` if nothing of the range can come there.
    fn behind_leaf(&self, page: Page<'_>) -> Option<Bound<KeyBytes>> {
        let fence = if self.reverse {
            // The first leaf's low fence is the empty key, below which is none.
            Some(page.low_fence()).filter(|fence| !fence.is_empty())?
        } else {
            page.high_fence()?
        };
        let may_go_on = self.may_go_on(&fence);
        let bound = if self.reverse { Bound::Excluded(fence) } else { Bound::Included(fence) };
        may_go_on.then_some(bound)
    }

    /// Whether something of the range may lie behind a fence.
    fn may_go_on(&self, fence: &KeyBytes) -> bool {
        match &self.end {
            Bound::Unbounded => true,
            Bound::Included(end) | Bound::Excluded(end) if self.reverse => fence > end,
            Bound::Included(end) => fence <= end,
            Bound::Excluded(end) => fence < end,
        }
    }
}

/// The first place of a leaf that is not below a lower bound.
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

/// The place behind the last one of a leaf that is not above an upper bound.
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

/// As a search within the page, for a key that may lie outside its range.
fn lower_bound(page: Page<'_>, key: &[u8]) -> (usize, bool) {
    if key < page.low_fence().as_slice() {
        (0, false)
    } else if page.high_fence().is_some_and(|high| key >= high.as_slice()) {
        (page.count(), false)
    } else {
        page.lower_bound(page.shape(), key)
    }
}
