//! Rounds: each round runs every subject once, in turn (A B A B). Disturbances of the machine
//! affect all subjects alike. Ratios are computed within a round.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::interned::{self, Name};
use super::latency::{Latencies, LatencySummary};
use super::progress::Progress;
use super::spread::Spread;
use crate::error::Error;

/// The length of one round of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    /// Run for this number of seconds.
    Seconds(f64),
    /// Run until this number of transactions is committed.
    Transactions(u64),
}

impl Effort {
    /// Returns the share of this effort that warms a subject up before its first round.
    pub fn warm_up(self) -> Self {
        match self {
            Self::Seconds(seconds) => Self::Seconds((seconds / 3.0).min(1.0)),
            Self::Transactions(count) => Self::Transactions((count / 10).clamp(1, 1_000_000)),
        }
    }

    /// Returns true if a loop that began at `begin` and has started this number of transactions
    /// must end. Reads the clock for one transaction in 256 only, because reading it costs a tenth
    /// of a short transaction.
    #[inline]
    pub(crate) fn is_over(self, started: u64, begin: Instant) -> bool {
        match self {
            Self::Transactions(count) => started >= count,
            Self::Seconds(seconds) => {
                started.is_multiple_of(256) && begin.elapsed().as_secs_f64() >= seconds
            }
        }
    }
}

/// The results of one round of one subject.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Committed transactions.
    pub transactions: u64,
    /// Attempts that failed with a conflict and were retried.
    pub conflicts: u64,
    /// Wall time from the start of the first transaction to the end of the last one.
    pub elapsed: Duration,
    /// Latencies of the timed transactions.
    pub latencies: Latencies,
    /// The results by kind of transaction; empty if a subject has only one kind.
    pub kinds: Vec<KindSample>,
    /// Failed attempts by cause; empty if they were not counted.
    pub aborts: Vec<AbortCount>,
}

/// The results of one round for one kind of transaction.
#[derive(Clone, Debug)]
pub struct KindSample {
    /// The name of the kind.
    pub name: &'static str,
    /// Committed transactions.
    pub transactions: u64,
    /// Committed transactions that did not find the records they should read or change.
    pub unsuccessful: u64,
    /// Attempts that failed with a conflict and were retried.
    pub conflicts: u64,
    /// Latencies of the timed transactions.
    pub latencies: Latencies,
}

/// Attempts that failed for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortCount {
    /// The cause.
    #[serde(deserialize_with = "interned::name")]
    pub cause: Name,
    /// The number of attempts.
    pub attempts: u64,
}

impl Sample {
    /// Returns a sample of transactions of one kind without conflicts.
    pub fn plain(transactions: u64, elapsed: Duration, latencies: Latencies) -> Self {
        Self {
            transactions,
            conflicts: 0,
            elapsed,
            latencies,
            kinds: Vec::new(),
            aborts: Vec::new(),
        }
    }

    /// Returns the committed transactions per second.
    pub fn rate(&self) -> f64 {
        self.transactions as f64 / self.elapsed.as_secs_f64()
    }
}

/// A subject of the comparison.
pub trait Subject {
    /// Returns the name in tables and charts.
    fn name(&self) -> &str;
    /// Runs one round.
    fn round(&mut self, effort: Effort) -> Result<Sample, Error>;
}

/// The aggregated rounds of a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The name of the subject.
    pub name: String,
    /// Transactions per second, round by round.
    pub rates: Vec<f64>,
    /// Median and extremes of the rates.
    pub rate: Spread,
    /// Committed transactions.
    pub transactions: u64,
    /// Attempts that failed with a conflict and were retried.
    pub conflicts: u64,
    /// Latency over all rounds.
    pub latency: Option<LatencySummary>,
    /// The results by kind, for workloads with several kinds.
    pub kinds: Vec<MeasuredKind>,
    /// Failed attempts by cause.
    pub aborts: Vec<AbortCount>,
}

/// One kind of a subject's transactions, over all its rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredKind {
    /// The name of the kind.
    #[serde(deserialize_with = "interned::name")]
    pub name: Name,
    /// Committed transactions.
    pub transactions: u64,
    /// Committed transactions that did not find the records they should read or change.
    pub unsuccessful: u64,
    /// Attempts that failed with a conflict and were retried.
    pub conflicts: u64,
    /// Latency of the timed transactions.
    pub latency: Option<LatencySummary>,
}

impl Measured {
    fn sum_up(name: &str, samples: &[Sample]) -> Self {
        assert!(!samples.is_empty(), "there is at least one round");
        let rates: Vec<f64> = samples.iter().map(Sample::rate).collect();
        let mut latencies = samples[0].latencies.clone();
        for sample in &samples[1..] {
            latencies.merge(&sample.latencies);
        }
        Self {
            name: name.to_owned(),
            rate: Spread::of(rates.iter().copied()).unwrap_or(Spread {
                median: 0.0,
                min: 0.0,
                max: 0.0,
            }),
            rates,
            transactions: samples.iter().map(|sample| sample.transactions).sum(),
            conflicts: samples.iter().map(|sample| sample.conflicts).sum(),
            latency: latencies.summary(),
            kinds: sum_up_kinds(samples),
            aborts: sum_up_aborts(samples),
        }
    }

    /// Returns the committed transactions of one kind.
    pub fn transactions_of(&self, kind: &str) -> u64 {
        self.kinds.iter().filter(|other| other.name == kind).map(|kind| kind.transactions).sum()
    }
}

/// Aggregates the kinds. Every sample of a subject has the same kinds, in the same order.
fn sum_up_kinds(samples: &[Sample]) -> Vec<MeasuredKind> {
    let sum_up = |(place, first): (usize, &KindSample)| {
        let mut latencies = first.latencies.clone();
        for sample in &samples[1..] {
            latencies.merge(&sample.kinds[place].latencies);
        }
        let sum = |count: fn(&KindSample) -> u64| {
            samples.iter().map(|sample| count(&sample.kinds[place])).sum()
        };
        MeasuredKind {
            name: first.name,
            transactions: sum(|kind| kind.transactions),
            unsuccessful: sum(|kind| kind.unsuccessful),
            conflicts: sum(|kind| kind.conflicts),
            latency: latencies.summary(),
        }
    };
    samples[0].kinds.iter().enumerate().map(sum_up).collect()
}

fn sum_up_aborts(samples: &[Sample]) -> Vec<AbortCount> {
    let mut aborts = samples[0].aborts.clone();
    for (place, abort) in aborts.iter_mut().enumerate() {
        abort.attempts = samples.iter().map(|sample| sample.aborts[place].attempts).sum();
    }
    aborts
}

/// Warms every subject up once, then runs `rounds` rounds of all subjects in turn.
pub fn alternate(
    subjects: &mut [Box<dyn Subject + '_>],
    rounds: usize,
    effort: Effort,
    progress: &Progress,
) -> Result<Vec<Measured>, Error> {
    assert!(rounds > 0, "no rounds measure nothing");
    progress.expect((rounds * subjects.len()) as u64);
    for subject in &mut *subjects {
        progress.doing(format!("warming up: {}", subject.name()));
        subject.round(effort.warm_up())?;
    }
    let mut samples: Vec<Vec<Sample>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 1..=rounds {
        for (subject, samples) in subjects.iter_mut().zip(&mut samples) {
            progress.doing(format!("round {round} of {rounds}: {}", subject.name()));
            samples.push(subject.round(effort)?);
            progress.step();
        }
    }
    let measured = subjects.iter().zip(&samples);
    Ok(measured.map(|(subject, samples)| Measured::sum_up(subject.name(), samples)).collect())
}

/// Runs `round` this number of times without warm-up, for work that must start from scratch each
/// time.
pub fn repeat(
    name: &str,
    rounds: usize,
    progress: &Progress,
    mut round: impl FnMut() -> Result<Sample, Error>,
) -> Result<Measured, Error> {
    let mut measured = repeat_in_turn(&mut [(name, &mut round)], rounds, progress)?;
    Ok(measured.pop().expect("there is one"))
}

/// A name and the function that runs it once.
type Named<'a> = (&'a str, &'a mut dyn FnMut() -> Result<Sample, Error>);

/// Runs several functions in turn, like [`repeat`].
pub fn repeat_in_turn(
    of: &mut [Named<'_>],
    rounds: usize,
    progress: &Progress,
) -> Result<Vec<Measured>, Error> {
    assert!(rounds > 0, "no rounds measure nothing");
    progress.expect((rounds * of.len()) as u64);
    let mut samples: Vec<Vec<Sample>> = of.iter().map(|_| Vec::new()).collect();
    for number in 1..=rounds {
        for ((name, round), samples) in of.iter_mut().zip(&mut samples) {
            progress.doing(format!("round {number} of {rounds}: {name}"));
            samples.push(round()?);
            progress.step();
        }
    }
    Ok(of.iter().zip(&samples).map(|((name, _), all)| Measured::sum_up(name, all)).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    struct Fake<'a> {
        name: &'static str,
        transactions: u64,
        order: &'a RefCell<Vec<&'static str>>,
    }

    impl Subject for Fake<'_> {
        fn name(&self) -> &str {
            self.name
        }

        fn round(&mut self, _: Effort) -> Result<Sample, Error> {
            self.order.borrow_mut().push(self.name);
            Ok(Sample {
                transactions: self.transactions,
                conflicts: 1,
                elapsed: Duration::from_millis(500),
                latencies: Latencies::one_in(1),
                kinds: vec![KindSample {
                    name: "all",
                    transactions: self.transactions,
                    unsuccessful: 2,
                    conflicts: 1,
                    latencies: Latencies::one_in(1),
                }],
                aborts: vec![AbortCount { cause: "conflict", attempts: 1 }],
            })
        }
    }

    #[test]
    fn rounds_alternate_after_one_warm_up_each() {
        let order = RefCell::new(Vec::new());
        let fake = |name, transactions| Fake { name, transactions, order: &order };
        let mut subjects: Vec<Box<dyn Subject>> =
            vec![Box::new(fake("a", 10)), Box::new(fake("b", 5))];
        let progress = Progress::of(0);
        let measured = alternate(&mut subjects, 2, Effort::Transactions(10), &progress).unwrap();
        drop(subjects);
        assert_eq!(order.into_inner(), ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(measured[0].rates, [20.0, 20.0]);
        assert_eq!(measured[1].rate.median, 10.0);
        assert_eq!(measured[1].conflicts, 2);
        assert_eq!(measured[1].transactions, 10);
        assert_eq!(measured[1].transactions_of("all"), 10);
        assert_eq!(measured[1].kinds[0].unsuccessful, 4);
        assert_eq!(measured[1].aborts, [AbortCount { cause: "conflict", attempts: 2 }]);
    }
}
