//! Bringing together what an operation needs at once that has met a page which is not in memory, or no free frame.
//!
//! An operation that is interrupted tells what by (`Needs`), waits until all of it is there, and goes on, in the same
//! stretch: nothing suspends from when all of it is there until its attempt has ended, and until then the pages are
//! *held*, and do not leave. While it waits it has nothing that another could need: no frame, no
//! mark, no page; only images that were read, which others publish as well. For these its caller has admitted it
//! ([`Admitted`]), as many bytes as it may need at once, before any is asked for: so none waits for more while it has some.
//!
//! What is needed of a tree at once is the way from its root, page by page: each attempt meets the next page of it that is
//! absent, and those that it met before stay with it. So a leaf and the page above it do not evict each other for ever.
//!
//! That this comes to an end: an attempt made with all that is known to be needed finds that, and more pages or frames if
//! it needs more; those are a few. It waits for images, which come, and stay as long as it wants them;
//! for writes, which end, and of which there are only so many as pages were changed; and for those
//! who hold pages, who do not suspend. What it waited for may be gone again when all is there only if others have
//! published pages, or taken frames, and each of these had an attempt of its own with what it needs. So if there are frames for what one
//! operation needs, one of them gets on. That it is not always another
//! is not said: after so many attempts there is an error.

use std::any::Any;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::error::{Interrupted, PageError};
use super::evict::{Search, Swept};
use super::fault::Wanted;
use super::map::{PageId, Whereabouts};
use super::space::PageSpace;
use super::write_back::WriteBatch;
use crate::sched::{self, Cause};
use crate::sync::statistic::Ordering;

/// Attempts after which an operation that needs pages fails.
const MAX_ATTEMPTS: u32 = 10_000;
/// Times that an operation forgets what it met, as there are too few frames for all of it, and some may be of no use any more.
const MAX_NARROWED: u32 = 8;

/// Room for the images that an operation may need at once: given back when it has gathered, and all reads that it began
/// are over.
pub(crate) type Admitted = Rc<dyn Any>;

/// Pages that an operation needs at once.
type Pages = SmallVec<[PageId; 4]>;

/// What an operation needs at once, as far as it has met it.
#[derive(Debug)]
pub(crate) struct Needs {
    /// Those that it met last, first; of those it met before, as many as it may need.
    pages: Pages,
    most_pages: usize,
    frames: usize,
    attempts: u32,
    /// Times that there were too few frames for all that it was known to need, of which some may be of no use any more.
    narrowed: u32,
}

impl Needs {
    /// Nothing yet; so many pages at once at most.
    pub(crate) fn new(most_pages: usize) -> Self {
        Self { pages: Pages::new(), most_pages, frames: 0, attempts: 0, narrowed: 0 }
    }

    /// The same, and so many pages more.
    pub(crate) fn and(&self, more: usize) -> Self {
        let most_pages = self.most_pages.saturating_add(more);
        let (attempts, narrowed) = (self.attempts, self.narrowed);
        Self { pages: self.pages.clone(), most_pages, frames: 0, attempts, narrowed }
    }

    fn count_attempt(&mut self, space: &PageSpace) -> Result<(), PageError> {
        self.attempts += 1;
        if self.attempts > MAX_ATTEMPTS { Err(space.contended()) } else { Ok(()) }
    }

    /// Pages that are needed at once, with what interrupted the last attempt; not less.
    pub(super) fn pages_with(&self, interrupted: &[Interrupted]) -> usize {
        let absent = |why: &&Interrupted| matches!(why, Interrupted::Absent(_));
        let more = interrupted.iter().filter(absent).count();
        (self.pages.len() + more).min(self.most_pages)
    }

    /// Adds what interrupted the last attempt.
    pub(crate) fn add(&mut self, interrupted: &[Interrupted]) {
        self.frames = 0;
        for why in interrupted {
            match *why {
                Interrupted::Absent(id) => {
                    self.pages.retain(|page| *page != id);
                    self.pages.insert(0, id);
                    self.pages.truncate(self.most_pages);
                }
                Interrupted::OutOfFrames { needed } => self.frames += needed,
                Interrupted::Restart | Interrupted::OutOfPageIds => {}
            }
        }
    }
}

/// Pages that do not leave until this is dropped. Not kept over a suspension.
#[derive(Debug)]
pub(crate) struct HeldPages {
    space: Arc<PageSpace>,
    pages: Pages,
}

impl Drop for HeldPages {
    fn drop(&mut self) {
        if !self.pages.is_empty() {
            self.space.pager.lock().release(&self.pages);
        }
    }
}

/// What came of trying to bring all together in one stretch.
enum Gathered {
    All(HeldPages),
    /// A page has left meanwhile.
    Absent,
    /// These are to be written.
    Dirty(WriteBatch),
    /// Pages are being written that are to leave.
    Written,
    /// Others are about to do something.
    Busy,
    /// Nothing may leave.
    Nothing,
}

impl PageSpace {
    /// Makes an operation that was interrupted, and does not suspend, go on with what it needs, until it is not
    /// interrupted. Boxed, so that looking up what is in memory does not carry the state of reading what is not.
    ///
    /// # Errors
    /// When that cannot be had.
    #[cold]
    pub(in crate::page) fn retry<'s, R: 's>(
        self: &'s Arc<Self>,
        mut needs: Needs,
        interrupted: Interrupted,
        mut attempt: impl FnMut() -> Result<R, Interrupted> + 's,
    ) -> Pin<Box<dyn Future<Output = Result<R, PageError>> + 's>> {
        Box::pin(async move {
            let mut interrupted = interrupted;
            loop {
                let _held = self.gather(&mut needs, &[interrupted], None).await?;
                match attempt() {
                    Ok(done) => return Ok(done),
                    Err(again) => interrupted = again,
                }
            }
        })
    }

    /// Waits until what interrupted an operation is there, with what it needed before.
    ///
    /// # Errors
    /// When that cannot be, or it was interrupted too often.
    pub(in crate::page) async fn gather(
        self: &Arc<Self>,
        needs: &mut Needs,
        interrupted: &[Interrupted],
        admitted: Option<Admitted>,
    ) -> Result<HeldPages, PageError> {
        if let Some(error) = interrupted.iter().find_map(|why| self.error(*why)) {
            return Err(error);
        }
        needs.add(interrupted);
        // Images that were read stay with these until all are there.
        let mut wanted = SmallVec::<[Wanted; 4]>::new();
        let (mut failed, mut passed, mut lacked) = (None::<PageError>, 0, false);
        needs.count_attempt(self)?;
        loop {
            wanted.retain(|one| !one.is_over());
            for id in &needs.pages {
                if !wanted.iter().any(|one| one.id() == *id) {
                    wanted.extend(self.want(*id, admitted.as_ref()));
                }
            }
            for one in &wanted {
                one.image().await?;
            }
            let seen = self.transit.ended();
            let needed = needs.frames + wanted.len();
            if !lacked && !self.transit.has(needed) {
                lacked = true;
                // Relaxed: a statistic.
                self.counters.wanted.fetch_add(needed as u64, Ordering::Relaxed);
            }
            match self.try_gather(needs, &wanted, failed.is_some(), &mut passed)? {
                Gathered::All(held) => return Ok(held),
                Gathered::Absent => needs.count_attempt(self)?,
                // The end of a write counts, so it wakes who waits, or has come since.
                Gathered::Written => _ = self.transit.wait_since(seen, needed).await,
                Gathered::Busy => sched::yield_now(Cause::Undecided).await,
                Gathered::Dirty(batch) => match batch.write() {
                    Err(error) => failed = Some(error),
                    Ok(outcome) => {
                        self.transit.wait_for(|| outcome.get().is_some(), needed).await;
                        failed = outcome.get().and_then(Result::err);
                    }
                },
                // There was no clean page either.
                Gathered::Nothing if failed.is_some() => {
                    return Err(failed.expect("looked at above"));
                }
                Gathered::Nothing if self.transit.wait_since(seen, needed).await => {}
                Gathered::Nothing if self.has_page_but(&needs.pages) => {
                    sched::yield_now(Cause::Undecided).await;
                }
                Gathered::Nothing if needs.pages.len() > 1 && needs.narrowed < MAX_NARROWED => {
                    needs.narrowed += 1;
                    needs.pages.truncate(1);
                }
                // More than the budget allows, rather than nothing.
                Gathered::Nothing if self.transit.raise_limit_for(needed) => {}
                Gathered::Nothing => return Err(self.out_of_frames()),
            }
        }
    }

    /// Brings all together, if the images have been read. Nothing suspends, and no page leaves beside but what this lets
    /// leave.
    fn try_gather(
        self: &Arc<Self>,
        needs: &Needs,
        wanted: &[Wanted],
        clean_only: bool,
        passed: &mut u64,
    ) -> Result<Gathered, PageError> {
        let mut pager = self.pager.lock();
        let mut missing = SmallVec::<[&Wanted; 4]>::new();
        for id in &needs.pages {
            match self.map.get(*id) {
                // Gone: then the operation needs another.
                Whereabouts::Free => {}
                Whereabouts::Frame(number) => self.frame(number).frame.note_use(),
                Whereabouts::Loading | Whereabouts::OnDisk(_) => {
                    match wanted.iter().find(|one| one.id() == *id && one.has_image()) {
                        Some(one) => missing.push(one),
                        None => return Ok(Gathered::Absent),
                    }
                }
            }
        }
        let mut search = Search { keep: &needs.pages, clean_only, passed };
        let needed = missing.len() + needs.frames;
        while !self.transit.has(needed) {
            match self.sweep(&mut pager, &mut search) {
                Swept::Left => {}
                Swept::Dirty(batch) => return Ok(Gathered::Dirty(batch)),
                Swept::Written => return Ok(Gathered::Written),
                Swept::Busy => return Ok(Gathered::Busy),
                Swept::Nothing => return Ok(Gathered::Nothing),
            }
        }
        for one in missing {
            // Who makes a page takes frames besides.
            let Some(frame) = self.take_frame() else { return Ok(Gathered::Busy) };
            one.publish(frame)?;
        }
        pager.hold(&needs.pages);
        Ok(Gathered::All(HeldPages { space: self.clone(), pages: needs.pages.clone() }))
    }

    /// Lets a page leave, if one may.
    #[cfg(all(test, loom))]
    pub(super) async fn evict_one(self: &Arc<Self>) -> Result<(), PageError> {
        let mut search = Search { keep: &[], clean_only: false, passed: &mut 0 };
        let swept = self.sweep(&mut self.pager.lock(), &mut search);
        if let Swept::Dirty(batch) = swept {
            batch.write()?;
        }
        Ok(())
    }
}
