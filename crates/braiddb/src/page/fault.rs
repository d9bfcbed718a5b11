//! Page faults: loading of pages that are not resident.
//!
//! The task that finds a page's place in the map marks the page as loading and starts the read of
//! its image. The read runs detached (`sched/transfers.rs`), so it finishes even if every operation
//! that waits for it is dropped. The load then keeps the image and occupies no frame. An operation
//! that needs the page and has a frame for it publishes the page (`resident_set`) and continues
//! without suspending. If no operation needs the page any more, the load is discarded and the page
//! stays on disk. So an operation that is not polled does not delay others.
//!
//! Invariants:
//!
//! - A loading page is listed in its shard. The map entry changes to and from *loading* under the
//!   lock of that shard.
//! - The number of operations that need the page, their wakers, the image and the outcome are
//!   protected by the load's lock, so no wake-up is lost.
//! - The shard's lock is taken before the load's lock.

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::error::PageError;
use super::frame::LatchedPage;
use super::layout::{KeySlot, PageDamage, SlotFlags, image_checksum};
use super::loads::{ListedLoad, LoadStage, PageLoad, PageLoadState};
use super::map::{DiskPlace, PageId, PageLocation};
use super::space::{FreeFrame, PageSpace};
use super::versions::{Mapping, reserved_bytes};
use crate::io::AlignedBuffer;
use crate::log::LogError;
use crate::sched::{RemoteWaiter, WaitCause, wait_remotely};
use crate::sync::ModelMutex;
use crate::sync::statistic::Ordering;

/// Admission for the images that an operation may need at the same time. It is released after the
/// operation has its pages and all reads that it began have ended.
pub(crate) type Admitted = Rc<dyn Any>;

/// Share of one operation in a load. The image that was read is kept as long as any share exists.
#[derive(Debug)]
pub(super) struct LoadShare {
    space: Arc<PageSpace>,
    load: Arc<PageLoad>,
}

/// Read of an image in progress. If it is dropped before its end, the page stays on disk.
struct ImageRead {
    space: Arc<PageSpace>,
    load: Arc<PageLoad>,
    is_over: bool,
    /// Admission for the bytes of the image. The read keeps it even if the operation that started
    /// it is dropped.
    _admitted: Option<Admitted>,
}

impl LoadShare {
    /// Returns the id of the page.
    pub(super) fn id(&self) -> PageId {
        self.load.id
    }

    /// Waits until the image has been read, or the load has ended.
    ///
    /// # Errors
    /// The error of the load, after it has ended.
    pub(super) async fn image(&self) -> Result<(), PageError> {
        wait_remotely(WaitCause::Storage, |waiter| {
            let mut state = self.load.state.lock();
            match &state.stage {
                LoadStage::Read(_) => Some(Ok(())),
                LoadStage::Over(outcome) => Some(outcome.clone()),
                LoadStage::Busy => {
                    state.waiters.extend(waiter);
                    None
                }
            }
        })
        .await
    }

    /// Returns whether the image has been read and the page is not published yet.
    pub(super) fn has_image(&self) -> bool {
        matches!(self.load.state.lock().stage, LoadStage::Read(_))
    }

    /// Returns whether the load has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.load.state.lock().stage, LoadStage::Over(_))
    }

    /// Publishes the page in a frame, unless another operation has done so.
    ///
    /// # Errors
    /// When the image is not the one that was written.
    pub(super) fn publish(&self, frame: FreeFrame<'_>) -> Result<(), PageError> {
        let image = {
            let mut state = self.load.state.lock();
            match std::mem::replace(&mut state.stage, LoadStage::Busy) {
                LoadStage::Read(image) => image,
                other => {
                    state.stage = other;
                    return Ok(());
                }
            }
        };
        let outcome = self.space.publish(&self.load, &image, frame);
        if let Err(error) = &outcome {
            self.space.end_load(&self.load, Err(error.clone()));
        }
        outcome
    }
}

impl Drop for LoadShare {
    fn drop(&mut self) {
        let is_left = {
            let mut state = self.load.state.lock();
            state.wanted -= 1;
            state.wanted == 0 && matches!(state.stage, LoadStage::Read(_))
        };
        if is_left {
            self.space.end_unwanted(&self.load);
        }
    }
}

impl ImageRead {
    fn end(mut self, image: Result<AlignedBuffer, LogError>) {
        self.is_over = true;
        let image = match image {
            Ok(image) => image,
            Err(error) => return self.space.end_load(&self.load, Err(error.into())),
        };
        let (waiters, is_wanted) = {
            let mut state = self.load.state.lock();
            (state.advance_stage(LoadStage::Read(image)), state.wanted > 0)
        };
        waiters.into_iter().for_each(RemoteWaiter::wake);
        if !is_wanted {
            self.space.end_unwanted(&self.load);
        }
    }
}

impl Drop for ImageRead {
    fn drop(&mut self) {
        if !self.is_over {
            // The waiters look again, and load the page if they still need it.
            self.space.end_load(&self.load, Ok(()));
        }
    }
}

impl PageSpace {
    /// Returns a share in the load of a page, and starts the load if necessary. Returns `None` if
    /// the page is resident or free.
    pub(super) fn want(
        self: &Arc<Self>,
        id: PageId,
        admitted: Option<&Admitted>,
    ) -> Option<LoadShare> {
        let wanted = |load: Arc<PageLoad>| LoadShare { space: self.clone(), load };
        let load = {
            let mut shard = self.loads.shard(id).lock();
            match self.map.get(id) {
                PageLocation::Free | PageLocation::Frame(_) => return None,
                PageLocation::Loading => {
                    let listed = shard.get(&id).expect("a loading page is listed");
                    listed.load.state.lock().wanted += 1;
                    return Some(wanted(listed.load.clone()));
                }
                PageLocation::OnDisk(place) => {
                    let state =
                        PageLoadState { stage: LoadStage::Busy, wanted: 1, waiters: Vec::new() };
                    let load = Arc::new(PageLoad { id, place, state: ModelMutex::new(state) });
                    shard.insert(id, ListedLoad { load: load.clone(), freed: false });
                    self.map.set(id, PageLocation::Loading);
                    load
                }
            }
        };
        let wanted = wanted(load.clone());
        let _admitted = admitted.cloned();
        let reading = ImageRead { space: self.clone(), load, is_over: false, _admitted };
        let zones = self.zones.as_ref().expect("pages are on disk");
        zones.read_then(wanted.load.place, |image| reading.end(image));
        Some(wanted)
    }

    /// Fills a frame with the image of a loading page, and makes the page resident.
    fn publish(
        &self,
        load: &Arc<PageLoad>,
        image: &[u8],
        frame: FreeFrame<'_>,
    ) -> Result<(), PageError> {
        let PageLoad { id, place, .. } = **load;
        let image = &image[..self.page_bytes()];
        let mut latched = frame.latch();
        latched.hold_image(id, place);
        let found = image_checksum(image);
        let read = latched.page.read_image(image, id.number());
        let read = read.and_then(|()| match place.may_be(found) {
            true => Ok(()),
            false => Err(PageDamage::OlderImage { found }),
        });
        if let Err(damage) = read {
            latched.empty();
            let zones = self.zones.as_ref().expect("pages are on disk");
            return Err(zones.damaged(place.slot, damage).into());
        }
        // Relaxed: statistics.
        self.counters.loaded.fetch_add(1, Ordering::Relaxed);
        if latched.page.level() > 0 {
            self.counters.inner_loaded.fetch_add(1, Ordering::Relaxed);
        }
        let mut shard = self.loads.shard(id).lock();
        let listed = shard.remove(&id).expect("a loading page is listed");
        if listed.freed {
            latched.empty();
            self.release(id, place);
        } else {
            self.orphans.take(id, |word| {
                latched.set_mapping(word);
                self.map.set(id, PageLocation::Frame(latched.number));
            });
            drop(shard);
            settle(&mut latched);
            drop(latched);
            frame.used();
        }
        let waiters = load.state.lock().advance_stage(LoadStage::Over(Ok(())));
        waiters.into_iter().for_each(RemoteWaiter::wake);
        Ok(())
    }

    /// Ends a load without a resident page: the page stays on disk.
    fn end_load(&self, load: &PageLoad, outcome: Result<(), PageError>) {
        let mut shard = self.loads.shard(load.id).lock();
        let waiters = load.state.lock().advance_stage(LoadStage::Over(outcome));
        self.unlist(&mut shard, load);
        drop(shard);
        waiters.into_iter().for_each(RemoteWaiter::wake);
    }

    /// Discards an image that was read, if no operation needs the page by now.
    fn end_unwanted(&self, load: &PageLoad) {
        let mut shard = self.loads.shard(load.id).lock();
        {
            let mut state = load.state.lock();
            if state.wanted > 0 || !matches!(state.stage, LoadStage::Read(_)) {
                return;
            }
            let waiters = state.advance_stage(LoadStage::Over(Ok(())));
            assert!(waiters.is_empty(), "every waiter needs the page");
        }
        self.unlist(&mut shard, load);
    }

    fn unlist(&self, shard: &mut BTreeMap<PageId, ListedLoad>, load: &PageLoad) {
        let listed = shard.remove(&load.id).expect("a loading page is listed");
        if listed.freed {
            self.release(load.id, load.place);
        } else {
            self.map.set(load.id, PageLocation::OnDisk(load.place));
        }
    }

    /// Frees a page that is not resident and is unreachable. Passes its mapping table to `free`.
    /// Returns `false` if the page is resident.
    pub(super) fn free_absent(&self, id: PageId, free: impl FnOnce(u64)) -> bool {
        let mut shard = self.loads.shard(id).lock();
        match self.map.get(id) {
            PageLocation::Frame(_) => false,
            PageLocation::Free => unreachable!("a page is freed once"),
            PageLocation::Loading => {
                shard.get_mut(&id).expect("a loading page is listed").freed = true;
                self.orphans.take(id, free);
                true
            }
            PageLocation::OnDisk(place) => {
                self.orphans.take(id, free);
                self.release(id, place);
                true
            }
        }
    }

    fn release(&self, id: PageId, place: DiskPlace) {
        self.zones.as_ref().expect("pages are on disk").free(place.slot);
        self.map.set(id, PageLocation::Free);
        self.map.release(id);
    }
}

/// Restores the state of a loaded page that exists only in memory: flags of slots with chains, and
/// the reserved bytes. Removes the slots of deleted records that have no chain.
fn settle(latched: &mut LatchedPage<'_>) {
    if latched.page.level() > 0 {
        return;
    }
    let (word, page) = (latched.mapping(), latched.page);
    // SAFETY: latched.
    unsafe {
        Mapping::each_key(word, |key| {
            let KeySlot::At(place) = page.find(key) else {
                unreachable!("a record with a chain has a slot")
            };
            page.set_flags(place, page.flags(place).with(SlotFlags::VERSIONED));
        });
    }
    let is_left = |place: usize| {
        let flags = page.flags(place);
        // Slots with marks of a bulk operation stay, because only a caller that knows the outcome
        // of that operation may interpret them.
        flags.has(SlotFlags::DELETED) && !flags.has(SlotFlags::VERSIONED) && !flags.is_marked()
    };
    for place in (0..page.count()).rev() {
        if is_left(place) {
            latched.changed();
            page.remove(place);
        }
    }
    // SAFETY: latched.
    latched.set_reserved_bytes(unsafe { reserved_bytes(word) });
}
