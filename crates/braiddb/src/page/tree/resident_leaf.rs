//! Looking at a leaf without suspensions.

use super::descend::Target;
use super::leaf::LeafView;
use super::{PageTree, start_again};
use crate::latch::LatchVersion;
use crate::page::error::Interrupted;
use crate::page::frame::ResidentPage;
use crate::page::layout::Slot;
use crate::page::map::PageId;

impl PageTree {
    /// As [`read`](Self::read), without suspensions.
    ///
    /// # Errors
    /// When a page cannot be had now; never `Restart`.
    pub(crate) fn try_read_now<R>(
        &self,
        key: &[u8],
        mut look: impl FnMut(LeafView<'_>, Slot) -> R,
    ) -> Result<R, Interrupted> {
        loop {
            let result = self.path(key, 0).and_then(|path| {
                let leaf = path.last().expect("a path ends in a leaf");
                let page = leaf.page;
                let slot = Slot::from_bound(page.page.lower_bound(page.shape(), key));
                let result = look(LeafView::new(page), slot);
                page.validate(leaf.version)?;
                Ok(result)
            });
            match result {
                Err(Interrupted::Restart) => start_again(),
                result => return result,
            }
        }
    }

    /// The page above the leaf in whose range `key` is, under a version; `None` if the root is a leaf.
    ///
    /// # Errors
    /// When it is not in memory; when what it met has changed.
    pub(in crate::page) fn above_leaf(
        &self,
        key: &[u8],
    ) -> Result<Option<(ResidentPage<'_>, LatchVersion)>, Interrupted> {
        let path = self.path(key, 1)?;
        let last = path.last().expect("a path ends in a page");
        let is_leaf = last.page.shape().level == 0;
        last.page.validate(last.version)?;
        Ok((!is_leaf).then_some((last.page, last.version)))
    }

    /// The leaf in whose range `key` is, which need not be in memory.
    ///
    /// # Errors
    /// When a page above it is not, or the root; never `Restart`.
    pub(in crate::page) fn leaf_id(&self, key: &[u8]) -> Result<PageId, Interrupted> {
        let target = Target::Key(key);
        loop {
            let found = self.path_to(target, 1).and_then(|path| {
                let last = path.last().expect("a path ends in a page");
                let (page, shape) = (last.page.page, last.page.shape());
                let id = match shape.level {
                    0 => self.root,
                    _ => PageId::new(page.child(target.child_place(page, shape))),
                };
                last.page.validate(last.version)?;
                Ok(id)
            });
            match found {
                Err(Interrupted::Restart) => start_again(),
                found => return found,
            }
        }
    }
}
