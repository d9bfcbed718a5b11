//! Waits of the trackers for other threads.

use crate::sync::{spin_loop, yield_thread};

/// Number of checks of a condition before the thread yields.
const MAX_SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// Waits until `happened` returns true. Another thread is about to make it true.
pub(super) fn wait_until(mut happened: impl FnMut() -> bool) {
    let mut spins = 0;
    while !happened() {
        if spins < MAX_SPINS {
            spins += 1;
            spin_loop();
        } else {
            yield_thread();
        }
    }
}
