//! Pace of the log: a pause between extensions for changes.
//!
//! If writers log faster than checkpoints and compaction free segments, the log grows without
//! bound, most of all on a busy machine. So the engine sets a pause while that lasts. Commits that
//! need the next extension wait for it, as they do on a slow disk. Deletions, which free space, and
//! the engine's own blocks do not wait. A pause ends by itself, so no task can wait forever.
//!
//! Invariant: after an extension was withheld, `next_attempt` returns a time until one was allowed.
//! So no worker sleeps longer than that while a commit waits for the extension.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, clock};

/// Minimum time until a withheld extension is tried again.
const MIN_DELAY: Duration = Duration::from_millis(1);

/// The pause between extensions for changes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pause_micros: AtomicU64,
    /// The time of the last extension.
    last: Mutex<Option<Instant>>,
    withheld: AtomicBool,
}

impl Pace {
    /// Sets the pause, which applies from the last extension on.
    #[inline]
    pub(super) fn set(&self, pause: Duration) {
        let micros = pause.as_micros() as u64;
        // Relaxed, both: a hint, which each worker sets in its turns.
        if self.pause_micros.load(Ordering::Relaxed) != micros {
            self.pause_micros.store(micros, Ordering::Relaxed);
        }
    }

    /// Notes an extension.
    pub(super) fn note_extension(&self) {
        *self.last.lock() = Some(clock::now());
    }

    /// Returns whether an extension for changes must wait, if one is due.
    pub(super) fn withholds(&self, is_due: bool) -> bool {
        let withheld = is_due && self.end_of_pause().is_some_and(|end| end > clock::now());
        // Relaxed, both: a worker that waits for the extension calls this in its turns, and then
        // reads what it or another worker has stored.
        if self.withheld.load(Ordering::Relaxed) != withheld {
            self.withheld.store(withheld, Ordering::Relaxed);
        }
        withheld
    }

    /// Returns when a withheld extension must be tried again.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        // Relaxed: see `allows_extension`.
        let withheld = self.withheld.load(Ordering::Relaxed);
        withheld.then(|| {
            let soon = clock::now() + MIN_DELAY;
            self.end_of_pause().map_or(soon, |end| end.max(soon))
        })
    }

    fn end_of_pause(&self) -> Option<Instant> {
        // Relaxed: see `set`.
        let micros = self.pause_micros.load(Ordering::Relaxed);
        if micros == 0 { None } else { Some((*self.last.lock())? + Duration::from_micros(micros)) }
    }
}
