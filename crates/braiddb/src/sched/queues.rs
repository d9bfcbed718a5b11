//! The slots of a worker, and the queues that contain them.
//!
//! Invariant: every slot is free, or in exactly one of: the hot queue, the staging area, waiting.
//! `cold`, `apart` and `foreign` count the waiting tasks by their cause (`apart`: the end of other
//! transactions, or a time). `long` counts the tasks that do not wait and have taken [`MIN_LONG_TASK_STEPS`]
//! or more since their last wait.
//!
//! A slot whose task has ended stays in the hot queue, although free, until the source's next task
//! takes it or it is released. Only the source's iterator runs in between.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;

use super::local::{MAX_STEPS_ALONE, WorkerLocal};
use super::mailbox::Mailbox;
use super::panics::contain_destructor;
use super::policy::QueueLoad;
use super::slot::{Task, TaskSlot, TaskState};
use super::suspend::prefetch;
use super::wait_cause::WaitCause;
use super::waiter::ResumedWaiter;

/// Number of staged tasks ahead of which a task's memory is prefetched. After its wait, the memory
/// is no longer in the near caches.
const PREFETCH_DISTANCE: usize = 3;
/// Prefetched bytes of a slot.
const PREFETCHED_BYTES: usize = 1024;
const CACHE_LINE_BYTES: usize = 64;
/// Steps after which a task counts as long, so that new jobs are started beyond the width.
const MIN_LONG_TASK_STEPS: u32 = MAX_STEPS_ALONE;

fn prefetch_slot<F>(slot: &TaskSlot<F>) {
    let start = std::ptr::from_ref(slot).cast::<u8>();
    for offset in (0..size_of::<TaskSlot<F>>().min(PREFETCHED_BYTES)).step_by(CACHE_LINE_BYTES) {
        prefetch(start.wrapping_add(offset));
    }
}

/// Slots and queues, for typed tasks of one type.
pub(super) struct Queues<F> {
    /// Boxed because tasks are pinned in them: they must not move when the vector grows.
    slots: Vec<Box<TaskSlot<F>>>,
    free: Vec<u32>,
    pub(super) hot: Vec<u32>,
    pub(super) staged: VecDeque<u32>,
    pub(super) cold: usize,
    pub(super) foreign: usize,
    apart: usize,
    long: usize,
    mailbox: Arc<Mailbox>,
}

impl<F: Future<Output = ()>> Queues<F> {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        let (slots, free, hot, staged) = Default::default();
        Self { slots, free, hot, staged, cold: 0, foreign: 0, apart: 0, long: 0, mailbox }
    }

    /// Returns the same slots and queues for typed tasks of another type.
    pub(super) fn convert<G: Future<Output = ()>>(self) -> Queues<G> {
        let slots = self.slots.into_iter().map(|slot| Box::new(slot.convert())).collect();
        let Self { free, hot, staged, cold, foreign, apart, long, mailbox, .. } = self;
        Queues { slots, free, hot, staged, cold, foreign, apart, long, mailbox }
    }

    /// Returns the number of tasks that have not ended.
    pub(super) fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the number of open tasks that use the engine or wait for events of the engine. The
    /// other tasks may in turn wait for a task that has yet to start.
    pub(super) fn running(&self) -> usize {
        self.open() - self.foreign - self.apart
    }

    /// Returns whether the hot queue has reached its width, without tasks that a policy would let
    /// in nevertheless or put in their place.
    pub(super) fn is_full(&self, width: usize) -> bool {
        self.hot.len() >= width && self.staged.is_empty() && self.long == 0
    }

    pub(super) fn load(&self) -> QueueLoad {
        let (hot, cold, staged) = (self.hot.len(), self.cold, self.staged.len());
        QueueLoad { hot, cold, staged, long: self.long }
    }

    /// Puts a task into a slot, which the caller adds to the hot queue.
    #[inline(always)]
    pub(super) fn fill(&mut self, make: impl FnOnce() -> Task<F>) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.slots.len() as u32;
            self.slots.push(Box::new(TaskSlot::new(&self.mailbox, index)));
            index
        });
        self.slots[index as usize].fill(make);
        index
    }

    /// Returns whether a slot contains a typed source's task.
    pub(super) fn is_typed(&self, index: u32) -> bool {
        self.slots[index as usize].is_typed()
    }

    #[inline(always)]
    pub(super) fn poll(&mut self, index: u32, local: &WorkerLocal) -> Poll<()> {
        let slot = &mut *self.slots[index as usize];
        local.begin_poll(index, &slot.waker);
        slot.poll(local)
    }

    /// Continues only the step at which a slot's task has paused; returns whether it has paused
    /// again.
    #[inline(always)]
    pub(super) fn continue_step(&mut self, index: u32) -> bool {
        self.slots[index as usize].continue_step()
    }

    /// Counts steps of the task at `position` of the hot queue.
    #[inline(always)]
    pub(super) fn count_steps(&mut self, position: usize, steps: u32) {
        let slot = &mut self.slots[self.hot[position] as usize];
        let before = slot.steps;
        slot.steps = before.saturating_add(steps);
        self.long += usize::from(before < MIN_LONG_TASK_STEPS && slot.steps >= MIN_LONG_TASK_STEPS);
    }

    fn forget_steps(&mut self, index: u32) {
        let steps = std::mem::take(&mut self.slots[index as usize].steps);
        self.long -= usize::from(steps >= MIN_LONG_TASK_STEPS);
    }

    /// Drops the task of a hot slot, which ended. The slot must then be refilled or released.
    #[inline(always)]
    pub(super) fn finish(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        self.long -= usize::from(slot.steps >= MIN_LONG_TASK_STEPS);
        slot.empty();
    }

    /// Puts a task into a hot slot whose task ended.
    #[inline(always)]
    pub(super) fn refill(&mut self, index: u32, make: impl FnOnce() -> Task<F>) {
        self.slots[index as usize].fill(make);
    }

    /// Removes the slot at `position` of the hot queue, whose task ended.
    pub(super) fn release(&mut self, position: usize) {
        self.free.push(self.hot.swap_remove(position));
    }

    /// Moves the task at `position` of the hot queue to the waiting ones. `cause` was set by its
    /// futures in its last poll; they may have been dropped in the same poll.
    pub(super) fn wait(&mut self, position: usize, cause: WaitCause, local: &WorkerLocal) {
        let index = self.hot.swap_remove(position);
        self.forget_steps(index);
        let has_waits = local.has_waits(index);
        let cause = match (has_waits, cause) {
            (false, _) => WaitCause::Foreign,
            // Only a part of the task was polled, which waits for nothing. Other parts wait, mostly
            // for transfers.
            (true, WaitCause::Foreign) => WaitCause::Storage,
            (true, cause) => cause,
        };
        let slot = &mut self.slots[index as usize];
        (slot.state, slot.waited_foreign) = (TaskState::Waiting(cause), !has_waits);
        slot.was_foreign_at_last_look &= !has_waits;
        *self.waiting(cause) += 1;
    }

    /// Called when a part of a task has been woken. If this was the task's last wait for the
    /// engine, it now waits for something foreign: user code decides whether the part's waker wakes
    /// the task.
    fn count_as_foreign(&mut self, index: u32, local: &WorkerLocal) {
        let slot = &mut self.slots[index as usize];
        if let TaskState::Waiting(cause) = slot.state
            && !local.has_waits(index)
        {
            (slot.state, slot.waited_foreign) = (TaskState::Waiting(WaitCause::Foreign), true);
            *self.waiting(cause) -= 1;
            self.foreign += 1;
        }
    }

    /// Handles the event that a task, or a part of one, waited for.
    pub(super) fn resume(&mut self, resumed: ResumedWaiter, local: &WorkerLocal) {
        match resumed {
            ResumedWaiter::Task(index) => self.stage(index),
            ResumedWaiter::Part(index) => self.count_as_foreign(index, local),
        }
    }

    /// Moves the task at `position` of the hot queue behind the staged ones.
    pub(super) fn move_behind_staged(&mut self, position: usize) {
        let index = self.hot.swap_remove(position);
        self.slots[index as usize].state = TaskState::Staged;
        self.staged.push_back(index);
    }

    fn waiting(&mut self, cause: WaitCause) -> &mut usize {
        match cause {
            WaitCause::Foreign => &mut self.foreign,
            WaitCause::GracePeriod | WaitCause::BackOff => &mut self.apart,
            _ => &mut self.cold,
        }
    }

    /// Stages a task that may continue, unless it was not waiting (a late or spurious wake-up).
    pub(super) fn stage(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if let TaskState::Waiting(cause) = slot.state {
            slot.state = TaskState::Staged;
            *self.waiting(cause) -= 1;
            self.staged.push_back(index);
        }
    }

    /// Moves the longest staged task to the hot queue.
    pub(super) fn unstage(&mut self) {
        let index = self.staged.pop_front().expect("the caller saw a staged task");
        self.slots[index as usize].state = TaskState::Hot;
        self.hot.push(index);
        if let Some(&soon) = self.staged.get(PREFETCH_DISTANCE) {
            prefetch_slot(&self.slots[soon as usize]);
        }
    }

    /// Drops every task that waits only for something foreign, did so at the previous call, and did
    /// not wait for the engine in between. Returns the number of dropped tasks of a typed source.
    /// Called between rounds only.
    ///
    /// One check is not enough: a user's executor on another thread may be about to poll a part of
    /// a task that has been woken.
    pub(super) fn drop_foreign(
        &mut self,
        local: &WorkerLocal,
        mut dropped: impl FnMut(u32),
    ) -> usize {
        let mut due = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let is_foreign = slot.is_at_rest() && !local.has_waits(index as u32);
            if std::mem::replace(&mut slot.was_foreign_at_last_look, is_foreign) && is_foreign {
                due.push(index as u32);
            }
        }
        if due.is_empty() {
            return 0;
        }
        let is_due = |index: &u32| due.binary_search(index).is_ok();
        self.hot.retain(|index| !is_due(index));
        self.staged.retain(|index| !is_due(index));
        let mut typed = 0;
        for index in due {
            let slot = &mut self.slots[index as usize];
            typed += usize::from(slot.is_typed());
            let state = slot.state;
            dropped(index);
            slot.empty();
            if let TaskState::Waiting(cause) = state {
                *self.waiting(cause) -= 1;
            }
            self.free.push(index);
        }
        typed
    }

    /// Drops all tasks after the engine has failed, which notifies their waiters. Calls `dropped`
    /// for each task before its drop.
    pub(super) fn drop_all(&mut self, mut dropped: impl FnMut(u32)) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if !slot.is_free() {
                dropped(index as u32);
            }
            contain_destructor(|| slot.empty());
        }
    }
}
