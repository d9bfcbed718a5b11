//! Free frames, and what brings about by itself that there are more, or that more pages may leave memory: loads,
//! writes, structure changes under way. Who needs a frame and finds neither a free one nor a page that may leave waits
//! for the end of any of them.

use crate::sched::{Cause, RemoteWaiter, wait_remotely};
use crate::sync::ModelMutex;

/// Writes of pages under way at a time, each of a run of places at most: a mebibyte of pages of 4 KiB.
const MOST_WRITES: usize = 16;

/// The free frames of a space, and what is under way.
#[derive(Debug)]
pub(super) struct Transit(ModelMutex<State>);

#[derive(Debug)]
struct State {
    /// Frames that held a page before.
    free: Vec<u32>,
    /// The least number of a frame that was never taken, of so many.
    next: u32,
    frames: u32,
    under_way: usize,
    /// Of which are writes of pages.
    writes: usize,
    /// How much has ended.
    ended: u64,
    waiters: Vec<RemoteWaiter>,
}

/// Something under way; those who wait are woken when it is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'t>(&'t Transit);

impl Transit {
    /// All of so many frames are free.
    pub(super) fn new(frames: u32) -> Self {
        let (free, waiters) = Default::default();
        let (next, under_way, writes, ended) = Default::default();
        Self(ModelMutex::new(State { free, next, frames, under_way, writes, ended, waiters }))
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
        let may = state.writes < MOST_WRITES;
        if may {
            state.writes += 1;
            state.under_way += 1;
        }
        may
    }

    pub(super) fn end_write(&self) {
        self.0.lock().writes -= 1;
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
            None if state.next < state.frames => {
                state.next += 1;
                state.next - 1
            }
            None => return None,
        };
        state.under_way += 1;
        Some((number, UnderWay(self)))
    }

    /// Gives a frame back that holds no page.
    pub(super) fn give_back(&self, number: u32) {
        self.0.lock().free.push(number);
    }

    /// Frames that were taken once; the others never held a page.
    pub(super) fn frames_taken(&self) -> u64 {
        self.0.lock().next.into()
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
    fn has(&self, needed: usize) -> bool {
        self.free.len() + (self.frames - self.next) as usize >= needed
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.end_one();
    }
}
