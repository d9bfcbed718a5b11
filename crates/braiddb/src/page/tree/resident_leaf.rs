//! Non-suspending access to resident leaves.

use super::descend::DescentTarget;
use super::{PageTree, start_again};
use crate::latch::LatchVersion;
use crate::page::error::Interrupted;
use crate::page::frame::ResidentPage;
use crate::page::map::PageId;

impl PageTree {
    /// Returns the target leaf under a version, without suspending. The result is correct if that version
    /// is validated at the end.
    ///
    /// # Errors
    /// When a page is not available now, or on a concurrent change.
    pub(super) fn leaf_now(
        &self,
        target: DescentTarget<'_>,
    ) -> Result<(ResidentPage<'_>, LatchVersion), Interrupted> {
        let mut page = self.space.resident(self.root)?;
        let mut version = page.version(self.root)?;
        loop {
            page.frame.note_use();
            let shape = page.shape();
            if shape.level == 0 {
                return Ok((page, version));
            }
            let id = PageId::new(page.page.child(target.child_place(page.page, shape)));
            page.validate(version)?;
            let child = self.space.resident(id)?;
            let child_version = child.version(id)?;
            // The child keeps its range as long as the link to it has not changed.
            page.validate(version)?;
            (page, version) = (child, child_version);
        }
    }

    /// Returns the parent of the leaf whose range contains `key`, under a version; `None` if the
    /// root is a leaf.
    ///
    /// # Errors
    /// When it is not resident, or on a concurrent change.
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

    /// Returns the id of the leaf whose range contains `key`; the leaf need not be resident.
    ///
    /// # Errors
    /// When an ancestor of the leaf, or the root, is not resident; never `Restart`.
    pub(in crate::page) fn leaf_id(&self, key: &[u8]) -> Result<PageId, Interrupted> {
        let target = DescentTarget::Key(key);
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
