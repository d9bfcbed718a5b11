//! Scans of a paged table: the records of one leaf after another, as a transaction sees them.

use std::mem::MaybeUninit;
use std::ops::{Bound, Range};
use std::ptr::NonNull;

use smallvec::SmallVec;

use super::error::Interrupted;
use super::layout::{LeafSlot, PageWord, SlotFlags, max_inline_value_bytes};
use super::table::{PagedRecord, PagedTable, SlotCopy, copy_slot};
use super::tree::{LeafView, PageCursor};
use super::would_suspend::WouldSuspend;
use crate::memory::{Buffer, SpareWords};
use crate::reclaim::OperationGuard;
use crate::types::{KeyBuffer, SHORT_KEY_BYTES, ScannedRecord};
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
    pub(crate) records: Vec<ScannedRecord>,
    /// The keys of more than eight bytes.
    pub(crate) long_keys: Vec<u8>,
    /// The values, unless only keys were asked for. The records have their addresses.
    pub(crate) values: Buffer,
}

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
    /// Replaces the records by copies of the slots of a settled leaf; `None` if a value is large, or the
    /// leaf is being changed.
    #[inline(never)]
    fn copy(
        &mut self,
        leaf: LeafView<'_>,
        places: Range<usize>,
        (reverse, keys_only): (bool, bool),
    ) -> Option<()> {
        let Self { records, long_keys, values } = self;
        records.clear();
        records.reserve(places.len());
        long_keys.clear();
        values.truncate(0);
        // The values of a page that is not being changed fit, and never move.
        let value_bytes = places.len().saturating_mul(max_inline_value_bytes(leaf.page_bytes()));
        let value_bytes = value_bytes.min(leaf.page_bytes());
        if !keys_only && values.capacity() < value_bytes {
            *values = Buffer::with_capacity(value_bytes);
        }
        let slots = leaf.slots(places)?;
        let mut target = CopyTarget {
            records: records.spare_capacity_mut().iter_mut(),
            long_keys,
            values: values.spare_words(),
            keys_only,
        };
        match reverse {
            false => slots.iter().try_for_each(|slot| target.copy(slot))?,
            true => slots.iter().rev().try_for_each(|slot| target.copy(slot))?,
        }
        let left = target.records.len();
        drop(target);
        let copied = records.spare_capacity_mut().len() - left;
        // SAFETY: so many records were written, from the first on.
        unsafe { records.set_len(copied) };
        Some(())
    }
}

/// Lists to which slots are copied.
struct CopyTarget<'l> {
    records: std::slice::IterMut<'l, MaybeUninit<ScannedRecord>>,
    long_keys: &'l mut Vec<u8>,
    values: SpareWords<'l>,
    keys_only: bool,
}

impl CopyTarget<'_> {
    /// Copies a slot; `None` if its value is large, or the leaf is being changed.
    #[inline(always)]
    fn copy<W: PageWord>(&mut self, slot: LeafSlot<'_, '_, W>) -> Option<()> {
        if slot.flags().has_no_value() {
            if slot.flags().has(SlotFlags::OVERFLOW) && !self.keys_only {
                return None;
            }
            if slot.flags().has(SlotFlags::DELETED) {
                return Some(());
            }
        }
        let short_key = slot.short_key();
        let (short_key, key_bytes, key_start) = match short_key {
            Some((short_key, bytes)) => (short_key, bytes as u32, 0),
            None => copy_other_key(slot, self.long_keys),
        };
        let mut value: NonNull<[u8]> = NonNull::from(&[]);
        if !self.keys_only {
            let (words, bytes) = slot.value_words()?;
            value = NonNull::slice_from_raw_parts(self.values.append(words, W::get)?, bytes);
        }
        let record = ScannedRecord { short_key, key_bytes, key_start, value };
        self.records.next()?.write(record);
        Some(())
    }
}

/// Copies a key that is not a short one of [`LeafSlot::short_key`], in the form of
/// [`ScannedRecord`].
#[inline(never)]
fn copy_other_key<W: PageWord>(
    slot: LeafSlot<'_, '_, W>,
    long_keys: &mut Vec<u8>,
) -> ([u8; SHORT_KEY_BYTES], u32, u32) {
    let (start, mut short_key) = (long_keys.len(), [0; SHORT_KEY_BYTES]);
    slot.copy_key(long_keys);
    let bytes = long_keys.len() - start;
    if let Some(short) = short_key.get_mut(..bytes) {
        short.copy_from_slice(&long_keys[start..]);
        long_keys.truncate(start);
    }
    (short_key, bytes as u32, start as u32)
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
            // Without version chains, the values on the page are visible to all (Umbra, §3.1.1).
            if leaf.is_settled() {
                let mut plain = PlainRecords::default();
                if plain.copy(leaf, places.clone(), (reverse, keys_only)).is_some() {
                    return CopiedSlots::Plain(plain);
                }
            }
            let count = places.len();
            let at = |n| places.start + if reverse { count - 1 - n } else { n };
            let places = (0..count).map(at);
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

    /// Replaces `records` by up to `most` of the next records, without suspending. Returns `false` at the
    /// end of the range. Returns `None`, possibly with other contents of `records`, if `peek` must be
    /// called: a page is not available now, or the leaf has records that not every transaction sees.
    pub(crate) fn peek_plain(
        &mut self,
        most: usize,
        keys_only: bool,
        records: &mut PlainRecords,
    ) -> Option<bool> {
        let reverse = self.reverse;
        let copied =
            self.cursor.peek_now(most, |leaf, places: Range<usize>| match leaf.is_settled() {
                true => records.copy(leaf, places, (reverse, keys_only)),
                false => None,
            });
        match copied {
            Ok(Some(copied)) => copied.map(|()| true),
            Ok(None) => Some(false),
            Err(_) => None,
        }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};
    use crate::page::layout::{Page, PageFormat};
    use crate::rid::TableId;
    use crate::sync::atomic::AtomicU64;

    /// A key may be as long as the prefix of its leaf, and the prefix as long as a short key.
    #[test]
    fn keys_are_copied_whatever_prefix_their_leaf_has() {
        const PAGE_BYTES: usize = 4096;
        with_limit(PART_SECONDS, |_| {
            for prefix in [0, 1, 7, 8, 9, 20] {
                let words: Vec<_> = (0..PAGE_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
                let (page, low) = (Page::new(&words), vec![b'p'; prefix]);
                let high = [&low[..], &[0xff]].concat();
                let table = TableId(7);
                page.format(&PageFormat { level: 0, page: 1, table, low: &low, high: Some(&high) });
                let rests = [vec![], vec![1], vec![1; 7], vec![1; 8], vec![2; 12]];
                let keys: Vec<_> = rests.map(|rest| [&low[..], &rest].concat()).into();
                for (place, key) in keys.iter().enumerate() {
                    page.insert(place, key, key, SlotFlags::NONE);
                }
                let slots = page.slots(0..keys.len()).unwrap();
                let (records, long_keys) = (Vec::with_capacity(keys.len()), Vec::new());
                let values = Buffer::with_capacity(PAGE_BYTES);
                let mut plain = PlainRecords { records, long_keys, values };
                let mut target = CopyTarget {
                    records: plain.records.spare_capacity_mut().iter_mut(),
                    long_keys: &mut plain.long_keys,
                    values: plain.values.spare_words(),
                    keys_only: false,
                };
                slots.iter().for_each(|slot| target.copy(slot).unwrap());
                drop(target);
                // SAFETY: so many records were written.
                unsafe { plain.records.set_len(keys.len()) };
                for (record, key) in plain.records.iter().zip(&keys) {
                    assert_eq!(record.key(&plain.long_keys), key, "prefix of {prefix} bytes");
                    // SAFETY: its value is in `plain.values`.
                    assert_eq!(unsafe { record.value.as_ref() }, key);
                }
            }
        });
    }
}
