//! Ordinary build: re-exports the original types.

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

/// Threads. `park` may return early, as the standard library's does.
pub(crate) mod thread {
    pub(crate) use std::thread::{
        Builder, JoinHandle, Thread, available_parallelism, current, panicking, park, scope,
    };
    use std::thread::{Scope, ScopedJoinHandle};

    /// Starts a thread in a scope.
    ///
    /// # Errors
    /// Those of the operating system, if no more threads are allowed.
    pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
        scope: &'scope Scope<'scope, '_>,
        run: impl FnOnce() -> T + Send + 'scope,
    ) -> std::io::Result<ScopedJoinHandle<'scope, T>> {
        Builder::new().spawn_scoped(scope, run)
    }
}

/// The clock.
pub(crate) mod clock {
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    /// The current time.
    #[inline(always)]
    pub(crate) fn now() -> Instant {
        Instant::now()
    }

    /// Milliseconds since 1970 by the system clock, which may be set back; 0 before 1970.
    pub(crate) fn wall_milliseconds() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Channels between threads.
pub(crate) mod channel {
    pub(crate) use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
}

pub(crate) use crossbeam_queue::SegQueue;
pub(crate) use futures_channel::{mpsc as async_queue, oneshot};
#[cfg(test)]
pub(crate) use parking_lot::Condvar;
pub(crate) use parking_lot::{Mutex, RwLock};
pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::OnceLock;
pub(crate) use std::thread::yield_now as yield_thread;

/// A mutex whose orders models explore.
#[cfg(not(loom))]
pub(crate) use parking_lot::Mutex as ModelMutex;

#[cfg(any(all(test, not(loom)), feature = "experiment"))]
pub(crate) use raw_lock::RawLock;

/// Lock for the hole trackers that use locks.
#[cfg(any(all(test, not(loom)), feature = "experiment"))]
mod raw_lock {
    /// Mutex that is acquired in one call and released in another.
    pub(crate) struct RawLock(parking_lot::RawMutex);

    impl RawLock {
        pub(crate) const fn new() -> Self {
            Self(<parking_lot::RawMutex as parking_lot::lock_api::RawMutex>::INIT)
        }

        /// Acquires the lock.
        pub(crate) fn acquire(&self) {
            parking_lot::lock_api::RawMutex::lock(&self.0);
        }

        /// Releases the lock.
        ///
        /// # Safety
        /// The calling thread has acquired it.
        pub(crate) unsafe fn release(&self) {
            // SAFETY: the caller's contract.
            unsafe { parking_lot::lock_api::RawMutex::unlock(&self.0) };
        }
    }

    impl std::fmt::Debug for RawLock {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("RawLock")
        }
    }
}
