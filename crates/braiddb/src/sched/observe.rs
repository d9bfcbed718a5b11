//! Observers of task polls.
//!
//! They cost nothing without an observer: a worker checks one flag before and after each poll,
//! which also covers tracing.
//!
//! Invariant: a slot's observer is registered from the call of `observe` until the task drops the
//! returned guard, which it owns.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use super::local::local;

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
    /// Sets whether the worker traces its polls.
    pub(super) fn set_traced(&self, is_traced: bool) {
        self.is_traced.set(is_traced);
        self.any.set(is_traced);
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

    fn set(&self, slot: u32, observer: Option<Rc<dyn Observer>>) -> Option<Rc<dyn Observer>> {
        let (mut by_slot, slot) = (self.by_slot.borrow_mut(), slot as usize);
        if by_slot.len() <= slot {
            by_slot.resize(slot + 1, None);
        }
        let before = std::mem::replace(&mut by_slot[slot], observer);
        self.any.set(self.is_traced.get() || by_slot.iter().any(Option::is_some));
        before
    }
}

/// An observed task, while it owns this guard.
#[derive(Debug)]
pub(crate) struct Observed {
    slot: u32,
    /// Not sent to other threads.
    local: PhantomData<*const ()>,
}

/// Registers `observer` for all polls of the task that is being polled, including the current one.
/// On a worker only.
#[cold]
pub(crate) fn observe(observer: Rc<dyn Observer>) -> Observed {
    let slot = local(|local| {
        let local = local.expect("tasks are polled by workers");
        let slot = local.current_slot().index;
        let before = local.observers.set(slot, Some(observer.clone()));
        assert!(before.is_none(), "a task is observed once");
        slot
    });
    observer.before_poll();
    Observed { slot, local: PhantomData }
}

impl Drop for Observed {
    fn drop(&mut self) {
        let observer = local(|local| local.and_then(|local| local.observers.set(self.slot, None)));
        drop(observer);
    }
}
