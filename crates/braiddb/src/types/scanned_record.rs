//! A record that a scan has read.

use std::ptr::NonNull;

/// Maximum length of a key that is stored next to the address of its value.
pub(crate) const SHORT_KEY_BYTES: usize = 8;

/// A record of a list of records that a scan has read. The list has the longer keys in one buffer.
#[derive(Clone, Debug)]
pub(crate) struct ScannedRecord {
    /// A key of at most eight bytes, padded with zeros.
    pub(crate) short_key: [u8; SHORT_KEY_BYTES],
    pub(crate) key_bytes: u32,
    /// Start of a longer key in the buffer of keys.
    pub(crate) key_start: u32,
    pub(crate) value: NonNull<[u8]>,
}

impl ScannedRecord {
    /// Returns the key; `long_keys` are the longer keys of the record's list.
    #[inline(always)]
    pub(crate) fn key<'r>(&'r self, long_keys: &'r [u8]) -> &'r [u8] {
        match self.short_key.get(..self.key_bytes as usize) {
            Some(key) => key,
            None => &long_keys[self.key_start as usize..][..self.key_bytes as usize],
        }
    }
}
