//! In-memory zones for loom models. They read and write the same bytes as real zones. A place can
//! be reused immediately when it is free and not listed.

use std::path::PathBuf;
use std::sync::Arc;

use crate::io::{AlignedBuffer, File};
use crate::log::{DirectoryCopy, LogError, LogFiles, WeakLogFiles};
use crate::page::layout::PageDamage;
use crate::page::map::DiskPlace;
use crate::sync::ModelMutex;

/// Maximum number of places in a run.
pub(in crate::page) const RUN_SLOTS: usize = 1;

/// Taken places with their contents.
#[derive(Debug)]
pub(in crate::page) struct Zones {
    slot_bytes: usize,
    slots: ModelMutex<Vec<ModelSlot>>,
}

#[derive(Debug, Default)]
struct ModelSlot {
    bytes: Vec<u8>,
    is_taken: bool,
    is_listed: bool,
}

/// A place that the holder may write to.
#[derive(Debug)]
pub(in crate::page) struct PlaceRun {
    zones: Arc<Zones>,
    slot: u64,
    is_kept: ModelMutex<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct HoleSearch;

pub(crate) fn remove_zones(_files: &LogFiles) -> Result<(), LogError> {
    Ok(())
}

pub(crate) fn has_zones(_files: &LogFiles) -> Result<bool, LogError> {
    Ok(false)
}

pub(in crate::page) fn zone_name(_number: usize) -> String {
    unreachable!("models have no files")
}

pub(in crate::page) fn locate(_slot: u64, _slot_bytes: usize) -> (u64, u64) {
    unreachable!("models have no files")
}

pub(in crate::page) fn open_zone(_files: &LogFiles, _number: u64) -> Result<File, LogError> {
    unreachable!("models have no files")
}

impl Zones {
    pub(in crate::page) fn new(_files: WeakLogFiles, page_bytes: usize) -> Arc<Self> {
        Self::modelled(page_bytes)
    }

    pub(in crate::page) fn modelled(slot_bytes: usize) -> Arc<Self> {
        Arc::new(Self { slot_bytes, slots: ModelMutex::new(Vec::new()) })
    }

    pub(in crate::page) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    pub(in crate::page) fn bytes(&self) -> (u64, u64) {
        let slots = self.slots.lock();
        let taken = slots.iter().filter(|slot| slot.is_taken).map(|slot| slot.bytes.len() as u64);
        (taken.sum(), slots.iter().map(|slot| slot.bytes.len() as u64).sum())
    }

    /// Models have no disk that could be full.
    pub(in crate::page) fn lacks_reserve(&self) -> bool {
        false
    }

    pub(in crate::page) fn damaged(&self, slot: u64, damage: PageDamage) -> LogError {
        let (path, reason) = (PathBuf::new(), damage.to_string());
        LogError::DamagedPage { path, offset: slot, reason, is_in_checkpoint: false }
    }

    pub(in crate::page) fn read_then(
        &self,
        place: DiskPlace,
        then: impl FnOnce(Result<AlignedBuffer, LogError>) + 'static,
    ) {
        let mut buffer = AlignedBuffer::zeroed(self.slot_bytes);
        {
            let slots = self.slots.lock();
            let slot = &slots[place.slot as usize];
            assert!(slot.is_taken || slot.is_listed, "the place is the page's");
            buffer[..slot.bytes.len()].copy_from_slice(&slot.bytes);
        }
        then(Ok(buffer));
    }

    pub(in crate::page) fn take(self: &Arc<Self>, _most: usize) -> Result<PlaceRun, LogError> {
        let mut slots = self.slots.lock();
        let is_free = |slot: &ModelSlot| !slot.is_taken && !slot.is_listed;
        let slot = slots.iter().position(is_free).unwrap_or(slots.len());
        if slot == slots.len() {
            slots.push(ModelSlot::default());
        }
        slots[slot] =
            ModelSlot { bytes: vec![0; self.slot_bytes], is_taken: true, is_listed: false };
        let is_kept = ModelMutex::new(false);
        Ok(PlaceRun { zones: self.clone(), slot: slot as u64, is_kept })
    }

    pub(in crate::page) fn free(&self, slot: u64) {
        let was_taken = std::mem::replace(&mut self.slots.lock()[slot as usize].is_taken, false);
        assert!(was_taken, "a place is freed once");
    }

    pub(in crate::page) fn remove(&self) {}

    pub(in crate::page) fn open_existing(&self) -> Result<(), LogError> {
        Ok(())
    }

    pub(in crate::page) fn claim(&self, _slot: u64) -> bool {
        unreachable!("models have no checkpoints")
    }

    pub(in crate::page) fn finish_opening(&self) -> Result<(), LogError> {
        Ok(())
    }

    pub(in crate::page) fn list(&self, slot: u64, is: bool) {
        self.slots.lock()[slot as usize].is_listed = is;
    }

    pub(in crate::page) fn take_unsynced(&self) -> Vec<Arc<File>> {
        Vec::new()
    }

    pub(in crate::page) fn publish(&self, _may_be: bool) {}

    pub(in crate::page) fn release(&self) {}

    pub(in crate::page) fn release_holes(&self, _: &mut HoleSearch, _keep: u64) -> Option<u64> {
        None
    }

    pub(in crate::page) fn places(&self) -> [u64; 2] {
        [0; 2]
    }

    pub(in crate::page) fn abandon(&self) {
        self.slots.lock().iter_mut().for_each(|slot| slot.is_listed = false);
    }

    pub(in crate::page) fn copy_to(&self, _copy: &DirectoryCopy<'_>) -> Result<u64, LogError> {
        Ok(0)
    }
}

impl PlaceRun {
    pub(in crate::page) fn len(&self) -> usize {
        1
    }

    pub(in crate::page) fn write_then(
        &self,
        images: Arc<impl AsRef<[u8]> + Send + Sync + 'static>,
        then: impl FnOnce(Result<(), LogError>) + 'static,
    ) {
        let bytes = (*images).as_ref()[..self.zones.slot_bytes].to_vec();
        self.zones.slots.lock()[self.slot as usize].bytes = bytes;
        then(Ok(()));
    }

    pub(in crate::page) fn was_given_up(&self) -> LogError {
        unreachable!("models write immediately")
    }

    pub(in crate::page) fn slot(&self, _number: usize) -> u64 {
        self.slot
    }

    pub(in crate::page) fn keep(&self, _number: usize) -> u64 {
        *self.is_kept.lock() = true;
        self.slot
    }
}

impl Drop for PlaceRun {
    fn drop(&mut self) {
        if !*self.is_kept.lock() {
            self.zones.free(self.slot);
        }
    }
}
