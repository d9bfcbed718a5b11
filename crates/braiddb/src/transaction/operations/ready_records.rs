//! The records that a scan has read and not returned yet.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::index::LeafEntry;
use crate::log::Lsn;
use crate::memory::Buffer;
use crate::page::PlainRecords;
use crate::record::NewestValues;
use crate::types::{KeyBuffer, SHORT_KEY_BYTES, ScannedRecord};

/// Records in scan order. A record is passed without a move.
#[derive(Debug, Default)]
pub(super) struct ReadyRecords {
    records: Vec<ScannedRecord>,
    /// The longer keys, one after another.
    long_keys: Vec<u8>,
    /// Number of records that were passed.
    passed: Cell<usize>,
}

/// The records that were added without a copy of their values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LentRecords {
    pub(in crate::transaction) records: usize,
    pub(in crate::transaction) bytes: usize,
}

impl ReadyRecords {
    /// Returns an empty list with the memory of two lists.
    pub(super) fn with_memory(records: Vec<ScannedRecord>, long_keys: Vec<u8>) -> Self {
        Self { records, long_keys, passed: Cell::new(0) }
    }

    /// Returns the memory of the lists.
    pub(super) fn into_memory(self) -> (Vec<ScannedRecord>, Vec<u8>) {
        (self.records, self.long_keys)
    }

    /// Makes room for some records.
    pub(in crate::transaction) fn reserve(&mut self, records: usize) {
        self.records.reserve(records);
    }

    /// Adds a record with the key of an index entry.
    #[inline(always)]
    pub(super) fn push_entry(&mut self, entry: &LeafEntry<'_>, value: NonNull<[u8]>) {
        match entry.short_key() {
            Some((short_key, key_bytes)) => {
                self.records.push(ScannedRecord { short_key, key_bytes, key_start: 0, value });
            }
            None => {
                let (short_key, key_bytes, key_start) = append_key(entry, &mut self.long_keys);
                self.records.push(ScannedRecord { short_key, key_bytes, key_start, value });
            }
        }
    }

    /// Adds the records of the first entries whose newest versions are simply the visible ones.
    /// Values are empty if `KEYS_ONLY`. `depends_on` becomes the latest of their commits, if that is
    /// later.
    #[inline(never)]
    pub(super) fn lend<const KEYS_ONLY: bool>(
        &mut self,
        entries: &[LeafEntry<'_>],
        newest_values: &NewestValues<'_>,
        depends_on: &mut Lsn,
    ) -> LentRecords {
        self.records.reserve(entries.len());
        // Copies, which stay in registers.
        let (mut newest_values, mut latest) = (newest_values.clone(), *depends_on);
        let mut lent = LentRecords::default();
        for (record, entry) in self.records.spare_capacity_mut().iter_mut().zip(entries) {
            let Some((value, lsn)) = newest_values.get(entry.rid()) else { break };
            latest = latest.max(lsn);
            let value: &[u8] = if KEYS_ONLY { &[] } else { value };
            let (short_key, key_bytes, key_start) = match entry.short_key() {
                Some((short_key, key_bytes)) => (short_key, key_bytes, 0),
                None => append_key(entry, &mut self.long_keys),
            };
            let lent_value = NonNull::from(value);
            record.write(ScannedRecord { short_key, key_bytes, key_start, value: lent_value });
            lent.records += 1;
            lent.bytes += value.len();
        }
        // SAFETY: so many records were written behind the others, within the capacity.
        unsafe { self.records.set_len(self.records.len() + lent.records) };
        *depends_on = latest;
        lent
    }

    /// Adds a record with a key.
    pub(in crate::transaction) fn push(&mut self, key: &[u8], value: NonNull<[u8]>) {
        let (mut short_key, mut key_start) = ([0; SHORT_KEY_BYTES], 0);
        match short_key.get_mut(..key.len()) {
            Some(short) => short.copy_from_slice(key),
            None => {
                key_start = self.long_keys.len() as u32;
                self.long_keys.extend_from_slice(key);
            }
        }
        let key_bytes = key.len() as u32;
        self.records.push(ScannedRecord { short_key, key_bytes, key_start, value });
    }

    /// Returns the empty lists for records that are copied from a page.
    pub(super) fn take_lists(&mut self) -> PlainRecords {
        let Self { records, long_keys, .. } = std::mem::take(self);
        PlainRecords { records, long_keys, values: Buffer::default() }
    }

    /// Keeps the memory of lists whose records are not ready.
    pub(super) fn return_lists(&mut self, plain: PlainRecords) {
        (self.records, self.long_keys) = (plain.records, plain.long_keys);
        self.clear();
    }

    /// Adds records that were copied from a page, whose values stay where they are. No record may be
    /// there.
    pub(super) fn take_plain(&mut self, plain: PlainRecords) {
        assert!(self.records.is_empty(), "their keys are in another buffer");
        (self.records, self.long_keys) = (plain.records, plain.long_keys);
    }

    /// Returns whether no record is left.
    #[inline(always)]
    pub(in crate::transaction) fn is_empty(&self) -> bool {
        self.passed.get() == self.records.len()
    }

    /// Number of records, the passed ones included.
    pub(in crate::transaction) fn len(&self) -> usize {
        self.records.len()
    }

    /// Number of records that were passed.
    #[inline(always)]
    pub(in crate::transaction) fn passed(&self) -> usize {
        self.passed.get()
    }

    /// The next record.
    #[inline(always)]
    pub(in crate::transaction) fn first(&self) -> Option<(&[u8], NonNull<[u8]>)> {
        let record = self.records.get(self.passed.get())?;
        Some((record.key(&self.long_keys), record.value))
    }

    /// The records with numbers from the next one's up to `end`, with their numbers.
    #[inline(always)]
    pub(super) fn numbered(&self, end: usize) -> impl Iterator<Item = (usize, &ScannedRecord)> {
        let passed = self.passed.get();
        self.records
            .get(passed..end)
            .unwrap_or(&[])
            .iter()
            .enumerate()
            .map(move |(place, record)| (passed + place, record))
    }

    /// The buffer of longer keys.
    #[inline(always)]
    pub(super) fn long_keys(&self) -> &[u8] {
        &self.long_keys
    }

    /// Moves past the records with numbers up to this one, which is the number of a record.
    #[inline(always)]
    pub(super) fn pass_through(&self, number: usize) {
        debug_assert!(self.passed.get() <= number && number < self.records.len());
        self.passed.set(number + 1);
    }

    /// Moves past the next record.
    #[inline(always)]
    pub(in crate::transaction) fn pass(&self) {
        assert!(!self.is_empty(), "only a record that is ready is passed");
        self.passed.set(self.passed.get() + 1);
    }

    /// The key of the record that was passed last, or so many records before the next one.
    pub(super) fn passed_before(&self, records: usize) -> Option<&[u8]> {
        let number = self.passed.get().checked_sub(records)?;
        Some(self.records[number].key(&self.long_keys))
    }

    /// The key of the last record.
    pub(super) fn last_key(&self) -> Option<KeyBuffer> {
        self.records.last().map(|record| KeyBuffer::from_slice(record.key(&self.long_keys)))
    }

    /// Sets the value of a record.
    pub(super) fn set_value(&mut self, number: usize, value: NonNull<[u8]>) {
        self.records[number].value = value;
    }

    /// Replaces each value, and removes the records for which `value` returns none.
    pub(super) fn replace_values(
        &mut self,
        value: impl Fn(NonNull<[u8]>) -> Option<NonNull<[u8]>>,
    ) {
        self.records.retain_mut(|record| match value(record.value) {
            Some(value) => {
                record.value = value;
                true
            }
            None => false,
        });
    }

    /// Removes the records from a number on.
    pub(in crate::transaction) fn truncate(&mut self, number: usize) {
        self.records.truncate(number);
    }

    /// Removes all records.
    pub(in crate::transaction) fn clear(&mut self) {
        self.records.clear();
        self.long_keys.clear();
        self.passed.set(0);
    }
}

/// Appends the key of an entry, which is a longer one, to the buffer of keys.
#[inline(never)]
fn append_key(entry: &LeafEntry<'_>, long_keys: &mut Vec<u8>) -> ([u8; SHORT_KEY_BYTES], u32, u32) {
    let start = long_keys.len();
    entry.append_key(long_keys);
    ([0; SHORT_KEY_BYTES], (long_keys.len() - start) as u32, start as u32)
}
