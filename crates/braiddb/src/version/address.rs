//! Addresses of records in the log, as links of version chains.
//!
//! ```text
//! bits 16..64  the record's LSN, in units of 8 bytes
//! bits  5..16  read size in units of 8 bytes, to be shifted left by bits 1..5:
//! bits  1..5   enough for most records of this size, rounded up by less than a thousandth
//! bit       0  1: distinguishes an address from a version's pointer
//! ```

use crate::log::{Lsn, record_bytes};

const TAG: u64 = 1;
const LSN_SHIFT: u32 = 16;
const LSN_UNIT: u64 = 8;
const READ_UNIT: usize = 8;
const SHIFT_BITS: u32 = 4;
const MAX_UNITS: usize = (1 << 11) - 1;
/// The key length that the read-size hint allows for.
pub(crate) const DEFAULT_KEY_BYTES: usize = 64;

/// The log position of a committed record, with a hint of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address(u64);

impl Address {
    /// Creates the address of the record at `lsn` with a value of `value_bytes`.
    pub(crate) fn new(lsn: Lsn, value_bytes: usize) -> Self {
        assert!(lsn.0.is_multiple_of(LSN_UNIT), "records are aligned");
        let mut units = record_bytes(DEFAULT_KEY_BYTES, value_bytes).div_ceil(READ_UNIT);
        let mut shift = 0;
        while units > MAX_UNITS {
            units = units.div_ceil(2);
            shift += 1;
        }
        assert!(shift < 1 << SHIFT_BITS, "values are bounded");
        let position = lsn.0 / LSN_UNIT;
        assert!(position < 1 << (64 - LSN_SHIFT), "the log is not longer than 2^51 bytes");
        let size = (units as u64) << SHIFT_BITS | shift;
        Self(position << LSN_SHIFT | size << 1 | TAG)
    }

    /// Creates the address of a copy of the record at `lsn`.
    pub(crate) fn moved(self, lsn: Lsn) -> Self {
        let position = Self::new(lsn, 0).0 >> LSN_SHIFT << LSN_SHIFT;
        Self(position | self.0 & ((1 << LSN_SHIFT) - 1))
    }

    /// The record's position.
    pub(crate) fn lsn(self) -> Lsn {
        Lsn((self.0 >> LSN_SHIFT) * LSN_UNIT)
    }

    /// Number of bytes to read first: a hint.
    pub(crate) fn read_bytes(self) -> usize {
        let size = self.0 as usize >> 1;
        let units = size >> SHIFT_BITS & MAX_UNITS;
        (units << (size & ((1 << SHIFT_BITS) - 1))) * READ_UNIT
    }

    /// Approximate size of the value: never less than the actual size, and less than 8 bytes, or a
    /// thousandth, more.
    pub(crate) fn value_bytes(self) -> usize {
        self.read_bytes().saturating_sub(record_bytes(DEFAULT_KEY_BYTES, 0))
    }

    /// Encodes the address as a link word.
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Decodes an address from a word; `None` if it is another link.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (word & TAG != 0).then_some(Self(word))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::version::{Link, MAX_VALUE_BYTES};

    #[test]
    fn addresses_keep_their_parts() {
        for lsn in [Lsn(8), Lsn(4096 + 24), Lsn((1 << 51) - 8)] {
            for bytes in [0, 1, 8, 1000, 1001, 100_000, MAX_VALUE_BYTES] {
                let address = Address::new(lsn, bytes);
                assert_eq!(address.lsn(), lsn);
                let exact = record_bytes(DEFAULT_KEY_BYTES, bytes);
                assert!((exact..=exact + exact / 1000).contains(&address.read_bytes()));
                let most = bytes.next_multiple_of(READ_UNIT) + exact / 1000;
                assert!((bytes..=most).contains(&address.value_bytes()), "{bytes}");
                assert_eq!(Link::from_word(address.word()), Some(Link::Address(address)));
            }
        }
    }
}
