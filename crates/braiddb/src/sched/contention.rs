//! Bound on the hot width under contention: additive increase, multiplicative decrease.
//!
//! Interleaved tasks on a worker hide each other's cache misses. Tasks that write the same records,
//! however, make each other's attempts fail, and the work of a failed attempt is lost. The tuner
//! would detect this from throughput alone, but only within seconds; this bound decreases within a
//! few dozen attempts. Invariants:
//!
//! - The bound is at least 1, so a task that can run at width 1 always runs.
//! - It depends only on counts of attempts, not on time, so a simulation is deterministic.
//! - While few attempts fail, it rises to [`MAX_BOUND`] and stays there, which means no bound.

/// Number of attempts, including failed ones, between two evaluations of the bound.
const WINDOW_ATTEMPTS: u64 = 64;
/// The bound decreases if more than one attempt in this many failed.
const MIN_FAILURES_TO_NARROW: u64 = 8;
/// The bound may increase if at most one attempt in this many failed.
const MAX_FAILURES_TO_WIDEN: u64 = 16;
/// The value that means no bound.
pub(super) const MAX_BOUND: usize = 64;
/// Maximum number of calm windows before the bound increases by one to a width at which too many
/// attempts had failed. The number doubles after each such increase that failed, and halves after
/// each other one.
const MAX_PAUSE: u32 = 256;

/// Bounds the width of one worker.
#[derive(Debug)]
pub(super) struct Contention {
    bound: usize,
    finished: u64,
    failed: u64,
    /// Windows with few failures since the last change of the bound.
    calm: u32,
    rest: u32,
    /// The last width at which too many attempts failed.
    too_wide: usize,
    /// True if the last change was an increase to that width or beyond.
    tried: bool,
}

impl Contention {
    pub(super) fn new() -> Self {
        let (bound, too_wide) = (MAX_BOUND, MAX_BOUND);
        Self { bound, finished: 0, failed: 0, calm: 0, rest: 1, too_wide, tried: false }
    }

    /// Returns the maximum width to use now.
    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// Counts finished tasks, and failed attempts that are retried; `width` is the width that was
    /// used.
    #[inline]
    pub(super) fn count(&mut self, finished: u64, failed: u64, width: usize) {
        self.finished += finished;
        self.failed += failed;
        if self.finished + self.failed >= WINDOW_ATTEMPTS {
            self.decide(width);
        }
    }

    fn decide(&mut self, width: usize) {
        let attempts = self.finished + self.failed;
        if self.failed * MIN_FAILURES_TO_NARROW > attempts {
            if self.tried {
                self.rest = (self.rest * 2).min(MAX_PAUSE);
            }
            (self.bound, self.too_wide) = ((width / 2).max(1), width);
            (self.calm, self.tried) = (0, false);
        } else if self.failed * MAX_FAILURES_TO_WIDEN <= attempts && self.bound < MAX_BOUND {
            self.calm += 1;
            let tries = self.bound + 1 >= self.too_wide;
            if self.calm >= if tries { self.rest } else { 1 } {
                if self.tried {
                    self.rest = (self.rest / 2).max(1);
                }
                self.bound += 1;
                (self.calm, self.tried) = (0, tries);
            }
        }
        (self.finished, self.failed) = (0, 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Runs `turns` turns. `failing` returns how many of 64 attempts fail at a width. Returns the
    /// sum of the widths that were used.
    fn pass(
        contention: &mut Contention,
        turns: u64,
        wanted: usize,
        failing: impl Fn(usize) -> u64,
    ) -> u64 {
        let mut widths = 0;
        for _ in 0..turns {
            let width = contention.bound().min(wanted);
            let failed = failing(width);
            contention.count(64 - failed, failed, width);
            widths += width as u64;
        }
        widths
    }

    /// If all tasks write one record, one of them succeeds at a time.
    fn one_record(width: usize) -> u64 {
        64 - 64 / width as u64
    }

    #[test]
    fn it_comes_down_at_once_where_attempts_fail_and_seldom_tries_again() {
        let mut contention = Contention::new();
        pass(&mut contention, 4, 24, one_record);
        assert_eq!(contention.bound(), 1);
        let turns = 10_000;
        let widths = pass(&mut contention, turns, 24, one_record);
        assert!(widths > turns, "it does try again");
        assert!(widths - turns < turns / 50, "{} of {turns} turns were wide", widths - turns);
    }

    #[test]
    fn it_settles_where_few_attempts_fail() {
        let mut contention = Contention::new();
        let failing = |width| if width > 6 { 20 } else { 2 };
        pass(&mut contention, 2_000, 24, failing);
        let (turns, mut wide) = (4_000, 0);
        for _ in 0..turns {
            wide += u64::from(contention.bound() > 6);
            pass(&mut contention, 1, 24, failing);
        }
        assert!(wide < turns / 10, "{wide} of {turns} turns were too wide");
        assert!((3..=7).contains(&contention.bound()), "{}", contention.bound());
    }

    #[test]
    fn it_vanishes_once_contention_is_over() {
        let mut contention = Contention::new();
        pass(&mut contention, 10_000, 24, one_record);
        pass(&mut contention, 3 * u64::from(MAX_PAUSE), 24, |_| 0);
        assert_eq!(contention.bound(), MAX_BOUND);
    }

    #[test]
    fn a_few_failures_are_no_contention() {
        let mut contention = Contention::new();
        pass(&mut contention, 10_000, 24, |_| 64 / MIN_FAILURES_TO_NARROW);
        assert_eq!(contention.bound(), MAX_BOUND);
        // Turns without attempts have no effect.
        contention.count(0, 0, 24);
        assert_eq!(contention.bound(), MAX_BOUND);
    }
}
