//! Page split: divides a full page.
//!
//! A split latches the parent, the page and its new right sibling. A split of the root latches the
//! root and two new children. If the parent lacks room for the separator, it is split first, in a
//! separate step.

use super::PageTree;
use super::attached;
use super::descend::DescentStep;
use super::leaf::LeafRoom;
use crate::page::error::Interrupted;
use crate::page::frame::{LatchedPage, ResidentPage};
use crate::page::layout::{KeyBytes, PageCopy, PageFormat, SplitPoint};
use crate::page::space::NewPage;
use crate::planted::{Bug, is_planted};

/// Entry for which a page lacks room.
#[derive(Debug)]
pub(super) enum EntryToFit {
    /// The key's slot, in a leaf.
    Slot(LeafRoom),
    /// A separator, in an inner page.
    Separator(KeyBytes),
}

impl EntryToFit {
    fn is_on(&self, page: ResidentPage<'_>, key: &[u8]) -> bool {
        match self {
            Self::Slot(room) => room.is_on(page, key),
            Self::Separator(separator) => page.page.has_room_for_separator(separator),
        }
    }

    /// Returns the position at which to split a latched page.
    fn split_point(&self, page: &LatchedPage<'_>, key: &[u8]) -> SplitPoint {
        match self {
            Self::Slot(room) => {
                let (slot, words) = (page.page.find(key), room.words(page.resident(), key));
                let reserved = |key: &[u8]| attached::reserved_for(page, key).unwrap_or(0);
                page.page.leaf_split_point(key, slot, words, &reserved)
            }
            Self::Separator(_) => page.page.inner_split_point(key),
        }
    }
}

impl PageTree {
    /// Splits the page of a level whose range contains `key`, unless it has room by now. If the
    /// page above lacks room for the separator, splits that page instead.
    pub(super) fn make_room(
        &self,
        key: &[u8],
        level: u8,
        wanted: &EntryToFit,
    ) -> Result<(), Interrupted> {
        let path = self.path(key, level)?;
        let full = *path.last().expect("a path ends in a page");
        let Some(above) = path.len().checked_sub(2) else {
            return self.split_root(full, key, wanted, self.take_new()?);
        };
        match self.split(path[above], full, key, wanted, self.take_new()?)? {
            None => Ok(()),
            Some(separator) => self.make_room(key, level + 1, &EntryToFit::Separator(separator)),
        }
    }

    /// Takes pages for a structure change, while no page is latched.
    pub(super) fn take_new<const PAGES: usize>(&self) -> Result<[NewPage<'_>; PAGES], Interrupted> {
        let mut new = [const { None }; PAGES];
        for page in &mut new {
            *page = Some(self.space.take(PAGES)?);
        }
        Ok(new.map(|page| page.expect("each was taken")))
    }

    /// Splits a page below its parent. If the parent lacks room, returns the separator and changes
    /// nothing.
    pub(super) fn split(
        &self,
        above: DescentStep<'_>,
        full: DescentStep<'_>,
        key: &[u8],
        wanted: &EntryToFit,
        [new]: [NewPage<'_>; 1],
    ) -> Result<Option<KeyBytes>, Interrupted> {
        let mut parent = above.page.acquire(above.version)?;
        let mut left = full.page.acquire(full.version)?;
        if wanted.is_on(left.resident(), key) {
            return Ok(None);
        }
        let point = wanted.split_point(&left, key);
        if !parent.page.has_room_for_separator(&point.separator) {
            return Ok(Some(point.separator));
        }
        if is_planted(Bug::ParentNotDirtyAfterSplit) && parent.place().is_some() {
            parent.raise_version();
        } else {
            parent.changed();
        }
        left.changed();
        let (id, low, high) = (new.id(), left.page.low_fence(), left.page.high_fence());
        let right = new.into_latched();
        let (copy, count) = (left.page.copy(), left.page.count());
        let format = left.page.part(id.number(), &point.separator, high.as_deref());
        right.page.become_part(copy.page(), point.from..count, &format);
        let format = left.page.part(left.id().number(), &low, Some(&point.separator));
        left.page.become_part(copy.page(), 0..point.from, &format);
        parent.page.insert_child(above.place + 1, &point.separator, id.number());
        attached::part(&left, &left, &right, &point.separator);
        self.count_pages(right.page.level(), 1);
        Ok(None)
    }

    /// Splits a root into two new children; the root keeps its id.
    fn split_root(
        &self,
        full: DescentStep<'_>,
        key: &[u8],
        wanted: &EntryToFit,
        new: [NewPage<'_>; 2],
    ) -> Result<(), Interrupted> {
        let mut root = full.page.acquire(full.version)?;
        if wanted.is_on(root.resident(), key) {
            return Ok(());
        }
        let point = wanted.split_point(&root, key);
        root.changed();
        let [left, right] = new.map(|new| new.into_latched());
        let (copy, count) = (root.page.copy(), root.page.count());
        let format = root.page.part(left.id().number(), &[], Some(&point.separator));
        left.page.become_part(copy.page(), 0..point.from, &format);
        let format = root.page.part(right.id().number(), &point.separator, None);
        right.page.become_part(copy.page(), point.from..count, &format);
        let (page, level) = (root.id().number(), root.page.level());
        let above = PageCopy::zeros(self.space.page_bytes());
        let (level_above, table) = (level + 1, self.table);
        above.page().format(&PageFormat { level: level_above, page, table, low: &[], high: None });
        above.page().insert_child(0, &[], left.id().number());
        above.page().insert_child(1, &point.separator, right.id().number());
        root.page.copy_from(above.page());
        attached::part(&root, &left, &right, &point.separator);
        self.count_pages(level, 1);
        self.count_pages(level + 1, 1);
        Ok(())
    }
}
