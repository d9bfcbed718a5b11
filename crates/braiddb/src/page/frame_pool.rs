//! Free frames, and what brings about by itself that there are more, or that more pages may leave memory: loads,
//! writes, structure changes under way. Who needs a frame and finds neither a free one nor a page that may leave waits
//! for the end of any of them, or until more frames may have memory.
//!
//! How many frames may have memory is a limit that the memory budget moves (`transaction/page_share.rs`). While there are more, those
//! that come free are *parked*: their memory is given back. Some pages always have frames: beyond the budget, if need be.
//!
//! Invariants: a frame below `next` holds a page, is its taker's, is free or is parked; not more than one of these.
//! Those that are not parked are in `live`, each at its position there: the clock's hand (`evict`) comes by these only.

use smallvec::SmallVec;

use crate::sched::{Cause, RemoteWaiter, wait_remotely};
use crate::sync::ModelMutex;

/// Writes of pages under way at a time, each of a run of places at most: a mebibyte of pages of 4 KiB.
const MAX_WRITES: usize = 16;

/// Numbers of frames that are copied under the lock at a time.
const SOME: usize = 64;

/// Frames that may have memory, whatever the memory budget says: as many as a few operations need.
const MIN_FRAMES: u32 = if cfg!(braid_simulation) { 16 } else { 64 };

/// The free frames of a space, and what is under way.
#[derive(Debug)]
pub(super) struct Transit(ModelMutex<State>);

#[derive(Debug)]
struct State {
    /// Frames that held a page before.
    free: Vec<u32>,
    /// Those whose memory was given back.
    parked: Vec<u32>,
    /// All others that were taken once, in no order, and where in this each frame is, or was.
    live: Vec<u32>,
    positions: Vec<u32>,
    /// The least number of a frame that was never taken, of so many.
    next: u32,
    frames: u32,
    /// How many may have memory.
    limit: u32,
    under_way: usize,
    /// Of which are writes of pages, and of how many pages.
    writes: usize,
    pages_written: u32,
    writes_ended: u64,
    /// How much has ended.
    ended: u64,
    waiters: Vec<RemoteWaiter>,
}

/// Writes of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes {
    /// Whether any are under way.
    pub(super) any: bool,
    /// Whether there may be one more.
    pub(super) may_begin: bool,
    /// How many have ended.
    pub(super) ended: u64,
}

/// Something under way; those who wait are woken when it is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'t>(&'t Transit);

impl Transit {
    /// All of so many frames are free.
    pub(super) fn new(frames: u32) -> Self {
        Self(ModelMutex::new(State {
            free: Vec::new(),
            parked: Vec::new(),
            live: Vec::new(),
            positions: Vec::new(),
            next: 0,
            frames,
            limit: frames,
            under_way: 0,
            writes: 0,
            pages_written: 0,
            writes_ended: 0,
            ended: 0,
            waiters: Vec::new(),
        }))
    }

    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.begin_one();
        UnderWay(self)
    }

    fn begin_one(&self) {
        self.0.lock().under_way += 1;
    }

    /// The same, of a write, which ends with [`Self::end_write`]; `false` if there are too many: each has a copy of its
    /// pages in memory. Who needs a frame then waits for the end of one of them.
    pub(super) fn begin_write(&self) -> bool {
        let mut state = self.0.lock();
        let may = state.writes < MAX_WRITES;
        if may {
            state.writes += 1;
            state.under_way += 1;
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
            state.under_way -= 1;
            state.ended += 1;
            std::mem::take(&mut state.waiters)
        };
        waiters.into_iter().for_each(RemoteWaiter::wake);
    }

    /// A free frame, if there is one; what becomes of it is under way.
    pub(super) fn take(&self) -> Option<(u32, UnderWay<'_>)> {
        let mut state = self.0.lock();
        let number = match state.free.pop() {
            Some(number) => number,
            None if state.room() == 0 => return None,
            None => state.bring_to_life(),
        };
        state.under_way += 1;
        Some((number, UnderWay(self)))
    }

    /// Gives a frame back that holds no page.
    pub(super) fn give_back(&self, number: u32) {
        self.0.lock().free.push(number);
    }

    /// Gives such a frame back, whose memory was given back.
    pub(super) fn park(&self, number: u32) {
        let state = &mut *self.0.lock();
        let position = state.positions[number as usize];
        assert_eq!(state.live.swap_remove(position as usize), number, "parked once");
        if let Some(moved) = state.live.get(position as usize) {
            state.positions[*moved as usize] = position;
        }
        state.parked.push(number);
    }

    /// Some of the frames that are not parked: those at the positions before `position`, from there down, or from the last, if there are
    /// fewer; and how many there are behind them, with themselves. None if there are none.
    ///
    /// Who goes on downwards passes over none: where one is parked, one that was passed takes its position, and
    /// what comes to life is at the end.
    pub(super) fn live_before(&self, position: usize) -> (usize, SmallVec<[u32; SOME]>) {
        let state = self.0.lock();
        let end = match position {
            0 => state.live.len(),
            position => position.min(state.live.len()),
        };
        let begin = end.saturating_sub(SOME);
        (end, state.live[begin..end].iter().rev().copied().collect())
    }

    /// A free frame that is one more than may have memory, to be parked.
    pub(super) fn take_surplus(&self) -> Option<u32> {
        let mut state = self.0.lock();
        if state.surplus() > 0 { state.free.pop() } else { None }
    }

    /// Whether more frames have memory than may have some.
    pub(super) fn has_surplus(&self) -> bool {
        self.0.lock().surplus() > 0
    }

    /// Whether they are no more than pages that are being written, most of which leave then.
    pub(super) fn surplus_is_being_written(&self) -> bool {
        let state = self.0.lock();
        state.surplus() <= state.pages_written
    }

    /// The writes of pages that are under way.
    pub(super) fn writes(&self) -> Writes {
        let state = self.0.lock();
        let (any, may_begin) = (state.pages_written > 0, state.writes < MAX_WRITES);
        Writes { any, may_begin, ended: state.writes_ended }
    }

    /// Lets so many frames have memory. If these are more than before, those look again who wait for one.
    pub(super) fn set_limit(&self, limit: u32) {
        let waiters = {
            let mut state = self.0.lock();
            let before = state.limit();
            state.limit = limit;
            if state.limit() > before { std::mem::take(&mut state.waiters) } else { Vec::new() }
        };
        waiters.into_iter().for_each(RemoteWaiter::wake);
    }

    /// Raises the limit of frames that may have memory as far as `needed` ones take, when nothing else helps; returns whether
    /// there are so many frames.
    pub(super) fn raise_limit_for(&self, needed: usize) -> bool {
        let mut state = self.0.lock();
        let limit = state.with_memory() as usize + needed.saturating_sub(state.free.len());
        let there_are = limit <= state.frames as usize;
        if there_are {
            state.limit = state.limit.max(limit as u32);
        }
        there_are
    }

    /// Frames that were taken once; the others never held a page.
    pub(super) fn frames_taken(&self) -> u64 {
        self.0.lock().next.into()
    }

    /// Frames whose memory was given back.
    pub(super) fn parked(&self) -> u64 {
        self.0.lock().parked.len() as u64
    }

    /// Frames that have memory, and how many may have some.
    pub(super) fn with_memory(&self) -> (u64, u64) {
        let state = self.0.lock();
        (state.with_memory().into(), state.limit().into())
    }

    /// How much has ended.
    pub(super) fn ended(&self) -> u64 {
        self.0.lock().ended
    }

    /// Waits until more has ended than `seen`, or `needed` frames are free; `false` if that is not so, and nothing is
    /// under way.
    ///
    /// None waits for ever: what is under way was counted when this looked, under the lock under which the waiter
    /// was left; and its end wakes all.
    pub(super) async fn wait_since(&self, seen: u64, needed: usize) -> bool {
        wait_remotely(Cause::Storage, |waiter| {
            let mut state = self.0.lock();
            let mended = state.ended != seen || state.has(needed);
            if mended || state.under_way == 0 {
                return Some(mended);
            }
            state.waiters.extend(waiter);
            None
        })
        .await
    }

    /// Waits until something is over that is under way, or `needed` frames are free.
    pub(super) async fn wait_for(&self, is_over: impl Fn() -> bool, needed: usize) {
        wait_remotely(Cause::Storage, |waiter| {
            let mut state = self.0.lock();
            if is_over() || state.has(needed) {
                return Some(());
            }
            state.waiters.extend(waiter);
            None
        })
        .await;
    }

    /// Whether so many frames are free.
    pub(super) fn has(&self, needed: usize) -> bool {
        self.0.lock().has(needed)
    }
}

impl State {
    /// How many frames may have memory.
    fn limit(&self) -> u32 {
        self.limit.max(MIN_FRAMES).min(self.frames)
    }

    fn with_memory(&self) -> u32 {
        self.live.len() as u32
    }

    /// How many more have memory than may have some.
    fn surplus(&self) -> u32 {
        self.with_memory().saturating_sub(self.limit())
    }

    /// Takes a frame that has no memory; there is one, for the limit is not beyond them.
    fn bring_to_life(&mut self) -> u32 {
        let number = self.parked.pop().unwrap_or_else(|| {
            self.next += 1;
            self.positions.push(0);
            self.next - 1
        });
        self.positions[number as usize] = self.live.len() as u32;
        self.live.push(number);
        number
    }

    /// Frames that have no memory, and may have some.
    fn room(&self) -> u32 {
        self.limit().saturating_sub(self.with_memory())
    }

    fn has(&self, needed: usize) -> bool {
        self.free.len() + self.room() as usize >= needed
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.end_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::common::{PART_SECONDS, with_limit};
    use std::collections::BTreeSet;

    use super::*;

    /// The frames that a hand comes by in one round.
    fn round(transit: &Transit) -> Vec<u32> {
        let (mut passed, mut hand) = (Vec::new(), 0);
        loop {
            let (end, some) = transit.live_before(hand);
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
            const FRAMES: u32 = 10 * SOME as u32;
            let transit = Transit::new(FRAMES);
            let mut taken: BTreeSet<u32> = (0..FRAMES).map(|_| transit.take().unwrap().0).collect();
            assert!(transit.take().is_none());
            let mut random = fastrand::Rng::with_seed(1);
            for _ in 0..10 {
                for number in 0..FRAMES {
                    if random.u32(..3) > 0 && taken.remove(&number) {
                        transit.park(number);
                    }
                }
                let passed = round(&transit);
                assert_eq!(passed.len(), taken.len(), "each once");
                assert_eq!(BTreeSet::from_iter(passed), taken);
                assert_eq!(transit.with_memory().0, taken.len() as u64);
                while random.u32(..100) > 0 {
                    taken.extend(transit.take().map(|(number, _)| number));
                }
            }
        });
    }

    #[test]
    fn a_hand_that_parks_what_it_comes_by_passes_over_none() {
        with_limit(PART_SECONDS, |_| {
            let transit = Transit::new(1000);
            (0..1000).for_each(|_| drop(transit.take().unwrap()));
            let (mut passed, mut hand) = (0, 0);
            loop {
                let (end, some) = transit.live_before(hand);
                let Some(first) = some.first() else { break };
                passed += 1;
                if first % 3 > 0 {
                    transit.park(*first);
                }
                hand = end - 1;
                if hand == 0 {
                    break;
                }
            }
            assert_eq!(passed, 1000);
            assert!(round(&transit).iter().all(|number| number % 3 == 0));
        });
    }
}
