//! Zones: the files in which pages are that are not in memory, each a row of places of one size.
//!
//! What is in them is of no use once the database is closed: they are removed when it is, and when it is opened
//! (`docs/format.md`). Those of a database that is only read have no names, and are not in its directory. Places are taken in runs, that pages which leave memory together are written together:
//! first from regions in which nothing is, as long as less than half of all places are free; then from
//! whatever is free. So nothing ever waits for places to be put in order.
//!
//! Invariant: a place is free, or belongs to one page, or to a [`Run`] that is held: while it is written, the
//! write holds the run, whoever asked for it. So no place is written while it is being written for another page.

use std::path::PathBuf;
use std::sync::Arc;

use super::map::{DiskPlace, SLOT_LIMIT};
use super::write_back::Images;
use crate::io::{AlignedBuffer, File, OpenMode, SECTOR_BYTES};
use crate::log::{LogError, LogFiles, WeakLogFiles};
use crate::sched;
use crate::sync::Mutex;

/// Places of a zone.
const SLOTS: u64 = 1 << 16;
const WORD_SLOTS: u64 = u64::BITS as u64;
const WORDS: usize = (SLOTS / WORD_SLOTS) as usize;
/// Places of a region; the most that a run has.
pub(in crate::page) const RUN_SLOTS: usize = 16;
const REGION: u64 = (1 << RUN_SLOTS) - 1;
const REGIONS_PER_WORD: u32 = u64::BITS / RUN_SLOTS as u32;

/// The zones of a space of pages.
#[derive(Debug)]
pub(in crate::page) struct Zones {
    files: WeakLogFiles,
    slot_bytes: usize,
    state: Mutex<Vec<Zone>>,
}

#[derive(Debug)]
struct Zone {
    file: Arc<File>,
    /// A bit for each place; set: free.
    free: Box<[u64; WORDS]>,
    count: u64,
    /// No word before this one has a whole region free; none before that one any place.
    regions_from: usize,
    places_from: usize,
}

/// Places in a row that the holder may write to; those that are not kept are free again when it is dropped.
#[derive(Debug)]
pub(in crate::page) struct Run {
    zones: Arc<Zones>,
    file: Arc<File>,
    first: u64,
    /// Those that are to be freed.
    left: Mutex<Vec<u64>>,
}

/// Whether a file of the database's directory is a zone.
fn is_zone(name: &str) -> bool {
    name.strip_prefix("pages-").is_some_and(|rest| rest.ends_with(".zone"))
}

/// Removes the zones that an earlier opening has left.
///
/// # Errors
/// The operating system's.
pub(crate) fn remove_zones(files: &LogFiles) -> Result<(), LogError> {
    for name in files.list()?.iter().filter(|name| is_zone(name)) {
        files.remove(name)?;
    }
    Ok(())
}

impl Zones {
    /// No zones, in the directory of a database, for pages of so many bytes.
    pub(in crate::page) fn new(files: WeakLogFiles, page_bytes: usize) -> Arc<Self> {
        let slot_bytes = page_bytes.next_multiple_of(SECTOR_BYTES);
        Arc::new(Self { files, slot_bytes, state: Mutex::default() })
    }

    /// Bytes of a place.
    pub(in crate::page) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Bytes of places that are taken.
    pub(in crate::page) fn bytes(&self) -> u64 {
        let taken: u64 = self.state.lock().iter().map(|zone| SLOTS - zone.count).sum();
        taken * self.slot_bytes as u64
    }

    fn locate(&self, slot: u64) -> (Arc<File>, u64) {
        let file = self.state.lock()[(slot / SLOTS) as usize].file.clone();
        (file, self.offset(slot))
    }

    fn offset(&self, slot: u64) -> u64 {
        slot % SLOTS * self.slot_bytes as u64
    }

    /// The path of the file that a place is in, and where there, for errors.
    pub(in crate::page) fn name(&self, slot: u64) -> (PathBuf, u64) {
        let (file, offset) = self.locate(slot);
        (file.path().to_owned(), offset)
    }

    /// Reads what is in a place, and tells `then` when that is done: on a worker later, between its tasks; elsewhere at
    /// once, after a blocking call.
    pub(in crate::page) fn read_then(
        &self,
        place: DiskPlace,
        then: impl FnOnce(Result<AlignedBuffer, LogError>) + 'static,
    ) {
        let (file, offset) = self.locate(place.slot);
        let mut buffer = AlignedBuffer::zeroed(self.slot_bytes);
        let checked = {
            let file = file.clone();
            move |read: std::io::Result<usize>, buffer: AlignedBuffer| {
                let failed = |error| LogError::io("read a page from", file.path(), offset, error);
                match read {
                    Ok(bytes) if bytes == buffer.len() => Ok(buffer),
                    Ok(_) => Err(failed(std::io::ErrorKind::UnexpectedEof.into())),
                    Err(error) => Err(failed(error)),
                }
            }
        };
        if sched::on_worker() {
            sched::read_then(file, offset, buffer, move |read, buffer| then(checked(read, buffer)));
        } else {
            let read = file.read_at(&mut buffer, offset);
            then(checked(read, buffer));
        }
    }

    /// Takes a run of places, `most` at most.
    ///
    /// # Errors
    /// The operating system's, when there is none and no zone can be made.
    pub(in crate::page) fn take(self: &Arc<Self>, most: usize) -> Result<Run, LogError> {
        assert!((1..=RUN_SLOTS).contains(&most));
        let zones = &mut *self.state.lock();
        let (number, place, count) = self.find(zones, most)?;
        let zone = &mut zones[number];
        let first = number as u64 * SLOTS + place;
        let left = (first..first + count).collect();
        (place..place + count).for_each(|place| zone.set_taken(place));
        Ok(Run { zones: self.clone(), file: zone.file.clone(), first, left: Mutex::new(left) })
    }

    fn find(&self, zones: &mut Vec<Zone>, most: usize) -> Result<(usize, u64, u64), LogError> {
        let region = |zones: &mut Vec<Zone>| {
            let mut each = zones.iter_mut().enumerate();
            each.find_map(|(number, zone)| Some((number, zone.free_region()?, most as u64)))
        };
        if let Some(found) = region(zones) {
            return Ok(found);
        }
        let free: u64 = zones.iter().map(|zone| zone.count).sum();
        let mut error = None;
        if 2 * free <= zones.len() as u64 * SLOTS {
            match self.add(zones) {
                Ok(()) => return Ok(region(zones).expect("a new zone is free")),
                Err(why) => error = Some(why),
            }
        }
        let mut each = zones.iter_mut().enumerate();
        let run = each.find_map(|(number, zone)| {
            let (place, count) = zone.free_run(most as u64)?;
            Some((number, place, count))
        });
        run.ok_or_else(|| error.expect("half of the places are free, or no zone could be made"))
    }

    fn add(&self, zones: &mut Vec<Zone>) -> Result<(), LogError> {
        assert!((zones.len() as u64 + 1) * SLOTS <= SLOT_LIMIT);
        let name = format!("pages-{:06x}.zone", zones.len());
        let files = self.files.get().expect("the log is open as long as there are workers");
        let file = match files.is_read_only() {
            true => files.open_scratch()?,
            false => files.open(&name, OpenMode::Emptied)?,
        };
        let file = Arc::new(file);
        let free = Box::new([u64::MAX; WORDS]);
        zones.push(Zone { file, free, count: SLOTS, regions_from: 0, places_from: 0 });
        Ok(())
    }

    /// Frees a place that belongs to nobody any more.
    pub(in crate::page) fn free(&self, slot: u64) {
        let zones = &mut *self.state.lock();
        // Tables go after the zones when the database is closed.
        if let Some(zone) = zones.get_mut((slot / SLOTS) as usize) {
            zone.set_free(slot % SLOTS);
        }
    }

    /// Gives the space of zones back in which nothing is.
    pub(in crate::page) fn give_back(&self) {
        let zones = self.state.lock();
        for zone in zones.iter().filter(|zone| zone.count == SLOTS) {
            if let Err(error) = zone.file.truncate(0) {
                tracing::warn!("cannot cut {}: {error}", zone.file.path().display());
            }
        }
    }

    /// Removes the files; nobody uses them any more.
    pub(in crate::page) fn remove(&self) {
        self.state.lock().clear();
        if let Some(files) = self.files.get()
            && !files.is_read_only()
            && let Err(error) = remove_zones(&files)
        {
            tracing::warn!("zones are left until the database is opened again: {error}");
        }
    }
}

impl Zone {
    /// The first place of a region in which nothing is.
    fn free_region(&mut self) -> Option<u64> {
        while self.regions_from < WORDS {
            let word = self.free[self.regions_from];
            for number in 0..REGIONS_PER_WORD {
                let shift = number * RUN_SLOTS as u32;
                if word >> shift & REGION == REGION {
                    return Some(self.regions_from as u64 * WORD_SLOTS + u64::from(shift));
                }
            }
            self.regions_from += 1;
        }
        None
    }

    /// The first free place, and how many are free from there on, of `most`, in one word.
    fn free_run(&mut self, most: u64) -> Option<(u64, u64)> {
        while self.places_from < WORDS {
            let word = self.free[self.places_from];
            if word != 0 {
                let start = word.trailing_zeros();
                let count = u64::from((word >> start).trailing_ones()).min(most);
                return Some((self.places_from as u64 * WORD_SLOTS + u64::from(start), count));
            }
            self.places_from += 1;
        }
        None
    }

    fn set_taken(&mut self, place: u64) {
        let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
        assert_ne!(self.free[word] & bit, 0, "a place is one page's");
        self.free[word] &= !bit;
        self.count -= 1;
    }

    fn set_free(&mut self, place: u64) {
        let (word, bit) = ((place / WORD_SLOTS) as usize, 1 << (place % WORD_SLOTS));
        assert_eq!(self.free[word] & bit, 0, "a place is freed once");
        self.free[word] |= bit;
        self.count += 1;
        self.regions_from = self.regions_from.min(word);
        self.places_from = self.places_from.min(word);
    }
}

impl Run {
    /// Places of the run.
    pub(in crate::page) fn len(&self) -> usize {
        self.left.lock().len()
    }

    /// Writes images, one for each place, whose run this is, and tells `then` when that is done, as
    /// [`Zones::read_then`]. They stay, and the run with them, until the write is over.
    pub(in crate::page) fn write_then(
        &self,
        images: Arc<Images>,
        then: impl FnOnce(Result<(), LogError>) + 'static,
    ) {
        let (file, offset) = (self.file.clone(), self.zones.offset(self.first));
        let checked = {
            let file = file.clone();
            move |written: std::io::Result<()>| {
                written.map_err(|error| LogError::io("write pages to", file.path(), offset, error))
            }
        };
        if sched::on_worker() {
            sched::write_then(file, offset, images, move |written| then(checked(written)));
        } else {
            let written = file.write_all_at((*images).as_ref(), offset);
            then(checked(written));
        }
    }

    /// Keeps a place of the run, by its number there: it is the caller's to free.
    pub(in crate::page) fn keep(&self, number: usize) -> u64 {
        let slot = self.first + number as u64;
        let left = &mut *self.left.lock();
        let position = left.iter().position(|one| *one == slot).expect("kept once");
        left.swap_remove(position);
        slot
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        for slot in self.left.get_mut().drain(..) {
            self.zones.free(slot);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
