//! Page faults: a page that is not in memory is loaded by one task, for which all others wait that need it.
//!
//! The task that finds the page's place in the map says that it is loading, takes a frame, reads the image, fills the
//! frame, and says that the page is there; a task waits for each, and others run meanwhile. Whatever becomes of
//! it, a read that fails, a task that is dropped, the end of the load is told to all who wait, and then
//! the page is there, or in its place again for the next to load.
//!
//! Invariants: a page that is loading is listed under the lock of its shard, by which it is said that it is
//! loading, and that it is no more. Who is to wait has found it listed, and leaves its waker under the load's
//! lock, under which the outcome is told: none is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::PageError;
use super::frame::LatchedPage;
use super::layout::{PageDamage, SlotFlags, image_checksum};
use super::map::{PageId, Place, Whereabouts};
use super::space::{FreeFrame, PageSpace};
use super::versions::{Mapping, reserved_bytes};
use crate::log::LogError;
use crate::planted::{Bug, is_planted};
use crate::sched::{Cause, RemoteWaiter, wait_remotely};
use crate::sync::ModelMutex;
use crate::sync::statistic::Ordering;

const SHARDS: usize = if cfg!(loom) { 1 } else { 64 };

/// The loads under way of a space, by page.
#[derive(Debug)]
pub(super) struct Loads(Box<[ModelMutex<BTreeMap<PageId, Listed>>]>);

/// A load under way.
#[derive(Debug)]
struct Listed {
    load: Arc<Load>,
    /// Nothing leads to the page any more: it is given back when the load has ended.
    freed: bool,
}

/// What those share who wait for a load.
#[derive(Debug)]
struct Load(ModelMutex<LoadState>);

#[derive(Debug, Default)]
struct LoadState {
    /// Once it is over; an error is that of all who wait.
    outcome: Option<Result<(), PageError>>,
    waiters: Vec<RemoteWaiter>,
}

/// What somebody does who needs a page.
enum Begun<'s> {
    /// Nothing: it is in memory, or gone.
    Nothing,
    /// Load it.
    Load(Loading<'s>),
    /// Wait for who loads it.
    Wait(Arc<Load>),
}

/// A load that the holder has begun; given up if it is dropped before its end.
struct Loading<'s> {
    space: &'s PageSpace,
    id: PageId,
    place: Place,
    load: Arc<Load>,
    is_over: bool,
}

impl Loads {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| ModelMutex::new(BTreeMap::new())).collect())
    }

    fn shard(&self, id: PageId) -> &ModelMutex<BTreeMap<PageId, Listed>> {
        &self.0[id.number() as usize % SHARDS]
    }
}

impl Load {
    /// Tells all who wait how the load has ended.
    fn end(&self, outcome: Result<(), PageError>) {
        let waiters = {
            let mut state = self.0.lock();
            state.outcome = Some(outcome);
            std::mem::take(&mut state.waiters)
        };
        if is_planted(Bug::LoadWaitersNotWoken) {
            return;
        }
        waiters.into_iter().for_each(RemoteWaiter::wake);
    }

    async fn wait(&self) -> Result<(), PageError> {
        wait_remotely(Cause::Storage, |waiter| {
            let mut state = self.0.lock();
            if state.outcome.is_none() {
                state.waiters.extend(waiter);
            }
            state.outcome.clone()
        })
        .await
    }
}

impl PageSpace {
    /// Brings a page to memory, or waits until somebody else has; it may have left again when this returns.
    ///
    /// # Errors
    /// When it cannot be read, is not what was written, or there is no frame for it. It may be tried again.
    pub(super) async fn load(&self, id: PageId) -> Result<(), PageError> {
        match self.begin_load(id) {
            Begun::Nothing => Ok(()),
            Begun::Wait(load) => load.wait().await,
            Begun::Load(loading) => match self.read_image(id, loading.place).await {
                Ok((frame, latched)) => {
                    loading.publish(frame, latched);
                    Ok(())
                }
                Err(error) => {
                    loading.fail(error.clone());
                    Err(error)
                }
            },
        }
    }

    fn begin_load(&self, id: PageId) -> Begun<'_> {
        let mut shard = self.loads.shard(id).lock();
        match self.map.get(id) {
            Whereabouts::Free | Whereabouts::Frame(_) => Begun::Nothing,
            Whereabouts::Loading => {
                let listed = shard.get(&id).expect("what is loading is listed");
                Begun::Wait(listed.load.clone())
            }
            Whereabouts::Place(place) => {
                let load = Arc::new(Load(ModelMutex::new(LoadState::default())));
                shard.insert(id, Listed { load: load.clone(), freed: false });
                self.map.set(id, Whereabouts::Loading);
                Begun::Load(Loading { space: self, id, place, load, is_over: false })
            }
        }
    }

    /// Reads the image of a page into a frame, which stays latched.
    async fn read_image(
        &self,
        id: PageId,
        place: Place,
    ) -> Result<(FreeFrame<'_>, LatchedPage<'_>), PageError> {
        let zones = self.zones.as_ref().expect("pages are on disk");
        let frame = self.free_frame().await?;
        let image = zones.read(place).await?;
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
            let (path, offset) = zones.name(place.slot);
            let reason = damage.to_string();
            return Err(LogError::DamagedPage { path, offset, reason }.into());
        }
        // Relaxed: a statistic.
        self.counters.loaded.fetch_add(1, Ordering::Relaxed);
        Ok((frame, latched))
    }

    /// Gives a page back that is not in memory, to which nothing leads any more, and what hung on its frame to
    /// `free`; `false` if it is in memory.
    pub(super) fn free_absent(&self, id: PageId, free: impl FnOnce(u64)) -> bool {
        let mut shard = self.loads.shard(id).lock();
        match self.map.get(id) {
            Whereabouts::Frame(_) => false,
            Whereabouts::Free => unreachable!("a page is freed once"),
            Whereabouts::Loading => {
                shard.get_mut(&id).expect("what is loading is listed").freed = true;
                self.orphans.take(id, free);
                true
            }
            Whereabouts::Place(place) => {
                self.orphans.take(id, free);
                self.give_back(id, place);
                true
            }
        }
    }

    fn give_back(&self, id: PageId, place: Place) {
        self.zones.as_ref().expect("pages are on disk").free(place.slot);
        self.map.set(id, Whereabouts::Free);
        self.map.give_back(id);
    }
}

impl Loading<'_> {
    /// The page is in the frame, which is latched.
    fn publish(mut self, frame: FreeFrame<'_>, mut latched: LatchedPage<'_>) {
        self.is_over = true;
        let (space, id) = (self.space, self.id);
        let mut shard = space.loads.shard(id).lock();
        let listed = shard.remove(&id).expect("listed as long as it is loading");
        if listed.freed {
            latched.empty();
            space.give_back(id, self.place);
        } else {
            space.orphans.take(id, |word| {
                latched.set_mapping(word);
                space.map.set(id, Whereabouts::Frame(latched.number));
            });
            drop(shard);
            settle(&mut latched, space.cut());
            frame.used();
        }
        self.load.end(Ok(()));
    }

    fn fail(mut self, error: PageError) {
        self.end(Err(error));
    }

    /// The page is in its place as before.
    fn end(&mut self, outcome: Result<(), PageError>) {
        self.is_over = true;
        let mut shard = self.space.loads.shard(self.id).lock();
        let listed = shard.remove(&self.id).expect("listed as long as it is loading");
        if listed.freed {
            self.space.give_back(self.id, self.place);
        } else {
            self.space.map.set(self.id, Whereabouts::Place(self.place));
        }
        drop(shard);
        self.load.end(outcome);
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // Who waits looks again, and loads it if it still needs it.
            self.end(Ok(()));
        }
    }
}

/// Puts onto a page that was loaded what is true in memory only: which slots have chains, and what is to be kept free.
/// Takes off what is of no use: slots of deleted records that have none.
fn settle(latched: &mut LatchedPage<'_>, cut: u64) {
    if latched.page.level() > 0 {
        return;
    }
    let (word, page) = (latched.mapping(), latched.page);
    // SAFETY: latched.
    unsafe {
        Mapping::each_key(word, |key| {
            let super::layout::Slot::At(place) = page.find(key) else {
                unreachable!("a record with a chain has a slot")
            };
            page.set_flags(place, page.flags(place).with(SlotFlags::VERSIONED));
        });
    }
    let is_left = |place: usize| {
        let flags = page.flags(place);
        flags.has(SlotFlags::DELETED) && !flags.has(SlotFlags::VERSIONED)
    };
    for place in (0..page.count()).rev() {
        if is_left(place) {
            latched.changed(cut);
            page.remove(place);
        }
    }
    // SAFETY: latched.
    latched.set_reserved_bytes(unsafe { reserved_bytes(word) });
}
