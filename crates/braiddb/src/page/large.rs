//! Large values: values that are too long for a page are split into pieces of less than a quarter
//! of a page.
//!
//! The pieces are stored in a separate tree of pages. Their key is the value's number and the
//! piece's index. A record's slot stores the number and length of the value ([`LargeRef`]), and so
//! does a change for its before-image. Slots and changes define which transactions see a value;
//! pieces have no versions. Pieces are written before a slot references them, never changed, and
//! removed when no transaction can see the value any more.
//!
//! Invariants:
//!
//! - A number is assigned once.
//! - One task, or recovery, writes the pieces of a value before a slot contains its number.
//! - Pieces are removed once, after the last transaction that could see the value has ended. One of
//!   three events triggers the removal: the change with this before-image is collected; the write
//!   of the value is rolled back; or the writing transaction overwrites the value before it
//!   commits.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::error::{Interrupted, PageError};
use super::layout::{KeyBytes, KeySlot, SlotFlags, WORD_BYTES};
use super::resident_set::PageNeeds;
use super::space::PageSpace;
use super::tree::{LeafRoom, LeafView, PageCursor, PageTree, StoredSize};
use super::value::LargeRef;
use super::would_suspend::WouldSuspend;
use crate::memory::Buffer;
use crate::planted::{Bug, is_planted};
use crate::rid::TableId;
use crate::sync::Mutex;
use crate::sync::statistic::{AtomicBool, AtomicU64, Ordering};

const KEY_BYTES: usize = WORD_BYTES + size_of::<u32>();
/// Number of bytes by which a piece is shorter than the longest inline value, so that four pieces
/// fit on a page.
const PIECE_MARGIN_BYTES: usize = 64;
/// Flag in the table number on pages of pieces. A task that resumes after a suspension recognises
/// its page by the table number and the fences. The flag is necessary because page ids move between
/// the two trees of a table.
const PIECES_KEY_FLAG: u32 = 1 << 31;
/// Maximum number of pieces read from one leaf; no leaf has more.
const MAX_ON_LEAF: usize = 64;
/// Maximum number of leaves read without suspending.
const LEAVES_PER_BATCH: usize = 32;

/// Large values of a table.
#[derive(Debug)]
pub(crate) struct LargeValues {
    /// Present until this is dropped.
    tree: Option<PageTree>,
    next: AtomicU64,
    piece_bytes: usize,
    /// Values that no transaction sees any more, whose pieces must be removed.
    removal_queue: Mutex<Vec<LargeRef>>,
    /// True if the queue may have values.
    any_queued: AtomicBool,
    unowned: Mutex<UnownedValues>,
}

/// Values that no slot references, as far as their writers know: their pieces are being written or
/// must be removed.
#[derive(Debug, Default)]
struct UnownedValues {
    now: BTreeSet<LargeRef>,
    /// Present while a checkpoint lists the table.
    listed: Option<ListedValues>,
}

/// Large values that a checkpoint in progress lists. Pieces of later values are not listed: the
/// records of these values are replayed.
#[derive(Debug)]
struct ListedValues {
    /// Number above all listed values.
    end: u64,
    /// Listed values that were unowned at any time since the start.
    unowned: Vec<LargeRef>,
}

impl UnownedValues {
    fn add(&mut self, large: LargeRef) {
        if self.now.insert(large)
            && let Some(listed) = self.listed.as_mut().filter(|listed| large.number < listed.end)
        {
            listed.unowned.push(large);
        }
    }
}

/// Progress of reading a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LargeReadProgress {
    /// Read to the end, or to the requested length.
    All,
    /// More pieces follow.
    More,
    /// The next piece does not exist: the value was removed.
    Gone,
}

/// Reader of a value, from its first piece.
#[derive(Debug)]
pub(crate) struct LargeReader<'t> {
    values: &'t LargeValues,
    cursor: PageCursor<'t>,
    wanted: usize,
    next: u32,
    bytes: Buffer,
}

fn key(number: u64, piece: u32) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..WORD_BYTES].copy_from_slice(&number.to_be_bytes());
    key[WORD_BYTES..].copy_from_slice(&piece.to_be_bytes());
    key
}

impl LargeValues {
    /// Creates an empty store for a table.
    ///
    /// # Errors
    /// When no page is available for it.
    pub(super) async fn create(space: Arc<PageSpace>, id: TableId) -> Result<Self, PageError> {
        Self::create_from(space, id, 1).await
    }

    /// Creates an empty store whose first value gets the number `next`.
    ///
    /// # Errors
    /// When no page is available for it.
    pub(super) async fn create_from(
        space: Arc<PageSpace>,
        id: TableId,
        next: u64,
    ) -> Result<Self, PageError> {
        let tree = PageTree::create(space, Self::pieces_of(id)).await?;
        Ok(Self::of_tree(tree, next))
    }

    /// Returns the table id that pages with pieces of a table's values contain.
    pub(super) fn pieces_of(table: TableId) -> TableId {
        TableId(table.0 | PIECES_KEY_FLAG)
    }

    /// Creates the store from a tree of pieces; the next value gets the number `next`.
    pub(super) fn of_tree(tree: PageTree, next: u64) -> Self {
        let most = tree.max_inline_value_bytes();
        let piece_bytes =
            if most > 4 * PIECE_MARGIN_BYTES { most - PIECE_MARGIN_BYTES } else { most };
        let (removal_queue, any_queued, unowned) = Default::default();
        let next = AtomicU64::new(next);
        Self { tree: Some(tree), next, piece_bytes, removal_queue, any_queued, unowned }
    }

    pub(super) fn tree(&self) -> &PageTree {
        self.tree.as_ref().expect("present until it is dropped")
    }

    /// Returns the number of pieces and their bytes.
    pub(crate) fn stored(&self) -> StoredSize {
        self.tree().stored()
    }

    /// Returns the number of leaf pages with pieces.
    pub(crate) fn leaves(&self) -> u64 {
        self.tree().pages_by_level()[0]
    }

    /// Assigns a number to a value of `bytes` bytes, before its pieces are written. The value is
    /// unowned until a slot references it.
    pub(crate) fn name(&self, bytes: usize) -> LargeRef {
        let bytes = u32::try_from(bytes).expect("values are bounded far below");
        let mut unowned = self.unowned.lock();
        // Relaxed: written under the lock.
        let large = LargeRef { number: self.next.fetch_add(1, Ordering::Relaxed), bytes };
        unowned.add(large);
        large
    }

    /// Records that a value must be removed.
    pub(crate) fn note_unowned(&self, large: LargeRef) {
        self.unowned.lock().add(large);
    }

    /// Records that a slot references the value, or that its pieces are removed.
    pub(crate) fn note_settled(&self, large: LargeRef) {
        self.unowned.lock().now.remove(&large);
    }

    /// Starts to collect listed values that the listed slots may not reference. Values that are
    /// named later are not listed.
    pub(crate) fn begin_listing(&self) {
        let mut unowned = self.unowned.lock();
        // Relaxed: written under the lock.
        let end = self.next.load(Ordering::Relaxed);
        let end = if is_planted(Bug::ListingEndsEarly) { end - 1 } else { end };
        unowned.listed = Some(ListedValues { end, unowned: unowned.now.iter().copied().collect() });
    }

    /// Returns the key above all pieces of listed values, while a checkpoint lists the table.
    pub(super) fn end_of_listed(&self) -> Option<KeyBytes> {
        let unowned = self.unowned.lock();
        let listed = unowned.listed.as_ref()?;
        Some(KeyBytes::from_slice(&key(listed.end, 0)))
    }

    /// Returns whether the tree may have pieces of values that are not listed.
    pub(super) fn has_unlisted(&self) -> bool {
        let unowned = self.unowned.lock();
        // Relaxed: written under the lock.
        let next = self.next.load(Ordering::Relaxed);
        unowned.listed.as_ref().is_some_and(|listed| listed.end < next)
    }

    /// Returns the number of the next value and, if [`Self::begin_listing`] was called, the
    /// number above all listed values, with the listed values that were unowned at any time since.
    pub(crate) fn end_listing(&self) -> (u64, Option<(u64, Vec<LargeRef>)>) {
        let mut unowned = self.unowned.lock();
        let listed = unowned.listed.take().map(|listed| (listed.end, listed.unowned));
        // Relaxed: written under the lock.
        (self.next.load(Ordering::Relaxed), listed)
    }

    /// Removes a value, and waits for pages.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn remove(&self, large: LargeRef) -> Result<(), PageError> {
        for piece in 0..self.pieces(large) {
            self.remove_piece(large, piece).await?;
        }
        Ok(())
    }

    /// Queues a value that no transaction sees any more, for removal of its pieces.
    pub(super) fn queue_for_removal(&self, large: LargeRef) {
        self.note_unowned(large);
        self.removal_queue.lock().push(large);
        // Relaxed: a task that misses the flag is followed by others.
        self.any_queued.store(true, Ordering::Relaxed);
    }

    /// Takes all values from the removal queue; the caller removes their pieces.
    pub(crate) fn take_removal_queue(&self) -> Vec<LargeRef> {
        // Relaxed: `queue_for_removal` gives the reason.
        if !self.any_queued.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut removal_queue = self.removal_queue.lock();
        self.any_queued.store(false, Ordering::Relaxed);
        std::mem::take(&mut removal_queue)
    }

    /// Returns the number of pieces of a value.
    pub(crate) fn pieces(&self, large: LargeRef) -> u32 {
        large.bytes().div_ceil(self.piece_bytes) as u32
    }

    /// Returns the bytes of a piece.
    fn piece<'v>(&self, value: &'v [u8], piece: u32) -> &'v [u8] {
        let from = piece as usize * self.piece_bytes;
        &value[from..value.len().min(from + self.piece_bytes)]
    }

    /// Writes one piece of a value without waiting for a page. Does not suspend if `now` is true.
    ///
    /// # Errors
    /// When a page is not available now; then nothing has changed.
    pub(crate) async fn put_piece(
        &self,
        large: LargeRef,
        value: &[u8],
        piece: u32,
        now: bool,
    ) -> Result<(), WouldSuspend> {
        let (key, bytes) = (key(large.number, piece), self.piece(value, piece));
        let room = LeafRoom::value(bytes.len());
        let latched = match now {
            true => self.tree().try_latch(&key, room),
            false => self.tree().latch_if_in_memory(&key, room).await,
        };
        let mut leaf = latched.map_err(|why| WouldSuspend::new(self.tree().space(), why))?;
        match leaf.find(&key) {
            KeySlot::Before(place) => leaf.insert(place, &key, bytes, SlotFlags::NONE),
            KeySlot::At(_) => unreachable!("a piece is written once"),
        }
        Ok(())
    }

    /// Writes a value, and waits for pages.
    ///
    /// # Errors
    /// When a page is not available.
    pub(super) async fn put(&self, value: &[u8]) -> Result<LargeRef, PageError> {
        let large = self.name(value.len());
        for piece in 0..self.pieces(large) {
            let (key, bytes) = (key(large.number, piece), self.piece(value, piece));
            let mut leaf = self.tree().latch(&key, LeafRoom::value(bytes.len())).await?;
            match leaf.find(&key) {
                KeySlot::Before(place) => leaf.insert(place, &key, bytes, SlotFlags::NONE),
                KeySlot::At(_) => unreachable!("a piece is written once"),
            }
        }
        self.note_settled(large);
        Ok(large)
    }

    /// Removes a piece of a value, if it exists, and merges its leaf if the leaf becomes sparse.
    ///
    /// # Errors
    /// When a page is not available.
    pub(crate) async fn remove_piece(&self, large: LargeRef, piece: u32) -> Result<(), PageError> {
        let key = key(large.number, piece);
        let is_sparse = {
            let mut leaf = self.tree().latch(&key, LeafRoom::NONE).await?;
            if let KeySlot::At(place) = leaf.find(&key) {
                leaf.remove(place);
            }
            leaf.is_sparse()
        };
        if is_sparse {
            self.tree().merge_waiting(&key).await?;
        }
        Ok(())
    }

    /// Returns a reader of the first `most` bytes of a value; it may read some more.
    pub(crate) fn reader(&self, large: LargeRef, most: usize) -> LargeReader<'_> {
        let last = self.pieces(large).saturating_sub(1);
        let (low, high) = (key(large.number, 0), key(large.number, last));
        let cursor =
            self.tree().cursor(Bound::Included(&low[..]), Bound::Included(&high[..]), false);
        let wanted = most.min(large.bytes());
        LargeReader { values: self, cursor, wanted, next: 0, bytes: Buffer::default() }
    }

    /// Returns the needs of an operation on one leaf.
    pub(crate) fn needs(&self) -> PageNeeds {
        self.tree().needs(0)
    }

    /// Returns the page size in bytes.
    pub(crate) fn page_bytes(&self) -> usize {
        self.tree().space().page_bytes()
    }
}

impl Drop for LargeValues {
    fn drop(&mut self) {
        self.tree.take().expect("dropped once").free_all(None);
    }
}

/// Adjacent pieces on a leaf.
struct PieceRun {
    /// Index of the first piece; `None` if the indexes are not consecutive.
    first: Option<u32>,
    pieces: u32,
    bytes: Vec<u8>,
}

impl PieceRun {
    fn copy(leaf: LeafView<'_>, places: impl Iterator<Item = usize>) -> Self {
        let mut run = Self { first: None, pieces: 0, bytes: Vec::new() };
        for place in places {
            let mut key = SmallVec::<[u8; 24]>::new();
            leaf.copy_key(place, &mut key);
            let piece = key.get(WORD_BYTES..).and_then(|piece| piece.try_into().ok());
            let piece = piece.map(u32::from_be_bytes);
            if run.pieces == 0 {
                run.first = piece;
            } else if run.first.and_then(|first| first.checked_add(run.pieces)) != piece {
                run.first = None;
            }
            run.pieces += 1;
            leaf.copy_value(place, &mut run.bytes);
        }
        run
    }
}

impl LargeReader<'_> {
    /// Continues reading through several resident leaves. Does not wait for a page, and does not
    /// suspend if `now` is true.
    ///
    /// # Errors
    /// When a page is not available now; the bytes read so far are kept.
    pub(crate) async fn read_on(&mut self, now: bool) -> Result<LargeReadProgress, WouldSuspend> {
        for _ in 0..LEAVES_PER_BATCH {
            if self.bytes.len() >= self.wanted {
                return Ok(LargeReadProgress::All);
            }
            let met = self.cursor.peek_if_in_memory(MAX_ON_LEAF, now, PieceRun::copy).await;
            let run = match met {
                Ok(run) => run,
                // The cursor has passed an empty leaf.
                Err(Interrupted::Restart) => continue,
                Err(why) => return Err(WouldSuspend::new(self.values.tree().space(), why)),
            };
            let Some(run) = run.filter(|run| run.first == Some(self.next)) else {
                return Ok(LargeReadProgress::Gone);
            };
            self.cursor.pass_all();
            self.next += run.pieces;
            if self.bytes.is_empty() && run.bytes.len() < self.wanted {
                self.bytes = Buffer::with_capacity(self.wanted);
            }
            self.bytes.extend_from_slice(&run.bytes);
        }
        Ok(LargeReadProgress::More)
    }

    /// Returns up to `most` of the next leaves that are on disk, after the current leaf, for a
    /// prefetch. `most` is reduced to the frames that one operation may use ahead of need.
    pub(crate) fn absent_ahead(&self, most: usize) -> SmallVec<[Interrupted; 4]> {
        let most = most.min(self.values.tree().space().max_prefetched_pages());
        self.cursor.leaves_ahead(most).into_iter().map(Interrupted::Absent).collect()
    }

    /// Returns the number of bytes read so far.
    pub(crate) fn bytes_read(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes that were read.
    pub(crate) fn into_bytes(self) -> Buffer {
        self.bytes
    }
}
