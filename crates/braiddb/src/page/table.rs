//! The records of a paged table: a tree of pages, and beside it the versions of what was written lately.
//!
//! What is done to one record is done while its leaf is latched, in one stretch: aborted changes are taken
//! back first; then the write is refused, or its before-image goes in front of the record's chain and the
//! value onto the page. Readers copy the value and load the head of the chain within one version of the
//! leaf.
//!
//! Invariants: a record with a chain has a slot with the *versioned* flag; one that is deleted keeps its slot
//! as long as it has a chain. What is undecided can be undone: the room for that is reserved.

use std::ops::{Bound, Range};
use std::sync::Arc;

use smallvec::SmallVec;

use super::bulk::{BulkState, Virtual};
use super::cleanup::prune_on;
use super::error::{Interrupted, PageError};
use super::large::LargeValues;
use super::layout::{Slot, SlotFlags};
use super::nonblocking::{Interruptions, NotNow};
use super::resident_set::{Admitted, HeldPages, Needs};
use super::space::PageSpace;
use super::tree::{LatchedLeaf, LeafView, PageCursor, PageTree, Room, Stored};
use super::value::{CopiedValue, SlotValue};
use super::versions::{Base, ChangeRef, Mapping, Refusal, Seen, SeenValue, Start};
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::reclaim::OperationGuard;
use crate::rid::TableId;
use crate::sync::OnceLock;
use crate::types::KeyBuffer;
use crate::version::{Stamp, StatusTable, Undecided, View, Visible};

/// Chains on a leaf from which on a writer looks for empty ones.
const PRUNED_FROM: usize = 8;

/// The records of a paged table.
#[derive(Debug)]
pub(crate) struct PagedTable {
    /// Present until the table is dropped.
    tree: Option<PageTree>,
    /// Values that are too long for a page; made with the first.
    large: OnceLock<Arc<LargeValues>>,
    id: TableId,
    memory: Arc<MemoryCounters>,
    pub(super) interruptions: Interruptions,
    pub(super) bulk: BulkState,
}

/// What a transaction sees of a record.
#[derive(Clone, Debug)]
pub(crate) struct PagedRecord {
    /// `None`: there is no record.
    pub(crate) value: Option<CopiedValue>,
    pub(crate) provenance: ReadProvenance,
}

impl PagedRecord {
    /// What is seen of a key that no record can have.
    pub(super) const NONE: Self = Self {
        value: None,
        provenance: ReadProvenance { committed: None, own: false, below_newer: false },
    };

    /// What everybody sees of a slot of a leaf without versions and marks.
    #[inline]
    fn settled(leaf: LeafView<'_>, place: usize) -> Self {
        let is_deleted = leaf.flags(place).has(SlotFlags::DELETED);
        Self { value: (!is_deleted).then(|| leaf.value(place)), ..Self::NONE }
    }
}

/// Where what a transaction sees comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadProvenance {
    /// When it was committed; `None` for its own, and for what was durable and visible to all.
    pub(crate) committed: Option<Lsn>,
    pub(crate) own: bool,
    /// Whether somebody else has committed a newer one.
    pub(crate) below_newer: bool,
}

/// The record as a write finds it, for its transaction to decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBeforeWrite<'a> {
    /// Whether the record exists, for the writer.
    pub(crate) exists: bool,
    pub(crate) base: Base<'a>,
    /// A change that was made of what a bulk operation did to the record: the caller's, to be collected when it is due.
    pub(crate) made: Option<ChangeRef>,
}

/// What the transaction decides about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision<E> {
    /// Leave the record alone, and return this.
    Refuse(E),
    /// Write it, onto the transaction's own newest change.
    Overwrite,
    /// Write it, with a change of its own, which has this position in its write set.
    Push(u32),
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written<E> {
    Refused(E),
    Overwritten,
    /// The change, which is the transaction's.
    Pushed(ChangeRef),
}

/// A slot, as it was copied within one version of its leaf.
pub(super) struct Copied<'o> {
    on_page: Option<CopiedValue>,
    /// What the slot's mark means, if it is marked.
    marked: Option<Box<Virtual>>,
    start: Start<'o>,
}

impl PagedTable {
    /// An empty table.
    ///
    /// # Errors
    /// When there is no page for it.
    pub(crate) async fn create(
        space: Arc<PageSpace>,
        id: TableId,
        memory: Arc<MemoryCounters>,
    ) -> Result<Self, PageError> {
        let tree = Some(PageTree::create(space, id).await?);
        let (large, interruptions, bulk) = Default::default();
        Ok(Self { tree, large, id, memory, interruptions, bulk })
    }

    /// The table of these trees, as they were listed.
    pub(super) fn of_trees(
        tree: PageTree,
        large: Option<LargeValues>,
        id: TableId,
        memory: Arc<MemoryCounters>,
    ) -> Self {
        let made = OnceLock::new();
        if let Some(large) = large {
            made.set(Arc::new(large)).expect("set once");
        }
        let (interruptions, bulk) = Default::default();
        Self { tree: Some(tree), large: made, id, memory, interruptions, bulk }
    }

    pub(super) fn id(&self) -> TableId {
        self.id
    }

    pub(super) fn memory(&self) -> &MemoryCounters {
        &self.memory
    }

    pub(super) fn tree(&self) -> &PageTree {
        self.tree.as_ref().expect("present until the table is dropped")
    }

    /// How many records are on its pages, and what their keys and values take; of values that are too long for a page,
    /// all that there are, whoever sees them.
    pub(crate) fn stored(&self) -> Stored {
        let Stored { records, bytes } = self.tree().stored();
        Stored { records, bytes: bytes + self.large().map_or(0, |large| large.stored().bytes) }
    }

    /// Pages that its records are on.
    pub(crate) fn leaves(&self) -> u64 {
        self.tree().pages_by_level()[0]
    }

    /// Levels of pages, and the bytes of those that lead to the ones its records are on, about: others may split and merge
    /// some meanwhile.
    pub(crate) fn index_size(&self) -> (u64, u64) {
        let pages = self.tree().pages_by_level();
        let leading = pages.iter().skip(1).sum::<u64>();
        (pages.len() as u64, leading * self.tree().space().page_bytes() as u64)
    }

    /// The values that are too long for a page, if there ever was one.
    pub(crate) fn large(&self) -> Option<&Arc<LargeValues>> {
        self.large.get()
    }

    /// The same, made if there was none.
    ///
    /// # Errors
    /// When there is no page for them.
    pub(crate) async fn make_large(&self) -> Result<&Arc<LargeValues>, PageError> {
        if let Some(large) = self.large() {
            return Ok(large);
        }
        let made = LargeValues::create(self.tree().space().clone(), self.id).await?;
        Ok(self.large.get_or_init(|| Arc::new(made)))
    }

    /// The longest key, in bytes.
    pub(crate) fn max_key_bytes(&self) -> usize {
        self.tree().max_key_bytes()
    }

    /// The longest value that lies on its record's page, in bytes.
    pub(crate) fn max_inline_value_bytes(&self) -> usize {
        self.tree().max_inline_value_bytes()
    }

    /// The longest cell of two values, in bytes.
    pub(super) fn max_pair_bytes(&self) -> usize {
        self.tree().max_pair_bytes()
    }

    /// What `view` sees of a record. It waits for no page, for the guard keeps all that is retired meanwhile.
    ///
    /// # Errors
    /// When a page cannot be had now. Within, while another worker decides what is seen.
    pub(crate) async fn read(
        &self,
        key: &[u8],
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<Result<PagedRecord, Undecided>, NotNow> {
        if key.len() > self.max_key_bytes() {
            return Ok(Ok(PagedRecord::NONE));
        }
        let look = |leaf: LeafView<'_>, slot| Copied::of(self, leaf, slot, key, operation);
        match self.tree().read_if_in_memory(key, look).await {
            Ok(copied) => Ok(copied.seen_by(view)),
            Err(interrupted) => Err(self.not_now(interrupted)),
        }
    }

    /// Writes a record: `decide` says whether, and how, when it is known what is there. `value`: none deletes
    /// the record, if there is one. It waits for no page, as [`Self::read`].
    ///
    /// # Errors
    /// When a page cannot be had now; then nothing is done. Within, when the transaction may not write the record.
    pub(crate) async fn write<'v, E>(
        &self,
        key: &[u8],
        value: Option<SlotValue<'_>>,
        view: impl Fn() -> View<'v>,
        operation: &OperationGuard,
        decide: impl FnOnce(RecordBeforeWrite<'_>) -> Decision<E>,
    ) -> Result<Result<Written<E>, Refusal>, NotNow> {
        let room = value.map_or(Room::NONE, |value| Room::value(value.cell_bytes()));
        match self.tree().latch_if_in_memory(key, room).await {
            Ok(leaf) => Ok(self.write_latched(leaf, key, value, view(), operation, decide)),
            Err(interrupted) => Err(self.not_now(interrupted)),
        }
    }

    /// Writes a record, on whose leaf there is room for the value.
    pub(super) fn write_latched<E>(
        &self,
        mut leaf: LatchedLeaf<'_>,
        key: &[u8],
        value: Option<SlotValue<'_>>,
        view: View<'_>,
        operation: &OperationGuard,
        decide: impl FnOnce(RecordBeforeWrite<'_>) -> Decision<E>,
    ) -> Result<Written<E>, Refusal> {
        self.roll_back_on(&mut leaf, key, view.status);
        let reserved = leaf.reserved_for(key);
        let made = self.unmark_for_write(&mut leaf, key, view)?;
        let slot = leaf.find(key);
        let flags = match slot {
            Slot::At(place) => leaf.flags(place),
            Slot::Before(_) => SlotFlags::NONE,
        };
        let exists = matches!(slot, Slot::At(_)) && !flags.has(SlotFlags::DELETED);
        // SAFETY: latched.
        let chain = unsafe { Mapping::find(leaf.mapping(), key) };
        let base = match chain {
            // SAFETY: latched, and rolled back above.
            Some(chain) => unsafe { chain.base(view, operation) }.inspect_err(|_| {
                assert!(made.is_none(), "the writer sees what was made a change")
            })?,
            None => Base::Settled,
        };
        let pushed = match decide(RecordBeforeWrite { exists, base, made }) {
            Decision::Refuse(why) => return Ok(Written::Refused(why)),
            Decision::Overwrite => None,
            Decision::Push(position) => {
                Some(self.push(&mut leaf, key, view, exists.then_some(slot), position))
            }
        };
        self.put_on(&mut leaf, key, value);
        leaf.reserve_for_undo_of(key, reserved.unwrap_or(0));
        if reserved.is_none() {
            prune_many(&mut leaf);
        }
        Ok(pushed.map_or(Written::Overwritten, Written::Pushed))
    }

    /// Puts a change in front of a record's chain, which has the value in `slot` now, or is absent.
    fn push(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        key: &[u8],
        view: View<'_>,
        slot: Option<Slot>,
        position: u32,
    ) -> ChangeRef {
        let before = slot.map(|slot| {
            let Slot::At(place) = slot else { unreachable!("the record exists") };
            leaf.value(place)
        });
        let word = leaf.mapping();
        // SAFETY: latched; the caller gives the key a slot before it lets go of the latch.
        let (chain, new_word) = unsafe { Mapping::find_or_make(word, &self.memory, self.id, key) };
        if new_word != word {
            leaf.set_mapping(new_word);
        } else {
            leaf.touch();
        }
        let stamp = Stamp::in_flight(view.me);
        // SAFETY: latched from before the look at the value until it is written; not refused.
        unsafe {
            chain.push(&self.memory, stamp, before.as_ref().map(CopiedValue::as_slot), position)
        }
    }

    /// Puts a value onto the page, or marks the record deleted, which has a chain.
    fn put_on(&self, leaf: &mut LatchedLeaf<'_>, key: &[u8], value: Option<SlotValue<'_>>) {
        let versioned = SlotFlags::NONE.with(SlotFlags::VERSIONED);
        let bytes = match (leaf.find(key), value) {
            (Slot::At(place), Some(value)) => {
                leaf.overwrite_value(place, value, versioned);
                value.cell_bytes()
            }
            (Slot::Before(place), Some(value)) => {
                leaf.insert_value(place, key, value, versioned);
                value.cell_bytes()
            }
            (Slot::At(place), None) => {
                leaf.set_flags(place, versioned.with(SlotFlags::DELETED));
                leaf.cell_bytes(place)
            }
            (Slot::Before(_), None) => unreachable!("only a record that exists is deleted"),
        };
        // SAFETY: latched.
        if let Some(chain) = unsafe { Mapping::find(leaf.mapping(), key) } {
            chain.note_on_page(bytes);
        }
    }

    /// Takes back what aborted transactions wrote to a record, and keeps room for what is still undecided below that: the value
    /// that is on the page then may be shorter than the one that was.
    pub(super) fn roll_back_on(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        key: &[u8],
        status: &StatusTable,
    ) {
        // SAFETY: latched.
        let Some(chain) = (unsafe { Mapping::find(leaf.mapping(), key) }) else { return };
        let versioned = SlotFlags::NONE.with(SlotFlags::VERSIONED);
        let mut any = false;
        // SAFETY: latched.
        unsafe {
            chain.roll_back(status, |before| {
                any = true;
                let Slot::At(place) = leaf.find(key) else {
                    unreachable!("a record with a chain has a slot")
                };
                match before {
                    Some(value) => leaf.overwrite_value(place, value, versioned),
                    None => leaf.set_flags(place, versioned.with(SlotFlags::DELETED)),
                }
            });
        }
        if any {
            leaf.reserve_for_undo();
        }
    }

    /// Waits until what interrupted an operation on tables is there, with what it needed before. What it does next, without
    /// suspending, as long as it keeps what this returns, does not meet that again. The caller has admitted
    /// [as many images](Self::image_bytes) as this may keep, and holds no operation guard.
    ///
    /// # Errors
    /// When that cannot be had.
    pub(crate) async fn gather(
        &self,
        needs: &mut Needs,
        interrupted: &[Interrupted],
        admitted: Option<Admitted>,
    ) -> Result<HeldPages, PageError> {
        self.tree().space().gather(needs, interrupted, admitted).await
    }

    /// What an operation on one record needs at once: who finds that it is on another leaf by now needs that one.
    pub(crate) fn needs(&self) -> Needs {
        self.tree().needs(0)
    }

    /// Bytes of the images that [`Self::gather`] may have in memory at a time.
    pub(crate) fn image_bytes(&self, needs: &Needs, interrupted: &[Interrupted]) -> u64 {
        (needs.pages_with(interrupted) * self.tree().space().page_bytes()) as u64
    }

    /// A cursor over a range of keys.
    pub(crate) fn cursor(
        &self,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
    ) -> PagedCursor<'_> {
        PagedCursor { table: self, cursor: self.tree().cursor(low, high, reverse), reverse }
    }
}

impl Drop for PagedTable {
    fn drop(&mut self) {
        self.tree.take().expect("dropped once").free_all(Some(self.memory.clone()));
    }
}

/// Takes empty chains off a leaf whose number of chains has come to one from which on it is done: each twice the one before, so that
/// where none is empty yet, not each write looks at all.
fn prune_many(leaf: &mut LatchedLeaf<'_>) {
    // SAFETY: latched.
    let mapping = unsafe { Mapping::from_word(leaf.mapping()) };
    let chains = mapping.map_or(0, |mapping| mapping.chains());
    if chains >= PRUNED_FROM && chains.is_power_of_two() {
        prune_on(leaf);
    }
}

/// Copies a slot, and where its chain begins, between the two checks of the leaf's version.
pub(super) fn copy_slot<'o, 'k>(
    table: &PagedTable,
    leaf: LeafView<'_>,
    place: usize,
    key: impl FnOnce() -> &'k [u8],
    operation: &'o OperationGuard,
) -> Copied<'o> {
    let flags = leaf.flags(place);
    let on_page = (!flags.has(SlotFlags::DELETED)).then(|| leaf.value(place));
    let start = match flags.has(SlotFlags::VERSIONED) {
        // SAFETY: loaded with Acquire under the guard.
        true => unsafe { Mapping::start(leaf.mapping(), key(), operation) },
        false => Start::NONE,
    };
    let copy = || table.bulk.epochs.copy(leaf.bulk_epoch(), leaf.value_before(place));
    let marked = flags.is_marked().then(copy);
    Copied { on_page, marked, start }
}

impl<'o> Copied<'o> {
    /// The slot of a key, and where its chain begins.
    pub(super) fn of(
        table: &PagedTable,
        leaf: LeafView<'_>,
        slot: Slot,
        key: &[u8],
        operation: &'o OperationGuard,
    ) -> Self {
        match slot {
            Slot::At(place) => copy_slot(table, leaf, place, || key, operation),
            Slot::Before(_) => Copied { on_page: None, marked: None, start: Start::NONE },
        }
    }

    pub(super) fn seen_by(mut self, view: View<'_>) -> Result<PagedRecord, Undecided> {
        if let Some(marked) = self.marked.take() {
            let (committed, own) = match marked.seen_by(view)? {
                Visible::Own => (None, true),
                Visible::Committed(lsn) => (Some(lsn), false),
                Visible::No => {
                    let below_bulk = marked.is_committed(view.status);
                    self.on_page = marked.before;
                    return self.seen_below(view, below_bulk);
                }
            };
            // Its changes are older, so they say nothing of it.
            let provenance = ReadProvenance { committed, own, below_newer: false };
            return Ok(PagedRecord { value: self.on_page, provenance });
        }
        self.seen_below(view, false)
    }

    /// The same, of a record whose mark says that what a bulk operation left is not seen, or that has none.
    #[inline]
    fn seen_below(self, view: View<'_>, below_bulk: bool) -> Result<PagedRecord, Undecided> {
        let Seen { value, committed, own, below_newer } = self.start.see(view)?;
        let below_newer = below_newer || below_bulk;
        let value = match value {
            SeenValue::OnPage => self.on_page,
            SeenValue::Before(before) => before.map(SlotValue::copied),
        };
        Ok(PagedRecord { value, provenance: ReadProvenance { committed, own, below_newer } })
    }
}

/// What was copied of a leaf.
enum CopiedSlots<'o> {
    /// Records of one without versions and marks.
    Settled(Vec<(KeyBuffer, PagedRecord)>),
    Versioned(Vec<(KeyBuffer, Copied<'o>)>),
}

/// A position in a range of a paged table.
#[derive(Debug)]
pub(crate) struct PagedCursor<'t> {
    table: &'t PagedTable,
    cursor: PageCursor<'t>,
    reverse: bool,
}

impl PagedCursor<'_> {
    /// The next records, `most` at most, in the order of the cursor, as `view` sees them, up to the first that is
    /// being decided; and whether these are all that were looked at. `None` at the end. The cursor stays
    /// before them. It waits for no page, as [`PagedTable::read`], and does not suspend if it is `now`.
    ///
    /// # Errors
    /// When a page cannot be had now.
    pub(crate) async fn peek<'v>(
        &mut self,
        most: usize,
        now: bool,
        view: impl Fn() -> View<'v>,
        operation: &OperationGuard,
    ) -> Result<Option<(Vec<(KeyBuffer, PagedRecord)>, bool)>, NotNow> {
        let table = self.table;
        let key_of = |leaf: LeafView<'_>, place| {
            let mut key = KeyBuffer::new();
            leaf.copy_key(place, key.inner_mut());
            key
        };
        let reverse = self.reverse;
        let copied = self.cursor.peek_if_in_memory(most, now, |leaf, places: Range<usize>| {
            let count = places.len();
            let at = |n| places.start + if reverse { count - 1 - n } else { n };
            let places = (0..count).map(at);
            // Where no versions are, what is on the page is what everybody sees (Umbra, §3.1.1).
            if leaf.is_settled() {
                let each = |place| (key_of(leaf, place), PagedRecord::settled(leaf, place));
                return CopiedSlots::Settled(places.map(each).collect());
            }
            let each = |place| {
                let key = key_of(leaf, place);
                let copied = copy_slot(table, leaf, place, || &key, operation);
                (key, copied)
            };
            CopiedSlots::Versioned(places.map(each).collect())
        });
        let copied = copied.await.map_err(|interrupted| table.not_now(interrupted))?;
        let copied = match copied {
            None => return Ok(None),
            Some(CopiedSlots::Settled(records)) => return Ok(Some((records, true))),
            Some(CopiedSlots::Versioned(copied)) => copied,
        };
        let all = copied.len();
        let mut records = Vec::with_capacity(all);
        for (key, copied) in copied {
            match copied.seen_by(view()) {
                Ok(record) => records.push((key, record)),
                Err(Undecided) => break,
            }
        }
        let whole = records.len() == all;
        Ok(Some((records, whole)))
    }

    /// What interrupts those who come next to leaves that are on disk, behind the one in which the cursor goes on: `most` at
    /// most, and no more than there are frames for beside others.
    pub(crate) fn absent_ahead(&self, most: usize) -> SmallVec<[Interrupted; 4]> {
        let most = most.min(self.table.tree().space().most_ahead());
        self.cursor.leaves_ahead(most).into_iter().map(Interrupted::Absent).collect()
    }

    /// Moves behind all of the records that `peek` just looked at.
    pub(crate) fn pass_all(&mut self) {
        self.cursor.pass_all();
    }

    /// Moves behind that of them whose key is `key`.
    pub(crate) fn pass_to(&mut self, key: &[u8]) {
        self.cursor.pass_to(key);
    }
}
