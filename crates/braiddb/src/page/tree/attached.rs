//! State attached to frames: mapping tables of versions and bytes reserved for undoing changes.
//! Both move with the keys of their records.

use crate::page::frame::LatchedPage;
use crate::page::versions::{merge_mappings, reserved_bytes, reserved_bytes_of, split_mapping};
use crate::planted::{Bug, is_planted};

/// Moves the mapping table of `whole` to `left` and `right`, split at `separator`. `left` is
/// `whole` or new, and `right` is new. The caller is about to change all three pages.
pub(super) fn part(
    whole: &LatchedPage<'_>,
    left: &LatchedPage<'_>,
    right: &LatchedPage<'_>,
    separator: &[u8],
) {
    let word = whole.mapping();
    if word == 0 {
        return;
    }
    // SAFETY: the pages are latched, and the word was loaded under these latches.
    let (left_word, right_word) = unsafe { split_mapping(word, separator) };
    hang(whole, 0);
    hang(left, left_word);
    hang(right, right_word);
}

/// Adds the mapping table of `gone` to that of `page`. The caller is about to change both pages.
pub(super) fn join(page: &LatchedPage<'_>, gone: &LatchedPage<'_>) {
    let (word, other) = (page.mapping(), gone.mapping());
    if other != 0 {
        // SAFETY: the pages are latched, and the words were loaded under these latches.
        hang(page, unsafe { merge_mappings(word, other) });
        hang(gone, 0);
    }
}

/// Returns the bytes reserved on a page for the record of a key; `None` if it has no chain.
pub(super) fn reserved_for(page: &LatchedPage<'_>, key: &[u8]) -> Option<usize> {
    // SAFETY: the page is latched, and the word is loaded under the latch.
    unsafe { reserved_bytes_of(page.mapping(), key) }
}

/// Reserves exactly the bytes of a page that undoing the currently undecided changes needs.
pub(super) fn reserve_for_undo(page: &LatchedPage<'_>) {
    // SAFETY: the page is latched, and the word is loaded under the latch.
    let bytes = unsafe { reserved_bytes(page.mapping()) };
    set_reserved(page, bytes);
}

/// Adjusts the reserved bytes after a write to one record, for which `before` bytes were reserved
/// previously. The result is at least what undoing needs. It may be more, because the reserve of
/// other records is not reduced here.
pub(super) fn reserve_for_undo_of(page: &LatchedPage<'_>, key: &[u8], before: usize) {
    let others = page.reserved_bytes().saturating_sub(before);
    let bytes = others + reserved_for(page, key).unwrap_or(0);
    // SAFETY: the page is latched, and the word is loaded under the latch.
    debug_assert!(bytes >= unsafe { reserved_bytes(page.mapping()) }, "all can be undone");
    set_reserved(page, bytes);
}

fn set_reserved(page: &LatchedPage<'_>, bytes: usize) {
    page.set_reserved_bytes(if is_planted(Bug::RoomForUndoNotKept) { 0 } else { bytes });
}

fn hang(page: &LatchedPage<'_>, word: u64) {
    page.set_mapping(word);
    reserve_for_undo(page);
}
