//! The one door to atomics, fences, locks, queues, channels, threads and the clock.
//!
//! Every part of the engine takes them from here and from nowhere else (`tests/house.rs`), so that
//! something else can take their place:
//!
//! | build | what is behind the door |
//! |---|---|
//! | ordinary | the standard library's, `parking_lot`'s, `crossbeam`'s and `futures-channel`'s, re-exported |
//! | `--cfg loom` | loom's atomics and fences, for models; the rest as in the ordinary build |
//! | `--cfg braid_simulation` | the same wrapped, so that a controlled schedule may switch threads at every access |
//!
//! What only counts, and orders nothing, is in [`statistic`], which is the same in every build.

pub(crate) mod affinity;
#[cfg(all(braid_simulation, not(loom)))]
pub mod controlled;
#[cfg(loom)]
mod modelled;
#[cfg(any(not(braid_simulation), loom))]
mod plain;
#[cfg(any(braid_simulation, loom))]
pub(crate) mod quarantine;

#[cfg(all(braid_simulation, not(loom)))]
pub(crate) use controlled::Mutex as ModelMutex;
#[cfg(all(braid_simulation, not(loom)))]
pub(crate) use controlled::{
    Condvar, Mutex, OnceLock, RawLock, RwLock, SegQueue, async_queue, atomic, channel, clock,
    oneshot, spin_loop, thread, yield_thread,
};
#[cfg(loom)]
pub(crate) use modelled::{ModelMutex, RawLock, atomic, spin_loop, yield_thread};
#[cfg(any(not(braid_simulation), loom))]
pub(crate) use plain::*;
pub(crate) use std::sync::Once;

/// Looks, on a thread that takes part in a controlled schedule and in models, whether something was freed.
///
/// # Panics
/// If it was.
///
/// # Safety
/// `pointer` leads to the first word of something that was allocated through `memory`.
#[inline(always)]
#[cfg_attr(all(braid_simulation, not(loom)), track_caller)]
pub(crate) unsafe fn assert_not_freed(pointer: *const u64) {
    #[cfg(any(braid_simulation, loom))]
    if takes_part() || cfg!(loom) {
        // SAFETY: the caller's promise; what is freed stays mapped in a schedule and in a model.
        unsafe { quarantine::assert_not_freed(pointer) };
    }
    _ = pointer;
}

/// Whether this thread takes part in a controlled schedule.
#[inline(always)]
pub(crate) fn takes_part() -> bool {
    #[cfg(all(braid_simulation, not(loom)))]
    return controlled::takes_part();
    #[cfg(any(not(braid_simulation), loom))]
    false
}

/// The number of this thread among those of its controlled schedule, if it takes part in one.
#[inline(always)]
pub(crate) fn number_in_schedule() -> Option<usize> {
    #[cfg(all(braid_simulation, not(loom)))]
    return controlled::number_in_schedule();
    #[cfg(any(not(braid_simulation), loom))]
    None
}

/// Atomics for statistics and for choices that do not matter: every access is `Relaxed`, and nothing
/// is concluded from their order.
pub(crate) mod statistic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
}
