//! Looking at a leaf without suspensions.

use super::leaf::LeafView;
use super::{PageTree, start_again};
use crate::page::error::Interrupted;
use crate::page::layout::Slot;

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
}
