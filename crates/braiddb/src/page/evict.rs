//! Eviction: selection of pages that are removed from memory when a frame is needed.
//!
//! No thread is dedicated to eviction. A task that needs a frame and finds none free moves the
//! clock hand over the frames. A page that was used since the last pass stays. A clean page is
//! evicted immediately. Dirty pages are collected, written together (`write_back`), and evicted
//! after the write. Inner pages are evicted like leaves. Each descent marks the pages on its path
//! as used, so an inner page stays resident as long as its leaves are in use.
//!
//! Invariants:
//!
//! - A page is evicted only under the pager's lock, and a held page is never evicted
//!   (`resident_set`).
//! - An evicted page hands its mapping table to the orphans before the map contains its place.

use std::sync::Arc;

use smallvec::SmallVec;

use super::eviction_clock::EvictionClock;
use super::frame::{LatchedPage, ResidentPage};
use super::layout::{Page, SlotFlags};
use super::map::{DiskPlace, PageId, PageLocation};
use super::space::{FreeFrame, PageSpace};
use super::write_back::WriteBatch;
use super::zone::RUN_SLOTS;
use crate::latch::Restart;
use crate::planted::{Bug, is_planted};
use crate::sync::statistic;

/// Rounds of the clock hand before a search gives up: two to find a page that was marked as used at
/// first, and one more.
const MAX_SWEEP_ROUNDS: u64 = 3;
/// Maximum number of frames that one sweep passes.
const SWEEP_FRAMES: u64 = 1 << 10;
/// Maximum number of dirty pages that one sweep passes while no further write may begin.
const MAX_UNWRITTEN: u32 = 64;

/// Parameters and progress of one search for a free frame.
#[derive(Debug)]
pub(super) struct FrameSearch<'p> {
    /// Pages that the search does not evict.
    pub(super) keep: &'p [PageId],
    /// If true, only clean pages are evicted.
    pub(super) clean_only: bool,
    /// If true, dirty pages with versions are not evicted.
    pub(super) keeps_versions: bool,
    /// Frames passed without success, in one or several sweeps.
    pub(super) passed: &'p mut u64,
}

/// Result of one clock sweep.
#[derive(Debug)]
pub(super) enum ClockSweepResult {
    /// A page was evicted; this is its frame.
    Left,
    /// Dirty pages for the caller to write.
    Dirty(WriteBatch),
    /// The caller waits for page writes in flight, whose pages will be evicted. Either the hand has
    /// completed a round without success, or the maximum number of writes is in flight and the hand
    /// finds almost only dirty pages. Moving further would only clear marks of use.
    Written,
    /// The sweep ended early, or passed pages that were changing or in use. Another sweep may
    /// succeed.
    Busy,
    /// No page may be evicted, except for those that are being written.
    Nothing,
}

/// Result of returning memory of frames to the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShrinkResult {
    /// No frame has memory beyond the limit.
    Enough,
    /// Some memory was returned, or will be when page writes end.
    Some,
    /// No memory can be returned now.
    Nothing,
}

/// Result of examining one frame.
enum FrameOutcome<'s> {
    Left(FreeFrame<'s>),
    Dirty,
    Busy,
    Nothing,
}

impl PageSpace {
    /// Moves the hand until it evicts a page or collects enough dirty pages, at most `SWEEP_FRAMES`
    /// frames.
    pub(super) fn sweep(
        self: &Arc<Self>,
        pager: &mut EvictionClock,
        search: &mut FrameSearch<'_>,
    ) -> ClockSweepResult {
        let (frames, _) = self.frame_pool.with_memory();
        let all = MAX_SWEEP_ROUNDS * frames;
        let writes = self.frame_pool.writes();
        if pager.writes_ended != writes.ended {
            (pager.writes_ended, pager.in_vain) = (writes.ended, 0);
        }
        if writes.any && pager.in_vain > frames {
            return ClockSweepResult::Written;
        }
        let mut unwritten = 0;
        // Limits the batch, so that a small pool does not evict all of its pages at the same time.
        let most = (frames as usize / 8).clamp(1, RUN_SLOTS);
        let (mut busy, mut batch, mut ahead) = (false, None, SmallVec::new().into_iter());
        for step in 0..SWEEP_FRAMES {
            if *search.passed >= all {
                break;
            }
            // After a full round, unused dirty pages are evicted before clean pages that are in
            // use.
            if batch.is_none() && step > 0 && step.is_multiple_of(frames) {
                batch = self.batch(pager, search);
            }
            if batch.is_some() {
                break;
            }
            let number = match ahead.next() {
                Some(number) => number,
                None => {
                    let (end, some) = self.frame_pool.live_before(pager.hand);
                    (pager.hand, ahead) = (end, some.into_iter());
                    let Some(number) = ahead.next() else { break };
                    number
                }
            };
            (pager.hand, *search.passed) = (pager.hand - 1, *search.passed + 1);
            pager.in_vain += 1;
            match self.examine(self.frame(number), pager, search) {
                FrameOutcome::Left(frame) => {
                    (*search.passed, pager.in_vain) = (0, 0);
                    drop(frame);
                    return ClockSweepResult::Left;
                }
                FrameOutcome::Busy => busy = true,
                FrameOutcome::Nothing => {}
                // Clean pages may follow, but the hand does not search for them indefinitely.
                FrameOutcome::Dirty if !writes.may_begin => {
                    unwritten += 1;
                    if unwritten == MAX_UNWRITTEN {
                        return ClockSweepResult::Written;
                    }
                }
                // A dirty page that the hand passes a second time is not delayed further, even if
                // clean pages exist.
                FrameOutcome::Dirty if pager.dirty.contains(&number) => {
                    batch = self.batch(pager, search)
                }
                FrameOutcome::Dirty => {
                    pager.dirty.push(number);
                    // The list may be longer if the number of frames with memory has shrunk since.
                    if pager.dirty.len() >= most {
                        batch = self.batch(pager, search);
                    }
                }
            }
        }
        if let Some(batch) = batch.or_else(|| self.batch(pager, search)) {
            *search.passed = 0;
            return ClockSweepResult::Dirty(batch);
        }
        let is_over = *search.passed >= all;
        if is_over {
            *search.passed = 0;
        }
        if busy || !is_over { ClockSweepResult::Busy } else { ClockSweepResult::Nothing }
    }

    fn examine<'s>(
        &'s self,
        page: ResidentPage<'s>,
        pager: &EvictionClock,
        search: &FrameSearch<'_>,
    ) -> FrameOutcome<'s> {
        // Hints at first; the decision is made under a latch version.
        let Some(id) = page.held() else { return FrameOutcome::Nothing };
        if search.keep.contains(&id) || page.frame.is_being_written() {
            return FrameOutcome::Nothing;
        }
        if page.frame.take_use() || pager.holds(id) {
            return FrameOutcome::Busy;
        }
        // Not waited for: the holder of the latch may be about to take the pager's lock.
        let Some(version) = page.frame.latch.version_now() else { return FrameOutcome::Busy };
        if page.held() != Some(id) {
            return FrameOutcome::Busy;
        }
        if page.frame.is_dirty() {
            return if search.clean_only { FrameOutcome::Nothing } else { FrameOutcome::Dirty };
        }
        match page.acquire(version) {
            Ok(latched) => {
                let place = latched.place().expect("a page that is not dirty has an image");
                FrameOutcome::Left(self.leave(latched, place))
            }
            Err(Restart) => FrameOutcome::Busy,
        }
    }

    /// Builds a batch of the collected dirty pages that still need a write and may be written now.
    fn batch(
        self: &Arc<Self>,
        pager: &mut EvictionClock,
        search: &FrameSearch<'_>,
    ) -> Option<WriteBatch> {
        if search.clean_only || pager.dirty.is_empty() {
            return None;
        }
        let mut pages = std::mem::take(&mut pager.dirty).into_iter().filter_map(|number| {
            let page = self.frame(number);
            if search.keeps_versions && page.mapping() != 0 {
                return None;
            }
            let version = page.frame.latch.version_now()?;
            let id = page.held()?;
            let is_due = page.frame.is_dirty() && !page.frame.is_used() && !pager.holds(id);
            (is_due && !page.frame.is_being_written()).then_some((page.frame, number, version))
        });
        let first = pages.next()?;
        // The batch is in flight before any page is marked, so a task that finds a mark waits for
        // its end.
        let mut batch = WriteBatch::new(self.clone())?;
        for (frame, number, version) in std::iter::once(first).chain(pages) {
            // Marked under the pager's lock only.
            assert!(frame.begin_writing(), "checked above");
            batch.push(number, version);
        }
        Some(batch)
    }

    /// Returns memory of frames above the limit to the operating system, of at most `most` frames.
    /// Evicts pages for that. Writes dirty pages first if `may` is true and no page write has
    /// failed recently.
    pub(crate) fn shrink(self: &Arc<Self>, most: usize, may: bool) -> ShrinkResult {
        let mut gone = 0;
        while gone < most
            && let Some(number) = self.frame_pool.take_surplus()
        {
            self.park(number);
            gone += 1;
        }
        if self.zones.is_none() || !self.frame_pool.has_surplus() {
            return ShrinkResult::Enough;
        }
        let clean_only = !may || self.failed_writes.are_recent();
        let dirty = {
            let mut pager = self.pager.lock();
            let keeps_versions = self.keeps_versions_resident();
            let mut search = FrameSearch { keep: &[], clean_only, keeps_versions, passed: &mut 0 };
            loop {
                if !self.frame_pool.has_surplus() {
                    return ShrinkResult::Enough;
                }
                if gone >= most {
                    return ShrinkResult::Some;
                }
                let none = if gone > 0 { ShrinkResult::Some } else { ShrinkResult::Nothing };
                // The pages in flight cover the surplus; those that stay are handled by a later
                // call.
                if self.frame_pool.surplus_is_being_written() {
                    return none;
                }
                match self.sweep(&mut pager, &mut search) {
                    ClockSweepResult::Left => gone += 1,
                    ClockSweepResult::Dirty(batch) => break batch,
                    ClockSweepResult::Written
                    | ClockSweepResult::Busy
                    | ClockSweepResult::Nothing => return none,
                }
            }
        };
        match dirty.write() {
            Ok(_) => ShrinkResult::Some,
            // The error was already recorded.
            Err(_) => ShrinkResult::Nothing,
        }
    }

    /// Returns whether a page that is not in `keep` is resident.
    pub(super) fn has_page_but(&self, keep: &[PageId]) -> bool {
        let is_one =
            |number: &u32| self.frame(*number).held().is_some_and(|id| !keep.contains(&id));
        let mut position = 0;
        loop {
            let (end, some) = self.frame_pool.live_before(position);
            if some.iter().any(is_one) {
                return true;
            }
            position = end - some.len();
            if position == 0 {
                return false;
            }
        }
    }

    /// Removes chains that no transaction needs from the mapping table of a page that is not
    /// resident. Returns `None` if the page is resident. Otherwise returns whether the page has no
    /// records left.
    pub(super) fn prune_absent(&self, id: PageId) -> Option<bool> {
        let is_absent =
            || matches!(self.map.get(id), PageLocation::Loading | PageLocation::OnDisk(_));
        self.orphans.prune(id, is_absent)
    }

    /// Evicts a page whose image at `place` equals the page.
    pub(super) fn leave<'s>(
        &'s self,
        mut latched: LatchedPage<'s>,
        place: DiskPlace,
    ) -> FreeFrame<'s> {
        let id = latched.id();
        let word = latched.take_mapping();
        let all_deleted = word != 0 && has_deleted_only(latched.page);
        let late = is_planted(Bug::OrphanAfterPlace);
        if !late {
            self.orphans.put(id, word, all_deleted);
        }
        self.map.set(id, PageLocation::OnDisk(place));
        // Relaxed: statistics.
        self.counters.evicted.fetch_add(1, statistic::Ordering::Relaxed);
        if latched.page.level() > 0 {
            self.counters.inner_evicted.fetch_add(1, statistic::Ordering::Relaxed);
        }
        let frame = self.empty(latched);
        if late {
            self.orphans.put(id, word, all_deleted);
        }
        frame
    }
}

/// Returns whether all slots of a leaf belong to deleted records.
fn has_deleted_only(page: Page<'_>) -> bool {
    let is_deleted = |place| page.flags(place).has(SlotFlags::DELETED);
    page.level() == 0 && (0..page.count()).all(is_deleted)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::common::{PART_SECONDS, with_limit};
    use crate::io::SimulatedDisk;
    use crate::log::{Log, LogOptions};
    use crate::page::layout::{KeySlot, MIN_PAGE_BYTES};
    use crate::page::tree::{LeafRoom, PageTree};
    use crate::rid::TableId;
    use crate::sched::run_now;

    /// Creates a space over a simulated disk with room for 256 frames, and a tree with `records`
    /// records on dirty pages.
    fn dirty_tree(records: u64) -> (Log, Arc<PageSpace>, PageTree) {
        let disk = SimulatedDisk::new(1);
        let options = LogOptions { disk: Some(disk), ..LogOptions::new("x", 1) };
        let log = Log::open(options).unwrap().0;
        let files = log.cold_store().unwrap().files();
        let space = PageSpace::new(MIN_PAGE_BYTES, 256, 256, Some(files)).unwrap();
        let tree = run_now(PageTree::create(space.clone(), TableId(3))).unwrap();
        for key in 0..records {
            let key = key.to_be_bytes();
            let mut leaf = run_now(tree.latch(&key, LeafRoom::value(8))).unwrap();
            let KeySlot::Before(place) = leaf.find(&key) else { panic!("it is new") };
            leaf.insert(place, &key, &key, SlotFlags::NONE);
        }
        (log, space, tree)
    }

    /// Returns the dirty pages that the hand collects first.
    fn first_batch(space: &Arc<PageSpace>) -> WriteBatch {
        let mut pager = EvictionClock::default();
        let mut search =
            FrameSearch { keep: &[], clean_only: false, keeps_versions: false, passed: &mut 0 };
        loop {
            match space.sweep(&mut pager, &mut search) {
                ClockSweepResult::Dirty(batch) => return batch,
                ClockSweepResult::Busy => {}
                swept => panic!("{swept:?}"),
            }
        }
    }

    #[test]
    fn no_more_pages_are_written_for_the_budget_than_it_wants_gone() {
        with_limit(PART_SECONDS, |_| {
            let (_log, space, _tree) = dirty_tree(2000);
            let batch = first_batch(&space);
            let taken = space.frames_taken() as u32;
            let written = || space.counters.written.load(statistic::Ordering::Relaxed);
            let (pages, before) = (batch.len() as u32, written());
            space.frame_pool.set_limit(taken - pages);
            assert_eq!(space.shrink(64, true), ShrinkResult::Nothing, "as many are being written");
            assert_eq!(written(), before);
            space.frame_pool.set_limit(taken - pages - 1);
            assert_eq!(space.shrink(64, true), ShrinkResult::Some, "one more is to go");
            assert!(written() > before);
            batch.write().unwrap();
            assert_eq!(space.shrink(64, true), ShrinkResult::Enough);
        });
    }

    /// After a full round without success, a search clears no marks of use while pages are being
    /// written. After the end of a write, the hand moves again.
    #[test]
    fn the_hand_rests_while_pages_are_written() {
        with_limit(PART_SECONDS, |_| {
            let (_log, space, _tree) = dirty_tree(2000);
            let batch = first_batch(&space);
            let mut pager = EvictionClock::default();
            let mut sweep = || {
                let mut search = FrameSearch {
                    keep: &[],
                    clean_only: true,
                    keeps_versions: false,
                    passed: &mut 0,
                };
                let swept = space.sweep(&mut pager, &mut search);
                (matches!(swept, ClockSweepResult::Written), format!("{swept:?}"))
            };
            let (rests, swept) = sweep();
            assert!(!rests, "it has not gone round: {swept}");
            let is_other = |number: &u32| !space.frame(*number).frame.is_being_written();
            let other = (0..space.frames_taken() as u32).find(is_other).unwrap();
            space.frame(other).frame.note_use();
            let (rests, swept) = sweep();
            assert!(rests, "{swept}");
            assert!(space.frame(other).frame.is_used());
            batch.write().unwrap();
            let (rests, swept) = sweep();
            assert!(!rests, "a write has ended: {swept}");
            assert!(!space.frame(other).frame.is_used());
        });
    }

    /// While the maximum number of writes is in flight, a search that finds only dirty pages soon
    /// stops, and its task waits for the end of a write.
    #[test]
    fn the_hand_rests_where_dirty_pages_cannot_be_written() {
        with_limit(PART_SECONDS, |_| {
            let (_log, space, _tree) = dirty_tree(3000);
            for number in 0..space.frames_taken() as u32 {
                space.frame(number).frame.take_use();
            }
            while space.frame_pool.begin_write() {}
            let (mut pager, mut passed) = (EvictionClock::default(), 0);
            let mut sweep = || {
                let mut search = FrameSearch {
                    keep: &[],
                    clean_only: false,
                    keeps_versions: false,
                    passed: &mut passed,
                };
                let swept = space.sweep(&mut pager, &mut search);
                (
                    matches!(swept, ClockSweepResult::Dirty(_)),
                    matches!(swept, ClockSweepResult::Written),
                    passed,
                )
            };
            assert!(space.frames_taken() > 2 * u64::from(MAX_UNWRITTEN));
            assert_eq!(sweep(), (false, true, MAX_UNWRITTEN.into()));
            assert_eq!(sweep(), (false, true, 2 * u64::from(MAX_UNWRITTEN)));
            space.frame_pool.end_write(0);
            assert_eq!(sweep(), (true, false, 0));
            // A batch was begun, and ended when it was dropped.
            while space.frame_pool.begin_write() {}
            assert!(!sweep().0);
        });
    }

    /// A dirty page that the hand meets at the end of a round is written, for every position of the
    /// hand and every number of frames passed before.
    #[test]
    fn dirty_pages_that_are_met_at_the_end_of_a_round_are_written() {
        with_limit(PART_SECONDS, |_| {
            let (_log, space, _tree) = dirty_tree(100);
            let frames = space.frames_taken() as u32;
            let is_leaf = |number: &u32| space.frame(*number).shape().level == 0;
            let due = (0..frames).find(is_leaf).unwrap();
            let others = (0..frames).filter(|number| *number != due);
            let keep: Vec<_> = others.filter_map(|number| space.frame(number).held()).collect();
            assert!(keep.len() > 2, "there are some frames");
            space.frame(due).frame.take_use();
            for hand in 1..=frames as usize {
                // At least one round is left.
                for before in 0..=u64::from(frames) {
                    let mut pager = EvictionClock { hand, ..EvictionClock::default() };
                    let mut passed = before;
                    let mut search = FrameSearch {
                        keep: &keep,
                        clean_only: false,
                        keeps_versions: false,
                        passed: &mut passed,
                    };
                    match space.sweep(&mut pager, &mut search) {
                        ClockSweepResult::Dirty(batch) => assert_eq!(batch.len(), 1),
                        swept => panic!("{swept:?}, from {hand}, after {before}"),
                    }
                }
            }
        });
    }

    /// More dirty pages are collected than a write may have after the pool has shrunk. A write
    /// still has at most as many pages as a run has places.
    #[test]
    fn a_write_has_no_more_pages_than_a_run_has_places_when_frames_have_become_fewer() {
        with_limit(PART_SECONDS, |_| {
            let (_log, space, _tree) = dirty_tree(1000);
            let numbers = 0..space.frames_taken() as u32;
            let leaves =
                || numbers.clone().filter(|number| space.frame(*number).shape().level == 0);
            assert!(leaves().count() > 2 * RUN_SLOTS && numbers.len() < 8 * (RUN_SLOTS - 2));
            let mut pager = EvictionClock {
                dirty: leaves().take(RUN_SLOTS - 1).collect(),
                ..EvictionClock::default()
            };
            for number in leaves() {
                space.frame(number).frame.take_use();
            }
            let mut search =
                FrameSearch { keep: &[], clean_only: false, keeps_versions: false, passed: &mut 0 };
            let mut written = 0;
            while let ClockSweepResult::Dirty(batch) = space.sweep(&mut pager, &mut search) {
                assert!((1..=RUN_SLOTS).contains(&batch.len()), "{} pages", batch.len());
                written += batch.len();
                batch.write().unwrap();
            }
            assert!(written >= RUN_SLOTS);
        });
    }
}
