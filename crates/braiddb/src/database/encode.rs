//! Encoding of keys and ranges of keys, and checks of their lengths.

use std::ops::Bound;

use super::error::{Error, Misuse, Result};
use super::table::KeyRange;
use crate::index::MAX_KEY_BYTES;
use crate::record::Records;
use crate::transaction::ScanBounds;
use crate::types::{KeyBuffer, TableKey};

/// Encodes a key.
#[inline(always)]
pub(super) fn encode<K: TableKey + ?Sized>(key: &K) -> KeyBuffer {
    let mut buffer = KeyBuffer::new();
    key.encode_key(&mut buffer);
    buffer
}

/// Encodes a range of keys.
pub(super) fn encode_range<K: TableKey + ?Sized>(range: &impl KeyRange<K>) -> ScanBounds {
    let (low, high) = range.key_bounds();
    ScanBounds { low: low.map(encode), high: high.map(encode) }
}

/// Encodes a key, if it is valid for records of this table.
#[inline(always)]
pub(super) fn encode_for<K: TableKey + ?Sized>(records: &Records, key: &K) -> Result<KeyBuffer> {
    let key = encode(key);
    check_key(records, &key)?;
    Ok(key)
}

/// Checks that an encoded key is valid for records of this table.
#[inline]
pub(super) fn check_key(records: &Records, key: &[u8]) -> Result<()> {
    let limit = records.max_key_bytes();
    match key.len() <= limit {
        true => Ok(()),
        false => Err(Error::Misuse(Misuse::KeyTooLong { bytes: key.len(), limit })),
    }
}

/// Encodes a key, if it is valid for records of some table.
pub(super) fn encode_checked<K: TableKey + ?Sized>(key: &K) -> Result<KeyBuffer> {
    let key = encode(key);
    match key.len() <= MAX_KEY_BYTES {
        true => Ok(key),
        false => Err(Error::Misuse(Misuse::KeyTooLong { bytes: key.len(), limit: MAX_KEY_BYTES })),
    }
}

/// Returns the range of encodings that start with `start`.
pub(super) fn starting_with(start: KeyBuffer) -> ScanBounds {
    let high = after_prefix(&start);
    ScanBounds { low: Bound::Included(start), high }
}

/// Returns the exclusive end of the keys that start with `prefix`: the prefix with its last byte
/// below 255 incremented.
pub(super) fn after_prefix(prefix: &[u8]) -> Bound<KeyBuffer> {
    let Some(place) = prefix.iter().rposition(|&byte| byte < u8::MAX) else {
        return Bound::Unbounded;
    };
    let mut end = KeyBuffer::new();
    end.extend_from_slice(&prefix[..=place]);
    end[place] += 1;
    Bound::Excluded(end)
}
