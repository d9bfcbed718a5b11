//! Draws the row of a statement, as sysbench does.

use clap::ValueEnum;

/// The default parameters of sysbench's special distribution: the percentage of values in a middle
/// part, the size of that part, and the number of draws whose mean gives the other values.
const SPECIAL_PERCENT: f64 = 75.0;
const MIDDLE_PERCENT: f64 = 1.0;
const ITERATIONS: u32 = 12;

/// The distribution of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Distribution {
    /// Uniform: the default of newer versions of the tool.
    Uniform,
    /// Three of four draws from a hundredth in the middle: the default of version 1.0.
    Special,
}

impl Distribution {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Special => "special",
        }
    }

    /// Draws a number from 1 to `most`.
    pub(super) fn draw(self, most: u32, random: &mut fastrand::Rng) -> u32 {
        match self {
            Self::Uniform => random.u32(1..=most),
            Self::Special => special(most, random),
        }
    }
}

fn special(most: u32, random: &mut fastrand::Rng) -> u32 {
    let span = f64::from(most - 1);
    let drawn = random.f64();
    let place = if drawn < 1.0 - SPECIAL_PERCENT / 100.0 {
        let sum: f64 = (0..ITERATIONS).map(|_| random.f64()).sum();
        span * sum / f64::from(ITERATIONS)
    } else {
        // The drawn number is used a second time, as in the tool. Therefore the first quarter of
        // the middle part is never drawn.
        let middle = span * MIDDLE_PERCENT / 100.0;
        (span - middle) / 2.0 + drawn * (middle + 1.0)
    };
    1 + (place as u32).min(most - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_draws_prefer_the_middle() {
        let (most, draws) = (10_000, 100_000);
        let random = &mut fastrand::Rng::with_seed(1);
        let drawn: Vec<u32> =
            (0..draws).map(|_| Distribution::Special.draw(most, random)).collect();
        let share = |range: std::ops::RangeInclusive<u32>| {
            let within = drawn.iter().filter(|id| range.contains(id)).count();
            within as f64 / f64::from(draws)
        };
        assert!(share(1..=most) == 1.0);
        assert!((0.75..0.8).contains(&share(4_950..=5_053)), "{}", share(4_950..=5_053));
        // The others are bell-shaped: hardly any are at the ends.
        assert!(share(1..=1_000) + share(9_000..=most) < 0.001);
        assert!(share(1..=4_000) > 0.02);
    }

    #[test]
    fn draws_stay_within_the_table() {
        let random = &mut fastrand::Rng::with_seed(1);
        for distribution in [Distribution::Uniform, Distribution::Special] {
            for most in [1, 2, 3, 100, 101] {
                let mut seen = vec![0; most as usize + 1];
                (0..20_000).for_each(|_| seen[distribution.draw(most, random) as usize] += 1);
                assert_eq!(seen[0], 0);
                // Special draws never reach the ends of a larger table.
                if distribution == Distribution::Uniform || most <= 3 {
                    assert!(seen[1..].iter().all(|count| *count > 0), "{distribution:?}: {seen:?}");
                }
            }
        }
    }
}
