//! Freeing of all pages of a dropped tree.
//!
//! Dropping a table does not wait. It frees the pages that it can reach, and leaves the others to a
//! background task: the descendants of inner pages that are not resident. That task loads inner
//! pages; it frees leaves without loading them.
//!
//! Invariant: a page on the list is unreachable, and is freed once.

use std::sync::Arc;

use super::{PageTree, start_again};
use crate::memory::MemoryCounters;
use crate::page::error::{Interrupted, PageError};
use crate::page::map::PageId;
use crate::page::resident_set::{HeldPages, PageNeeds};
use crate::page::space::{PageSpace, PagesToFree};
use crate::page::versions::Mapping;

/// Pages that a task is freeing; the remaining ones return to the list when this is dropped.
struct PagesBeingFreed<'s> {
    space: &'s PageSpace,
    left: Option<PagesToFree>,
}

impl Drop for PagesBeingFreed<'_> {
    fn drop(&mut self) {
        self.space.to_free.lock().extend(self.left.take());
    }
}

impl PageTree {
    /// Frees all pages of the tree, which no other task may use any more, and the versions on their
    /// frames, which `memory` counts.
    pub(in crate::page) fn free_all(self, memory: Option<Arc<MemoryCounters>>) {
        let level = self.levels().saturating_sub(1) as u8;
        let mut all = PagesToFree { pages: vec![(self.root, level)], _memory: memory };
        if all.free(&self.space).is_err() {
            self.space.to_free.lock().push(all);
        }
    }
}

impl PagesToFree {
    /// Frees the pages.
    ///
    /// # Errors
    /// When an inner page is not resident; a later call continues from there.
    fn free(&mut self, space: &PageSpace) -> Result<(), Interrupted> {
        while let Some(&(id, level)) = self.pages.last() {
            match self.free_last(space, id, level) {
                // Other tasks may evict or load these pages through outdated references.
                Err(Interrupted::Restart) => start_again(),
                done => done?,
            }
        }
        Ok(())
    }

    fn free_last(&mut self, space: &PageSpace, id: PageId, level: u8) -> Result<(), Interrupted> {
        // SAFETY: the table is no longer used. Its transactions, or their garbage lists, which are
        // gone, have retired everything that they created.
        let free = |word| unsafe { Mapping::free(word) };
        let page = match space.resident(id) {
            Err(Interrupted::Absent(_)) if level == 0 => {
                if !space.free_absent(id, free) {
                    return Err(Interrupted::Restart);
                }
                self.pages.pop();
                return Ok(());
            }
            page => page?,
        };
        let mut latched = page.acquire(page.version(id)?)?;
        self.pages.pop();
        let page = page.page;
        if let Some(below) = page.level().checked_sub(1) {
            let children = (0..page.count()).map(|place| PageId::new(page.child(place)));
            self.pages.extend(children.map(|child| (child, below)));
        }
        free(latched.take_mapping());
        space.free(latched);
        Ok(())
    }
}

impl PageSpace {
    /// Returns whether pages of dropped trees must be freed.
    pub(crate) fn has_to_free(&self) -> bool {
        !self.to_free.lock().is_empty()
    }

    /// Frees those pages, and waits for inner pages, until `is_stopping` returns true.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn free_left(
        self: &Arc<Self>,
        is_stopping: impl Fn() -> bool,
    ) -> Result<(), PageError> {
        while !is_stopping() {
            let Some(left) = self.to_free.lock().pop() else { break };
            let mut taken = PagesBeingFreed { space: self, left: Some(left) };
            let (mut needs, mut held) = (PageNeeds::new(1), None::<HeldPages>);
            while let Some(left) = &mut taken.left {
                let freed = left.free(self);
                drop(held.take());
                match freed {
                    Ok(()) => taken.left = None,
                    Err(_) if is_stopping() => return Ok(()),
                    Err(why) => held = Some(self.hold_pages(&mut needs, &[why], None).await?),
                }
            }
        }
        Ok(())
    }
}
