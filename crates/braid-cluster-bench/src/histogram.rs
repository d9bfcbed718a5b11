//! Distribution of times.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Values below it are exact. Others are rounded down to seven significant bits.
const EXACT: u32 = 128;

/// Number of values, by value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram(BTreeMap<u32, u64>);

impl Histogram {
    /// Counts a value.
    pub fn add(&mut self, value: u32) {
        let shift = (value / EXACT).checked_ilog2().map_or(0, |bits| bits + 1);
        *self.0.entry(value >> shift << shift).or_default() += 1;
    }

    /// Counts all values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (value, count) in &other.0 {
            *self.0.entry(*value).or_default() += count;
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the least value that at least this part of all values does not exceed.
    pub fn quantile(&self, part: f64) -> u32 {
        let mut left = (self.count() as f64 * part).ceil() as u64;
        for (value, count) in &self.0 {
            left = left.saturating_sub(*count);
            if left == 0 {
                return *value;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn quantiles_are_exact_to_seven_bits() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|value| histogram.add(value));
        assert_eq!(histogram.count(), 1000);
        assert_eq!(histogram.quantile(0.1), 100);
        assert_eq!(histogram.quantile(0.5), 500);
        assert_eq!(histogram.quantile(0.99), 984);
        assert_eq!(histogram.quantile(1.0), 1000);
        histogram.add(u32::MAX);
        assert_eq!(histogram.quantile(1.0), u32::MAX >> 25 << 25);
    }
}
