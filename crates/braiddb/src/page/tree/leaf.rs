//! Leaves as those see them who read and change records.

use std::marker::PhantomData;
use std::ops::Deref;

use super::{PageTree, attached};
use crate::page::bulk::read_pair;
use crate::page::frame::{LatchedPage, ResidentPage};
use crate::page::layout::{KeyBytes, Sink, Slot, SlotFlags};
use crate::page::map::PageId;
use crate::page::value::{CopiedValue, SlotValue, ValueBytes};

/// Slots of a leaf; a leaf with so many more is not looked at for a neighbour when one is removed.
const LOOK_EVERY: usize = 8;

/// A leaf, under a version or latched. Under a version, what it says means nothing until validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafView<'t> {
    page: ResidentPage<'t>,
}

impl<'t> LeafView<'t> {
    pub(super) fn new(page: ResidentPage<'t>) -> Self {
        Self { page }
    }

    /// What leads to the versions of the leaf's records; 0: nothing does.
    #[inline(always)]
    pub(in crate::page) fn mapping(self) -> u64 {
        self.page.mapping()
    }

    /// Slots of the leaf.
    pub(in crate::page) fn count(self) -> usize {
        self.page.page.count()
    }

    pub(in crate::page) fn flags(self, place: usize) -> SlotFlags {
        self.page.page.flags(place)
    }

    /// Bytes that a slot's cell has of its value, which are no more than a page has.
    pub(in crate::page) fn cell_bytes(self, place: usize) -> usize {
        self.page.page.cell_bytes(place).min(self.page.page.bytes())
    }

    /// Whether all on the leaf is committed, and seen by everybody: nothing leads to versions, and it has no marks.
    #[inline(always)]
    pub(in crate::page) fn is_settled(self) -> bool {
        self.page.is_settled()
    }

    /// The epoch of the marks on the leaf; 0: it has none.
    #[inline(always)]
    pub(in crate::page) fn bulk_epoch(self) -> u64 {
        self.page.page.bulk_epoch()
    }

    /// A copy of what a slot has of its value; of two values, of the one that a bulk operation left.
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

    /// Copies of the two values of a slot: the one that a bulk operation left, and the one before.
    #[cold]
    pub(in crate::page) fn pair(self, place: usize) -> (CopiedValue, CopiedValue) {
        let mut cell = ValueBytes::new();
        self.page.page.copy_value(place, &mut cell);
        let (now, before) = read_pair(&cell);
        (now.copied(), before.copied())
    }

    /// A copy of the value that a marked slot's record had before the bulk operation; `None` if there was no record.
    pub(in crate::page) fn value_before(self, place: usize) -> Option<CopiedValue> {
        let flags = self.flags(place);
        match flags.has(SlotFlags::BULK_DELETED) {
            false => None,
            true if flags.is_pair() => Some(self.pair(place).1),
            true => Some(self.value(place)),
        }
    }

    /// Appends what a slot's cell has of its value to `out`.
    #[inline]
    pub(in crate::page) fn copy_value(self, place: usize, out: &mut impl Sink) {
        self.page.page.copy_value(place, out);
    }

    /// Appends a slot's key to `out`.
    pub(in crate::page) fn copy_key(self, place: usize, out: &mut impl Sink) {
        self.page.page.copy_key(place, out);
    }
}

/// What the caller of [`PageTree::latch`] is about to need on the leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room(Option<usize>);

impl Room {
    /// Nothing: slots are removed, flags are set, values become no longer.
    pub(crate) const NONE: Self = Self(None);

    /// For a value of so many bytes, in a new slot of the key or in the one it has.
    pub(crate) fn value(bytes: usize) -> Self {
        Self(Some(bytes))
    }

    /// Whether a page has it, besides what is reserved on it.
    pub(super) fn is_on(self, page: ResidentPage<'_>, key: &[u8]) -> bool {
        self.0.is_none_or(|bytes| {
            let slot = page.page.find(key);
            page.page.has_room(slot, key, bytes, page.reserved_bytes())
        })
    }

    /// Words that the key's slot takes then.
    pub(super) fn words(self, page: ResidentPage<'_>, key: &[u8]) -> usize {
        page.page.slot_words(key, self.0.unwrap_or(0))
    }
}

/// A leaf that nobody else changes: latched until this is dropped, which is before anything is
/// suspended on.
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

    /// The page.
    pub(in crate::page) fn page(&self) -> &LatchedPage<'t> {
        &self.page
    }

    /// The page's id.
    pub(in crate::page) fn page_id(&self) -> PageId {
        self.page.id()
    }

    /// The slot of a key.
    pub(in crate::page) fn find(&self, key: &[u8]) -> Slot {
        debug_assert!(self.page.page.may_hold(key));
        self.page.page.find(key)
    }

    /// The leaf, or what hangs on it, is about to change: readers start again.
    pub(in crate::page) fn touch(&mut self) {
        self.page.changed();
    }

    /// Inserts a slot at the place where [`find`](Self::find) says the key would be.
    ///
    /// # Panics
    /// If there is no room.
    pub(in crate::page) fn insert(
        &mut self,
        place: usize,
        key: &[u8],
        value: &[u8],
        flags: SlotFlags,
    ) {
        self.insert_value(place, key, SlotValue::Here(value), flags);
    }

    /// Replaces the value of a slot with one that may be stored outside the page.
    ///
    /// # Panics
    /// If there is no room.
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

    /// Gives a slot another value.
    ///
    /// # Panics
    /// If there is no room.
    #[cfg(test)]
    pub(in crate::page) fn overwrite(&mut self, place: usize, value: &[u8], flags: SlotFlags) {
        self.overwrite_value(place, SlotValue::Here(value), flags);
    }

    /// Replaces the value of a slot with one that may be stored outside the page.
    ///
    /// # Panics
    /// If there is no room.
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

    /// Gives a slot a cell of two values.
    ///
    /// # Panics
    /// If there is no room.
    pub(in crate::page) fn overwrite_pair(&mut self, place: usize, cell: &[u8], flags: SlotFlags) {
        assert!(cell.len() <= self.tree.max_pair_bytes() && flags.is_pair());
        self.touch();
        let before = self.stored_bytes(place);
        self.page.page.overwrite_cell(place, (cell, cell.len()), flags);
        self.note_stored(before, self.stored_bytes(place));
    }

    /// Says of which epoch the marks on the leaf are.
    pub(in crate::page) fn set_bulk_epoch(&mut self, epoch: u64) {
        self.touch();
        self.page.page.set_bulk_epoch(epoch);
    }

    /// Whether there is room for a value of so many bytes, in a new slot of the key or in the one it has.
    pub(in crate::page) fn has_room_for(&self, key: &[u8], bytes: usize) -> bool {
        Room::value(bytes).is_on(self.page.resident(), key)
    }

    /// The least key above all that the leaf may have.
    pub(in crate::page) fn high_fence(&self) -> Option<KeyBytes> {
        self.page.page.high_fence()
    }

    /// Sets all flags of a slot, but what says where its value is.
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

    /// Bytes of the key of the record in a slot, and of what its cell has of the value; `None` if there is none.
    fn stored_bytes(&self, place: usize) -> Option<usize> {
        let page = self.page.page;
        page.is_record(place).then(|| page.key_bytes(place) + page.cell_bytes(place))
    }

    fn note_stored(&self, before: Option<usize>, after: Option<usize>) {
        if before != after {
            self.tree.stored.count(self.page_id(), before, after);
        }
    }

    /// Hangs what leads to the versions of the leaf's records on its frame; 0: nothing does.
    pub(in crate::page) fn set_mapping(&mut self, word: u64) {
        self.touch();
        self.page.set_mapping(word);
    }

    /// Keeps as many bytes free as undoing takes of what is undecided by now.
    pub(in crate::page) fn reserve_for_undo(&mut self) {
        attached::reserve_for_undo(&self.page);
    }

    /// Bytes that are kept free for undoing what is undecided of a record; `None`: it has no chain.
    pub(in crate::page) fn reserved_for(&self, key: &[u8]) -> Option<usize> {
        attached::reserved_for(&self.page, key)
    }

    /// Keeps as many bytes free as undoing takes, after a record was written for which `before` were kept free.
    pub(in crate::page) fn reserve_for_undo_of(&mut self, key: &[u8], before: usize) {
        attached::reserve_for_undo_of(&self.page, key, before);
    }

    /// Whether next to nothing is on it.
    pub(in crate::page) fn is_nearly_empty(&self) -> bool {
        self.page.page.is_nearly_empty()
    }

    /// Whether [`PageTree::merge_if_in_memory`] is worth a look, after a removal.
    pub(in crate::page) fn is_sparse(&self) -> bool {
        let count = self.count();
        (count.is_multiple_of(LOOK_EVERY) || count < LOOK_EVERY) && self.page.page.is_sparse()
    }
}

impl<'t> Deref for LatchedLeaf<'t> {
    type Target = LeafView<'t>;

    #[inline(always)]
    fn deref(&self) -> &LeafView<'t> {
        &self.view
    }
}
