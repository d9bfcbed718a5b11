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

/// Restores the previous caller when it is dropped.
#[must_use = "the caller is current while this exists"]
pub(super) struct RestoredCaller<'c>(&'c CurrentCaller, Option<NonNull<dyn Caller>>);

impl Drop for RestoredCaller<'_> {
    fn drop(&mut self) {
        self.0.0.set(self.1);
    }
}

impl CurrentCaller {
    /// Makes `caller` the current one while the returned guard exists, which must not be leaked.
    pub(super) fn set<'c>(&'c self, caller: &'c (dyn Caller + 'static)) -> RestoredCaller<'c> {
        RestoredCaller(self, self.0.replace(Some(NonNull::from(caller))))
    }

    /// Returns whether it has dropped its future.
    #[inline(always)]
    pub(super) fn is_gone(&self) -> bool {
        // SAFETY: the guard of `set` borrows the caller, restores the pointer, and is not leaked.
        self.0.get().is_some_and(|caller| unsafe { caller.as_ref() }.is_gone())
    }
}
