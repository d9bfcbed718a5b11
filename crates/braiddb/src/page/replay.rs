//! Recovery of records of paged tables from the log. Records are written to pages without versions,
//! because no reader runs before recovery has ended.

use super::error::PageError;
use super::layout::{KeySlot, SlotFlags};
use super::table::PagedTable;
use super::tree::LeafRoom;
use super::value::SlotValue;

impl PagedTable {
    /// Sets the value of a key, or removes its record. Several threads may call this for disjoint
    /// keys.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn replay(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), PageError> {
        let value = match value {
            Some(value) if value.len() > self.max_inline_value_bytes() => {
                Some(SlotValue::Elsewhere(self.make_large().await?.put(value).await?))
            }
            value => value.map(SlotValue::Here),
        };
        let room = value.map_or(LeafRoom::NONE, |value| LeafRoom::value(value.cell_bytes()));
        let (is_sparse, before) = {
            let mut leaf = self.tree().latch(key, room).await?;
            let slot = leaf.find(key);
            let before = match slot {
                KeySlot::At(place) => leaf.value(place).as_slot().large(),
                KeySlot::Before(_) => None,
            };
            match (slot, value) {
                (KeySlot::At(place), Some(value)) => {
                    leaf.overwrite_value(place, value, SlotFlags::NONE);
                }
                (KeySlot::Before(place), Some(value)) => {
                    leaf.insert_value(place, key, value, SlotFlags::NONE);
                }
                (KeySlot::At(place), None) => leaf.remove(place),
                (KeySlot::Before(_), None) => {}
            }
            (value.is_none() && leaf.is_sparse(), before)
        };
        if is_sparse {
            self.tree().merge_waiting(key).await?;
        }
        match self.large().zip(before) {
            Some((large, before)) => large.remove(before).await,
            None => Ok(()),
        }
    }

    /// Returns whether the table has no record, not even a deleted one.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn is_empty(&self) -> Result<bool, PageError> {
        use std::ops::Bound::Unbounded;
        let mut cursor = self.tree().cursor(Unbounded, Unbounded, false);
        Ok(cursor.peek(1, |_, _| ()).await?.is_none())
    }
}
