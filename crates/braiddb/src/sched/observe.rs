//! Registration of observers.
//!
//! Invariant: a slot's observer is registered from the call of `observe` until the task drops the
//! returned guard, which it owns.

use std::marker::PhantomData;
use std::rc::Rc;

use super::local::local;
use super::observers::Observer;

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
