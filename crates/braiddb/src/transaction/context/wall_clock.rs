//! The clock that decides when records expire.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sched::contain;
use crate::sync::clock;
use crate::sync::statistic::{AtomicU64, Ordering};

/// Clock that decides when records expire ([`Tuning::wall_clock`](crate::Tuning)). Default: the
/// system clock.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::{Duration, UNIX_EPOCH};
///
/// use braiddb::{Options, Tuning, WallClock};
///
/// // A clock that a test advances.
/// let seconds = Arc::new(AtomicU64::new(1_000_000_000));
/// let shown = seconds.clone();
/// let clock = WallClock::new(move || UNIX_EPOCH + Duration::from_secs(shown.load(Ordering::SeqCst)));
/// let options = Options::default().tuning(Tuning::default().wall_clock(clock));
/// seconds.fetch_add(60, Ordering::SeqCst);
/// println!("{options:?}");
/// ```
#[derive(Clone, Default)]
pub struct WallClock(Option<Arc<dyn Fn() -> SystemTime + Send + Sync>>);

impl WallClock {
    /// Creates a clock from a function that returns the time. Workers and reading threads call
    /// `now`, so it must be fast. If it panics, the time does not advance.
    pub fn new(now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(now)))
    }

    /// Milliseconds since 1970; 0 if the clock fails.
    fn milliseconds(&self) -> u64 {
        let Some(now) = &self.0 else { return clock::wall_milliseconds() };
        let shown = contain(|| now()).unwrap_or(UNIX_EPOCH);
        let since = shown.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl PartialEq for WallClock {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Eq for WallClock {}

impl std::fmt::Debug for WallClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "WallClock(the program's)"
        } else {
            "WallClock(the system's)"
        })
    }
}

/// A clock that never decreases.
#[derive(Debug, Default)]
pub(in crate::transaction) struct SteadyClock {
    clock: WallClock,
    /// The latest time returned.
    latest: AtomicU64,
}

impl SteadyClock {
    pub(in crate::transaction) fn new(clock: WallClock) -> Self {
        Self { clock, latest: AtomicU64::new(1) }
    }

    /// The time in milliseconds since 1970, at least 1. While the clock is behind a time it has
    /// shown, the time does not advance.
    pub(in crate::transaction) fn now(&self) -> u64 {
        let shown = self.clock.milliseconds();
        // Relaxed: a transaction that begins after another ended sees that one's time, through
        // whatever informed it of the end.
        let latest = self.latest.load(Ordering::Relaxed);
        if shown <= latest {
            return latest;
        }
        self.latest.fetch_max(shown, Ordering::Relaxed).max(shown)
    }
}
