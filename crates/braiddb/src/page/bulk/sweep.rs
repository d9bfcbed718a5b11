//! Sweep: removes the marks of bulk operations from the pages of a table, leaf by leaf.

use crate::page::error::PageError;
use crate::page::layout::KeyBytes;
use crate::page::table::PagedTable;
use crate::page::tree::LeafRoom;
use crate::version::StatusTable;

/// Key at which a sweep continues.
#[derive(Clone, Debug, Default)]
pub(crate) struct SweepPosition(KeyBytes);

impl PagedTable {
    /// Removes the marks of a decided operation from the leaf at a position, and waits until the
    /// leaf is resident. Returns the next position, or `None` after the last leaf.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn sweep_leaf(
        &self,
        position: &SweepPosition,
        status: &StatusTable,
    ) -> Result<Option<SweepPosition>, PageError> {
        let (key, tree) = (&position.0[..], self.tree());
        let mut needs = self.needs();
        let mut held = None;
        let (next, is_sparse) = loop {
            let why = match tree.try_latch(key, LeafRoom::NONE) {
                Ok(mut leaf) => {
                    let epoch = leaf.bulk_epoch();
                    self.unmark_decided(&mut leaf, status);
                    break (leaf.high_fence(), epoch != 0 && leaf.is_sparse());
                }
                Err(why) => why,
            };
            drop(held.take());
            held = Some(tree.hold_pages_ahead(&mut needs, key, why, |_| true).await?);
        };
        drop(held);
        if is_sparse {
            // No other task merges a leaf that an operation emptied.
            tree.merge_waiting(key).await?;
        }
        Ok(next.map(SweepPosition))
    }
}
