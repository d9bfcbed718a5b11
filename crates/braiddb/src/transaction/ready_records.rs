//! The records that a scan has read and not returned yet.

use std::ops::Range;
use std::ptr::NonNull;

use crate::types::KeyBuffer;

/// Records in scan order. Their keys are in one buffer, so that a record is added without an
/// allocation, and is passed without a move.
#[derive(Debug, Default)]
pub(super) struct ReadyRecords {
    records: Vec<ReadyRecord>,
    keys: Vec<u8>,
    /// Number of records that were passed.
    passed: usize,
}

#[derive(Clone, Debug)]
struct ReadyRecord {
    /// Position in the buffer of keys.
    key: Range<usize>,
    value: NonNull<[u8]>,
}

impl ReadyRecords {
    /// Makes room for some records with keys of eight bytes.
    pub(super) fn reserve(&mut self, records: usize) {
        self.records.reserve(records);
        self.keys.reserve(8 * records);
    }

    /// Adds a record; `append_key` appends its key to the buffer of keys.
    #[inline(always)]
    pub(super) fn push(&mut self, append_key: impl FnOnce(&mut Vec<u8>), value: NonNull<[u8]>) {
        let key_start = self.keys.len();
        append_key(&mut self.keys);
        self.records.push(ReadyRecord { key: key_start..self.keys.len(), value });
    }

    /// Makes `keys` the buffer of keys of records that [`Self::push_at`] adds, and makes room for
    /// these records. No record may be there.
    pub(super) fn begin_with_keys(&mut self, keys: Vec<u8>, records: usize) {
        assert!(self.records.is_empty(), "their keys are in another buffer");
        self.keys = keys;
        self.records.reserve(records);
    }

    /// Adds a record whose key is in the buffer of keys.
    #[inline(always)]
    pub(super) fn push_at(&mut self, key: Range<usize>, value: NonNull<[u8]>) {
        self.records.push(ReadyRecord { key, value });
    }

    /// Returns whether no record is left.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.passed == self.records.len()
    }

    /// Number of records, the passed ones included.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// The next record.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<(&[u8], NonNull<[u8]>)> {
        self.records.get(self.passed).map(|record| (self.key(record), record.value))
    }

    /// Moves past the next record.
    #[inline(always)]
    pub(super) fn pass(&mut self) {
        assert!(!self.is_empty(), "only a record that is ready is passed");
        self.passed += 1;
    }

    /// The key of the record that was passed last.
    pub(super) fn last_passed(&self) -> Option<&[u8]> {
        let last = self.passed.checked_sub(1)?;
        Some(self.key(&self.records[last]))
    }

    /// The key of the last record.
    pub(super) fn last_key(&self) -> Option<KeyBuffer> {
        self.records.last().map(|record| KeyBuffer::from_slice(self.key(record)))
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
    pub(super) fn truncate(&mut self, number: usize) {
        self.records.truncate(number);
    }

    /// Removes all records.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.keys.clear();
        self.passed = 0;
    }

    #[inline(always)]
    fn key(&self, record: &ReadyRecord) -> &[u8] {
        &self.keys[record.key.clone()]
    }
}
