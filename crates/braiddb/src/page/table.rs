//! Records of a paged table: a tree of pages, and version chains of recently written records.
//!
//! Each operation on a record runs without suspension while the record's leaf is latched. It first
//! rolls back aborted changes. Then the write is either refused, or its before-image is pushed onto
//! the record's chain and the new value is put on the page. A reader copies the value and loads the
//! head of the chain under one version of the leaf.
//!
//! Invariants:
//!
//! - A record with a chain has a slot with the *versioned* flag. A deleted record keeps its slot as
//!   long as it has a chain.
//! - Uncommitted changes can be undone, because the leaf reserves the bytes for that.

use std::sync::Arc;

use super::bulk::{BulkState, VirtualChange};
use super::error::{Interrupted, PageError};
use super::fault::Admitted;
use super::large::LargeValues;
use super::layout::{KeySlot, SlotFlags};
use super::resident_set::{HeldPages, PageNeeds};
use super::space::PageSpace;
use super::tree::{LatchedLeaf, LeafRoom, LeafView, PageTree, StoredSize};
use super::value::{CopiedValue, SlotValue};
use super::versions::{ChainBase, ChangeRef, Mapping, SeenValue, WalkEnd, WalkHead, WriteRefusal};
use super::would_suspend::{Interruptions, WouldSuspend};
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::reclaim::OperationGuard;
use crate::rid::TableId;
use crate::sync::OnceLock;
use crate::version::{Stamp, Undecided, View, Visibility};

/// Minimum number of chains on a leaf before a writer looks for empty ones.
const MIN_CHAINS_TO_PRUNE: usize = 8;

/// Records of a paged table.
#[derive(Debug)]
pub(crate) struct PagedTable {
    /// Present until the table is dropped.
    tree: Option<PageTree>,
    /// Values that are too long for a page; created with the first such value.
    large: OnceLock<Arc<LargeValues>>,
    id: TableId,
    memory: Arc<MemoryCounters>,
    interruptions: Interruptions,
    pub(super) bulk: BulkState,
}

/// A record as one transaction sees it.
#[derive(Clone, Debug)]
pub(crate) struct PagedRecord {
    /// `None` if the record does not exist.
    pub(crate) value: Option<CopiedValue>,
    pub(crate) provenance: ReadProvenance,
}

impl PagedRecord {
    /// Result for a key that no record can have.
    pub(super) const NONE: Self = Self {
        value: None,
        provenance: ReadProvenance { committed: None, own: false, below_newer: false },
    };

    /// Returns the record in a slot of a leaf without version chains and marks, which is visible to
    /// all transactions.
    #[inline]
    pub(super) fn settled(leaf: LeafView<'_>, place: usize) -> Self {
        let is_deleted = leaf.flags(place).has(SlotFlags::DELETED);
        Self { value: (!is_deleted).then(|| leaf.value(place)), ..Self::NONE }
    }
}

/// Origin of a value that a transaction sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadProvenance {
    /// Commit LSN; `None` for the transaction's own write, and for a value that was durable and
    /// visible to all.
    pub(crate) committed: Option<Lsn>,
    pub(crate) own: bool,
    /// True if another transaction has committed a newer version.
    pub(crate) below_newer: bool,
}

/// State of a record before a write, for the writing transaction to decide on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordBeforeWrite<'a> {
    /// True if the record exists for the writer.
    pub(crate) exists: bool,
    pub(crate) base: ChainBase<'a>,
    /// Change that was created from a mark of a bulk operation. It belongs to the caller, which
    /// collects it when it is due.
    pub(crate) made: Option<ChangeRef>,
}

/// Decision of a transaction about a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteDecision<E> {
    /// Do not write the record, and return this reason.
    Refuse(E),
    /// Write the record, and replace the transaction's own newest change.
    Overwrite,
    /// Write the record with a new change, which has this position in the write set.
    Push(u32),
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteResult<E> {
    Refused(E),
    Overwritten,
    /// The new change, which belongs to the transaction.
    Pushed(ChangeRef),
}

/// Copy of a slot, taken under one version of its leaf.
pub(super) struct SlotCopy<'o> {
    on_page: Option<CopiedValue>,
    /// State of the bulk operation's mark, if the slot is marked.
    marked: Option<Box<VirtualChange>>,
    start: WalkHead<'o>,
}

impl PagedTable {
    /// Creates an empty table.
    ///
    /// # Errors
    /// When no page is available for it.
    pub(crate) async fn create(
        space: Arc<PageSpace>,
        id: TableId,
        memory: Arc<MemoryCounters>,
    ) -> Result<Self, PageError> {
        let tree = Some(PageTree::create(space, id).await?);
        let (large, interruptions, bulk) = Default::default();
        Ok(Self { tree, large, id, memory, interruptions, bulk })
    }

    /// Creates the table from its trees, as a checkpoint listed them.
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

    /// Returns the number of records on the pages, and the bytes of their keys and values. Values
    /// that are too long for a page are all counted, whether visible or not.
    pub(crate) fn stored(&self) -> StoredSize {
        let StoredSize { records, bytes } = self.tree().stored();
        StoredSize { records, bytes: bytes + self.large().map_or(0, |large| large.stored().bytes) }
    }

    /// Returns whether pages are probably not in the processor's caches.
    #[inline(always)]
    pub(crate) fn is_cold(&self) -> bool {
        self.tree().has_cold_levels()
    }

    /// Returns the number of leaf pages.
    pub(crate) fn leaves(&self) -> u64 {
        self.tree().pages_by_level()[0]
    }

    /// Returns the number of levels, and the approximate bytes of the inner pages.
    pub(crate) fn index_size(&self) -> (u64, u64) {
        let pages = self.tree().pages_by_level();
        let leading = pages.iter().skip(1).sum::<u64>();
        (pages.len() as u64, leading * self.tree().space().page_bytes() as u64)
    }

    /// Returns the values that are too long for a page, if the table ever had one.
    pub(crate) fn large(&self) -> Option<&Arc<LargeValues>> {
        self.large.get()
    }

    /// Returns the store of values that are too long for a page; creates it if necessary.
    ///
    /// # Errors
    /// When no page is available for it.
    pub(crate) async fn make_large(&self) -> Result<&Arc<LargeValues>, PageError> {
        if let Some(large) = self.large() {
            return Ok(large);
        }
        let made = LargeValues::create(self.tree().space().clone(), self.id).await?;
        Ok(self.large.get_or_init(|| Arc::new(made)))
    }

    /// Returns the maximum key length, in bytes.
    pub(crate) fn max_key_bytes(&self) -> usize {
        self.tree().max_key_bytes()
    }

    /// Returns the maximum length of a value that is stored on its record's page, in bytes.
    pub(crate) fn max_inline_value_bytes(&self) -> usize {
        self.tree().max_inline_value_bytes()
    }

    /// Returns the maximum length of a cell with two values, in bytes.
    pub(super) fn max_pair_bytes(&self) -> usize {
        self.tree().max_pair_bytes()
    }

    /// Returns the record as `view` sees it. It does not wait for pages, because the guard keeps
    /// everything that is retired from being freed.
    ///
    /// # Errors
    /// When a page is not available now. The inner result is an error while another worker decides
    /// the outcome of the version that `view` would see.
    pub(crate) async fn read(
        &self,
        key: &[u8],
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<Result<PagedRecord, Undecided>, WouldSuspend> {
        if key.len() > self.max_key_bytes() {
            return Ok(Ok(PagedRecord::NONE));
        }
        let look = |leaf: LeafView<'_>, slot| SlotCopy::of(self, leaf, slot, key, operation);
        match self.tree().read_if_in_memory(key, look).await {
            Ok(copied) => Ok(copied.seen_by(view)),
            Err(interrupted) => Err(self.would_suspend(interrupted)),
        }
    }

    /// Latches the leaf of a key for [`write`](Self::write), if it is resident. Splits the leaf if it
    /// lacks room for a cell of this many bytes; `None` needs no room.
    ///
    /// # Errors
    /// When a page is not available now; then nothing has changed.
    pub(crate) async fn latch(
        &self,
        key: &[u8],
        bytes: Option<usize>,
    ) -> Result<LatchedLeaf<'_>, WouldSuspend> {
        let latched = self.tree().latch_if_in_memory(key, LeafRoom::of(bytes)).await;
        latched.map_err(|interrupted| self.would_suspend(interrupted))
    }

    /// Does what [`latch`](Self::latch) does, without suspending.
    ///
    /// # Errors
    /// When it cannot be done now; then nothing has changed.
    pub(crate) fn latch_now(
        &self,
        key: &[u8],
        bytes: Option<usize>,
    ) -> Result<LatchedLeaf<'_>, WouldSuspend> {
        if self.interruptions.interrupts() {
            return Err(WouldSuspend::Interrupted(Interrupted::Restart));
        }
        let latched = self.tree().try_latch(key, LeafRoom::of(bytes));
        latched.map_err(|interrupted| self.would_suspend(interrupted))
    }

    pub(super) fn would_suspend(&self, interrupted: Interrupted) -> WouldSuspend {
        WouldSuspend::new(self.tree().space(), interrupted)
    }

    /// Writes a record whose latched leaf has room for the value. `decide` receives the record's
    /// current state and returns whether and how to write. `None` as `value` deletes the record.
    ///
    /// # Errors
    /// Fails if the transaction may not write the record.
    pub(crate) fn write<E>(
        &self,
        mut leaf: LatchedLeaf<'_>,
        key: &[u8],
        value: Option<SlotValue<'_>>,
        view: View<'_>,
        operation: &OperationGuard,
        decide: impl FnOnce(RecordBeforeWrite<'_>) -> WriteDecision<E>,
    ) -> Result<WriteResult<E>, WriteRefusal> {
        debug_assert!(leaf.is_of(self.tree()), "latched by this table");
        self.roll_back_on(&mut leaf, key, view.status);
        let reserved = leaf.reserved_for(key);
        let made = self.unmark_for_write(&mut leaf, key, view)?;
        let slot = leaf.find(key);
        let flags = match slot {
            KeySlot::At(place) => leaf.flags(place),
            KeySlot::Before(_) => SlotFlags::NONE,
        };
        let exists = matches!(slot, KeySlot::At(_)) && !flags.has(SlotFlags::DELETED);
        // SAFETY: latched.
        let chain = unsafe { Mapping::find(leaf.mapping(), key) };
        let base = match chain {
            // SAFETY: latched, and rolled back above.
            Some(chain) => unsafe { chain.base(view, operation) }.inspect_err(|_| {
                assert!(made.is_none(), "the writer sees a change created from a mark")
            })?,
            None => ChainBase::Settled,
        };
        let pushed = match decide(RecordBeforeWrite { exists, base, made }) {
            WriteDecision::Refuse(why) => return Ok(WriteResult::Refused(why)),
            WriteDecision::Overwrite => None,
            WriteDecision::Push(position) => {
                Some(self.push(&mut leaf, key, view, exists.then_some(slot), position))
            }
        };
        self.put_on(&mut leaf, key, value);
        leaf.reserve_for_undo_of(key, reserved.unwrap_or(0));
        if reserved.is_none() {
            prune_many(&mut leaf);
        }
        Ok(pushed.map_or(WriteResult::Overwritten, WriteResult::Pushed))
    }

    /// Pushes a change onto a record's chain. The before-image is the value in `slot`, or absent.
    fn push(
        &self,
        leaf: &mut LatchedLeaf<'_>,
        key: &[u8],
        view: View<'_>,
        slot: Option<KeySlot>,
        position: u32,
    ) -> ChangeRef {
        let before = slot.map(|slot| {
            let KeySlot::At(place) = slot else { unreachable!("the record exists") };
            leaf.value(place)
        });
        let word = leaf.mapping();
        // SAFETY: latched; the caller gives the key a slot before it releases the latch.
        let (chain, new_word) = unsafe { Mapping::find_or_make(word, &self.memory, self.id, key) };
        if new_word != word {
            leaf.set_mapping(new_word);
        } else {
            leaf.touch();
        }
        let stamp = Stamp::in_flight(view.me);
        // SAFETY: latched from before the value is read until it is written; not refused.
        unsafe {
            chain.push(&self.memory, stamp, before.as_ref().map(CopiedValue::as_slot), position)
        }
    }

    /// Puts a value onto the page, or marks a record that has a chain as deleted.
    fn put_on(&self, leaf: &mut LatchedLeaf<'_>, key: &[u8], value: Option<SlotValue<'_>>) {
        let versioned = SlotFlags::NONE.with(SlotFlags::VERSIONED);
        let bytes = match (leaf.find(key), value) {
            (KeySlot::At(place), Some(value)) => {
                leaf.overwrite_value(place, value, versioned);
                value.cell_bytes()
            }
            (KeySlot::Before(place), Some(value)) => {
                leaf.insert_value(place, key, value, versioned);
                value.cell_bytes()
            }
            (KeySlot::At(place), None) => {
                leaf.set_flags(place, versioned.with(SlotFlags::DELETED));
                leaf.cell_bytes(place)
            }
            (KeySlot::Before(_), None) => unreachable!("only a record that exists is deleted"),
        };
        // SAFETY: latched.
        if let Some(chain) = unsafe { Mapping::find(leaf.mapping(), key) } {
            chain.note_on_page(bytes);
        }
    }

    /// Waits until the pages and frames that interrupted an operation are available, together with
    /// those in `needs`. The pages stay resident while the caller keeps the result, provided that
    /// it does not suspend. The caller has admitted [this many bytes](Self::image_bytes) of images
    /// and holds no operation guard.
    ///
    /// # Errors
    /// When the pages or frames cannot be provided.
    pub(crate) async fn hold_pages(
        &self,
        needs: &mut PageNeeds,
        interrupted: &[Interrupted],
        admitted: Option<Admitted>,
    ) -> Result<HeldPages, PageError> {
        self.tree().space().hold_pages(needs, interrupted, admitted).await
    }

    /// Returns the needs of an operation on one record. If the record has moved to another leaf,
    /// the operation needs that leaf instead.
    pub(crate) fn needs(&self) -> PageNeeds {
        self.tree().needs(0)
    }

    /// Returns the maximum bytes of images that [`Self::hold_pages`] keeps in memory at a time.
    pub(crate) fn image_bytes(&self, needs: &PageNeeds, interrupted: &[Interrupted]) -> u64 {
        (needs.pages_with(interrupted) * self.tree().space().page_bytes()) as u64
    }
}

impl Drop for PagedTable {
    fn drop(&mut self) {
        self.tree.take().expect("dropped once").free_all(Some(self.memory.clone()));
    }
}

/// Removes empty chains when a leaf's number of chains reaches a power of two. Doubling thresholds
/// avoid a scan at each write while no chain is empty.
fn prune_many(leaf: &mut LatchedLeaf<'_>) {
    // SAFETY: latched.
    let mapping = unsafe { Mapping::from_word(leaf.mapping()) };
    let chains = mapping.map_or(0, |mapping| mapping.chains());
    if chains >= MIN_CHAINS_TO_PRUNE && chains.is_power_of_two() {
        leaf.prune();
    }
}

/// Copies a slot and the start of its chain, between the two checks of the leaf's version.
pub(super) fn copy_slot<'o, 'k>(
    table: &PagedTable,
    leaf: LeafView<'_>,
    place: usize,
    key: impl FnOnce() -> &'k [u8],
    operation: &'o OperationGuard,
) -> SlotCopy<'o> {
    let flags = leaf.flags(place);
    let on_page = (!flags.has(SlotFlags::DELETED)).then(|| leaf.value(place));
    let start = match flags.has(SlotFlags::VERSIONED) {
        // SAFETY: loaded with Acquire under the guard.
        true => unsafe { Mapping::start(leaf.mapping(), key(), operation) },
        false => WalkHead::NONE,
    };
    let copy = || table.bulk.epochs.copy(leaf.bulk_epoch(), leaf.value_before(place));
    let marked = flags.is_marked().then(copy);
    SlotCopy { on_page, marked, start }
}

impl<'o> SlotCopy<'o> {
    /// Copies the slot of a key and the start of its chain.
    pub(super) fn of(
        table: &PagedTable,
        leaf: LeafView<'_>,
        slot: KeySlot,
        key: &[u8],
        operation: &'o OperationGuard,
    ) -> Self {
        match slot {
            KeySlot::At(place) => copy_slot(table, leaf, place, || key, operation),
            KeySlot::Before(_) => SlotCopy { on_page: None, marked: None, start: WalkHead::NONE },
        }
    }

    pub(super) fn seen_by(mut self, view: View<'_>) -> Result<PagedRecord, Undecided> {
        if let Some(marked) = self.marked.take() {
            let (committed, own) = match marked.seen_by(view)? {
                Visibility::Own => (None, true),
                Visibility::Committed(lsn) => (Some(lsn), false),
                Visibility::No => {
                    let below_bulk = marked.is_committed(view.status);
                    self.on_page = marked.before;
                    return self.seen_below(view, below_bulk);
                }
            };
            // The chain's changes are older than the bulk operation, so they do not affect the
            // provenance.
            let provenance = ReadProvenance { committed, own, below_newer: false };
            return Ok(PagedRecord { value: self.on_page, provenance });
        }
        self.seen_below(view, false)
    }

    /// Returns the record for a view that does not see the bulk operation's result, or for an
    /// unmarked slot.
    #[inline]
    fn seen_below(self, view: View<'_>, below_bulk: bool) -> Result<PagedRecord, Undecided> {
        let WalkEnd { value, committed, own, below_newer } = self.start.see(view)?;
        let below_newer = below_newer || below_bulk;
        let value = match value {
            SeenValue::OnPage => self.on_page,
            SeenValue::Before(before) => before.map(SlotValue::copied),
        };
        Ok(PagedRecord { value, provenance: ReadProvenance { committed, own, below_newer } })
    }
}
