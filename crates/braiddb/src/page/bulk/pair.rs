//! Cells with two values: the result of a bulk operation, and the before-image.
//!
//! ```text
//! offset  size  field
//!      0     4  new value: length (bits 0..25); bit 30: stored elsewhere
//!      4     4  before-image: the same fields
//!      8     …  cell bytes of the new value, then of the before-image
//! ```
//!
//! The page treats the cell as a single value.

use smallvec::SmallVec;

use crate::page::layout::WORD_BYTES;
use crate::page::value::{SlotValue, ValueBytes};

const LENGTH_MASK: u32 = (1 << 25) - 1;
const ELSEWHERE: u32 = 1 << 30;
const HALF: usize = size_of::<u32>();

/// Returns the length of the cell of two values.
pub(in crate::page) fn pair_bytes(now: SlotValue<'_>, before: SlotValue<'_>) -> usize {
    WORD_BYTES + now.cell_bytes() + before.cell_bytes()
}

/// Calls `write` with the bytes of the cell of two values.
pub(in crate::page) fn with_pair<R>(
    now: SlotValue<'_>,
    before: SlotValue<'_>,
    write: impl FnOnce(&[u8]) -> R,
) -> R {
    let mut cell = SmallVec::<[u8; 256]>::new();
    for value in [now, before] {
        let length = u32::try_from(value.value_bytes()).expect("values are bounded");
        let place = if value.large().is_some() { ELSEWHERE } else { 0 };
        cell.extend_from_slice(&(length | place).to_le_bytes());
    }
    for value in [now, before] {
        value.with_cell(|bytes| cell.extend_from_slice(bytes));
    }
    write(&cell)
}

/// Decodes the two values of a cell. An unvalidated reader may pass arbitrary bytes.
pub(in crate::page) fn read_pair(cell: &ValueBytes) -> (SlotValue<'_>, SlotValue<'_>) {
    let header = |at: usize| {
        let bytes = cell.get(at..at + HALF).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_le_bytes)
    };
    let mut rest = cell.get(WORD_BYTES..).unwrap_or(&[]);
    let mut take = |header: u32| {
        let bytes = (header & LENGTH_MASK) as usize;
        let elsewhere = (header & ELSEWHERE != 0).then_some(bytes);
        let (value, after) = rest.split_at(elsewhere.map_or(bytes, |_| WORD_BYTES).min(rest.len()));
        rest = after;
        SlotValue::from_cell(value, elsewhere)
    };
    let now = take(header(0));
    (now, take(header(HALF)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::page::value::LargeRef;

    #[test]
    fn two_values_come_back_from_their_cell() {
        let large = SlotValue::Elsewhere(LargeRef::numbered(7, 100_000));
        let values = [SlotValue::Here(&[]), SlotValue::Here(&[1, 2, 3]), large];
        for now in values {
            for before in values {
                let cell = with_pair(now, before, ValueBytes::from_slice);
                assert_eq!(cell.len(), pair_bytes(now, before));
                assert_eq!(read_pair(&cell), (now, before));
            }
        }
    }

    #[test]
    fn arbitrary_cells_are_read_without_a_panic() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..1000 {
            let cell: ValueBytes = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            let (now, before) = read_pair(&cell);
            assert!(now.cell_bytes().max(before.cell_bytes()) <= cell.len().max(WORD_BYTES));
        }
    }
}
