//! Hole punching: compaction returns the disk blocks of free places inside zone files.
//!
//! Pages are not moved. After a table has shrunk, free places remain between its pages, and their
//! disk blocks are deallocated. Enough free places keep their blocks for the images of all pages,
//! so that the next checkpoint has room.
//!
//! Invariant: a place counts as taken while its blocks are deallocated, so no other task writes to
//! it.

use std::io::ErrorKind;

use super::Zones;
use super::places::{PlaceUser, WORDS};

/// Minimum number of adjacent places for a hole, unless the disk is nearly full.
const MIN_PLACES: u32 = 4;
/// Number of free places with disk blocks that do not justify a search for holes.
const MIN_HOLE_SLOTS: u64 = if cfg!(any(test, braid_simulation)) { 16 } else { 1 << 8 };

/// Progress of the search, from the end of the last zone to the start.
#[derive(Debug, Default)]
pub(crate) struct HoleSearch {
    words_done: usize,
}

impl Zones {
    /// Deallocates disk blocks of free places beyond the first `keep`. Returns the freed bytes;
    /// `None` when nothing is left to do.
    pub(in crate::page) fn release_holes(&self, from: &mut HoleSearch, keep: u64) -> Option<u64> {
        let is_tight = self.files.get().is_some_and(|files| files.is_disk_tight());
        let least = if is_tight { 1 } else { MIN_PLACES };
        let (file, number, places) = {
            let zones = &mut *self.state.lock();
            let backed: u64 = zones.iter().map(|zone| zone.places.backed()).sum();
            let spare = backed.checked_sub(keep + MIN_HOLE_SLOTS).filter(|spare| *spare > 0)?;
            let (number, found) = loop {
                let number = zones.len().checked_sub(from.words_done / WORDS + 1)?;
                let word = WORDS - 1 - from.words_done % WORDS;
                match zones[number].places.backed_in_word(word, least) {
                    Some(found) => break (number, found),
                    None => from.words_done += 1,
                }
            };
            let zone = &mut zones[number];
            let places = found.start..found.end.min(found.start + spare);
            for place in places.clone() {
                zone.places.set(place, PlaceUser::Live, true);
            }
            (zone.file.clone().expect("places with disk blocks are in a file"), number, places)
        };
        let offset = |place: u64| place * self.slot_bytes as u64;
        let (start, end) = (offset(places.start), offset(places.end));
        let given_back = file.deallocate(start..end);
        if let Some(zone) = self.state.lock().get_mut(number) {
            for place in places.clone() {
                zone.places.set(place, PlaceUser::Live, false);
            }
            if given_back.is_ok() {
                zone.places.note_released(places);
            }
        }
        match given_back {
            Ok(()) => Some(end - start),
            Err(error) if error.kind() == ErrorKind::Unsupported => None,
            Err(error) => {
                tracing::warn!("cannot free space inside {}: {error}", file.path().display());
                None
            }
        }
    }
}
