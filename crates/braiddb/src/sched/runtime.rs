//! The async runtime of a transaction's caller, entered while its closure is polled. Timers,
//! channels and spawned tasks of tokio therefore work inside transactions. Other runtimes do not
//! need this.
//!
//! Entering a runtime takes a reference count shared by all its threads. A worker therefore stays
//! in the runtime it entered last, until it polls a task of another runtime, sleeps or ends.
//! Without the feature `tokio`, and for callers outside a runtime, this module does nothing.

/// The runtime that was current at the place of a request, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallerRuntime {
    #[cfg(all(feature = "tokio", not(loom)))]
    handle: Option<tokio::runtime::Handle>,
}

impl CallerRuntime {
    /// The place of the engine's own transactions: no runtime.
    pub(crate) const NONE: Self = Self {
        #[cfg(all(feature = "tokio", not(loom)))]
        handle: None,
    };

    /// Returns the current runtime of this thread.
    pub(crate) fn current() -> Self {
        Self {
            #[cfg(all(feature = "tokio", not(loom)))]
            handle: tokio::runtime::Handle::try_current().ok(),
        }
    }

    /// Makes it the current runtime of this thread, which is a worker.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        #[cfg(all(feature = "tokio", not(loom)))]
        if let Some(handle) = &self.handle {
            entered::enter(handle);
        }
    }
}

/// Leaves the runtime that this worker is in, before it sleeps or ends.
pub(super) fn leave() {
    #[cfg(all(feature = "tokio", not(loom)))]
    entered::leave();
}

#[cfg(all(feature = "tokio", not(loom)))]
mod entered {
    use std::cell::RefCell;

    use tokio::runtime::{EnterGuard, Handle};

    use super::super::panics::drop_contained;

    /// The runtime that a worker is in. Fields are dropped in order.
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
        // SAFETY: the handle is boxed, so its address is stable, and dropped after its guard.
        let guard =
            unsafe { std::mem::transmute::<EnterGuard<'_>, EnterGuard<'static>>(handle.enter()) };
        ENTERED.set(Some(EnteredRuntime { guard, handle }));
    }

    pub(super) fn leave() {
        if let Some(EnteredRuntime { guard, handle }) = ENTERED.take() {
            // Panics if a user's future holds a separate guard across a suspension, which tokio
            // forbids.
            drop_contained(guard);
            drop(handle);
        }
    }
}
