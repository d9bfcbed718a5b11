//! Leaf views and latched leaves: access to records for readers and writers.

use std::marker::PhantomData;
use std::ops::{Deref, Range};

use smallvec::SmallVec;

use super::{PageTree, attached};
use crate::page::bulk::read_pair;
use crate::page::frame::{LatchedPage, ResidentPage};
use crate::page::layout::{ByteSink, KeyBytes, KeySlot, LeafSlots, SlotFlags};
use crate::page::map::PageId;
use crate::page::value::{CopiedValue, SlotValue, ValueBytes};
use crate::page::versions::{Chain, Mapping};
use crate::sync::atomic::AtomicU64;
use crate::version::StatusTable;

/// Interval of slot counts at which a removal checks whether a large leaf can be merged.
const MERGE_CHECK_INTERVAL: usize = 8;

/// A leaf under a version or latch. Under a version, all results are meaningless until validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafView<'t> {
    page: ResidentPage<'t>,
}

impl<'t> LeafView<'t> {
    pub(super) fn new(page: ResidentPage<'t>) -> Self {
        Self { page }
    }

    /// Returns the word of the mapping table of versions; 0 if the leaf has none.
    #[inline(always)]
    pub(in crate::page) fn mapping(self) -> u64 {
        self.page.mapping()
    }

    /// Returns the number of slots.
    pub(in crate::page) fn count(self) -> usize {
        self.page.page.count()
    }

    /// Returns the size of the page, in bytes.
    pub(in crate::page) fn page_bytes(self) -> usize {
        self.page.page.bytes()
    }

    pub(in crate::page) fn flags(self, place: usize) -> SlotFlags {
        self.page.page.flags(place)
    }

    /// Returns the slots at some places; `None` if the leaf has none there.
    pub(in crate::page) fn slots(self, places: Range<usize>) -> Option<LeafSlots<'t, AtomicU64>> {
        self.page.page.slots(places)
    }

    /// Returns the length of a slot's cell, at most the page size.
    pub(in crate::page) fn cell_bytes(self, place: usize) -> usize {
        self.page.page.cell_bytes(place).min(self.page.page.bytes())
    }

    /// Returns whether everything on the leaf is committed and visible to all: it has no version
    /// chains and no marks.
    #[inline(always)]
    pub(in crate::page) fn is_settled(self) -> bool {
        self.page.is_settled()
    }

    /// Returns the epoch of the marks on the leaf; 0 if it has none.
    #[inline(always)]
    pub(in crate::page) fn bulk_epoch(self) -> u64 {
        self.page.page.bulk_epoch()
    }

    /// Returns a copy of a slot's value. If the slot has two values, returns the one that a bulk
    /// operation wrote.
    #[inline]
    pub(in crate::page) fn value(self, place: usize) -> CopiedValue {
        let mut cell = ValueBytes::new();
        let page = self.page.page;
        let flags = page.flags(place);
        if flags.is_pair() {
            return self.pair(place).0;
        }
        if flags.has(SlotFlags::OVERFLOW) {
            let bytes = page.value_bytes(place);
            page.copy_value(place, &mut cell);
            return SlotValue::from_cell(&cell, Some(bytes)).copied();
        }
        page.copy_value(place, &mut cell);
        CopiedValue::Here(cell)
    }

    /// Returns copies of the two values of a slot: the result of a bulk operation, and the
    /// before-image.
    #[cold]
    pub(in crate::page) fn pair(self, place: usize) -> (CopiedValue, CopiedValue) {
        let mut cell = ValueBytes::new();
        self.page.page.copy_value(place, &mut cell);
        let (now, before) = read_pair(&cell);
        (now.copied(), before.copied())
    }

    /// Returns a copy of a marked slot's before-image; `None` if the record did not exist before
    /// the bulk operation.
    pub(in crate::page) fn value_before(self, place: usize) -> Option<CopiedValue> {
        let flags = self.flags(place);
        match flags.has(SlotFlags::BULK_DELETED) {
            false => None,
            true if flags.is_pair() => Some(self.pair(place).1),
            true => Some(self.value(place)),
        }
    }

    /// Appends the bytes of a slot's cell to `out`.
    #[inline]
    pub(in crate::page) fn copy_value(self, place: usize, out: &mut impl ByteSink) {
        self.page.page.copy_value(place, out);
    }

    /// Appends a slot's key to `out`.
    pub(in crate::page) fn copy_key(self, place: usize, out: &mut impl ByteSink) {
        self.page.page.copy_key(place, out);
    }
}

/// Room that the caller of [`PageTree::latch`] needs on the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafRoom(Option<usize>);

impl LeafRoom {
    /// No room: slots are removed, flags are set, values become no longer.
    pub(crate) const NONE: Self = Self(None);

    /// Room for a value of `bytes` bytes, in a new slot or in the key's existing slot.
    pub(crate) fn value(bytes: usize) -> Self {
        Self(Some(bytes))
    }

    /// Room for a value of this many bytes, if any.
    pub(crate) fn of(bytes: Option<usize>) -> Self {
        Self(bytes)
    }

    /// Returns whether a page has this room in addition to its reserved bytes.
    pub(super) fn is_on(self, page: ResidentPage<'_>, key: &[u8]) -> bool {
        self.0.is_none_or(|bytes| {
            let slot = page.page.find(key);
            page.page.has_room(slot, key, bytes, page.reserved_bytes())
        })
    }

    /// Returns the number of words of the key's slot after the write.
    pub(super) fn words(self, page: ResidentPage<'_>, key: &[u8]) -> usize {
        page.page.slot_words(key, self.0.unwrap_or(0))
    }
}

/// A leaf that its holder may change exclusively. It stays latched until this is dropped, which
/// must happen before any suspension.
#[derive(Debug)]
#[must_use]
pub(crate) struct LatchedLeaf<'t> {
    tree: &'t PageTree,
    page: LatchedPage<'t>,
    view: LeafView<'t>,
    /// A latch belongs to the thread that took it.
    bound: PhantomData<*const ()>,
}

impl<'t> LatchedLeaf<'t> {
    pub(super) fn new(tree: &'t PageTree, page: LatchedPage<'t>) -> Self {
        let view = LeafView::new(page.resident());
        Self { tree, page, view, bound: PhantomData }
    }

    /// Returns the page.
    pub(in crate::page) fn page(&self) -> &LatchedPage<'t> {
        &self.page
    }

    /// Returns the page's id.
    pub(in crate::page) fn page_id(&self) -> PageId {
        self.page.id()
    }

    /// Returns whether the leaf belongs to a tree.
    pub(in crate::page) fn is_of(&self, tree: &PageTree) -> bool {
        std::ptr::eq(self.tree, tree)
    }

    /// Returns the slot of a key.
    pub(in crate::page) fn find(&self, key: &[u8]) -> KeySlot {
        debug_assert!(self.page.page.may_hold(key));
        self.page.page.find(key)
    }

    /// Announces a change of the leaf or of its mapping table: readers restart.
    pub(in crate::page) fn touch(&mut self) {
        self.page.changed();
    }

    /// Inserts a slot at the place that [`find`](Self::find) returns for the key.
    ///
    /// # Panics
    /// If the leaf lacks room.
    pub(in crate::page) fn insert(
        &mut self,
        place: usize,
        key: &[u8],
        value: &[u8],
        flags: SlotFlags,
    ) {
        self.insert_value(place, key, SlotValue::Here(value), flags);
    }

    /// Like `insert`, with a value that may be stored elsewhere.
    ///
    /// # Panics
    /// If the leaf lacks room.
    pub(in crate::page) fn insert_value(
        &mut self,
        place: usize,
        key: &[u8],
        value: SlotValue<'_>,
        flags: SlotFlags,
    ) {
        assert!(key.len() <= self.tree.max_key_bytes());
        assert!(value.cell_bytes() <= self.tree.max_inline_value_bytes());
        self.touch();
        let (bytes, flags) = (value.value_bytes(), value.flags(flags));
        value.with_cell(|cell| self.page.page.insert_cell(place, key, (cell, bytes), flags));
        self.note_stored(None, self.stored_bytes(place));
    }

    /// Replaces the value of a slot.
    ///
    /// # Panics
    /// If the leaf lacks room.
    #[cfg(test)]
    pub(in crate::page) fn overwrite(&mut self, place: usize, value: &[u8], flags: SlotFlags) {
        self.overwrite_value(place, SlotValue::Here(value), flags);
    }

    /// Like `overwrite`, with a value that may be stored elsewhere.
    ///
    /// # Panics
    /// If the leaf lacks room.
    pub(in crate::page) fn overwrite_value(
        &mut self,
        place: usize,
        value: SlotValue<'_>,
        flags: SlotFlags,
    ) {
        assert!(value.cell_bytes() <= self.tree.max_inline_value_bytes());
        self.touch();
        let before = self.stored_bytes(place);
        let (bytes, flags) = (value.value_bytes(), value.flags(flags));
        value.with_cell(|cell| self.page.page.overwrite_cell(place, (cell, bytes), flags));
        self.note_stored(before, self.stored_bytes(place));
    }

    /// Replaces the cell of a slot with one of two values.
    ///
    /// # Panics
    /// If the leaf lacks room.
    pub(in crate::page) fn overwrite_pair(&mut self, place: usize, cell: &[u8], flags: SlotFlags) {
        assert!(cell.len() <= self.tree.max_pair_bytes() && flags.is_pair());
        self.touch();
        let before = self.stored_bytes(place);
        self.page.page.overwrite_cell(place, (cell, cell.len()), flags);
        self.note_stored(before, self.stored_bytes(place));
    }

    /// Sets the epoch of the marks on the leaf.
    pub(in crate::page) fn set_bulk_epoch(&mut self, epoch: u64) {
        self.touch();
        self.page.page.set_bulk_epoch(epoch);
    }

    /// Returns whether the leaf has room for a value of `bytes` bytes, in a new slot or in the
    /// key's existing slot.
    pub(in crate::page) fn has_room_for(&self, key: &[u8], bytes: usize) -> bool {
        LeafRoom::value(bytes).is_on(self.page.resident(), key)
    }

    /// Returns the lowest key above the leaf's range.
    pub(in crate::page) fn high_fence(&self) -> Option<KeyBytes> {
        self.page.page.high_fence()
    }

    /// Sets all flags of a slot except the one for values stored elsewhere.
    pub(in crate::page) fn set_flags(&mut self, place: usize, flags: SlotFlags) {
        let is_elsewhere = self.page.page.flags(place).has(SlotFlags::OVERFLOW);
        let flags = if is_elsewhere { flags.with(SlotFlags::OVERFLOW) } else { flags };
        self.touch();
        let before = self.stored_bytes(place);
        self.page.page.set_flags(place, flags);
        self.note_stored(before, self.stored_bytes(place));
    }

    /// Removes a slot.
    pub(in crate::page) fn remove(&mut self, place: usize) {
        self.touch();
        self.note_stored(self.stored_bytes(place), None);
        self.page.page.remove(place);
    }

    /// Returns the bytes of a slot's key and cell; `None` if the slot has no record.
    fn stored_bytes(&self, place: usize) -> Option<usize> {
        let page = self.page.page;
        page.is_record(place).then(|| page.key_bytes(place) + page.cell_bytes(place))
    }

    fn note_stored(&self, before: Option<usize>, after: Option<usize>) {
        if before != after {
            self.tree.stored.count(self.page_id(), before, after);
        }
    }

    /// Sets the frame's mapping table of versions; 0 for none.
    pub(in crate::page) fn set_mapping(&mut self, word: u64) {
        self.touch();
        self.page.set_mapping(word);
    }

    /// Reserves exactly the bytes that undoing the currently undecided changes needs.
    pub(in crate::page) fn reserve_for_undo(&mut self) {
        attached::reserve_for_undo(&self.page);
    }

    /// Returns the bytes reserved for undoing changes of a record; `None` if it has no chain.
    pub(in crate::page) fn reserved_for(&self, key: &[u8]) -> Option<usize> {
        attached::reserved_for(&self.page, key)
    }

    /// Adjusts the reserved bytes after a write to a record for which `before` bytes were reserved.
    pub(in crate::page) fn reserve_for_undo_of(&mut self, key: &[u8], before: usize) {
        attached::reserve_for_undo_of(&self.page, key, before);
    }

    /// Returns whether the leaf is nearly empty.
    pub(in crate::page) fn is_nearly_empty(&self) -> bool {
        self.page.page.is_nearly_empty()
    }

    /// Returns whether [`PageTree::merge_if_in_memory`] is worth trying after a removal.
    pub(in crate::page) fn is_sparse(&self) -> bool {
        let count = self.count();
        (count.is_multiple_of(MERGE_CHECK_INTERVAL) || count < MERGE_CHECK_INTERVAL)
            && self.page.page.is_sparse()
    }

    /// Removes empty chains from a leaf, and the slots of deleted records.
    pub(in crate::page) fn prune(&mut self) {
        self.prune_after(|_, _| None);
    }

    /// Rolls back what aborted transactions wrote to the leaf, and prunes it.
    pub(in crate::page) fn roll_back_all(&mut self, status: &StatusTable) {
        // SAFETY: the leaf is latched, and the chain belongs to it.
        self.prune_after(|leaf, chain| unsafe { leaf.roll_back(chain, status) });
    }

    /// Calls `visit` with each chain, and then removes empty chains and the slots of deleted
    /// records. `visit` returns the chain's slot if it looked it up.
    fn prune_after(&mut self, mut visit: impl FnMut(&mut Self, Chain<'_>) -> Option<usize>) {
        let word = self.mapping();
        let (mut is_changed, mut deleted) = (false, SmallVec::<[usize; 16]>::new());
        let keep = |chain: Chain<'_>| {
            let place = visit(self, chain);
            if !chain.is_empty() {
                is_changed |= place.is_some();
                return true;
            }
            is_changed = true;
            let place = place.unwrap_or_else(|| self.place_of(chain));
            let flags = self.flags(place);
            // Slots with marks of a bulk operation stay, because some transactions still see their
            // before-images.
            if flags.has(SlotFlags::DELETED) && !flags.is_marked() {
                deleted.push(place);
            } else {
                self.set_flags(place, flags.without(SlotFlags::VERSIONED));
            }
            false
        };
        // SAFETY: latched; the flags of the slots are set here, or the slots are removed below.
        let left = unsafe { Mapping::retain(word, keep) };
        if !is_changed {
            return;
        }
        self.set_mapping(left);
        // From the highest place, because a removal moves the slots above it.
        deleted.sort_unstable();
        for place in deleted.into_iter().rev() {
            self.remove(place);
        }
        // The bytes reserved for undoing removed changes are released. Otherwise a nearly empty leaf
        // might have no room for another record.
        self.reserve_for_undo();
    }

    /// Rolls back what aborted transactions wrote to the record of a chain. Returns the record's
    /// slot if that changed anything. The caller then reserves the bytes for undo.
    ///
    /// # Safety
    /// The chain is in the mapping table of the leaf, found under its latch.
    pub(in crate::page) unsafe fn roll_back(
        &mut self,
        chain: Chain<'_>,
        status: &StatusTable,
    ) -> Option<usize> {
        let versioned = SlotFlags::NONE.with(SlotFlags::VERSIONED);
        let mut found = None;
        // SAFETY: latched.
        unsafe {
            chain.roll_back(status, |before| {
                let place = self.place_of(chain);
                found = Some(place);
                match before {
                    Some(value) => self.overwrite_value(place, value, versioned),
                    None => self.set_flags(place, versioned.with(SlotFlags::DELETED)),
                }
            });
        }
        found
    }

    /// Returns the slot of a chain's record.
    fn place_of(&self, chain: Chain<'_>) -> usize {
        let KeySlot::At(place) = self.find(chain.key()) else {
            unreachable!("a record with a chain has a slot")
        };
        place
    }
}

impl<'t> Deref for LatchedLeaf<'t> {
    type Target = LeafView<'t>;

    #[inline(always)]
    fn deref(&self) -> &LeafView<'t> {
        &self.view
    }
}
