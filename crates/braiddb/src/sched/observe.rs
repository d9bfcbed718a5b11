//! Who is told of each poll of a task, if somebody wants to be.
//!
//! Nobody else pays for it: a worker looks at one flag before and after each poll, which says as well whether it is traced.
//!
//! Invariant: a slot's observer is listed from when its task is observed until what that returned is dropped, which the task
//! owns.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use super::local::local;

/// Is told of the polls of a task.
pub(crate) trait Observer {
    /// The task is about to be polled.
    fn before_poll(&self);
    /// The task was polled, and is not over.
    fn after_poll(&self);
}

/// The observers of a worker's tasks.
#[derive(Default)]
pub(super) struct Observers {
    /// Whether polls are to be told of, or noted by the worker's tracer.
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
    /// Says whether the worker notes its polls itself.
    pub(super) fn set_traced(&self, is_traced: bool) {
        self.is_traced.set(is_traced);
        self.any.set(is_traced);
    }

    /// Whether something is to be done before and after polls.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.any.get()
    }

    /// That of a slot's task. Not called with the list borrowed: it is the program's code, and may do anything.
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

/// A task that is observed, as long as it owns this.
#[derive(Debug)]
pub(crate) struct Observed {
    slot: u32,
    /// Not sent to other threads.
    local: PhantomData<*const ()>,
}

/// Tells `observer` of all polls of the task that is being polled, this one among them. On a worker only.
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
