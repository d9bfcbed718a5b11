//! How the trackers wait for one another.

use crate::sync::{spin_loop, yield_thread};

/// How often a condition is looked at before the thread gives way.
const MAX_SPINS: u32 = if cfg!(loom) { 0 } else { 100 };

/// Waits until `happened`, which another thread is about to bring about.
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
