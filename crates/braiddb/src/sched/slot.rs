//! Slots: the pinned memory of tasks, from their start to their end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::local::{PausedStep, WorkerLocal};
use super::mailbox::{Mailbox, SlotWaker};
use super::wait_cause::WaitCause;

/// A task that was sent as a closure.
pub(super) type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

/// The task type of a worker without a typed source.
pub(super) type NoTask = std::future::Pending<()>;

/// The contents of a slot.
pub(super) enum Task<F> {
    Empty,
    /// A typed source's future, in place.
    Typed(F),
    Boxed(BoxedTask),
}

/// The state of a slot's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskState {
    /// No task.
    Free,
    /// In the hot queue.
    Hot,
    /// Waiting to be resumed.
    Waiting(WaitCause),
    /// Resumed, and waiting for room in the hot queue.
    Staged,
}

/// Space for one task.
pub(super) struct TaskSlot<F> {
    task: Task<F>,
    pub(super) state: TaskState,
    pub(super) waker: Waker,
    /// The step at which its task has paused, if it may be continued alone.
    paused: Option<PausedStep>,
    /// Steps of its task since its start or its last cold wait.
    pub(super) steps: u32,
    /// True if no wait for the engine was counted at the start of its last wait.
    pub(super) waited_foreign: bool,
    /// True if it waited only for something foreign when a stopping worker last checked, and has
    /// not waited for the engine since.
    pub(super) was_foreign_at_last_look: bool,
}

impl<F: Future<Output = ()>> TaskSlot<F> {
    pub(super) fn new(mailbox: &Arc<Mailbox>, index: u32) -> Self {
        let waker = Waker::from(Arc::new(SlotWaker::new(mailbox.clone(), index)));
        Self {
            task: Task::Empty,
            state: TaskState::Free,
            waker,
            paused: None,
            steps: 0,
            waited_foreign: false,
            was_foreign_at_last_look: false,
        }
    }

    /// Returns whether its task waits, or has been woken from its last wait and done nothing since
    /// (a task may wake itself each time). If no wait for the engine is counted, it waits for
    /// something foreign.
    pub(super) fn is_at_rest(&self) -> bool {
        match self.state {
            TaskState::Free => false,
            TaskState::Waiting(_) => true,
            TaskState::Hot | TaskState::Staged => self.waited_foreign && self.steps == 0,
        }
    }

    /// Stores a task, which is created in place. The slot is boxed, and a task is dropped in place:
    /// both together pin it.
    #[inline(always)]
    pub(super) fn fill(&mut self, make: impl FnOnce() -> Task<F>) {
        assert!(matches!(self.task, Task::Empty), "a slot holds one task");
        assert_eq!(self.state, TaskState::Free);
        (self.state, self.steps) = (TaskState::Hot, 0);
        (self.waited_foreign, self.was_foreign_at_last_look) = (false, false);
        // SAFETY: in bounds and aligned, as a field of `self`; the current value, `Empty`, needs no
        // drop. An assignment would create the task elsewhere and copy it, in case its creation
        // panics.
        unsafe { std::ptr::from_mut(&mut self.task).write(make()) };
    }

    pub(super) fn is_free(&self) -> bool {
        self.state == TaskState::Free
    }

    pub(super) fn is_typed(&self) -> bool {
        matches!(self.task, Task::Typed(_))
    }

    /// Drops the task, ready or not.
    pub(super) fn empty(&mut self) {
        self.paused = None;
        self.task = Task::Empty;
        self.state = TaskState::Free;
    }

    /// Continues the step at which its task has paused, if any; returns whether it has paused again.
    #[inline(always)]
    pub(super) fn continue_step(&mut self) -> bool {
        // SAFETY: the task was not polled since, because a poll replaces the step.
        let pauses = self.paused.is_some_and(|step| unsafe { step.advance() });
        if !pauses {
            self.paused = None;
        }
        pauses
    }

    /// Polls the task once.
    #[inline(always)]
    pub(super) fn poll(&mut self, local: &WorkerLocal) -> Poll<()> {
        self.paused = None;
        let polled = self.poll_task();
        if polled.is_pending() {
            self.paused = local.step.take();
        }
        polled
    }

    #[inline(always)]
    fn poll_task(&mut self) -> Poll<()> {
        let mut cx = Context::from_waker(&self.waker);
        match &mut self.task {
            // SAFETY: the slot is in a box that is never moved out of while it contains a typed
            // task (`convert` asserts that), and `empty` drops the task in place.
            Task::Typed(future) => unsafe { Pin::new_unchecked(future) }.poll(&mut cx),
            Task::Boxed(future) => future.as_mut().poll(&mut cx),
            Task::Empty => unreachable!("only slots with a task are polled"),
        }
    }

    /// Returns the same slot for typed tasks of another type.
    pub(super) fn convert<G>(self) -> TaskSlot<G> {
        let task = match self.task {
            Task::Empty => Task::Empty,
            Task::Boxed(task) => Task::Boxed(task),
            Task::Typed(_) => panic!("a source's tasks are over before its slots are converted"),
        };
        let Self { state, waker, paused, steps, waited_foreign, was_foreign_at_last_look, .. } =
            self;
        TaskSlot { task, state, waker, paused, steps, waited_foreign, was_foreign_at_last_look }
    }
}
