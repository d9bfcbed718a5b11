//! Eviction: which pages leave memory when a frame is needed.
//!
//! There is no thread for it: a task that needs a frame and finds none free moves the clock's hand over the frames.
//! A page that was of use since the hand last came by stays; one whose image is on disk leaves at once; of
//! others some are collected and written (`write_back`), and leave when that is done. Inner pages stay
//! for now, so descents that do not suspend find all of them.
//!
//! Invariant: a page that leaves gives its mapping table to the orphans before the map says its place.

use super::error::PageError;
use super::frame::{LatchedPage, ResidentPage};
use super::map::{PageId, Place, Whereabouts};
use super::space::{FreeFrame, PageSpace};
use super::transit::UnderWay;
use super::zone::RUN_SLOTS;
use crate::latch::{LatchVersion, Restart};
use crate::planted::{Bug, is_planted};
use crate::sched::{self, Cause};
use crate::sync::atomic::Ordering;
use crate::sync::statistic;

/// Rounds of the hand until a page that was of use at its beginning is met again, and one more.
const ROUNDS: u64 = 3;

/// Dirty pages that are written together; marked as being written until this is dropped.
#[derive(Debug)]
pub(super) struct Batch<'s> {
    pub(super) pages: Vec<(ResidentPage<'s>, LatchVersion)>,
    /// Dropped last: who waits then finds the pages not marked any more.
    _under_way: UnderWay<'s>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.pages.iter().for_each(|(page, _)| page.frame.end_writing());
    }
}

/// What the hand came by.
enum Swept<'s> {
    /// A page, which has left.
    Left(FreeFrame<'s>),
    /// Pages to be written.
    Dirty(Batch<'s>),
    /// Pages that were changing, or came to be of use.
    Busy,
    /// No page that may leave but what others are writing.
    Nothing,
}

/// What the hand does about one frame.
enum Met<'s> {
    Left(FreeFrame<'s>),
    Dirty(LatchVersion),
    Busy,
    Nothing,
}

impl PageSpace {
    /// A frame for a page that is about to be loaded.
    ///
    /// # Errors
    /// When there is none, and no page can leave.
    pub(super) async fn free_frame(&self) -> Result<FreeFrame<'_>, PageError> {
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(frame);
            }
            if let Some(frame) = self.evict_some(1).await? {
                return Ok(frame);
            }
        }
    }

    /// Waits until so many frames are free, or may be by now.
    ///
    /// # Errors
    /// As [`Self::free_frame`].
    pub(super) async fn make_room(&self, needed: usize) -> Result<(), PageError> {
        if !self.transit.has(needed) {
            // Dropped, and so free, whoever takes it.
            self.evict_some(needed).await?;
        }
        Ok(())
    }

    /// Lets some pages leave; the frame of one of them, or `None` if as many frames as are needed may have come free
    /// otherwise.
    async fn evict_some(&self, needed: usize) -> Result<Option<FreeFrame<'_>>, PageError> {
        if self.zones.is_none() {
            return Err(self.out_of_frames());
        }
        let seen = self.transit.ended();
        match self.sweep() {
            Swept::Left(frame) => Ok(Some(frame)),
            Swept::Dirty(batch) => self.write_back(batch).await,
            Swept::Busy => {
                sched::yield_now(Cause::Undecided).await;
                Ok(None)
            }
            Swept::Nothing if self.transit.wait_since(seen, needed).await => Ok(None),
            Swept::Nothing => Err(self.out_of_frames()),
        }
    }

    /// Lets a page leave, if one may.
    #[cfg(all(test, loom))]
    pub(super) async fn evict_one(&self) -> Result<(), PageError> {
        self.evict_some(1).await.map(drop)
    }

    /// Moves the hand until it comes by a page that may leave, or by enough dirty ones.
    fn sweep(&self) -> Swept<'_> {
        let frames = self.frames_taken();
        // Of few pages not all leave at once.
        let most = (self.frames() as usize / 8).clamp(1, RUN_SLOTS);
        let mut busy = false;
        let mut batch: Option<Batch<'_>> = None;
        for step in 0..ROUNDS * frames {
            // Dirty pages that were of no use give way before clean ones that were: else a page that was just loaded is
            // what leaves for the frame that its loader needs besides, again and again.
            if batch.is_some() && step.is_multiple_of(frames) {
                break;
            }
            // Relaxed: only where it stands matters, and that little.
            let number = self.hand.fetch_add(1, Ordering::Relaxed) % frames;
            let page = self.frame(number as u32);
            match self.meet(page) {
                Met::Left(frame) => return Swept::Left(frame),
                Met::Busy => busy = true,
                Met::Nothing => {}
                Met::Dirty(version) => {
                    let batch = batch.get_or_insert_with(|| Batch {
                        pages: Vec::with_capacity(most),
                        _under_way: self.transit.begin(),
                    });
                    batch.pages.push((page, version));
                    if batch.pages.len() == most {
                        break;
                    }
                }
            }
        }
        match batch {
            Some(batch) => Swept::Dirty(batch),
            None if busy => Swept::Busy,
            None => Swept::Nothing,
        }
    }

    fn meet<'s>(&'s self, page: ResidentPage<'s>) -> Met<'s> {
        // Hints at first; what counts is seen under a version.
        if page.held().is_none() || page.shape().level > 0 || page.frame.is_being_written() {
            return Met::Nothing;
        }
        if page.frame.take_use() {
            return Met::Busy;
        }
        let version = page.frame.latch.version().expect("frames are never obsolete");
        if page.held().is_none() || page.shape().level > 0 {
            return Met::Busy;
        }
        if page.frame.is_dirty() {
            return if page.frame.begin_writing() { Met::Dirty(version) } else { Met::Nothing };
        }
        match page.acquire(version) {
            Ok(latched) => {
                let place = latched.place().expect("a page that is not dirty has an image");
                Met::Left(self.leave(latched, place))
            }
            Err(Restart) => Met::Busy,
        }
    }

    /// Takes the chains off the mapping table of a page that nobody needs any more, if the page is not in memory; whether
    /// it is so.
    pub(super) fn prune_absent(&self, id: PageId) -> bool {
        let is_absent = || matches!(self.map.get(id), Whereabouts::Loading | Whereabouts::Place(_));
        self.orphans.prune(id, is_absent)
    }

    /// Lets a page leave whose image is in `place`, and is the page as it is.
    pub(super) fn leave<'s>(&'s self, mut latched: LatchedPage<'s>, place: Place) -> FreeFrame<'s> {
        let id = latched.id();
        let word = latched.take_mapping();
        let late = is_planted(Bug::OrphanAfterPlace);
        if !late {
            self.orphans.put(id, word);
        }
        self.map.set(id, Whereabouts::Place(place));
        // Relaxed: a statistic.
        self.counters.evicted.fetch_add(1, statistic::Ordering::Relaxed);
        let frame = self.empty(latched);
        if late {
            self.orphans.put(id, word);
        }
        frame
    }
}
