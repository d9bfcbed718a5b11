//! What a bulk operation does to a record.

use super::{pair_bytes, with_pair};
use crate::log::Lsn;
use crate::page::layout::{Slot, SlotFlags};
use crate::page::nonblocking::NotNow;
use crate::page::table::PagedTable;
use crate::page::tree::{LatchedLeaf, Room};
use crate::page::value::{CopiedValue, LargeRef, SlotValue};
use crate::page::versions::{Base, Mapping, Refusal};
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::version::View;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BulkWritten {
    /// Nothing was to be done.
    Not,
    Done {
        /// What the operation itself had left, if that lies elsewhere: nobody sees it any more.
        gone: Option<LargeRef>,
        /// Whether the record was there before the operation.
        covers: bool,
    },
}

/// Why it was not done.
#[derive(Debug)]
pub(crate) enum BulkRefused {
    NotNow(NotNow),
    /// The value is too long to be beside the one before it: it is to lie elsewhere.
    TooLong,
    /// Another transaction has written the record, which none may by now.
    Conflict,
}

/// What a slot is to become.
struct Target<'v> {
    flags: SlotFlags,
    now: Option<SlotValue<'v>>,
    before: Option<CopiedValue>,
    gone: Option<LargeRef>,
}

impl PagedTable {
    /// Gives a record another value, or takes it away, as the bulk operation of this epoch, if it `applies`, given whether
    /// the record is there and when it was committed. It waits for no page, and does not suspend if it is `now`.
    ///
    /// # Errors
    /// Then nothing is done.
    #[expect(clippy::too_many_arguments, reason = "the parts of one write")]
    pub(crate) async fn write_bulk<'v>(
        &self,
        key: &[u8],
        value: Option<SlotValue<'_>>,
        epoch: u64,
        now: bool,
        view: impl Fn() -> View<'v>,
        operation: &OperationGuard,
        mut applies: impl FnMut(bool, Option<Lsn>) -> bool,
    ) -> Result<BulkWritten, BulkRefused> {
        let mut bytes = value.map(SlotValue::cell_bytes);
        loop {
            let room = bytes.map_or(Room::NONE, Room::value);
            let latched = match now {
                true => self.tree().try_latch(key, room),
                false => self.tree().latch_if_in_memory(key, room).await,
            };
            let mut leaf = latched.map_err(|why| BulkRefused::NotNow(self.not_now(why)))?;
            let slot = self.slot_for_bulk(&mut leaf, key, epoch, view(), operation);
            let (exists, committed) = slot.map_err(|_| BulkRefused::Conflict)?;
            if !applies(exists, committed) {
                return Ok(BulkWritten::Not);
            }
            let target = target(&leaf, key, value);
            let wanted = target.bytes();
            if wanted.is_some_and(|wanted| wanted > self.max_pair_bytes()) {
                return Err(BulkRefused::TooLong);
            }
            if wanted > bytes && !leaf.has_room_for(key, wanted.unwrap_or(0)) {
                bytes = wanted;
                continue;
            }
            put(&mut leaf, key, &target);
            leaf.set_bulk_epoch(epoch);
            let is_sparse = value.is_none() && leaf.is_sparse();
            drop(leaf);
            if is_sparse {
                self.tree().merge_if_in_memory(key);
            }
            return Ok(BulkWritten::Done { gone: target.gone, covers: target.before.is_some() });
        }
    }

    /// Makes a leaf one that has marks of this epoch alone; whether the record of `key` is there, and when it was
    /// committed, if not everybody sees that.
    fn slot_for_bulk(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        key: &[u8],
        epoch: u64,
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<(bool, Option<Lsn>), Refusal> {
        let marked = leaf.bulk_epoch();
        if marked != 0 && marked != epoch && !is_planted(Bug::OldBulkMarksLeft) {
            // The gate's holder began when everybody saw them.
            self.unmark_all(leaf, true);
        }
        self.roll_back_on(leaf, key, view.status);
        let exists = match leaf.find(key) {
            Slot::At(place) => !leaf.flags(place).has(SlotFlags::DELETED),
            Slot::Before(_) => false,
        };
        // SAFETY: latched.
        let chain = unsafe { Mapping::find(leaf.mapping(), key) };
        let base = match chain {
            // SAFETY: latched, and rolled back above.
            Some(chain) => unsafe { chain.base(view, operation) }?,
            None => Base::Settled,
        };
        match base {
            Base::Settled => Ok((exists, None)),
            Base::Committed(lsn) => Ok((exists, Some(lsn))),
            Base::Own(_) => Err(Refusal::Conflict),
        }
    }
}

/// What the slot of a key is to become, on a leaf that has marks of the operation's epoch alone.
fn target<'v>(leaf: &LatchedLeaf<'_>, key: &[u8], value: Option<SlotValue<'v>>) -> Target<'v> {
    let (mut before, mut gone, mut chained) = (None, None, false);
    if let Slot::At(place) = leaf.find(key) {
        let flags = leaf.flags(place);
        chained = flags.has(SlotFlags::VERSIONED);
        let is_there = !flags.has(SlotFlags::DELETED);
        if flags.is_marked() {
            before = leaf.value_before(place);
            gone = is_there.then(|| leaf.value(place).as_slot().large()).flatten();
        } else if is_there {
            before = Some(leaf.value(place));
        }
    }
    let mut flags = SlotFlags::NONE;
    if chained {
        flags = flags.with(SlotFlags::VERSIONED);
    }
    if value.is_some() {
        flags = flags.with(SlotFlags::BULK_CREATED);
    } else {
        flags = flags.with(SlotFlags::DELETED);
    }
    if before.is_some() {
        flags = flags.with(SlotFlags::BULK_DELETED);
    }
    Target { flags, now: value, before, gone }
}

impl Target<'_> {
    /// Bytes of its cell; `None` if there is to be none that is not there.
    fn bytes(&self) -> Option<usize> {
        let now = self.now?;
        let before = self.before.as_ref().map(CopiedValue::as_slot);
        Some(before.map_or(now.cell_bytes(), |before| pair_bytes(now, before)))
    }
}

/// Makes the slot of a key that, on whose leaf there is room.
fn put(leaf: &mut LatchedLeaf<'_>, key: &[u8], target: &Target<'_>) {
    let before = target.before.as_ref().map(CopiedValue::as_slot);
    match (leaf.find(key), target.now, before) {
        (Slot::Before(place), Some(now), _) => leaf.insert_value(place, key, now, target.flags),
        (Slot::Before(_), None, _) => unreachable!("only a record that exists is deleted"),
        (Slot::At(place), Some(now), None) => leaf.overwrite_value(place, now, target.flags),
        (Slot::At(place), Some(now), Some(before)) => {
            with_pair(now, before, |cell| leaf.overwrite_pair(place, cell, target.flags));
        }
        (Slot::At(place), None, Some(before)) => leaf.overwrite_value(place, before, target.flags),
        // The operation made it itself. It stays for the record's changes, if there are some.
        (Slot::At(place), None, None) => {
            if target.flags.has(SlotFlags::VERSIONED) {
                leaf.set_flags(place, target.flags);
            } else {
                leaf.remove(place);
            }
        }
    }
}
