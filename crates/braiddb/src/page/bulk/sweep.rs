//! Taking the marks of bulk operations off the pages of a table, leaf by leaf.

use crate::page::error::PageError;
use crate::page::layout::KeyBytes;
use crate::page::table::PagedTable;
use crate::page::tree::Room;
use crate::version::StatusTable;

/// Where a sweep goes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct SweepPosition(KeyBytes);

impl PagedTable {
    /// Takes the marks off the leaf at a position whose operation is over, and waits for it to be in memory; where to go on,
    /// if there are more leaves.
    ///
    /// # Errors
    /// When a page cannot be had.
    pub(crate) async fn sweep_leaf(
        &self,
        position: &SweepPosition,
        status: &StatusTable,
    ) -> Result<Option<SweepPosition>, PageError> {
        let (key, tree) = (&position.0[..], self.tree());
        let mut needs = self.needs();
        let mut held = None;
        let (next, is_sparse) = loop {
            let why = match tree.try_latch(key, Room::NONE) {
                Ok(mut leaf) => {
                    let epoch = leaf.bulk_epoch();
                    self.unmark_decided(&mut leaf, status);
                    break (leaf.high_fence(), epoch != 0 && leaf.is_sparse());
                }
                Err(why) => why,
            };
            drop(held.take());
            held = Some(tree.gather_ahead(&mut needs, key, why, |_| true).await?);
        };
        drop(held);
        if is_sparse {
            // Nobody else comes by a leaf that an operation emptied.
            tree.merge_waiting(key).await?;
        }
        Ok(next.map(SweepPosition))
    }
}
