//! Latencies of single transactions. One transaction in a fixed number is timed and recorded in a
//! histogram with three significant digits, so that timing hardly slows the measured loop.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::interned::{self, Name};

/// The percentiles in reports, with their names.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];

/// The percents at which a distribution is drawn.
const DISTRIBUTION: [f64; 16] =
    [1., 5., 10., 20., 30., 40., 50., 60., 70., 80., 90., 95., 98., 99., 99.5, 99.9];

/// The maximum recorded latency; longer ones are recorded as this one.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A histogram of nanoseconds that times every `period`-th transaction.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    period: u32,
    until_next: u32,
}

impl Latencies {
    /// Times one in `period` transactions (1 = all).
    pub fn one_in(period: u32) -> Self {
        assert!(period > 0, "one in none is no sample");
        let histogram = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3)
            .expect("the bounds are in order and three digits a valid precision");
        Self { histogram, period, until_next: 1 }
    }

    /// Returns the start of the next transaction if it should be timed.
    #[inline]
    pub fn start(&mut self) -> Option<Instant> {
        self.until_next -= 1;
        if self.until_next > 0 {
            return None;
        }
        self.until_next = self.period;
        Some(Instant::now())
    }

    /// Records the latency since `start`.
    #[inline]
    pub fn finish(&mut self, start: Option<Instant>) {
        if let Some(start) = start {
            self.record(start.elapsed());
        }
    }

    /// Records one latency.
    pub fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
    }

    /// Adds the latencies of another histogram, such as that of another worker or round.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }

    /// Returns the percentiles, or `None` if nothing was timed.
    pub fn summary(&self) -> Option<LatencySummary> {
        if self.histogram.is_empty() {
            return None;
        }
        let percentiles = PERCENTILES.map(|(name, percentile)| Percentile {
            name,
            nanoseconds: self.histogram.value_at_percentile(percentile),
        });
        let distribution = DISTRIBUTION
            .map(|percent| (self.histogram.value_at_percentile(percent) as f64, percent));
        Some(LatencySummary {
            timed: self.histogram.len(),
            mean_nanoseconds: self.histogram.mean(),
            percentiles: percentiles.to_vec(),
            distribution: distribution.to_vec(),
        })
    }
}

/// Percentiles of the timed transactions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LatencySummary {
    /// The number of timed transactions.
    pub timed: u64,
    /// The mean.
    pub mean_nanoseconds: f64,
    /// The percentiles in reports.
    pub percentiles: Vec<Percentile>,
    /// The distribution: nanoseconds, and the percent of transactions that took at most this time.
    pub distribution: Vec<(f64, f64)>,
}

/// One percentile of a latency histogram.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Percentile {
    /// The name in tables: `p99`.
    #[serde(deserialize_with = "interned::name")]
    pub name: Name,
    /// The maximum latency of this share of transactions.
    pub nanoseconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_transaction_in_n_is_timed_and_results_are_merged() {
        let mut a = Latencies::one_in(4);
        let timed = (0..16).filter(|_| a.start().is_some()).count();
        assert_eq!(timed, 4);
        assert!(a.summary().is_none());
        a.record(Duration::from_micros(1));
        let mut b = Latencies::one_in(1);
        b.record(Duration::from_millis(1));
        a.merge(&b);
        let summary = a.summary().unwrap();
        assert_eq!(summary.timed, 2);
        let max = summary.percentiles.last().unwrap();
        assert_eq!(max.name, "max");
        assert!((999_000..=1_001_000).contains(&max.nanoseconds), "{}", max.nanoseconds);
    }
}
