//! The one door to atomics, fences, locks, queues, channels, threads and the clock.
//!
//! Every part of the engine takes them from here and from nowhere else (`tests/house.rs`), so that
//! something else can take their place:
//!
//! | build | what is behind the door |
//! |---|---|
//! | ordinary | the standard library's, `parking_lot`'s and `crossbeam`'s, re-exported |
//! | `--cfg loom` | loom's atomics and fences, for models; the rest as in the ordinary build |
//!
//! What only counts, and orders nothing, is in [`statistic`], which is the same in every build.

#[cfg(loom)]
mod modelled;
mod plain;

#[cfg(loom)]
pub(crate) use modelled::{RawLock, atomic, spin_loop, yield_thread};
pub(crate) use plain::*;

/// Atomics for statistics and for choices that do not matter: every access is `Relaxed`, and nothing
/// is concluded from their order.
pub(crate) mod statistic {
    pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
}
