//! What hangs on the frames of pages moves with their keys: the mapping tables of their records' versions,
//! and the bytes that are kept free so that what is undecided can be undone.

use crate::page::frame::LatchedPage;
use crate::page::versions::{merge_mappings, reserved_bytes, reserved_bytes_of, split_mapping};
use crate::planted::{Bug, is_planted};

/// `left`, which is `whole` or new, and `right`, which is new, take over what hung on `whole`, by the key
/// from which on it is the right one's. All are about to change.
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
    // SAFETY: the pages are latched, and the word was loaded meanwhile.
    let (left_word, right_word) = unsafe { split_mapping(word, separator) };
    hang(whole, 0);
    hang(left, left_word);
    hang(right, right_word);
}

/// `page` takes over what hangs on `gone` too. Both are about to change.
pub(super) fn join(page: &LatchedPage<'_>, gone: &LatchedPage<'_>) {
    let (word, other) = (page.mapping(), gone.mapping());
    if other != 0 {
        // SAFETY: the pages are latched, and the words were loaded meanwhile.
        hang(page, unsafe { merge_mappings(word, other) });
        hang(gone, 0);
    }
}

/// Bytes that are kept free on a page for the record of a key; `None`: it has no chain.
pub(super) fn reserved_for(page: &LatchedPage<'_>, key: &[u8]) -> Option<usize> {
    // SAFETY: the page is latched, and the word is loaded meanwhile.
    unsafe { reserved_bytes_of(page.mapping(), key) }
}

/// Keeps as many bytes of a page free as undoing takes of what is undecided by now.
pub(super) fn reserve_for_undo(page: &LatchedPage<'_>) {
    // SAFETY: the page is latched, and the word is loaded meanwhile.
    let bytes = unsafe { reserved_bytes(page.mapping()) };
    set_reserved(page, bytes);
}

/// The same, where it was enough before a record was written for which `before` bytes were kept free then: never less than undoing
/// takes, for what is kept for other records is needed no longer some time, and never more.
pub(super) fn reserve_for_undo_of(page: &LatchedPage<'_>, key: &[u8], before: usize) {
    let others = page.reserved_bytes().saturating_sub(before);
    let bytes = others + reserved_for(page, key).unwrap_or(0);
    // SAFETY: the page is latched, and the word is loaded meanwhile.
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
