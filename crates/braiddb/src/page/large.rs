//! Values that are too long for a page: each is split into pieces of less than a quarter of a page, which lie in a tree of
//! pages of their own, by the number of the value and that of the piece.
//!
//! A record's slot has the value's number and its length ([`LargeRef`]), and so has a change, of the value before. Slots
//! and changes say who sees which value; pieces have no versions. They are written before a slot leads to them, never
//! changed, and removed when nobody can come to see the value any more.
//!
//! Invariants: a number is given once. The pieces of a value are written by one task, or by recovery, before a slot has
//! its number, and removed once, after the last transaction that could see it has ended: when the change is
//! collected whose before-image it is, or when the write that left it is taken back, or written over by its own
//! transaction, before anybody else could see it.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use super::error::{Interrupted, PageError};
use super::layout::{Slot, SlotFlags, WORD_BYTES};
use super::nonblocking::NotNow;
use super::resident_set::Needs;
use super::space::PageSpace;
use super::tree::{LeafView, PageCursor, PageTree, Room, Stored};
use super::value::LargeRef;
use crate::rid::TableId;
use crate::sync::Mutex;
use crate::sync::statistic::{AtomicBool, AtomicU64, Ordering};

const KEY_BYTES: usize = WORD_BYTES + size_of::<u32>();
/// So much less than the longest value of a page a piece has: so four of them lie on one.
const LESS_BYTES: usize = 64;
/// On their pages, the table's number has this bit besides: who comes back from a suspension tells by number and fences
/// whether a page is the one that it left, and ids of pages go from one tree of a table to the other.
const PIECES: u32 = 1 << 31;
/// Pieces that are read of one leaf; it does not have more.
const MAX_ON_LEAF: usize = 64;
/// Leaves that are read in one stretch at most.
const LEAVES_AT_ONCE: usize = 32;

/// The large values of a table.
#[derive(Debug)]
pub(crate) struct LargeValues {
    /// Present until this is dropped.
    tree: Option<PageTree>,
    next: AtomicU64,
    piece_bytes: usize,
    /// Values that nobody sees any more, whose pieces are to be removed.
    removal_queue: Mutex<Vec<LargeRef>>,
    /// Whether there may be some in the queue.
    any_queued: AtomicBool,
    unowned: Mutex<Unowned>,
}

/// Values that no slot leads to, as far as those know who wrote them: their pieces are being written, or are to be removed.
#[derive(Debug, Default)]
struct Unowned {
    now: BTreeSet<LargeRef>,
    /// All that were since a checkpoint began to list the table, while it does.
    since: Option<Vec<LargeRef>>,
}

impl Unowned {
    fn add(&mut self, large: LargeRef) {
        if self.now.insert(large) {
            self.since.as_mut().into_iter().for_each(|since| since.push(large));
        }
    }
}

/// How far a value has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// To the end, or as far as it was asked for.
    All,
    /// There is more.
    More,
    /// The next piece is not there: the value was removed.
    Gone,
}

/// A value being read, from its first piece on.
#[derive(Debug)]
pub(crate) struct LargeReader<'t> {
    values: &'t LargeValues,
    cursor: PageCursor<'t>,
    wanted: usize,
    next: u32,
    bytes: Vec<u8>,
}

fn key(number: u64, piece: u32) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..WORD_BYTES].copy_from_slice(&number.to_be_bytes());
    key[WORD_BYTES..].copy_from_slice(&piece.to_be_bytes());
    key
}

impl LargeValues {
    /// None yet, of a table.
    ///
    /// # Errors
    /// When there is no page for them.
    pub(super) async fn create(space: Arc<PageSpace>, id: TableId) -> Result<Self, PageError> {
        Self::create_from(space, id, 1).await
    }

    /// The same; the first one gets this number.
    ///
    /// # Errors
    /// When there is no page for them.
    pub(super) async fn create_from(
        space: Arc<PageSpace>,
        id: TableId,
        next: u64,
    ) -> Result<Self, PageError> {
        let tree = PageTree::create(space, Self::pieces_of(id)).await?;
        Ok(Self::of_tree(tree, next))
    }

    /// What the pages of pieces of a table's values say that they are of.
    pub(super) fn pieces_of(table: TableId) -> TableId {
        TableId(table.0 | PIECES)
    }

    /// The values whose pieces are in a tree; the next one gets this number.
    pub(super) fn of_tree(tree: PageTree, next: u64) -> Self {
        let most = tree.max_inline_value_bytes();
        let piece_bytes = if most > 4 * LESS_BYTES { most - LESS_BYTES } else { most };
        let (removal_queue, any_queued, unowned) = Default::default();
        let next = AtomicU64::new(next);
        Self { tree: Some(tree), next, piece_bytes, removal_queue, any_queued, unowned }
    }

    pub(super) fn tree(&self) -> &PageTree {
        self.tree.as_ref().expect("present until it is dropped")
    }

    /// What their pieces take, and how many pieces there are.
    pub(crate) fn stored(&self) -> Stored {
        self.tree().stored()
    }

    /// Pages that their pieces are on.
    pub(crate) fn leaves(&self) -> u64 {
        self.tree().pages_by_level()[0]
    }

    /// A name for a value of so many bytes, whose pieces are to be written; unowned until a slot leads to it.
    pub(crate) fn name(&self, bytes: usize) -> LargeRef {
        let bytes = u32::try_from(bytes).expect("values are bounded far below");
        let mut unowned = self.unowned.lock();
        // Relaxed: written under the lock.
        let large = LargeRef { number: self.next.fetch_add(1, Ordering::Relaxed), bytes };
        unowned.add(large);
        large
    }

    /// Notes that a value is to be removed.
    pub(crate) fn note_unowned(&self, large: LargeRef) {
        self.unowned.lock().add(large);
    }

    /// Notes that a slot leads to a value, or that its pieces are removed.
    pub(crate) fn note_settled(&self, large: LargeRef) {
        self.unowned.lock().now.remove(&large);
    }

    /// Begins to list values that a slot which a checkpoint has leads to no more, or not yet.
    pub(crate) fn begin_listing(&self) {
        let mut unowned = self.unowned.lock();
        unowned.since = Some(unowned.now.iter().copied().collect());
    }

    /// Those that were unowned since [`Self::begin_listing`], if that was called, at any time; and the number that the next
    /// value gets.
    pub(crate) fn end_listing(&self) -> (Option<Vec<LargeRef>>, u64) {
        let mut unowned = self.unowned.lock();
        // Relaxed: written under the lock.
        (unowned.since.take(), self.next.load(Ordering::Relaxed))
    }

    /// Removes a value, and waits for pages.
    ///
    /// # Errors
    /// When a page cannot be had.
    pub(crate) async fn remove(&self, large: LargeRef) -> Result<(), PageError> {
        for piece in 0..self.pieces(large) {
            self.remove_piece(large, piece).await?;
        }
        Ok(())
    }

    /// Queues a value that nobody sees any more, for whoever takes the queue to remove its pieces.
    pub(super) fn queue_for_removal(&self, large: LargeRef) {
        self.note_unowned(large);
        self.removal_queue.lock().push(large);
        // Relaxed: who misses it is followed by others.
        self.any_queued.store(true, Ordering::Relaxed);
    }

    /// Takes all queued values, which nobody sees any more; the caller is to have their pieces removed.
    pub(crate) fn take_removal_queue(&self) -> Vec<LargeRef> {
        // Relaxed: see `queue_for_removal`.
        if !self.any_queued.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut removal_queue = self.removal_queue.lock();
        self.any_queued.store(false, Ordering::Relaxed);
        std::mem::take(&mut removal_queue)
    }

    /// How many pieces a value has.
    pub(crate) fn pieces(&self, large: LargeRef) -> u32 {
        large.bytes().div_ceil(self.piece_bytes) as u32
    }

    /// The bytes of a piece.
    fn piece<'v>(&self, value: &'v [u8], piece: u32) -> &'v [u8] {
        let from = piece as usize * self.piece_bytes;
        &value[from..value.len().min(from + self.piece_bytes)]
    }

    /// Writes one piece of a value, if that can be done without waiting for a page; it does not suspend if it is `now`.
    ///
    /// # Errors
    /// When a page cannot be had now; then nothing is done.
    pub(crate) async fn put_piece(
        &self,
        large: LargeRef,
        value: &[u8],
        piece: u32,
        now: bool,
    ) -> Result<(), NotNow> {
        let (key, bytes) = (key(large.number, piece), self.piece(value, piece));
        let room = Room::value(bytes.len());
        let latched = match now {
            true => self.tree().try_latch(&key, room),
            false => self.tree().latch_if_in_memory(&key, room).await,
        };
        let mut leaf = latched.map_err(|why| NotNow::new(self.tree().space(), why))?;
        match leaf.find(&key) {
            Slot::Before(place) => leaf.insert(place, &key, bytes, SlotFlags::NONE),
            Slot::At(_) => unreachable!("a piece is written once"),
        }
        Ok(())
    }

    /// Writes a value, and waits for pages.
    ///
    /// # Errors
    /// When a page cannot be had.
    pub(super) async fn put(&self, value: &[u8]) -> Result<LargeRef, PageError> {
        let large = self.name(value.len());
        for piece in 0..self.pieces(large) {
            let (key, bytes) = (key(large.number, piece), self.piece(value, piece));
            let mut leaf = self.tree().latch(&key, Room::value(bytes.len())).await?;
            match leaf.find(&key) {
                Slot::Before(place) => leaf.insert(place, &key, bytes, SlotFlags::NONE),
                Slot::At(_) => unreachable!("a piece is written once"),
            }
        }
        self.note_settled(large);
        Ok(large)
    }

    /// Removes a piece of a value, if it is there, and what is left of its leaf, if that is nothing.
    ///
    /// # Errors
    /// When a page cannot be had.
    pub(crate) async fn remove_piece(&self, large: LargeRef, piece: u32) -> Result<(), PageError> {
        let key = key(large.number, piece);
        let is_sparse = {
            let mut leaf = self.tree().latch(&key, Room::NONE).await?;
            if let Slot::At(place) = leaf.find(&key) {
                leaf.remove(place);
            }
            leaf.is_sparse()
        };
        if is_sparse {
            self.tree().merge_waiting(&key).await?;
        }
        Ok(())
    }

    /// Reads a value, so many bytes of it at least.
    pub(crate) fn reader(&self, large: LargeRef, most: usize) -> LargeReader<'_> {
        let last = self.pieces(large).saturating_sub(1);
        let (low, high) = (key(large.number, 0), key(large.number, last));
        let cursor =
            self.tree().cursor(Bound::Included(&low[..]), Bound::Included(&high[..]), false);
        let wanted = most.min(large.bytes());
        LargeReader { values: self, cursor, wanted, next: 0, bytes: Vec::new() }
    }

    /// What an operation on one leaf needs at once.
    pub(crate) fn needs(&self) -> Needs {
        self.tree().needs(0)
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.tree().space().page_bytes()
    }
}

impl Drop for LargeValues {
    fn drop(&mut self) {
        self.tree.take().expect("dropped once").free_all(None);
    }
}

/// Pieces that lie next to each other on a leaf.
struct Run {
    /// The first one's number; `None` if they do not follow one another.
    first: Option<u32>,
    pieces: u32,
    bytes: Vec<u8>,
}

impl Run {
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
    /// Reads on, through some leaves, as far as they are in memory: it waits for no page, and does not suspend if it is
    /// `now`.
    ///
    /// # Errors
    /// When a page cannot be had now; what was read stays.
    pub(crate) async fn read_on(&mut self, now: bool) -> Result<Progress, NotNow> {
        for _ in 0..LEAVES_AT_ONCE {
            if self.bytes.len() >= self.wanted {
                return Ok(Progress::All);
            }
            let met = self.cursor.peek_if_in_memory(MAX_ON_LEAF, now, Run::copy).await;
            let run = match met {
                Ok(run) => run,
                // It stands behind a leaf in which there was nothing.
                Err(Interrupted::Restart) => continue,
                Err(why) => return Err(NotNow::new(self.values.tree().space(), why)),
            };
            let Some(run) = run.filter(|run| run.first == Some(self.next)) else {
                return Ok(Progress::Gone);
            };
            self.cursor.pass_all();
            self.next += run.pieces;
            if self.bytes.is_empty() && run.bytes.len() < self.wanted {
                self.bytes.reserve_exact(self.wanted);
            }
            self.bytes.extend_from_slice(&run.bytes);
        }
        Ok(Progress::More)
    }

    /// What interrupts those who come next to leaves that are on disk, behind the one in which this goes on: `most` at
    /// most, and no more than there are frames for beside others.
    pub(crate) fn absent_ahead(&self, most: usize) -> SmallVec<[Interrupted; 4]> {
        let most = most.min(self.values.tree().space().most_ahead());
        self.cursor.leaves_ahead(most).into_iter().map(Interrupted::Absent).collect()
    }

    /// Bytes that were read so far.
    pub(crate) fn bytes_read(&self) -> usize {
        self.bytes.len()
    }

    /// The value, read to its end.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
