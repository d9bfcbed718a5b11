//! Room of free places inside files, given back to the disk when a database is compacted.
//!
//! Pages are not moved: where a table has become smaller, what is free lies between pages, and files get holes there. As
//! much is kept as the images of all pages take, for the next checkpoint to have room.
//!
//! Invariant: a place is taken while its room is given back, so nobody writes to it meanwhile.

use std::io::ErrorKind;

use super::Zones;
use super::places::{TakenBy, WORDS};

/// Places in a row that are worth a hole.
const MIN_PLACES: u32 = 4;
/// Free places with room that are not worth looking for holes.
const LITTLE: u64 = if cfg!(any(test, braid_simulation)) { 16 } else { 1 << 8 };

/// How far it has come, from the end of the last zone on.
#[derive(Debug, Default)]
pub(crate) struct HolesFrom {
    words_done: usize,
}

impl Zones {
    /// Gives some of the room back that more than `keep` free places have, and returns how many bytes; `None` if nothing is left
    /// to be done.
    pub(in crate::page) fn give_back_between(
        &self,
        from: &mut HolesFrom,
        keep: u64,
    ) -> Option<u64> {
        let (file, number, places) = {
            let zones = &mut *self.state.lock();
            let backed: u64 = zones.iter().map(|zone| zone.places.backed()).sum();
            let spare = backed.checked_sub(keep + LITTLE).filter(|spare| *spare > 0)?;
            let (number, found) = loop {
                let number = zones.len().checked_sub(from.words_done / WORDS + 1)?;
                let word = WORDS - 1 - from.words_done % WORDS;
                match zones[number].places.backed_in_word(word, MIN_PLACES) {
                    Some(found) => break (number, found),
                    None => from.words_done += 1,
                }
            };
            let zone = &mut zones[number];
            let places = found.start..found.end.min(found.start + spare);
            for place in places.clone() {
                zone.places.set(place, TakenBy::Live, true);
            }
            (zone.file.clone().expect("places with room are in a file"), number, places)
        };
        let offset = |place: u64| place * self.slot_bytes as u64;
        let (start, end) = (offset(places.start), offset(places.end));
        let given_back = file.give_back(start..end);
        if let Some(zone) = self.state.lock().get_mut(number) {
            for place in places.clone() {
                zone.places.set(place, TakenBy::Live, false);
            }
            if given_back.is_ok() {
                zone.places.note_given_back(places);
            }
        }
        match given_back {
            Ok(()) => Some(end - start),
            Err(error) if error.kind() == ErrorKind::Unsupported => None,
            Err(error) => {
                tracing::warn!("cannot give back room in {}: {error}", file.path().display());
                None
            }
        }
    }
}
