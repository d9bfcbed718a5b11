//! Descent from the root: with suspensions for readers, and without for callers that latch a page
//! afterwards.

use std::ops::Range;

use smallvec::SmallVec;

use super::leaf::LeafView;
use super::{PageTree, start_again};
use crate::latch::{LatchVersion, Restart};
use crate::page::error::Interrupted;
#[cfg(test)]
use crate::page::error::PageError;
use crate::page::frame::ResidentPage;
use crate::page::layout::{KeyBytes, KeySlot, KeySuffix, Page, PageShape};
use crate::page::map::PageId;
use crate::sched;

const CACHE_LINE_ENTRIES: usize = 4;
/// Maximum number of cache lines of entries that are prefetched. Hints narrow a search to this many
/// lines, except for very similar keys.
const MAX_LINES: usize = 4;

/// Target page of a descent.
#[derive(Clone, Copy, Debug)]
pub(super) enum DescentTarget<'k> {
    /// The page whose range contains the key.
    Key(&'k [u8]),
    /// The page whose range contains the keys just below this one.
    Before(&'k [u8]),
    /// The last page.
    Last,
}

impl DescentTarget<'_> {
    /// Returns whether a page is the target. Meaningless until validated.
    fn is_in(self, page: Page<'_>) -> bool {
        let below_high =
            |is_below: &dyn Fn(&KeyBytes) -> bool| page.high_fence().as_ref().is_none_or(is_below);
        match self {
            Self::Key(key) => page.may_hold(key),
            Self::Before(key) => {
                page.low_fence().as_slice() < key && below_high(&|high| key <= high.as_slice())
            }
            Self::Last => page.high_fence().is_none(),
        }
    }

    /// Returns the entries of a page to search.
    fn group(self, page: Page<'_>, shape: PageShape) -> Range<usize> {
        match self {
            Self::Key(key) | Self::Before(key) => {
                page.group(shape, &KeySuffix::new(key, shape.prefix_bytes))
            }
            Self::Last => shape.count.saturating_sub(1)..shape.count,
        }
    }

    /// Returns the place of the child that is the target or an ancestor of it. Meaningless until
    /// validated.
    pub(super) fn child_place(self, page: Page<'_>, shape: PageShape) -> usize {
        match self {
            Self::Key(key) => page.child_place(shape, &KeySuffix::new(key, shape.prefix_bytes)),
            Self::Before(key) => page.lower_bound(shape, key).0.saturating_sub(1),
            Self::Last => shape.count.saturating_sub(1),
        }
    }
}

/// One page on the path from the root.
#[derive(Clone, Copy, Debug)]
pub(super) struct DescentStep<'t> {
    pub(super) page: ResidentPage<'t>,
    pub(super) version: LatchVersion,
    /// Place of the child on the path; unused in the last step.
    pub(super) place: usize,
}

/// Path from the root to a page, which is the last step.
pub(super) type DescentPath<'t> = SmallVec<[DescentStep<'t>; 8]>;

impl PageTree {
    /// Like `read_if_in_memory`, and loads pages.
    ///
    /// # Errors
    /// When a page is not available.
    #[cfg(test)]
    pub(crate) async fn read<R>(
        &self,
        key: &[u8],
        mut look: impl FnMut(LeafView<'_>, KeySlot) -> R,
    ) -> Result<R, PageError> {
        match self.read_if_in_memory(key, &mut look).await {
            Ok(result) => Ok(result),
            Err(why) => {
                let read = || sched::run_now(self.read_if_in_memory(key, &mut look));
                self.space.retry(self.needs(0), why, read).await
            }
        }
    }

    /// Searches the leaf whose range contains `key` and passes the key's slot to `look`, between
    /// taking the leaf's version and validating it. Repeats this until the validation succeeds, and
    /// returns the result of that call. In earlier calls, `look` may see any mixture of bytes
    /// within the page. Suspends for cache lines, and does not wait for pages.
    ///
    /// # Errors
    /// When a page is not available now; never `Restart`.
    pub(crate) async fn read_if_in_memory<R>(
        &self,
        key: &[u8],
        mut look: impl FnMut(LeafView<'_>, KeySlot) -> R,
    ) -> Result<R, Interrupted> {
        loop {
            match self.try_read(key, &mut look).await {
                Err(Interrupted::Restart) => start_again(),
                result => return result,
            }
        }
    }

    #[inline]
    async fn try_read<R>(
        &self,
        key: &[u8],
        look: &mut impl FnMut(LeafView<'_>, KeySlot) -> R,
    ) -> Result<R, Interrupted> {
        let target = DescentTarget::Key(key);
        let (id, leaf, mut version) = self.leaf(target).await?;
        let mut slot = KeySlot::from_bound(leaf.page.lower_bound(leaf.shape(), key));
        if let (KeySlot::At(place), true) = (slot, self.is_cold(0)) {
            sched::touch(leaf.page.cell_line(place)).await;
            if leaf.validate(version).is_err() {
                // Retakes the version, so that tasks of one worker on the same leaf do not restart
                // each other.
                version = self.version_again(id, leaf, target)?;
                slot = KeySlot::from_bound(leaf.page.lower_bound(leaf.shape(), key));
            }
        }
        let result = look(LeafView::new(leaf), slot);
        leaf.validate(version)?;
        Ok(result)
    }

    /// Returns the version of a page that changed during a suspension, if it is still the target.
    fn version_again(
        &self,
        id: PageId,
        leaf: ResidentPage<'_>,
        target: DescentTarget<'_>,
    ) -> Result<LatchVersion, Restart> {
        let version = leaf.version(id)?;
        self.check(leaf, 0, target)?;
        Ok(version)
    }

    /// Checks whether a page is the target of its level, by the page's own header and fences.
    /// Meaningless until validated.
    fn check(
        &self,
        page: ResidentPage<'_>,
        level: u8,
        target: DescentTarget<'_>,
    ) -> Result<(), Restart> {
        let is_it = page.page.kind().is_some()
            && page.page.level() == level
            && page.page.table() == self.table
            && target.is_in(page.page);
        if is_it { Ok(()) } else { Err(Restart) }
    }

    /// Returns the target leaf under a version. The result is correct if that version is validated
    /// at the end.
    ///
    /// The version of each page is taken only after the suspension for its cache lines. If the
    /// parent's version is still valid after the suspension, the child is correct. If not, the
    /// child's own fences decide.
    #[inline]
    pub(super) async fn leaf(
        &self,
        target: DescentTarget<'_>,
    ) -> Result<(PageId, ResidentPage<'_>, LatchVersion), Interrupted> {
        let mut id = self.root;
        let mut parent: Option<(ResidentPage<'_>, LatchVersion, u8)> = None;
        loop {
            let is_cold = parent.is_some_and(|(.., level)| self.is_cold(level - 1));
            if is_cold {
                sched::touch(self.space.map.pointer(id)).await;
            }
            let page = self.space.resident(id)?;
            if is_cold {
                sched::prefetch(page.frame);
                sched::touch(page.page.hint_line()).await;
                let group = target.group(page.page, page.shape());
                let lines = group.step_by(CACHE_LINE_ENTRIES).take(MAX_LINES);
                lines.for_each(|place| sched::prefetch(page.page.entry_line(place)));
                sched::suspend_memory().await;
            }
            let version = page.version(id)?;
            if let Some((parent, version, level)) = parent
                && parent.validate(version).is_err()
            {
                self.check(page, level - 1, target)?;
            }
            page.frame.note_use();
            let shape = page.shape();
            if shape.level == 0 {
                return Ok((id, page, version));
            }
            let child = page.page.child(target.child_place(page.page, shape));
            page.validate(version)?;
            (id, parent) = (PageId::new(child), Some((page, version, shape.level)));
        }
    }

    /// Returns the path to the page of a level whose range contains `key`, without suspending.
    pub(super) fn path(&self, key: &[u8], level: u8) -> Result<DescentPath<'_>, Interrupted> {
        self.path_to(DescentTarget::Key(key), level)
    }

    /// Returns the path to the target page of a level, without suspending.
    pub(super) fn path_to(
        &self,
        target: DescentTarget<'_>,
        level: u8,
    ) -> Result<DescentPath<'_>, Interrupted> {
        let mut path = DescentPath::new();
        let mut page = self.space.resident(self.root)?;
        let mut version = page.version(self.root)?;
        loop {
            let shape = page.shape();
            if shape.level <= level {
                path.push(DescentStep { page, version, place: 0 });
                return Ok(path);
            }
            page.frame.note_use();
            let place = target.child_place(page.page, shape);
            let id = page.page.child(place);
            page.validate(version)?;
            path.push(DescentStep { page, version, place });
            let id = PageId::new(id);
            let child = self.space.resident(id)?;
            let child_version = child.version(id)?;
            // The child keeps its range as long as the link to it has not changed.
            page.validate(version)?;
            (page, version) = (child, child_version);
        }
    }
}
