//! The one door to atomics, fences, locks and threads, so that loom can take their place in models.
//!
//! Build with `RUSTFLAGS="--cfg loom"` to model-check; every concurrent structure imports its
//! primitives from here and from nowhere else.

#[cfg(not(loom))]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}
#[cfg(not(loom))]
pub(crate) use std::hint::spin_loop;
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now as yield_thread;

#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;
#[cfg(loom)]
pub(crate) use loom::thread::yield_now as yield_thread;
#[cfg(loom)]
pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}
