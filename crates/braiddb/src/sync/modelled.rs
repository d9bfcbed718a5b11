//! Build for models: loom's atomics, fences and waiting, whose orders every model explores.

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::thread::yield_now as yield_thread;

/// A mutex whose orders models explore.
#[derive(Debug)]
pub(crate) struct ModelMutex<T>(loom::sync::Mutex<T>);

impl<T> ModelMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    pub(crate) fn try_lock(&self) -> Option<loom::sync::MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

impl<T: Default> Default for ModelMutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Mutex that is acquired in one call and released in another; models explore its orders.
pub(crate) struct RawLock {
    held: loom::sync::Mutex<bool>,
    left: loom::sync::Condvar,
}

impl RawLock {
    pub(crate) fn new() -> Self {
        Self { held: loom::sync::Mutex::new(false), left: loom::sync::Condvar::new() }
    }

    /// Acquires the lock.
    pub(crate) fn acquire(&self) {
        let mut held = self.held.lock().unwrap();
        while *held {
            held = self.left.wait(held).unwrap();
        }
        *held = true;
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The calling thread has acquired it.
    pub(crate) unsafe fn release(&self) {
        *self.held.lock().unwrap() = false;
        self.left.notify_one();
    }
}

impl std::fmt::Debug for RawLock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("RawLock")
    }
}
