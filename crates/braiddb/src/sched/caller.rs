//! The caller of the task that is being polled: a task whose caller has dropped its future must do
//! no further work, although no suspension lets it notice that.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::sync::oneshot;

/// A caller that waits for a task's result.
pub(crate) trait Caller {
    /// Returns whether the caller has dropped its future.
    fn is_gone(&self) -> bool;
}

impl<T> Caller for oneshot::Sender<T> {
    fn is_gone(&self) -> bool {
        self.is_canceled()
    }
}

/// The caller of the task that is being polled, if it has one.
#[derive(Debug, Default)]
pub(super) struct CurrentCaller(Cell<Option<NonNull<dyn Caller>>>);

/// Restores the previous caller.
pub(super) struct RestoredCaller<'c>(&'c CurrentCaller, Option<NonNull<dyn Caller>>);

impl Drop for RestoredCaller<'_> {
    fn drop(&mut self) {
        self.0.0.set(self.1);
    }
}

impl CurrentCaller {
    /// Makes `caller` the current one while the returned guard exists.
    pub(super) fn set(&self, caller: &(dyn Caller + 'static)) -> RestoredCaller<'_> {
        RestoredCaller(self, self.0.replace(Some(NonNull::from(caller))))
    }

    /// Returns whether it has dropped its future.
    #[inline(always)]
    pub(super) fn is_gone(&self) -> bool {
        // SAFETY: `poll_for`, which alone sets the pointer, restores it while the reference is valid.
        self.0.get().is_some_and(|caller| unsafe { caller.as_ref() }.is_gone())
    }
}
