//! Free-frame pool: allocation, the memory limit, and waiters for a free frame.
//!
//! An operation that finds neither a free frame nor a page that it may evict waits. The end of a
//! load, of a page write or of a structure change wakes it, and so does a raised limit.
//!
//! The memory budget sets a limit for the number of frames with memory
//! (`transaction/memory/page_share.rs`). Above the limit, a freed frame is *parked*: its memory is
//! returned to the operating system. A minimum number of frames may always have memory, even beyond
//! the budget.
//!
//! Invariants:
//!
//! - A frame with a number below `next` is in exactly one state: it holds a page, belongs to the
//!   task that took it, is free, or is parked.
//! - Frames that are not parked are in `live`, each at its entry in `positions`. The clock hand
//!   (`evict`) visits only these.

use smallvec::SmallVec;

use crate::sched::{RemoteWaiter, WaitCause, wait_remotely};
use crate::sync::ModelMutex;

/// Maximum number of concurrent page writes. Each writes at most one run of places: 1 MiB of pages
/// of 4 KiB.
const MAX_WRITES: usize = 16;

/// Number of frame numbers that are copied under the lock at a time.
const FRAMES_PER_COPY: usize = 64;

/// Number of frames that may have memory regardless of the memory budget; enough for a few
/// operations.
const MIN_FRAMES: u32 = if cfg!(braid_simulation) { 16 } else { 64 };

/// Free frames of a space, and counters of the activities that may free more.
#[derive(Debug)]
pub(super) struct FramePool(ModelMutex<FramePoolState>);

#[derive(Debug)]
struct FramePoolState {
    /// Free frames that have memory.
    free: Vec<u32>,
    /// Parked frames: their memory was returned to the operating system.
    parked: Vec<u32>,
    /// All other frames that were ever taken, unordered. `positions` has the current or last
    /// position of each frame in `live`.
    live: Vec<u32>,
    positions: Vec<u32>,
    /// Lowest frame number that was never taken; `frames` is the total number of frames.
    next: u32,
    frames: u32,
    /// Maximum number of frames with memory.
    limit: u32,
    in_progress: usize,
    /// Number of page writes among them, and the number of pages in those writes.
    writes: usize,
    pages_written: u32,
    writes_ended: u64,
    /// Number of activities that have ended.
    ended: u64,
    waiters: Vec<RemoteWaiter>,
}

/// Summary of the page writes in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightWrites {
    /// True if any page write is in flight.
    pub(super) any: bool,
    /// True if another write may begin.
    pub(super) may_begin: bool,
    /// Number of writes that have ended.
    pub(super) ended: u64,
}

/// Guard of an activity that may free frames; dropping it wakes all waiters.
#[derive(Debug)]
pub(super) struct FramePoolActivity<'t>(&'t FramePool);

impl FramePool {
    /// Creates a pool in which all `frames` frames are free.
    pub(super) fn new(frames: u32) -> Self {
        Self(ModelMutex::new(FramePoolState {
            free: Vec::new(),
            parked: Vec::new(),
            live: Vec::new(),
            positions: Vec::new(),
            next: 0,
            frames,
            limit: frames,
            in_progress: 0,
            writes: 0,
            pages_written: 0,
            writes_ended: 0,
            ended: 0,
            waiters: Vec::new(),
        }))
    }

    pub(super) fn begin(&self) -> FramePoolActivity<'_> {
        self.begin_one();
        FramePoolActivity(self)
    }

    fn begin_one(&self) {
        self.0.lock().in_progress += 1;
    }

    /// Counts the begin of a page write, which ends with [`Self::end_write`]. Returns `false` if
    /// too many writes are in flight, because each holds a copy of its pages in memory. A task that
    /// needs a frame then waits for the end of a write.
    pub(super) fn begin_write(&self) -> bool {
        let mut state = self.0.lock();
        let may = state.writes < MAX_WRITES;
        if may {
            state.writes += 1;
            state.in_progress += 1;
        }
        may
    }

    /// Counts a page of a write that has begun.
    pub(super) fn add_page_written(&self) {
        self.0.lock().pages_written += 1;
    }

    pub(super) fn end_write(&self, pages: usize) {
        {
            let mut state = self.0.lock();
            state.writes -= 1;
            state.pages_written -= pages as u32;
            state.writes_ended += 1;
        }
        self.end_one();
    }

    fn end_one(&self) {
        let waiters = {
            let mut state = self.0.lock();
            state.in_progress -= 1;
            state.ended += 1;
            std::mem::take(&mut state.waiters)
        };
        waiters.into_iter().for_each(RemoteWaiter::wake);
    }

    /// Takes a free frame, if one exists. The guard counts as an activity until the frame is used
    /// or returned.
    pub(super) fn take(&self) -> Option<(u32, FramePoolActivity<'_>)> {
        let mut state = self.0.lock();
        let number = match state.free.pop() {
            Some(number) => number,
            None if state.room() == 0 => return None,
            None => state.add_memory(),
        };
        state.in_progress += 1;
        Some((number, FramePoolActivity(self)))
    }

    /// Returns an empty frame that has memory to the pool.
    pub(super) fn release(&self, number: u32) {
        self.0.lock().free.push(number);
    }

    /// Returns an empty frame whose memory was released.
    pub(super) fn park(&self, number: u32) {
        let state = &mut *self.0.lock();
        let position = state.positions[number as usize];
        assert_eq!(state.live.swap_remove(position as usize), number, "parked once");
        if let Some(moved) = state.live.get(position as usize) {
            state.positions[*moved as usize] = position;
        }
        state.parked.push(number);
    }

    /// Returns up to `FRAMES_PER_COPY` frames that are not parked, in descending order of their positions,
    /// starting below `position`. It starts at the last frame if `position` is 0 or beyond the end.
    /// The first result is the number of frames from the start downwards. The list is empty if all
    /// frames are parked.
    ///
    /// A caller that moves downwards skips no frame: a frame that replaces a parked one was already
    /// visited, and newly taken frames are appended at the end.
    pub(super) fn live_before(&self, position: usize) -> (usize, SmallVec<[u32; FRAMES_PER_COPY]>) {
        let state = self.0.lock();
        let end = match position {
            0 => state.live.len(),
            position => position.min(state.live.len()),
        };
        let begin = end.saturating_sub(FRAMES_PER_COPY);
        (end, state.live[begin..end].iter().rev().copied().collect())
    }

    /// Takes a free frame that exceeds the limit, so that the caller can park it.
    pub(super) fn take_surplus(&self) -> Option<u32> {
        let mut state = self.0.lock();
        if state.surplus() > 0 { state.free.pop() } else { None }
    }

    /// Returns whether more frames have memory than the limit allows.
    pub(super) fn has_surplus(&self) -> bool {
        self.0.lock().surplus() > 0
    }

    /// Returns whether the pages that are being written cover the surplus. Most of them are evicted
    /// when their write ends.
    pub(super) fn surplus_is_being_written(&self) -> bool {
        let state = self.0.lock();
        state.surplus() <= state.pages_written
    }

    /// Returns a summary of the page writes in flight.
    pub(super) fn writes(&self) -> InFlightWrites {
        let state = self.0.lock();
        let (any, may_begin) = (state.pages_written > 0, state.writes < MAX_WRITES);
        InFlightWrites { any, may_begin, ended: state.writes_ended }
    }

    /// Sets the maximum number of frames with memory. Wakes the waiters if the limit rises.
    pub(super) fn set_limit(&self, limit: u32) {
        let waiters = {
            let mut state = self.0.lock();
            let before = state.limit();
            state.limit = limit;
            if state.limit() > before { std::mem::take(&mut state.waiters) } else { Vec::new() }
        };
        waiters.into_iter().for_each(RemoteWaiter::wake);
    }

    /// Raises the limit so that `needed` frames can be taken, as a last resort. Returns whether the
    /// pool has enough frames.
    pub(super) fn raise_limit_for(&self, needed: usize) -> bool {
        let mut state = self.0.lock();
        let limit = state.with_memory() as usize + needed.saturating_sub(state.free.len());
        let there_are = limit <= state.frames as usize;
        if there_are {
            state.limit = state.limit.max(limit as u32);
        }
        there_are
    }

    /// Returns the number of frames that were ever taken; the others never held a page.
    pub(super) fn frames_taken(&self) -> u64 {
        self.0.lock().next.into()
    }

    /// Returns the number of parked frames.
    pub(super) fn parked(&self) -> u64 {
        self.0.lock().parked.len() as u64
    }

    /// Returns the number of frames with memory, and its limit.
    pub(super) fn with_memory(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.with_memory().into(), state.limit().into())
    }

    /// Returns the number of activities that have ended.
    pub(super) fn ended(&self) -> u64 {
        self.0.lock().ended
    }

    /// Waits until more activities have ended than `seen`, or `needed` frames are free. Returns
    /// `false` immediately if neither is true and no activity is in flight.
    ///
    /// No waiter is lost: it registers under the same lock under which it saw an activity in
    /// flight, and the end of each activity wakes all waiters.
    pub(super) async fn wait_since(&self, seen: u64, needed: usize) -> bool {
        wait_remotely(WaitCause::Storage, |waiter| {
            let mut state = self.0.lock();
            let mended = state.ended != seen || state.has(needed);
            if mended || state.in_progress == 0 {
                return Some(mended);
            }
            state.waiters.extend(waiter);
            None
        })
        .await
    }

    /// Waits until `is_over` returns true for an activity in flight, or `needed` frames are free.
    pub(super) async fn wait_for(&self, is_over: impl Fn() -> bool, needed: usize) {
        wait_remotely(WaitCause::Storage, |waiter| {
            let mut state = self.0.lock();
            if is_over() || state.has(needed) {
                return Some(());
            }
            state.waiters.extend(waiter);
            None
        })
        .await;
    }

    /// Returns whether `needed` frames are free.
    pub(super) fn has(&self, needed: usize) -> bool {
        self.0.lock().has(needed)
    }
}

impl FramePoolState {
    /// Returns the maximum number of frames with memory.
    fn limit(&self) -> u32 {
        self.limit.max(MIN_FRAMES).min(self.frames)
    }

    fn with_memory(&self) -> u32 {
        self.live.len() as u32
    }

    /// Returns the number of frames with memory beyond the limit.
    fn surplus(&self) -> u32 {
        self.with_memory().saturating_sub(self.limit())
    }

    /// Takes a frame without memory. One exists, because the limit is at most the number of frames.
    fn add_memory(&mut self) -> u32 {
        let number = self.parked.pop().unwrap_or_else(|| {
            self.next += 1;
            self.positions.push(0);
            self.next - 1
        });
        self.positions[number as usize] = self.live.len() as u32;
        self.live.push(number);
        number
    }

    /// Returns the number of frames that may still be given memory.
    fn room(&self) -> u32 {
        self.limit().saturating_sub(self.with_memory())
    }

    fn has(&self, needed: usize) -> bool {
        self.free.len() + self.room() as usize >= needed
    }
}

impl Drop for FramePoolActivity<'_> {
    fn drop(&mut self) {
        self.0.end_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::common::{PART_SECONDS, with_limit};
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the frames that a clock hand visits in one round.
    fn round(frame_pool: &FramePool) -> Vec<u32> {
        let (mut passed, mut hand) = (Vec::new(), 0);
        loop {
            let (end, some) = frame_pool.live_before(hand);
            passed.extend(&some);
            hand = end - some.len();
            if hand == 0 {
                return passed;
            }
        }
    }

    #[test]
    fn the_hand_comes_by_each_frame_that_has_memory_and_by_no_other() {
        with_limit(PART_SECONDS, |_| {
            const FRAMES: u32 = 10 * FRAMES_PER_COPY as u32;
            let frame_pool = FramePool::new(FRAMES);
            let mut taken: BTreeSet<u32> =
                (0..FRAMES).map(|_| frame_pool.take().unwrap().0).collect();
            assert!(frame_pool.take().is_none());
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..10 {
                for number in 0..FRAMES {
                    if random.u32(..3) > 0 && taken.remove(&number) {
                        frame_pool.park(number);
                    }
                }
                let passed = round(&frame_pool);
                assert_eq!(passed.len(), taken.len(), "each once");
                assert_eq!(BTreeSet::from_iter(passed), taken);
                assert_eq!(frame_pool.with_memory().0, taken.len() as u64);
                while random.u32(..100) > 0 {
                    taken.extend(frame_pool.take().map(|(number, _)| number));
                }
            }
        });
    }

    #[test]
    fn a_hand_that_parks_what_it_comes_by_passes_over_none() {
        with_limit(PART_SECONDS, |_| {
            let frame_pool = FramePool::new(1000);
            (0..1000).for_each(|_| drop(frame_pool.take().unwrap()));
            let (mut passed, mut hand) = (0, 0);
            loop {
                let (end, some) = frame_pool.live_before(hand);
                let Some(first) = some.first() else { break };
                passed += 1;
                if first % 3 > 0 {
                    frame_pool.park(*first);
                }
                hand = end - 1;
                if hand == 0 {
                    break;
                }
            }
            assert_eq!(passed, 1000);
            assert!(round(&frame_pool).iter().all(|number| number % 3 == 0));
        });
    }
}
