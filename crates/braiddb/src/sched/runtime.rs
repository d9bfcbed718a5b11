//! The async runtime of a transaction's caller, entered while its closure is polled: so timers, channels
//! and spawned tasks of tokio work inside transactions. Other runtimes need nothing of the kind.
//!
//! Entering a runtime takes a reference count that all its threads share, so a worker stays in the one
//! it entered last, until a task of another runtime is polled, or it sleeps or ends. Without the
//! feature `tokio`, and for callers outside of a runtime, nothing is done.

use std::pin::Pin;
use std::task::{Context, Poll};

/// The runtime that was current where a request was made, if one was.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerRuntime {
    #[cfg(all(feature = "tokio", not(loom)))]
    handle: Option<tokio::runtime::Handle>,
}

impl CallerRuntime {
    /// The runtime that is current on this thread.
    pub(crate) fn current() -> Self {
        Self {
            #[cfg(all(feature = "tokio", not(loom)))]
            handle: tokio::runtime::Handle::try_current().ok(),
        }
    }

    /// The same future, polled within the runtime; on a worker only.
    pub(crate) fn run<'r, F: Future>(&'r self, future: Pin<&'r mut F>) -> WithinRuntime<'r, F> {
        WithinRuntime { runtime: self, future }
    }

    #[inline(always)]
    fn enter(&self) {
        #[cfg(all(feature = "tokio", not(loom)))]
        if let Some(handle) = &self.handle {
            entered::enter(handle);
        }
    }
}

/// A user's future, polled within its caller's runtime.
#[derive(Debug)]
pub(crate) struct WithinRuntime<'r, F> {
    runtime: &'r CallerRuntime,
    future: Pin<&'r mut F>,
}

impl<F: Future> Future for WithinRuntime<'_, F> {
    type Output = F::Output;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.runtime.enter();
        self.future.as_mut().poll(context)
    }
}

/// Leaves the runtime that this worker is in: it is about to sleep, or to end.
pub(super) fn leave() {
    #[cfg(all(feature = "tokio", not(loom)))]
    entered::leave();
}

#[cfg(all(feature = "tokio", not(loom)))]
mod entered {
    use std::cell::RefCell;

    use tokio::runtime::{EnterGuard, Handle};

    use super::super::panics::drop_contained;

    /// The runtime a worker is in. Fields are dropped in order.
    struct EnteredRuntime {
        /// Borrows `handle`.
        guard: EnterGuard<'static>,
        handle: Box<Handle>,
    }

    thread_local! {
        static ENTERED: RefCell<Option<EnteredRuntime>> = const { RefCell::new(None) };
    }

    /// Makes `handle`'s runtime the current one of this thread.
    #[inline]
    pub(super) fn enter(handle: &Handle) {
        let is_current = ENTERED.with_borrow(|entered| {
            entered.as_ref().is_some_and(|entered| entered.handle.id() == handle.id())
        });
        if !is_current {
            change(handle);
        }
    }

    #[cold]
    fn change(handle: &Handle) {
        leave();
        let handle = Box::new(handle.clone());
        // SAFETY: the handle is boxed, so it stays where it is, and dropped after its guard.
        let guard =
            unsafe { std::mem::transmute::<EnterGuard<'_>, EnterGuard<'static>>(handle.enter()) };
        ENTERED.set(Some(EnteredRuntime { guard, handle }));
    }

    pub(super) fn leave() {
        if let Some(EnteredRuntime { guard, handle }) = ENTERED.take() {
            // Panics if a user's future holds a guard of its own across a suspension, which tokio
            // forbids.
            drop_contained(guard);
            drop(handle);
        }
    }
}
