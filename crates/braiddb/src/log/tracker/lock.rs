//! The locks and waits of the trackers that have some.

use crate::sync::{spin_loop, yield_thread};

/// How often a condition is looked at before the thread gives way.
const SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// Waits until `happened`, which another thread is about to bring about.
pub(super) fn wait_until(mut happened: impl FnMut() -> bool) {
    let mut spins = 0;
    while !happened() {
        if spins < SPINS {
            spins += 1;
            spin_loop();
        } else {
            yield_thread();
        }
    }
}

/// A mutual exclusion that is taken in one call and left in another.
#[cfg(not(loom))]
pub(super) struct Lock(parking_lot::RawMutex);

#[cfg(not(loom))]
impl Lock {
    pub(super) fn new() -> Self {
        Self(<parking_lot::RawMutex as parking_lot::lock_api::RawMutex>::INIT)
    }

    pub(super) fn acquire(&self) {
        parking_lot::lock_api::RawMutex::lock(&self.0);
    }

    /// # Safety
    /// The calling thread has it acquired.
    pub(super) unsafe fn release(&self) {
        // SAFETY: the caller's promise.
        unsafe { parking_lot::lock_api::RawMutex::unlock(&self.0) };
    }
}

/// The same for models, which must see its order.
#[cfg(loom)]
pub(super) struct Lock {
    held: loom::sync::Mutex<bool>,
    left: loom::sync::Condvar,
}

#[cfg(loom)]
impl Lock {
    pub(super) fn new() -> Self {
        Self { held: loom::sync::Mutex::new(false), left: loom::sync::Condvar::new() }
    }

    pub(super) fn acquire(&self) {
        let mut held = self.held.lock().unwrap();
        while *held {
            held = self.left.wait(held).unwrap();
        }
        *held = true;
    }

    /// # Safety
    /// As for the other.
    pub(super) unsafe fn release(&self) {
        *self.held.lock().unwrap() = false;
        self.left.notify_one();
    }
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Lock")
    }
}
