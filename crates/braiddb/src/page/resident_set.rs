//! Resident set: loads and holds all pages and frames that one operation needs at the same time.
//!
//! An interrupted operation reports its missing pages and frames (`PageNeeds`) and waits until all of
//! them are available. It then continues without suspending until its attempt ends. During the
//! attempt the pages are *held*: they are not evicted. While it waits, an operation holds nothing
//! that another could need: no frame, no mark and no page. It holds only images that were read,
//! which others may publish too. Its caller admits the maximum bytes of these images before the
//! first read ([`Admitted`]). So no operation waits for more admission while it holds some.
//!
//! In a tree, an operation needs the path from the root, page by page. Each attempt meets the next
//! absent page of the path, and the set keeps the pages that it met before. So a leaf and its
//! parent cannot evict each other forever.
//!
//! Termination:
//!
//! - An attempt with all pages and frames that are known to be needed succeeds, or reports a few
//!   more.
//! - The operation waits for images, which arrive and are kept as long as it wants them. It waits
//!   for page writes, which end and are bounded by the number of changed pages. It waits for
//!   holders of pages, which do not suspend.
//! - A page or frame for which it waited can be lost again only if other operations published pages
//!   or took frames. Each of these had an attempt with everything it needed.
//!
//! Therefore, if the frames suffice for one operation, some operation makes progress. Fairness is
//! not guaranteed: after `MAX_ATTEMPTS` attempts an operation fails.

use std::pin::Pin;
use std::sync::Arc;

use smallvec::SmallVec;

use super::error::{Interrupted, PageError};
use super::evict::{ClockSweepResult, FrameSearch};
use super::fault::{Admitted, LoadShare};
use super::map::{PageId, PageLocation};
use super::space::PageSpace;
use super::write_back::WriteBatch;
use crate::sched::{self, WaitCause};
use crate::sync::statistic::Ordering;

/// Maximum number of attempts of an operation that needs pages.
const MAX_ATTEMPTS: u32 = 10_000;
/// Maximum number of times that an operation forgets earlier pages. It does so when the frames are
/// too few for all of them, because some may be unnecessary by now.
const MAX_NARROWINGS: u32 = 8;

/// Pages that an operation needs at the same time.
type NeededPages = SmallVec<[PageId; 4]>;

/// Pages and frames that an operation needs at the same time, as far as its attempts have met them.
#[derive(Debug)]
pub(crate) struct PageNeeds {
    /// Most recently met pages first; limited to the number that the operation may need.
    pages: NeededPages,
    max_pages: usize,
    frames: usize,
    attempts: u32,
    /// Number of times that the frames were too few for all pages known to be needed, some of which
    /// may be unnecessary by now.
    narrowed: u32,
}

impl PageNeeds {
    /// Creates empty needs, with a maximum number of pages at the same time.
    pub(crate) fn new(max_pages: usize) -> Self {
        Self { pages: NeededPages::new(), max_pages, frames: 0, attempts: 0, narrowed: 0 }
    }

    /// Returns a copy that allows `more` pages in addition.
    pub(crate) fn and(&self, more: usize) -> Self {
        let max_pages = self.max_pages.saturating_add(more);
        let (attempts, narrowed) = (self.attempts, self.narrowed);
        Self { pages: self.pages.clone(), max_pages, frames: 0, attempts, narrowed }
    }

    fn count_attempt(&mut self, space: &PageSpace) -> Result<(), PageError> {
        self.attempts += 1;
        if self.attempts > MAX_ATTEMPTS { Err(space.contended()) } else { Ok(()) }
    }

    /// Returns the maximum number of pages that are needed, including those that interrupted the
    /// last attempt.
    pub(super) fn pages_with(&self, interrupted: &[Interrupted]) -> usize {
        let absent = |why: &&Interrupted| matches!(why, Interrupted::Absent(_));
        let more = interrupted.iter().filter(absent).count();
        (self.pages.len() + more).min(self.max_pages)
    }

    /// Adds the causes that interrupted the last attempt.
    pub(crate) fn add(&mut self, interrupted: &[Interrupted]) {
        self.frames = 0;
        for why in interrupted {
            match *why {
                Interrupted::Absent(id) => {
                    self.pages.retain(|page| *page != id);
                    self.pages.insert(0, id);
                    self.pages.truncate(self.max_pages);
                }
                Interrupted::OutOfFrames { needed } => self.frames += needed,
                Interrupted::Restart | Interrupted::OutOfPageIds => {}
            }
        }
    }
}

/// Pages that are not evicted until this is dropped. Never kept across a suspension.
#[derive(Debug)]
pub(crate) struct HeldPages {
    space: Arc<PageSpace>,
    pages: NeededPages,
}

impl Drop for HeldPages {
    fn drop(&mut self) {
        if !self.pages.is_empty() {
            self.space.pager.lock().release(&self.pages);
        }
    }
}

/// Result of one try to hold all pages and frames without suspending.
enum HoldResult {
    All(HeldPages),
    /// A page was evicted since its load.
    Absent,
    /// Dirty pages that must be written first.
    Dirty(WriteBatch),
    /// The caller waits for page writes in flight, whose pages will be evicted.
    Written,
    /// Other tasks are changing pages or taking frames.
    Busy,
    /// No page may be evicted.
    Nothing,
}

impl PageSpace {
    /// Repeats a non-suspending attempt of an interrupted operation, with the pages and frames that
    /// it needs, until it is not interrupted. The future is boxed, so that lookups of resident
    /// pages do not carry the state of page reads.
    ///
    /// # Errors
    /// When the pages or frames cannot be provided.
    #[cold]
    pub(in crate::page) fn retry<'s, R: 's>(
        self: &'s Arc<Self>,
        mut needs: PageNeeds,
        interrupted: Interrupted,
        mut attempt: impl FnMut() -> Result<R, Interrupted> + 's,
    ) -> Pin<Box<dyn Future<Output = Result<R, PageError>> + 's>> {
        Box::pin(async move {
            let mut interrupted = interrupted;
            loop {
                let _held = self.hold_pages(&mut needs, &[interrupted], None).await?;
                match attempt() {
                    Ok(done) => return Ok(done),
                    Err(again) => interrupted = again,
                }
            }
        })
    }

    /// Waits until the pages and frames that interrupted an operation are available, together with
    /// those in `needs`.
    ///
    /// # Errors
    /// When they cannot be provided, or the operation was interrupted too often.
    pub(in crate::page) async fn hold_pages(
        self: &Arc<Self>,
        needs: &mut PageNeeds,
        interrupted: &[Interrupted],
        admitted: Option<Admitted>,
    ) -> Result<HeldPages, PageError> {
        if let Some(error) = interrupted.iter().find_map(|why| self.error(*why)) {
            return Err(error);
        }
        needs.add(interrupted);
        // Loaded images stay in this list until all are available.
        let mut wanted = SmallVec::<[LoadShare; 4]>::new();
        let (mut failed, mut passed, mut lacked) = (None::<PageError>, 0, false);
        let (mut was_full, mut was_raised, mut keeps_versions) = (false, false, true);
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
            let seen = self.frame_pool.ended();
            let needed = needs.frames + wanted.len();
            lacked = lacked || self.note_lack(needed);
            let evicts = (failed.is_some(), keeps_versions && self.keeps_versions_resident());
            match self.try_hold_pages(needs, &wanted, evicts, &mut passed)? {
                HoldResult::All(held) => return Ok(held),
                HoldResult::Absent => needs.count_attempt(self)?,
                // The end of a write is counted, so it wakes the waiter, or was counted after
                // `seen` was read.
                HoldResult::Written => _ = self.frame_pool.wait_since(seen, needed).await,
                HoldResult::Busy => sched::yield_now(WaitCause::Undecided).await,
                HoldResult::Dirty(batch) => {
                    failed = match batch.write() {
                        Err(error) => Some(error),
                        Ok(outcome) => {
                            self.frame_pool.wait_for(|| outcome.get().is_some(), needed).await;
                            outcome.get().and_then(Result::err)
                        }
                    };
                    // After the disk was full, the next write prefers places with disk blocks.
                    if !was_full && failed.as_ref().is_some_and(PageError::is_disk_full) {
                        (was_full, failed) = (true, None);
                    }
                }
                // No clean page could be evicted either. On a full disk, exceeding the budget is
                // better than failing, because deletions need pages to free space.
                HoldResult::Nothing
                    if failed.as_ref().is_some_and(PageError::is_disk_full)
                        && !was_raised
                        && self.frame_pool.raise_limit_for(needed) =>
                {
                    (was_raised, failed) = (true, None);
                }
                HoldResult::Nothing if failed.is_some() => {
                    return Err(failed.expect("checked above"));
                }
                HoldResult::Nothing if self.frame_pool.wait_since(seen, needed).await => {}
                // The dirty pages have versions. Exceeding the budget is better than their eviction,
                // and that is better than failing.
                HoldResult::Nothing if evicts.1 => {
                    keeps_versions = self.frame_pool.raise_limit_for(needed);
                }
                HoldResult::Nothing if self.has_page_but(&needs.pages) => {
                    sched::yield_now(WaitCause::Undecided).await;
                }
                HoldResult::Nothing if needs.pages.len() > 1 && needs.narrowed < MAX_NARROWINGS => {
                    needs.narrowed += 1;
                    needs.pages.truncate(1);
                }
                // Exceeding the budget is better than failing.
                HoldResult::Nothing if self.frame_pool.raise_limit_for(needed) => {}
                HoldResult::Nothing => return Err(self.out_of_frames()),
            }
        }
    }

    /// Counts frames that are needed and not free. Returns whether they are not.
    fn note_lack(&self, needed: usize) -> bool {
        let lacks = !self.frame_pool.has(needed);
        if lacks {
            // Relaxed: a statistic.
            self.counters.wanted.fetch_add(needed as u64, Ordering::Relaxed);
        }
        lacks
    }

    /// Holds all pages and takes all frames, if the images have been read. Does not suspend, and
    /// holds the pager's lock so that no other task evicts a page.
    fn try_hold_pages(
        self: &Arc<Self>,
        needs: &PageNeeds,
        wanted: &[LoadShare],
        (clean_only, keeps_versions): (bool, bool),
        passed: &mut u64,
    ) -> Result<HoldResult, PageError> {
        let mut pager = self.pager.lock();
        let mut missing = SmallVec::<[&LoadShare; 4]>::new();
        for id in &needs.pages {
            match self.map.get(*id) {
                // The page was freed, so the operation needs another one.
                PageLocation::Free => {}
                PageLocation::Frame(number) => self.frame(number).frame.note_use(),
                PageLocation::Loading | PageLocation::OnDisk(_) => {
                    match wanted.iter().find(|one| one.id() == *id && one.has_image()) {
                        Some(one) => missing.push(one),
                        None => return Ok(HoldResult::Absent),
                    }
                }
            }
        }
        let mut search = FrameSearch { keep: &needs.pages, clean_only, keeps_versions, passed };
        let needed = missing.len() + needs.frames;
        while !self.frame_pool.has(needed) {
            match self.sweep(&mut pager, &mut search) {
                ClockSweepResult::Left => {}
                ClockSweepResult::Dirty(batch) => return Ok(HoldResult::Dirty(batch)),
                ClockSweepResult::Written => return Ok(HoldResult::Written),
                ClockSweepResult::Busy => return Ok(HoldResult::Busy),
                ClockSweepResult::Nothing => return Ok(HoldResult::Nothing),
            }
        }
        for one in missing {
            // Tasks that create pages take frames too.
            let Some(frame) = self.take_frame() else { return Ok(HoldResult::Busy) };
            one.publish(frame)?;
        }
        pager.hold(&needs.pages);
        Ok(HoldResult::All(HeldPages { space: self.clone(), pages: needs.pages.clone() }))
    }

    /// Evicts a page, if any may be evicted.
    #[cfg(all(test, loom))]
    pub(super) async fn evict_one(self: &Arc<Self>) -> Result<(), PageError> {
        let mut search =
            FrameSearch { keep: &[], clean_only: false, keeps_versions: false, passed: &mut 0 };
        let swept = self.sweep(&mut self.pager.lock(), &mut search);
        if let ClockSweepResult::Dirty(batch) = swept {
            batch.write()?;
        }
        Ok(())
    }
}
