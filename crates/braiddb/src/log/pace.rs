//! Pace of the log: a pause after each extension for changes.
//!
//! If writers log faster than checkpoints and compaction free segments, the log grows without
//! bound, most of all on a busy machine. So the engine sets a pause while that lasts. Commits that
//! need the next extension wait for it. Extensions for deletions, which free space, and for the
//! engine's own blocks neither wait nor prolong the pause.
//!
//! Invariant: a pause has a maximum length, and each worker that withholds an extension takes a turn
//! at the end of the pause. So no task waits forever.

use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, clock};

/// Bytes of log after which the whole pause is made; after fewer it is shorter. The usual size of a
/// segment.
const PACED_BYTES: u64 = 16 << 20;

/// The pause between extensions for changes.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pause_micros: AtomicU64,
    /// The time of the last extension for changes, and its bytes.
    last: Mutex<Option<(Instant, u64)>>,
}

impl Pace {
    /// Sets the pause after 16 MiB, which applies from the last extension on.
    #[inline]
    pub(super) fn set(&self, pause: Duration) {
        let micros = pause.as_micros() as u64;
        // Relaxed, both: a hint, which each worker sets in its turns.
        if self.pause_micros.load(Ordering::Relaxed) != micros {
            self.pause_micros.store(micros, Ordering::Relaxed);
        }
    }

    /// Notes that changes can use `bytes` more.
    pub(super) fn note_extension(&self, bytes: u64) {
        *self.last.lock() = Some((clock::now(), bytes));
    }

    /// Returns the end of the current pause, if it lies in the future.
    #[inline]
    pub(super) fn paused_until(&self) -> Option<Instant> {
        // Relaxed: see `set`.
        let micros = self.pause_micros.load(Ordering::Relaxed);
        if micros == 0 { None } else { self.end_of_pause(Duration::from_micros(micros)) }
    }

    #[cold]
    fn end_of_pause(&self, pause: Duration) -> Option<Instant> {
        let (at, bytes) = (*self.last.lock())?;
        let end = at + pause.mul_f64((bytes as f64 / PACED_BYTES as f64).min(1.0));
        (end > clock::now()).then_some(end)
    }
}
