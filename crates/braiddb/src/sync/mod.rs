//! Synchronization primitives: the single module for atomics, fences, locks, queues, channels,
//! threads and the clock.
//!
//! Every part of the engine imports them only from here (`tests/house.rs`), so that a build can
//! replace them:
//!
//! | build | implementation |
//! |---|---|
//! | ordinary | types of the standard library, `parking_lot`, `crossbeam` and `futures-channel`, re-exported |
//! | `--cfg loom` | loom's atomics and fences, for models; the rest as in the ordinary build |
//! | `--cfg braid_simulation` | wrapped types, with which a controlled schedule may switch threads at every access |
//!
//! Atomics that only count, and order nothing, are in [`statistic`], which is the same in every
//! build.

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
pub(crate) use std::hint::unreachable_unchecked;
pub(crate) use std::sync::Once;
use std::time::Duration;

/// Checks that a block was not freed, on a thread in a controlled schedule and in models.
///
/// # Panics
/// Panics if it was freed.
///
/// # Safety
/// `pointer` references the first word of a block that was allocated through `memory`.
#[inline(always)]
#[cfg_attr(all(braid_simulation, not(loom)), track_caller)]
pub(crate) unsafe fn assert_not_freed(pointer: *const u64) {
    #[cfg(any(braid_simulation, loom))]
    if takes_part() || cfg!(loom) {
        // SAFETY: the caller's contract; freed blocks stay mapped in a schedule and in a model.
        unsafe { quarantine::assert_not_freed(pointer) };
    }
    _ = pointer;
}

/// Returns whether this thread participates in a controlled schedule.
#[inline(always)]
pub(crate) fn takes_part() -> bool {
    #[cfg(all(braid_simulation, not(loom)))]
    return controlled::takes_part();
    #[cfg(any(not(braid_simulation), loom))]
    false
}

/// Processor time of this thread; zero in a controlled schedule.
pub(crate) fn thread_time() -> Duration {
    if takes_part() {
        return Duration::ZERO;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid target. The call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The number of this thread in its controlled schedule, if it participates in one.
#[inline(always)]
pub(crate) fn number_in_schedule() -> Option<usize> {
    #[cfg(all(braid_simulation, not(loom)))]
    return controlled::number_in_schedule();
    #[cfg(any(not(braid_simulation), loom))]
    None
}

/// Atomics for statistics and for choices without consequences: every access is `Relaxed`, and no
/// decision depends on their order.
pub(crate) mod statistic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
}
