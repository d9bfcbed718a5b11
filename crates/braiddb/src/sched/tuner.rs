//! Self-tuning of the hot width: hill climbing on measured throughput.
//!
//! In a steady state the width rests. From time to time a probe compares it with a neighbour, or
//! with no interleaving. It measures the chosen width, the other, and the chosen one again, each
//! for a window. So a drift of the machine's speed is not mistaken for a difference of widths.
//! The probe repeats this until one of them has been better often enough. A better width is adopted
//! immediately and probed from again. While no better width is found, probes become rarer.

use std::time::{Duration, Instant};

/// Widths that are tried.
const WIDTHS: [usize; 12] = [1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48];
const INITIAL_WIDTH_INDEX: usize = 6;
/// A probe ends once a width's balance of better and worse windows reaches one of these bounds. A
/// single window is not significant if the durations of tasks differ widely.
const MIN_WINS: i32 = 3;
const MAX_LOSSES: i32 = -2;
/// The minimum length of a window, and the minimum number of tasks that finish in it.
const WINDOW: Duration = Duration::from_millis(2);
const WINDOW_TASKS: u64 = 128;
/// Number of tasks that finish between a change of the width and the next window. After a
/// reduction, the tasks in flight end without replacement. A window that counted them would favour
/// the smaller width, and the next window would lack them.
const SETTLING_TASKS: u64 = 64;
/// Minimum gain in throughput for a greater width. A smaller width needs only a higher throughput:
/// of equal widths, it has the shorter latency.
const MIN_GAIN: f64 = 1.02;
/// Windows between probes: at first, and at most.
const MIN_PAUSE_WINDOWS: u32 = 4;
const MAX_PAUSE_WINDOWS: u32 = 128;
/// A change of throughput by this factor while the width rests indicates another workload and
/// starts a new probe.
const SHIFT_FACTOR: f64 = 1.3;

/// The subject of the current window.
#[derive(Clone, Copy, Debug, PartialEq)]
enum TunerPhase {
    /// Rest at the chosen width; this many windows remain.
    Rest(u32),
    /// First part of a probe: the chosen width.
    Before,
    /// Middle part of a probe: the width at this index of [`WIDTHS`].
    Probe { place: usize, before: f64, score: i32 },
    /// Last part of a probe: the chosen width again.
    After { place: usize, before: f64, probe: f64, score: i32 },
}

/// Finds the best hot width of one worker while it runs.
#[derive(Debug)]
pub(super) struct Tuner {
    chosen: usize,
    phase: TunerPhase,
    rest: u32,
    /// Throughput of the last window at the chosen width.
    resting_rate: f64,
    /// The candidate that the next probe tries.
    next: usize,
    window_start: Instant,
    window_tasks: u64,
    starved: bool,
    /// Remaining tasks of [`SETTLING_TASKS`].
    settling: u64,
}

impl Tuner {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            chosen: INITIAL_WIDTH_INDEX,
            phase: TunerPhase::Before,
            rest: MIN_PAUSE_WINDOWS,
            resting_rate: 0.0,
            next: 0,
            window_start: now,
            window_tasks: 0,
            starved: false,
            settling: 0,
        }
    }

    /// Returns the width to use now.
    pub(super) fn width(&self) -> usize {
        match self.phase {
            TunerPhase::Probe { place, .. } => WIDTHS[place],
            TunerPhase::Rest(_) | TunerPhase::Before | TunerPhase::After { .. } => {
                WIDTHS[self.chosen]
            }
        }
    }

    /// Discards the window: fewer tasks than the width were available, so its measurement is
    /// meaningless.
    pub(super) fn discard_window(&mut self) {
        self.starved = true;
    }

    /// Counts finished tasks, and decides at the end of a window.
    pub(super) fn advance(&mut self, finished: u64, now: Instant) {
        if self.settling > 0 {
            self.settling = self.settling.saturating_sub(finished);
            (self.window_start, self.starved) = (now, false);
            return;
        }
        self.window_tasks += finished;
        let elapsed = now.duration_since(self.window_start);
        if elapsed < WINDOW || self.window_tasks < WINDOW_TASKS {
            return;
        }
        let rate = self.window_tasks as f64 / elapsed.as_secs_f64();
        if !self.starved {
            let width = self.width();
            self.decide(rate);
            if self.width() != width {
                self.settling = SETTLING_TASKS;
            }
        }
        (self.window_start, self.window_tasks, self.starved) = (now, 0, false);
    }

    fn decide(&mut self, rate: f64) {
        self.phase = match self.phase {
            TunerPhase::Rest(_) if self.has_shifted(rate) => {
                (self.rest, self.resting_rate, self.next) = (MIN_PAUSE_WINDOWS, rate, 0);
                TunerPhase::Before
            }
            TunerPhase::Rest(0) => TunerPhase::Before,
            TunerPhase::Rest(left) => TunerPhase::Rest(left - 1),
            TunerPhase::Before => {
                TunerPhase::Probe { place: self.candidate(), before: rate, score: 0 }
            }
            TunerPhase::Probe { place, before, score } => {
                TunerPhase::After { place, before, probe: rate, score }
            }
            TunerPhase::After { place, before, probe, score } => {
                let needed = if place > self.chosen { MIN_GAIN } else { 1.0 };
                let better = probe > needed * (before + rate) / 2.0;
                match score + if better { 1 } else { -1 } {
                    MIN_WINS.. => {
                        self.chosen = place;
                        self.rest = MIN_PAUSE_WINDOWS;
                        TunerPhase::Before
                    }
                    ..=MAX_LOSSES => {
                        self.resting_rate = rate;
                        self.next += 1;
                        self.rest = (self.rest * 2).min(MAX_PAUSE_WINDOWS);
                        TunerPhase::Rest(self.rest)
                    }
                    score => TunerPhase::Probe { place, before: rate, score },
                }
            }
        };
    }

    fn has_shifted(&self, rate: f64) -> bool {
        rate > self.resting_rate * SHIFT_FACTOR || rate * SHIFT_FACTOR < self.resting_rate
    }

    /// Returns a neighbour of the chosen width, or a distant one: if 1 is the best width, the slope
    /// between 2 and 12 may be too flat for hill climbing.
    fn candidate(&mut self) -> usize {
        let last = WIDTHS.len() - 1;
        let far = if self.chosen == 0 { INITIAL_WIDTH_INDEX } else { 0 };
        let candidates = [self.chosen + 1, far, self.chosen.saturating_sub(1), self.chosen + 2];
        loop {
            let place = candidates[self.next % candidates.len()].min(last);
            if place != self.chosen {
                return place;
            }
            self.next += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::clock;

    /// Runs the tuner on a simulated machine whose tasks take `cost` nanoseconds at a width.
    fn settle(cost: impl Fn(usize) -> f64) -> usize {
        let mut now = clock::now();
        let mut tuner = Tuner::new(now);
        let mut time_at = std::collections::BTreeMap::<usize, u64>::new();
        for step in 0..200_000 {
            let nanoseconds = (cost(tuner.width()) * 64.0) as u64;
            now += Duration::from_nanos(nanoseconds);
            if step > 50_000 {
                *time_at.entry(tuner.width()).or_default() += nanoseconds;
            }
            tuner.advance(64, now);
        }
        *time_at.iter().max_by_key(|(_, time)| **time).unwrap().0
    }

    #[test]
    fn cached_work_is_not_interleaved() {
        assert_eq!(settle(|width| if width == 1 { 700.0 } else { 900.0 + width as f64 }), 1);
    }

    #[test]
    fn memory_bound_work_is_interleaved_widely() {
        // Latency is hidden up to 24 tasks in flight, then the caches overflow.
        let cost = |width: usize| 14_000.0 / width.min(24) as f64 + 20.0 * width.max(24) as f64;
        assert!((20..=32).contains(&settle(cost)));
    }

    #[test]
    fn of_equal_widths_a_small_one_is_kept_whatever_single_windows_say() {
        let random = std::cell::RefCell::new(fastrand::Rng::with_seed(5));
        let cost = |width: usize| {
            let noise = 0.9 + 0.2 * random.borrow_mut().f64();
            14_000.0 / width.min(8) as f64 * noise
        };
        assert!((6..=16).contains(&settle(cost)));
    }

    #[test]
    fn a_change_of_work_is_noticed() {
        let mut now = clock::now();
        let mut tuner = Tuner::new(now);
        let mut run = |tuner: &mut Tuner, cost: fn(usize) -> f64, milliseconds: u64| {
            let end = now + Duration::from_millis(milliseconds);
            while now < end {
                now += Duration::from_nanos((cost(tuner.width()) * 64.0) as u64);
                tuner.advance(64, now);
            }
        };
        run(&mut tuner, |width| if width == 1 { 500.0 } else { 700.0 }, 5_000);
        assert_eq!(tuner.chosen, 0);
        run(&mut tuner, |width| 14_000.0 / width.min(24) as f64, 300);
        assert!(WIDTHS[tuner.chosen] >= 20);
    }

    #[test]
    fn tasks_in_flight_when_the_width_changes_speak_for_no_width() {
        let mut now = clock::now();
        let mut tuner = Tuner::new(now);
        let (best, mut width) = (tuner.width(), tuner.width());
        for _ in 0..50_000 {
            // One percent more than a smaller width, in windows of about 300 tasks.
            now += Duration::from_nanos(if tuner.width() == best { 198_000 } else { 200_000 });
            // After a reduction, the excess tasks end first; after an increase, the missing ones
            // start first.
            let finished = 30 + width - tuner.width().min(width + 30);
            width = tuner.width();
            tuner.advance(finished as u64, now);
            assert_eq!(WIDTHS[tuner.chosen], best);
        }
    }

    #[test]
    fn starved_windows_decide_nothing() {
        let mut now = clock::now();
        let mut tuner = Tuner::new(now);
        let width = tuner.width();
        for _ in 0..10_000 {
            now += Duration::from_millis(1);
            tuner.discard_window();
            tuner.advance(100, now);
            assert_eq!(tuner.width(), width);
        }
    }
}
