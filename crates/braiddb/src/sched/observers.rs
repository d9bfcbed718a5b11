//! Observers of task polls.
//!
//! They cost nothing without an observer: a worker checks one flag before and after each poll,
//! which also covers tracing.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Receives the polls of a task.
pub(crate) trait Observer {
    /// Called before the task is polled.
    fn before_poll(&self);
    /// Called after the task was polled without ending.
    fn after_poll(&self);
}

/// The observers of a worker's tasks.
#[derive(Default)]
pub(super) struct Observers {
    /// True if polls have an observer, or the worker's tracer records them.
    any: Cell<bool>,
    is_traced: Cell<bool>,
    by_slot: RefCell<Vec<Option<Rc<dyn Observer>>>>,
}

impl std::fmt::Debug for Observers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Observers({})", self.any.get())
    }
}

impl Observers {
    /// The worker traces its polls from now on.
    pub(super) fn set_traced(&self) {
        self.is_traced.set(true);
        self.any.set(true);
    }

    /// Returns whether polls are observed or traced.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.any.get()
    }

    /// Returns the observer of a slot's task. The caller must not hold a borrow of the list during
    /// its call, because it is code of the program and may do anything.
    pub(super) fn of(&self, slot: u32) -> Option<Rc<dyn Observer>> {
        self.by_slot.borrow().get(slot as usize).cloned().flatten()
    }

    pub(super) fn set(
        &self,
        slot: u32,
        observer: Option<Rc<dyn Observer>>,
    ) -> Option<Rc<dyn Observer>> {
        let (mut by_slot, slot) = (self.by_slot.borrow_mut(), slot as usize);
        if by_slot.len() <= slot {
            by_slot.resize(slot + 1, None);
        }
        let before = std::mem::replace(&mut by_slot[slot], observer);
        self.any.set(self.is_traced.get() || by_slot.iter().any(Option::is_some));
        before
    }
}
