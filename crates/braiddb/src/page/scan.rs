//! Scans of a paged table: the records of one leaf after another, as a transaction sees them.

use std::ops::{Bound, Range};

use smallvec::SmallVec;

use super::error::Interrupted;
use super::layout::SlotFlags;
use super::table::{PagedRecord, PagedTable, SlotCopy, copy_slot};
use super::tree::{LeafView, PageCursor};
use super::would_suspend::WouldSuspend;
use crate::memory::Buffer;
use crate::reclaim::OperationGuard;
use crate::types::KeyBuffer;
use crate::version::{Undecided, View};

/// Position in a key range of a paged table.
#[derive(Debug)]
pub(crate) struct PagedCursor<'t> {
    table: &'t PagedTable,
    cursor: PageCursor<'t>,
    reverse: bool,
}

/// Records of one leaf, in cursor order.
#[derive(Debug)]
pub(crate) enum PeekedRecords {
    /// The records of a leaf without version chains, marks and large values.
    Plain(PlainRecords),
    /// `whole` is false if the outcome of a record is being decided; the records end before it.
    Seen { records: Vec<(KeyBuffer, PagedRecord)>, whole: bool },
}

/// Copies of records that every transaction sees, without provenance.
#[derive(Debug, Default)]
pub(crate) struct PlainRecords {
    pub(crate) records: Vec<PlainRecord>,
    /// The keys of more than eight bytes.
    pub(crate) long_keys: Vec<u8>,
    /// The values, unless only keys were asked for.
    pub(crate) values: Buffer,
}

/// A key and the place of its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainRecord {
    /// A key of at most eight bytes, padded with zeros.
    pub(crate) short_key: [u8; 8],
    pub(crate) key_bytes: u32,
    /// Start of a longer key in the buffer of keys.
    pub(crate) key_start: u32,
    pub(crate) value_start: u32,
    pub(crate) value_bytes: u32,
}

/// Bytes of a value for which room is made at first.
const TYPICAL_BYTES: usize = 16;

/// Slots copied from a leaf.
enum CopiedSlots<'o> {
    Plain(PlainRecords),
    /// Records of a leaf without version chains and marks.
    Settled(Vec<(KeyBuffer, PagedRecord)>),
    Versioned(Vec<(KeyBuffer, SlotCopy<'o>)>),
}

impl PagedTable {
    /// Returns a cursor over the records between two bounds, from the lower to the upper one, or in
    /// reverse.
    pub(crate) fn cursor(
        &self,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
    ) -> PagedCursor<'_> {
        PagedCursor { table: self, cursor: self.tree().cursor(low, high, reverse), reverse }
    }
}

impl PlainRecords {
    /// Copies the slots of a settled leaf; `None` if a value is large.
    #[inline(never)]
    fn copy(
        leaf: LeafView<'_>,
        places: impl ExactSizeIterator<Item = usize>,
        keys_only: bool,
    ) -> Option<Self> {
        let mut copied = Self::default();
        copied.records.reserve(places.len());
        if !keys_only {
            copied.values = Buffer::with_capacity(TYPICAL_BYTES * places.len());
        }
        let Self { records, long_keys, values } = &mut copied;
        leaf.for_each_slot(places, |slot| {
            let flags = slot.flags();
            if flags.has(SlotFlags::OVERFLOW) && !keys_only {
                return None;
            }
            if flags.has(SlotFlags::DELETED) {
                return Some(());
            }
            let (short_key, key_bytes, key_start) = match slot.short_key() {
                Some((short_key, bytes)) => (short_key, bytes, 0),
                None => {
                    let start = long_keys.len();
                    slot.copy_key(long_keys);
                    ([0; 8], long_keys.len() - start, start)
                }
            };
            let (value_start, mut value_bytes) = (values.len() as u32, 0);
            if !keys_only {
                value_bytes = slot.value_words(|word| values.push_word(word)) as u32;
            }
            let (key_bytes, key_start) = (key_bytes as u32, key_start as u32);
            let record = PlainRecord { short_key, key_bytes, key_start, value_start, value_bytes };
            records.push(record);
            Some(())
        })?;
        Some(copied)
    }
}

impl PagedCursor<'_> {
    /// Returns up to `most` of the next records in cursor order, as `view` sees them, without
    /// moving the cursor. Stops before the first record whose outcome is being decided. Returns
    /// `None` at the end of the range. Values may be empty if `keys_only`. It does not wait for
    /// pages, like [`PagedTable::read`], and does not suspend if `now` is true.
    ///
    /// # Errors
    /// When a page is not available now.
    pub(crate) async fn peek<'v>(
        &mut self,
        most: usize,
        (keys_only, now): (bool, bool),
        view: impl Fn() -> View<'v>,
        operation: &OperationGuard,
    ) -> Result<Option<PeekedRecords>, WouldSuspend> {
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
            // Without version chains, the values on the page are visible to all (Umbra, §3.1.1).
            if leaf.is_settled() {
                if let Some(plain) = PlainRecords::copy(leaf, places.clone(), keys_only) {
                    return CopiedSlots::Plain(plain);
                }
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
        let copied = copied.await.map_err(|interrupted| table.would_suspend(interrupted))?;
        let copied = match copied {
            None => return Ok(None),
            Some(CopiedSlots::Plain(records)) => return Ok(Some(PeekedRecords::Plain(records))),
            Some(CopiedSlots::Settled(records)) => {
                return Ok(Some(PeekedRecords::Seen { records, whole: true }));
            }
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
        Ok(Some(PeekedRecords::Seen { records, whole }))
    }

    /// Returns up to `most` of the next leaves that are on disk, after the current leaf, for a
    /// prefetch. `most` is reduced to the frames that one operation may use ahead of need.
    pub(crate) fn absent_ahead(&self, most: usize) -> SmallVec<[Interrupted; 4]> {
        let most = most.min(self.table.tree().space().max_prefetched_pages());
        self.cursor.leaves_ahead(most).into_iter().map(Interrupted::Absent).collect()
    }

    /// Moves the cursor past all records that the last `peek` examined.
    pub(crate) fn pass_all(&mut self) {
        self.cursor.pass_all();
    }

    /// Moves the cursor past the record with key `key`.
    pub(crate) fn pass_to(&mut self, key: &[u8]) {
        self.cursor.pass_to(key);
    }
}
