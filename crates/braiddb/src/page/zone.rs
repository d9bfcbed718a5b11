//! Zones: the files that hold the images of pages, each a row of places of one size
//! (`docs/format.md`).
//!
//! A place holds the image of a page that is not resident, or one that the newest checkpoint lists.
//! When the database is opened, only places listed by the checkpoint are in use. A database opened
//! for reading only creates zones without names, so they are not in its directory.
//!
//! Places are taken in runs, so that pages that are evicted together are written together. Runs are
//! taken from completely free regions first. The files grow only while at most a quarter of their
//! disk blocks is free; after that, runs are taken from any free places with disk blocks. So no write
//! ever waits for a reorganisation of zones.
//!
//! Invariants:
//!
//! - A place is either free or taken. A page, a held [`PlaceRun`], a checkpoint, or several of these
//!   take it (`places`). A write holds its run until it ends.
//! - Therefore a place is not reused while it is being written, nor while the published or the next
//!   checkpoint lists it.
//! - No place is taken from a zone of an earlier opening until all places of the checkpoint are
//!   claimed.

mod holes;
mod places;

use std::io::ErrorKind;
use std::sync::Arc;

pub(crate) use holes::HoleSearch;
pub(in crate::page) use places::RUN_SLOTS;
use places::{PlaceUser, Places, SLOTS, WORD_SLOTS};

use super::layout::PageDamage;
use super::map::{DiskPlace, SLOT_LIMIT};
use crate::io::{AlignedBuffer, File, OpenMode, SECTOR_BYTES};
use crate::log::{DirectoryCopy, LogError, LogFiles, WeakLogFiles};
use crate::planted::{Bug, is_planted};
use crate::sched;
use crate::sync::Mutex;
use crate::sync::statistic::{AtomicBool, Ordering};

/// Files grow only while at most this part of their disk blocks is free: one of so many.
const MAX_FREE_SHARE: u64 = 4;

/// Zones of a page space.
#[derive(Debug)]
pub(in crate::page) struct Zones {
    files: WeakLogFiles,
    slot_bytes: usize,
    state: Mutex<Vec<Zone>>,
    /// True after a write failed because the disk was full; then places that already have disk
    /// blocks are preferred.
    is_tight: AtomicBool,
}

#[derive(Debug)]
struct Zone {
    /// `None` if no file has this number; then no place is taken.
    file: Option<Arc<File>>,
    places: Places,
    /// True if no place may be taken: the zone is from an earlier opening whose places are not all
    /// claimed yet, or is read-only.
    sealed: bool,
    /// True if the zone was written to since its last sync.
    unsynced: bool,
}

/// Adjacent places that the holder may write to. Places that are not kept are freed when it is
/// dropped.
#[derive(Debug)]
pub(in crate::page) struct PlaceRun {
    zones: Arc<Zones>,
    file: Arc<File>,
    first: u64,
    /// Bits of places that had no disk blocks when they were taken.
    without_blocks: u64,
    /// Set once a write was started, which gives disk blocks to all places unless it fails.
    is_written: AtomicBool,
    /// Places that are freed when the run is dropped.
    left: Mutex<Vec<u64>>,
}

/// Returns the file name of a zone.
pub(in crate::page) fn zone_name(number: usize) -> String {
    format!("pages-{number:06x}.zone")
}

/// Returns the number of the zone with this file name; `None` if the name is not a zone's.
fn parse_zone_name(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("pages-")?.strip_suffix(".zone")?;
    usize::from_str_radix(digits, 16).ok().filter(|number| zone_name(*number) == name)
}

/// Returns the number of the zone that contains a slot, and the slot's offset in the file.
pub(in crate::page) fn locate(slot: u64, slot_bytes: usize) -> (u64, u64) {
    (slot / SLOTS, slot % SLOTS * slot_bytes as u64)
}

/// Opens an existing zone.
///
/// # Errors
/// Errors of the operating system.
pub(in crate::page) fn open_zone(files: &LogFiles, number: u64) -> Result<File, LogError> {
    files.open(&zone_name(number as usize), OpenMode::Existing)
}

/// Removes the zones of an earlier opening. No checkpoint may list any of their places.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn remove_zones(files: &LogFiles) -> Result<(), LogError> {
    for name in files.list()?.iter().filter(|name| is_zone(name)) {
        files.remove(name)?;
    }
    Ok(())
}

/// Returns whether the directory has zones.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn has_zones(files: &LogFiles) -> Result<bool, LogError> {
    Ok(files.list()?.iter().any(|name| is_zone(name)))
}

fn is_zone(name: &str) -> bool {
    name.starts_with("pages-") && name.ends_with(".zone")
}

impl Zones {
    /// Creates an empty set of zones in the directory of a database.
    pub(in crate::page) fn new(files: WeakLogFiles, page_bytes: usize) -> Arc<Self> {
        let slot_bytes = page_bytes.next_multiple_of(SECTOR_BYTES);
        let (state, is_tight) = Default::default();
        Arc::new(Self { files, slot_bytes, state, is_tight })
    }

    fn files(&self) -> LogFiles {
        self.files.get().expect("the log is open as long as workers run")
    }

    /// Returns the size of a place in bytes.
    pub(in crate::page) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Returns the bytes of all places that are taken, and of all places with disk blocks.
    pub(in crate::page) fn bytes(&self) -> (u64, u64) {
        let zones = self.state.lock();
        let sum = |places: fn(&Places) -> u64| zones.iter().map(|zone| places(&zone.places)).sum();
        let (taken, free): (u64, u64) = (sum(|places| SLOTS - places.free()), sum(Places::backed));
        (taken * self.slot_bytes as u64, (taken + free) * self.slot_bytes as u64)
    }

    fn locate(&self, slot: u64) -> (Arc<File>, u64) {
        let file = self.state.lock()[(slot / SLOTS) as usize].file.clone();
        (file.expect("a taken place is in a file"), self.offset(slot))
    }

    fn offset(&self, slot: u64) -> u64 {
        slot % SLOTS * self.slot_bytes as u64
    }

    /// Returns the error for a damaged image.
    pub(in crate::page) fn damaged(&self, slot: u64, damage: PageDamage) -> LogError {
        let (file, offset) = self.locate(slot);
        let path = file.path().to_owned();
        // A writer may have overwritten the place: this process could not keep its lock on the
        // zone, because it had to close the file.
        if self.files().is_superseded() {
            return LogError::Outdated { path };
        }
        let reason = damage.to_string();
        let (zone, place) = ((slot / SLOTS) as usize, slot % SLOTS);
        let is_in_checkpoint = self.state.lock()[zone].places.is(place, PlaceUser::Published);
        LogError::DamagedPage { path, offset, reason, is_in_checkpoint }
    }

    /// Reads a place and calls `then` with the result. On a worker, `then` is called later, between
    /// tasks. On other threads, the call blocks and `then` is called before it returns.
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

    /// Takes a run of at most `most` places.
    ///
    /// # Errors
    /// Errors of the operating system, when no place is free and no zone can be created.
    pub(in crate::page) fn take(self: &Arc<Self>, most: usize) -> Result<PlaceRun, LogError> {
        assert!((1..=RUN_SLOTS).contains(&most));
        // On a nearly full disk, the space of other places is left to checkpoint files and the log.
        // Relaxed: a hint. The file system is asked before the lock is taken.
        let is_tight = self.is_tight.load(Ordering::Relaxed)
            || self.files.get().is_some_and(|files| files.is_disk_tight());
        let zones = &mut *self.state.lock();
        let (number, place, count) = self.find(zones, most, is_tight)?;
        let zone = &mut zones[number];
        let first = number as u64 * SLOTS + place;
        let left = (first..first + count).collect();
        let mut without_blocks = 0;
        for place in place..place + count {
            without_blocks |= u64::from(!zone.places.is_backed(place)) << (place % WORD_SLOTS);
            assert!(!zone.places.is(place, PlaceUser::Live), "a place has one user");
            zone.places.set(place, PlaceUser::Live, true);
        }
        let file = zone.file.clone().expect("places are taken in files");
        let (left, is_written) = (Mutex::new(left), AtomicBool::new(false));
        Ok(PlaceRun { zones: self.clone(), file, first, without_blocks, is_written, left })
    }

    /// Finds places to take. On a nearly full disk (`is_tight`), places with disk blocks come first.
    fn find(
        &self,
        zones: &mut Vec<Zone>,
        most: usize,
        is_tight: bool,
    ) -> Result<(usize, u64, u64), LogError> {
        let region = |zones: &mut Vec<Zone>| {
            let mut each = zones.iter_mut().enumerate().filter(|(_, zone)| zone.may_be_written());
            each.find_map(|(number, zone)| Some((number, zone.places.free_region()?, most as u64)))
        };
        let backed_run = |zones: &Vec<Zone>| {
            let has_backed = |zone: &Zone| zone.may_be_written() && zone.places.backed() > 0;
            let mut each = zones.iter().enumerate().filter(|(_, zone)| has_backed(zone));
            each.find_map(|(number, zone)| {
                let (place, count) = zone.places.backed_run(most as u64)?;
                Some((number, place, count))
            })
        };
        if is_tight && let Some(found) = backed_run(zones) {
            return Ok(found);
        }
        let written = zones.iter().filter(|zone| zone.may_be_written());
        let (free, backed) = written.fold((0, 0), |(free, backed), zone| {
            let places = &zone.places;
            (free + places.backed(), backed + places.backed() + SLOTS - places.free())
        });
        let may_grow = MAX_FREE_SHARE * free <= backed;
        if let Some((number, place, count)) = region(zones)
            && (may_grow || zones[number].places.is_region_backed(place))
        {
            return Ok((number, place, count));
        }
        if !may_grow {
            return Ok(backed_run(zones).expect("many of the blocks are free"));
        }
        let error = match self.add(zones) {
            Ok(()) => return Ok(region(zones).expect("a new zone is free")),
            Err(error) => error,
        };
        let mut each = zones.iter_mut().enumerate().filter(|(_, zone)| zone.may_be_written());
        let run = each.find_map(|(number, zone)| {
            let (place, count) = zone.places.free_run(most as u64)?;
            Some((number, place, count))
        });
        run.ok_or(error)
    }

    /// Returns whether the disk reserve could not be completed.
    pub(in crate::page) fn lacks_reserve(&self) -> bool {
        self.files.get().is_some_and(|files| files.lacks_reserve())
    }

    /// Creates a zone with the lowest unused number.
    fn add(&self, zones: &mut Vec<Zone>) -> Result<(), LogError> {
        let number = zones.iter().position(|zone| zone.file.is_none()).unwrap_or(zones.len());
        assert!((number as u64 + 1) * SLOTS <= SLOT_LIMIT);
        let files = self.files();
        let file = match files.is_read_only() {
            true => files.open_scratch()?,
            false => files.open(&zone_name(number), OpenMode::Emptied)?,
        };
        let zone = Zone::new(Some(Arc::new(file)));
        match zones.get_mut(number) {
            Some(gap) => *gap = zone,
            None => zones.push(zone),
        }
        Ok(())
    }

    /// Releases a place that no page uses any more. It becomes free if no checkpoint lists it.
    pub(in crate::page) fn free(&self, slot: u64) {
        let zones = &mut *self.state.lock();
        // Tables are dropped after the zones when the database is closed.
        if let Some(zone) = zones.get_mut((slot / SLOTS) as usize) {
            let place = slot % SLOTS;
            assert!(zone.places.is(place, PlaceUser::Live), "a place is freed once");
            zone.places.set(place, PlaceUser::Live, false);
            if is_planted(Bug::PlaceOfCheckpointReused) {
                zone.places.set(place, PlaceUser::Published, false);
            }
        }
    }

    /// Truncates the files after their last taken place.
    pub(in crate::page) fn release(&self) {
        for zone in &mut *self.state.lock() {
            let Some(file) = zone.file.as_ref().filter(|_| zone.may_be_written()) else { continue };
            let (end, backed_end) = zone.places.ends();
            if end >= backed_end {
                continue;
            }
            match file.truncate(end * self.slot_bytes as u64) {
                Ok(()) => zone.places.note_released(end..SLOTS),
                Err(error) => tracing::warn!("cannot truncate {}: {error}", file.path().display()),
            }
        }
    }

    /// Removes the files that no checkpoint lists, except those that are not claimed completely. No
    /// page may be in use any more.
    pub(in crate::page) fn remove(&self) {
        let zones = std::mem::take(&mut *self.state.lock());
        let Some(files) = self.files.get().filter(|files| !files.is_read_only()) else { return };
        for (number, zone) in zones.into_iter().enumerate() {
            let is_unused = zone.may_be_written() && !zone.places.has_any(PlaceUser::Published);
            if !is_unused {
                continue;
            }
            if let Err(error) = files.remove(&zone_name(number)) {
                tracing::warn!(
                    "cannot remove a zone file, so the next opening removes it: {error}"
                );
            }
        }
    }
}

/// Operations on zones of an earlier opening.
impl Zones {
    /// Opens the existing zones. No place is taken from them until [`Self::finish_opening`].
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(in crate::page) fn open_existing(&self) -> Result<(), LogError> {
        let zones = &mut *self.state.lock();
        assert!(zones.is_empty(), "existing zones are opened first");
        let files = self.files();
        for name in files.list()? {
            let Some(number) = parse_zone_name(&name) else { continue };
            if (number as u64 + 1) * SLOTS > SLOT_LIMIT {
                continue;
            }
            while zones.len() <= number {
                zones.push(Zone { sealed: true, ..Zone::new(None) });
            }
            zones[number].file = Some(Arc::new(files.open(&name, OpenMode::Existing)?));
        }
        Ok(())
    }

    /// Claims a place for a page that the checkpoint lists. Returns `false` if the place is in no
    /// file, or was claimed already.
    pub(in crate::page) fn claim(&self, slot: u64) -> bool {
        let zones = &mut *self.state.lock();
        let Some(zone) = zones.get_mut((slot / SLOTS) as usize) else { return false };
        let place = slot % SLOTS;
        if zone.file.is_none() || zone.places.is(place, PlaceUser::Published) {
            return false;
        }
        zone.places.set(place, PlaceUser::Published, true);
        zone.places.set(place, PlaceUser::Live, true);
        true
    }

    /// Ends the claiming of places: all others are free, and zones without claimed places are
    /// removed.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(in crate::page) fn finish_opening(&self) -> Result<(), LogError> {
        let files = self.files();
        if files.is_read_only() {
            return Ok(());
        }
        for (number, zone) in self.state.lock().iter_mut().enumerate() {
            if !std::mem::take(&mut zone.sealed) {
                continue;
            }
            let Some(file) = &zone.file else { continue };
            if zone.places.free() == SLOTS {
                zone.file = None;
                files.remove(&zone_name(number))?;
                continue;
            }
            let parts = file.parts_with_space();
            for part in parts.map_err(|error| LogError::io("look at", file.path(), 0, error))? {
                // A place of which only a part has disk blocks counts as one that has none.
                let slot_bytes = self.slot_bytes as u64;
                zone.places.note_backed(part.start.div_ceil(slot_bytes)..part.end / slot_bytes);
            }
        }
        Ok(())
    }
}

/// Operations for checkpoints.
impl Zones {
    /// Copies the places that the published checkpoint lists into another directory, with blocking
    /// calls. No other checkpoint may be published during the call. Returns the copied bytes.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub(in crate::page) fn copy_to(&self, copy: &DirectoryCopy<'_>) -> Result<u64, LogError> {
        let mut bytes = 0;
        let count = self.state.lock().len();
        for number in 0..count {
            let (file, runs) = {
                let zone = &self.state.lock()[number];
                (zone.file.clone(), zone.places.runs_of(PlaceUser::Published))
            };
            let Some(file) = file.filter(|_| !runs.is_empty()) else { continue };
            let offset = |place: u64| place * self.slot_bytes as u64;
            let runs = runs.into_iter().map(|run| offset(run.start)..offset(run.end));
            bytes += copy.file(&file, &zone_name(number), runs)?;
        }
        Ok(bytes)
    }

    /// Records whether the next checkpoint lists a place.
    pub(in crate::page) fn list(&self, slot: u64, is: bool) {
        let zones = &mut *self.state.lock();
        zones[(slot / SLOTS) as usize].places.set(slot % SLOTS, PlaceUser::Next, is);
    }

    /// Returns the files written to since the last call. The caller syncs them before a checkpoint
    /// is published.
    pub(in crate::page) fn take_unsynced(&self) -> Vec<Arc<File>> {
        let zones = &mut *self.state.lock();
        let take = |zone: &mut Zone| {
            let is_due = std::mem::take(&mut zone.unsynced);
            zone.file.clone().filter(|_| is_due)
        };
        zones.iter_mut().filter_map(take).collect()
    }

    /// Returns the number of taken places, and the number of free places that have disk blocks.
    pub(in crate::page) fn places(&self) -> [u64; 2] {
        let zones = self.state.lock();
        let written = zones.iter().filter(|zone| zone.may_be_written());
        written.fold([0; 2], |[taken, free], Zone { places, .. }| {
            [taken + SLOTS - places.free(), free + places.backed()]
        })
    }

    /// Records that the next checkpoint is published. If `may_be` is true, its publication is
    /// uncertain, so the places of the previous checkpoint stay taken too. They also stay taken in
    /// a zone that others have open for reading only, because they may read the previous
    /// checkpoint.
    pub(in crate::page) fn publish(&self, may_be: bool) {
        for zone in &mut *self.state.lock() {
            let is_read = || zone.file.as_ref().is_some_and(|file| file.is_read_elsewhere());
            let keeps = may_be || is_read();
            zone.places.publish(keeps);
        }
        // Relaxed: a hint. The disk may have more room by now.
        self.is_tight.store(false, Ordering::Relaxed);
    }

    /// Discards the next checkpoint.
    pub(in crate::page) fn abandon(&self) {
        self.state.lock().iter_mut().for_each(|zone| zone.places.abandon());
    }
}

impl Zone {
    fn new(file: Option<Arc<File>>) -> Self {
        Self { file, places: Places::new(), sealed: false, unsynced: false }
    }

    /// Records that a run at `place` was not written, or that the disk had no space. Places of the
    /// run that had no disk blocks get none, so that the disk reserve covers them again. Frees what
    /// was written, if the size of a place is given.
    fn note_unwritten(&mut self, place: u64, without_blocks: u64, slot_bytes: Option<u64>) {
        let run = (place / WORD_SLOTS * WORD_SLOTS..).take(WORD_SLOTS as usize);
        for place in run.filter(|place| without_blocks >> (place % WORD_SLOTS) & 1 != 0) {
            if let (Some(file), Some(slot_bytes)) = (&self.file, slot_bytes) {
                // Frees what was written. After a failure, the blocks are found at the next opening.
                _ = file.deallocate(place * slot_bytes..(place + 1) * slot_bytes);
            }
            self.places.note_released(place..place + 1);
        }
    }

    fn may_be_written(&self) -> bool {
        !self.sealed && self.file.is_some()
    }
}

impl PlaceRun {
    /// Returns the number of places in the run.
    pub(in crate::page) fn len(&self) -> usize {
        self.left.lock().len()
    }

    /// Writes one image for each place of this run and calls `then` with the result, like
    /// [`Zones::read_then`]. `images` must own this run: the write keeps both until it ends.
    pub(in crate::page) fn write_then(
        &self,
        images: Arc<impl AsRef<[u8]> + Send + Sync + 'static>,
        then: impl FnOnce(Result<(), LogError>) + 'static,
    ) {
        let (file, offset) = (self.file.clone(), self.zones.offset(self.first));
        let checked = {
            let (file, zones) = (file.clone(), self.zones.clone());
            let (number, place) = ((self.first / SLOTS) as usize, self.first % SLOTS);
            let without_blocks = self.without_blocks;
            // Relaxed: read when the run is dropped, after this write, because `images` owns it.
            self.is_written.store(true, Ordering::Relaxed);
            move |written: std::io::Result<()>| {
                let is_full =
                    written.as_ref().is_err_and(|error| error.kind() == ErrorKind::StorageFull);
                // Before the places are published: a checkpoint that lists one must find its file
                // unsynced.
                if let Some(zone) = zones.state.lock().get_mut(number) {
                    zone.unsynced = !is_planted(Bug::ZoneNotSynced);
                    if is_full {
                        let slot_bytes = Some(zones.slot_bytes as u64);
                        zone.note_unwritten(place, without_blocks, slot_bytes);
                    }
                }
                if is_full {
                    // Relaxed: a hint.
                    zones.is_tight.store(true, Ordering::Relaxed);
                }
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

    /// Returns the error for a write to the run that was cancelled because the database is closing.
    pub(in crate::page) fn was_given_up(&self) -> LogError {
        let (path, offset) = (self.file.path(), self.zones.offset(self.first));
        LogError::io("write pages to", path, offset, ErrorKind::Interrupted.into())
    }

    /// Returns the slot number of a place of the run.
    pub(in crate::page) fn slot(&self, number: usize) -> u64 {
        self.first + number as u64
    }

    /// Keeps a place of the run, by its index. The caller is responsible for freeing it.
    pub(in crate::page) fn keep(&self, number: usize) -> u64 {
        let slot = self.slot(number);
        let left = &mut *self.left.lock();
        let position = left.iter().position(|one| *one == slot).expect("kept once");
        left.swap_remove(position);
        slot
    }
}

impl Drop for PlaceRun {
    fn drop(&mut self) {
        // Relaxed: see `write_then`.
        if !self.is_written.load(Ordering::Relaxed)
            && let Some(zone) = self.zones.state.lock().get_mut((self.first / SLOTS) as usize)
        {
            zone.note_unwritten(self.first % SLOTS, self.without_blocks, None);
        }
        for slot in self.left.get_mut().drain(..) {
            self.zones.free(slot);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
