//! Giving back all pages of a tree that nobody uses any more.
//!
//! Who drops a table does not wait. It gives back what it comes by, and leaves the rest to a task of a worker: what lies
//! below inner pages that are not in memory, which have to be loaded for that; leaves need not be.
//!
//! Invariant: nothing leads to a page on the list, and each is given back once.

use std::sync::Arc;

use super::{PageTree, start_again};
use crate::memory::MemoryCounters;
use crate::page::error::{Interrupted, PageError};
use crate::page::map::PageId;
use crate::page::resident_set::{HeldPages, Needs};
use crate::page::space::PageSpace;
use crate::page::versions::Mapping;

/// Pages of a tree that are to be given back, with all that is below them.
#[derive(Debug)]
pub(in crate::page) struct PagesToFree {
    /// Each with its level.
    pages: Vec<(PageId, u8)>,
    /// Keeps the counters of the versions on the pages' frames until these are freed.
    _memory: Option<Arc<MemoryCounters>>,
}

/// Some that a task works at; what is left of them is left to another when this is dropped.
struct Taken<'s> {
    space: &'s PageSpace,
    left: Option<PagesToFree>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.space.to_free.lock().extend(self.left.take());
    }
}

impl PageTree {
    /// Gives all pages of the tree back, to which nobody else comes any more, with the versions that hang on their
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
    /// Gives pages back.
    ///
    /// # Errors
    /// When an inner page is not in memory; what is left can be gone on with.
    fn free(&mut self, space: &PageSpace) -> Result<(), Interrupted> {
        while let Some(&(id, level)) = self.pages.last() {
            match self.free_last(space, id, level) {
                // Others may let pages leave meanwhile, or load them, who came by an old way.
                Err(Interrupted::Restart) => start_again(),
                done => done?,
            }
        }
        Ok(())
    }

    fn free_last(&mut self, space: &PageSpace, id: PageId, level: u8) -> Result<(), Interrupted> {
        // SAFETY: nobody uses the table any more; what its transactions made they have retired, or the garbage lists,
        // which are gone.
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
    /// Whether there are pages of trees that nobody uses any more.
    pub(crate) fn has_to_free(&self) -> bool {
        !self.to_free.lock().is_empty()
    }

    /// Gives those back, and waits for pages, until it `is_stopping`.
    ///
    /// # Errors
    /// When a page cannot be had.
    pub(crate) async fn free_left(
        self: &Arc<Self>,
        is_stopping: impl Fn() -> bool,
    ) -> Result<(), PageError> {
        while !is_stopping() {
            let Some(left) = self.to_free.lock().pop() else { break };
            let mut taken = Taken { space: self, left: Some(left) };
            let (mut needs, mut held) = (Needs::new(1), None::<HeldPages>);
            while let Some(left) = &mut taken.left {
                let freed = left.free(self);
                drop(held.take());
                match freed {
                    Ok(()) => taken.left = None,
                    Err(_) if is_stopping() => return Ok(()),
                    Err(why) => held = Some(self.gather(&mut needs, &[why], None).await?),
                }
            }
        }
        Ok(())
    }
}
