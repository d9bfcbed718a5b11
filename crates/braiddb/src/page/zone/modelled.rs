//! Zones for models: places in memory. What is read and written is what the real ones read and write; places are used
//! again as soon as they are free.

use std::path::PathBuf;
use std::sync::Arc;

use crate::io::AlignedBuffer;
use crate::log::{LogError, WeakLogFiles};
use crate::page::map::DiskPlace;
use crate::page::write_back::Images;
use crate::sync::ModelMutex;

/// The most places of a run.
pub(in crate::page) const RUN_SLOTS: usize = 1;

/// Places that are taken, with what was written there.
#[derive(Debug)]
pub(in crate::page) struct Zones {
    slot_bytes: usize,
    slots: ModelMutex<Vec<Option<Vec<u8>>>>,
}

/// A place that the holder may write to.
#[derive(Debug)]
pub(in crate::page) struct Run {
    zones: Arc<Zones>,
    slot: u64,
    is_kept: ModelMutex<bool>,
}

pub(crate) fn remove_zones(_files: &crate::log::LogFiles) -> Result<(), LogError> {
    Ok(())
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

    pub(in crate::page) fn bytes(&self) -> u64 {
        self.slots.lock().iter().flatten().map(|bytes| bytes.len() as u64).sum()
    }

    pub(in crate::page) fn name(&self, slot: u64) -> (PathBuf, u64) {
        (PathBuf::new(), slot)
    }

    pub(in crate::page) fn read_then(
        &self,
        place: DiskPlace,
        then: impl FnOnce(Result<AlignedBuffer, LogError>) + 'static,
    ) {
        let mut buffer = AlignedBuffer::zeroed(self.slot_bytes);
        {
            let slots = self.slots.lock();
            let bytes = slots[place.slot as usize].as_ref().expect("the place is the page's");
            buffer[..bytes.len()].copy_from_slice(bytes);
        }
        then(Ok(buffer));
    }

    pub(in crate::page) fn take(self: &Arc<Self>, _most: usize) -> Result<Run, LogError> {
        let mut slots = self.slots.lock();
        let slot = slots.iter().position(Option::is_none).unwrap_or(slots.len());
        if slot == slots.len() {
            slots.push(None);
        }
        slots[slot] = Some(vec![0; self.slot_bytes]);
        let is_kept = ModelMutex::new(false);
        Ok(Run { zones: self.clone(), slot: slot as u64, is_kept })
    }

    pub(in crate::page) fn free(&self, slot: u64) {
        let freed = self.slots.lock()[slot as usize].take();
        assert!(freed.is_some(), "a place is freed once");
    }

    pub(in crate::page) fn remove(&self) {}
}

impl Run {
    pub(in crate::page) fn len(&self) -> usize {
        1
    }

    pub(in crate::page) fn write_then(
        &self,
        images: Arc<Images>,
        then: impl FnOnce(Result<(), LogError>) + 'static,
    ) {
        let bytes = (*images).as_ref()[..self.zones.slot_bytes].to_vec();
        self.zones.slots.lock()[self.slot as usize] = Some(bytes);
        then(Ok(()));
    }

    pub(in crate::page) fn keep(&self, _number: usize) -> u64 {
        *self.is_kept.lock() = true;
        self.slot
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !*self.is_kept.lock() {
            self.zones.free(self.slot);
        }
    }
}
