//! Who runs next: four ways to choose, one of them by the seed.
//!
//! - *Random*: at about every n-th switch point somebody else runs, each as likely as the other.
//! - *Priorities* (PCT, Burckhardt et al. 2010): whoever has the highest priority runs; at a few switch
//!   points the one that runs gets the lowest. It finds what needs few changes at the right places.
//! - *Stalls*: at a few switch points the one that runs is held up for a long while, in which the
//!   others run on, as if the operating system had taken it off its core there.
//! - *Places*: the same, but at few places of the source, every other time that a thread comes by there,
//!   and in between at random: for what goes wrong only between two instructions that few threads ever
//!   pass, while others are between two more.

use fastrand::Rng;

/// A thread that could run.
pub(super) type Candidate = usize;

/// Steps a schedule takes, about: changes are spread over them.
const DEFAULT_STEPS: u64 = 40_000;
/// Steps for which one thread runs while others could, at most, whatever the strategy: it may spin until
/// one of them goes on.
const MAX_TURN: u64 = 3000;
/// Of so many classes of lines of the source one is chosen.
pub(super) const PLACES: u32 = 61;
/// Steps after which every schedule goes on at random: it is fair, so what is not over soon then stands
/// still by itself.
const FAIR_AFTER: u64 = 150_000;

#[derive(Debug)]
enum Kind {
    Random { gap: u64 },
    Priorities { changes: Vec<u64>, priorities: Vec<u64>, lowest: u64 },
    Stalls { gap: u64, longest: u64, until: Vec<u64> },
    Places { residue: u32, gap: u64, longest: u64, until: Vec<u64> },
}

/// What decides who runs.
#[derive(Debug)]
pub(super) struct Strategy {
    random: Rng,
    kind: Kind,
    next: u64,
    /// When the one that runs began.
    turn_began: u64,
}

impl Strategy {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ 0x5ced);
        let kind = match random.u32(0..14) {
            0..4 => Kind::Random { gap: 1 << random.u32(2..10) },
            4..7 => {
                let count = random.usize(1..8);
                let mut changes: Vec<_> =
                    (0..count).map(|_| random.u64(0..DEFAULT_STEPS)).collect();
                changes.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
                Kind::Priorities { changes, priorities: Vec::new(), lowest: 1 << 32 }
            }
            10.. => Kind::Places {
                residue: random.u32(0..PLACES),
                gap: 1 << random.u32(4..14),
                longest: 1 << random.u32(6..12),
                until: Vec::new(),
            },
            7..10 => Kind::Stalls {
                gap: 1 << random.u32(5..12),
                longest: 1 << random.u32(6..14),
                until: Vec::new(),
            },
        };
        Self { random, kind, next: 0, turn_began: 0 }
    }

    /// Another thread takes part.
    pub(super) fn add_thread(&mut self) {
        match &mut self.kind {
            Kind::Random { .. } => {}
            Kind::Priorities { priorities, .. } => {
                priorities.push(self.random.u64(1 << 33..1 << 62));
            }
            Kind::Stalls { until, .. } | Kind::Places { until, .. } => until.push(0),
        }
    }

    /// The step at which it is to decide next.
    pub(super) fn next(&self) -> u64 {
        self.next.min(self.turn_began + MAX_TURN + 1)
    }

    /// Steps after which it wants to know that somebody could go on.
    pub(super) fn patience(&self) -> u64 {
        match self.kind {
            Kind::Priorities { .. } => 1,
            Kind::Random { .. } | Kind::Stalls { .. } | Kind::Places { .. } => u64::MAX / 2,
        }
    }

    /// Of the lines of the source, counted modulo [`PLACES`], the one whose switch points are looked at
    /// each time.
    pub(super) fn residue(&self) -> Option<u32> {
        match self.kind {
            Kind::Places { residue, .. } => Some(residue),
            _ => None,
        }
    }

    fn gap(random: &mut Rng, gap: u64) -> u64 {
        1 + random.u64(0..2 * gap)
    }

    /// Who runs after a switch point of `me`, which could go on.
    pub(super) fn at_point(
        &mut self,
        me: usize,
        step: u64,
        chosen_place: bool,
        candidates: &[Candidate],
    ) -> usize {
        if step > FAIR_AFTER && !matches!(self.kind, Kind::Random { .. }) {
            (self.kind, self.next) = (Kind::Random { gap: 64 }, step);
        }
        if step > self.turn_began + MAX_TURN {
            self.turn_began = step;
            return self.at_yield(me, step, candidates);
        }
        let due = step >= self.next;
        match &mut self.kind {
            Kind::Random { gap } => {
                if !due {
                    return me;
                }
                self.next = step + Self::gap(&mut self.random, *gap);
            }
            Kind::Priorities { changes, priorities, lowest } => {
                if changes.pop_if(|at| *at <= step).is_some() {
                    *lowest -= 1;
                    priorities[me] = *lowest;
                }
                self.next = changes.last().copied().unwrap_or(u64::MAX).max(step + 1);
            }
            Kind::Places { gap, longest, until, .. } => {
                if due {
                    self.next = step + Self::gap(&mut self.random, *gap);
                }
                if chosen_place && self.random.bool() {
                    until[me] = step + self.random.u64(0..*longest);
                } else if !due {
                    return me;
                }
            }
            Kind::Stalls { gap, longest, until } => {
                if !due {
                    return me;
                }
                until[me] = step + self.random.u64(0..*longest);
                self.next = step + Self::gap(&mut self.random, *gap);
            }
        }
        self.choose(me, step, candidates)
    }

    /// Who runs after `me` gave way: somebody else, if there is one.
    pub(super) fn at_yield(&mut self, me: usize, step: u64, candidates: &[Candidate]) -> usize {
        if let Kind::Priorities { priorities, lowest, .. } = &mut self.kind {
            *lowest -= 1;
            priorities[me] = *lowest;
        }
        let others: smallvec::SmallVec<[Candidate; 16]> =
            candidates.iter().copied().filter(|candidate| *candidate != me).collect();
        if others.is_empty() { me } else { self.choose(me, step, &others) }
    }

    /// Who runs when `me` cannot.
    pub(super) fn when_blocked(&mut self, me: usize, step: u64, candidates: &[Candidate]) -> usize {
        self.choose(me, step, candidates)
    }

    fn choose(&mut self, me: usize, step: u64, candidates: &[Candidate]) -> usize {
        let chosen = match &mut self.kind {
            Kind::Random { .. } => candidates[self.random.usize(0..candidates.len())],
            Kind::Priorities { priorities, .. } => {
                let highest = candidates.iter().copied().max_by_key(|thread| priorities[*thread]);
                highest.expect("somebody can go on")
            }
            Kind::Stalls { until, .. } | Kind::Places { until, .. } => {
                let free: smallvec::SmallVec<[Candidate; 16]> =
                    candidates.iter().copied().filter(|thread| until[*thread] <= step).collect();
                if free.is_empty() {
                    let soonest = candidates.iter().copied().min_by_key(|thread| until[*thread]);
                    soonest.expect("somebody can go on")
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
