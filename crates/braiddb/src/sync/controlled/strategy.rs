//! Scheduling strategies: four ways to choose the next thread; the seed selects one.
//!
//! - *Random*: about every n-th switch point, another thread runs, chosen uniformly.
//! - *Priorities* (PCT, Burckhardt et al. 2010): the thread with the highest priority runs; at a
//!   few switch points the running one gets the lowest. It finds faults that need few switches at
//!   the right places.
//! - *Stalls*: at a few switch points the running thread is stopped for a long time, as if the
//!   operating system had preempted it there, and the others continue.
//! - *Places*: the same at few source lines, every other time that a thread passes there, and
//!   random in between. It finds faults that occur only between two instructions that few threads
//!   pass, while other threads are at similar places.

use fastrand::Rng;

/// A runnable thread.
pub(super) type Candidate = usize;

/// Typical number of steps in a schedule, over which switches are distributed.
const DEFAULT_STEPS: u64 = 40_000;
/// Maximum number of steps that one thread runs while others could, with every strategy: it may
/// spin until one of them continues.
const MAX_TURN: u64 = 3000;
/// Number of classes of source lines, of which one is chosen.
pub(super) const PLACES: u32 = 61;
/// Steps after which every schedule continues at random. Random is fair, so a schedule that does
/// not end soon after is stuck.
const FAIR_AFTER: u64 = 150_000;

#[derive(Debug)]
enum StrategyKind {
    Random { gap: u64 },
    Priorities { changes: Vec<u64>, priorities: Vec<u64>, lowest: u64 },
    Stalls { gap: u64, longest: u64, until: Vec<u64> },
    Places { residue: u32, gap: u64, longest: u64, until: Vec<u64> },
}

/// State of the strategy.
#[derive(Debug)]
pub(super) struct Strategy {
    random: Rng,
    kind: StrategyKind,
    next: u64,
    /// The step at which the running thread began.
    turn_began: u64,
}

impl Strategy {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x5ced);
        let kind = match random.u32(0..14) {
            0..4 => StrategyKind::Random { gap: 1 << random.u32(2..10) },
            4..7 => {
                let count = random.usize(1..8);
                let mut changes: Vec<_> =
                    (0..count).map(|_| random.u64(0..DEFAULT_STEPS)).collect();
                changes.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
                StrategyKind::Priorities { changes, priorities: Vec::new(), lowest: 1 << 32 }
            }
            10.. => StrategyKind::Places {
                residue: random.u32(0..PLACES),
                gap: 1 << random.u32(4..14),
                longest: 1 << random.u32(6..12),
                until: Vec::new(),
            },
            7..10 => StrategyKind::Stalls {
                gap: 1 << random.u32(5..12),
                longest: 1 << random.u32(6..14),
                until: Vec::new(),
            },
        };
        Self { random, kind, next: 0, turn_began: 0 }
    }

    /// Adds a thread.
    pub(super) fn add_thread(&mut self) {
        match &mut self.kind {
            StrategyKind::Random { .. } => {}
            StrategyKind::Priorities { priorities, .. } => {
                priorities.push(self.random.u64(1 << 33..1 << 62));
            }
            StrategyKind::Stalls { until, .. } | StrategyKind::Places { until, .. } => {
                until.push(0)
            }
        }
    }

    /// The step at which it decides next.
    pub(super) fn next(&self) -> u64 {
        self.next.min(self.turn_began + MAX_TURN + 1)
    }

    /// Number of steps after which it must be notified that a thread became runnable.
    pub(super) fn patience(&self) -> u64 {
        match self.kind {
            StrategyKind::Priorities { .. } => 1,
            StrategyKind::Random { .. }
            | StrategyKind::Stalls { .. }
            | StrategyKind::Places { .. } => u64::MAX / 2,
        }
    }

    /// The class of source lines, modulo [`PLACES`], whose switch points are all examined.
    pub(super) fn residue(&self) -> Option<u32> {
        match self.kind {
            StrategyKind::Places { residue, .. } => Some(residue),
            _ => None,
        }
    }

    fn gap(random: &mut Rng, gap: u64) -> u64 {
        1 + random.u64(0..2 * gap)
    }

    /// Chooses the thread after a switch point of `me`, which is runnable.
    pub(super) fn at_point(
        &mut self,
        me: usize,
        step: u64,
        chosen_place: bool,
        candidates: &[Candidate],
    ) -> usize {
        if step > FAIR_AFTER && !matches!(self.kind, StrategyKind::Random { .. }) {
            (self.kind, self.next) = (StrategyKind::Random { gap: 64 }, step);
        }
        if step > self.turn_began + MAX_TURN {
            self.turn_began = step;
            return self.at_yield(me, step, candidates);
        }
        let due = step >= self.next;
        match &mut self.kind {
            StrategyKind::Random { gap } => {
                if !due {
                    return me;
                }
                self.next = step + Self::gap(&mut self.random, *gap);
            }
            StrategyKind::Priorities { changes, priorities, lowest } => {
                if changes.pop_if(|at| *at <= step).is_some() {
                    *lowest -= 1;
                    priorities[me] = *lowest;
                }
                self.next = changes.last().copied().unwrap_or(u64::MAX).max(step + 1);
            }
            StrategyKind::Places { gap, longest, until, .. } => {
                if due {
                    self.next = step + Self::gap(&mut self.random, *gap);
                }
                if chosen_place && self.random.bool() {
                    until[me] = step + self.random.u64(0..*longest);
                } else if !due {
                    return me;
                }
            }
            StrategyKind::Stalls { gap, longest, until } => {
                if !due {
                    return me;
                }
                until[me] = step + self.random.u64(0..*longest);
                self.next = step + Self::gap(&mut self.random, *gap);
            }
        }
        self.choose(me, step, candidates)
    }

    /// Chooses the thread after `me` yielded: another one, if any is runnable.
    pub(super) fn at_yield(&mut self, me: usize, step: u64, candidates: &[Candidate]) -> usize {
        if let StrategyKind::Priorities { priorities, lowest, .. } = &mut self.kind {
            *lowest -= 1;
            priorities[me] = *lowest;
        }
        let others: smallvec::SmallVec<[Candidate; 16]> =
            candidates.iter().copied().filter(|candidate| *candidate != me).collect();
        if others.is_empty() { me } else { self.choose(me, step, &others) }
    }

    /// Chooses the thread if `me` is blocked.
    pub(super) fn when_blocked(&mut self, me: usize, step: u64, candidates: &[Candidate]) -> usize {
        self.choose(me, step, candidates)
    }

    fn choose(&mut self, me: usize, step: u64, candidates: &[Candidate]) -> usize {
        let chosen = match &mut self.kind {
            StrategyKind::Random { .. } => candidates[self.random.usize(0..candidates.len())],
            StrategyKind::Priorities { priorities, .. } => {
                let highest = candidates.iter().copied().max_by_key(|thread| priorities[*thread]);
                highest.expect("some thread is runnable")
            }
            StrategyKind::Stalls { until, .. } | StrategyKind::Places { until, .. } => {
                let free: smallvec::SmallVec<[Candidate; 16]> =
                    candidates.iter().copied().filter(|thread| until[*thread] <= step).collect();
                if free.is_empty() {
                    let soonest = candidates.iter().copied().min_by_key(|thread| until[*thread]);
                    soonest.expect("some thread is runnable")
                } else {
                    free[self.random.usize(0..free.len())]
                }
            }
        };
        if chosen != me {
            self.turn_began = step;
        }
        chosen
    }
}
