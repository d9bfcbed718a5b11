//! The median of a few measurements with their extremes, the only statistic the reports use.

use serde::{Deserialize, Serialize};

/// Median, minimum and maximum of some measurements. Invariant: `min <= median <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median; for an even number of values the mean of the two in the middle.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of the finite `values`, or `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        assert!(min <= median, "the median is no less than the least");
        assert!(median <= max, "the median is no more than the greatest");
        Some(Self { median, min, max })
    }

    /// Returns the spread of the ratios `above[i] / below[i]`, round by round. A slow moment of the
    /// machine that affects both sides of a round therefore cancels out.
    pub fn of_ratios(above: &[f64], below: &[f64]) -> Option<Self> {
        Self::of(above.iter().zip(below).map(|(a, b)| a / b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]), Some(Spread { median: 3.0, min: 3.0, max: 3.0 }));
        assert_eq!(Spread::of([9.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 9.0 }));
        assert_eq!(
            Spread::of([4.0, 1.0, 2.0, 8.0]),
            Some(Spread { median: 3.0, min: 1.0, max: 8.0 })
        );
    }

    #[test]
    fn ratios_pair_rounds_and_skip_numbers_that_are_not_finite() {
        let spread = Spread::of_ratios(&[2.0, 6.0, 1.0], &[1.0, 2.0, 0.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, min: 2.0, max: 3.0 });
    }
}
