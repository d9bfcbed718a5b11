//! Draws the record of an operation as YCSB does; scatters keys as YCSB does.

use clap::ValueEnum;

use crate::random::Zipfian;

/// The number of items from which YCSB draws the ranks of its scrambled distribution, for any
/// number of records.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// The distribution of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Distribution {
    /// All records equally often.
    Uniform,
    /// A few records often; these are scattered over all.
    Zipfian,
    /// The last inserted records most often.
    Latest,
}

/// Draws record numbers.
#[derive(Clone, Debug)]
pub(super) struct Chooser {
    distribution: Distribution,
    zipfian: Zipfian,
}

impl Chooser {
    pub(super) fn new(distribution: Distribution, records: u64, theta: f64) -> Self {
        let items = match distribution {
            Distribution::Zipfian => SCRAMBLED_ITEMS,
            Distribution::Uniform | Distribution::Latest => records,
        };
        Self { distribution, zipfian: Zipfian::over(items, theta) }
    }

    /// Draws one of the first `records`; this number must never decrease.
    pub(super) fn record(&mut self, records: u64, random: &mut fastrand::Rng) -> u64 {
        match self.distribution {
            Distribution::Uniform => random.u64(0..records),
            Distribution::Zipfian => scatter(self.zipfian.rank(random.f64())) % records,
            Distribution::Latest => {
                self.zipfian.grow_to(records);
                records - 1 - self.zipfian.rank(random.f64())
            }
        }
    }
}

/// Returns the key of a record: scattered, so that records inserted together are not neighbours.
pub(super) fn key_of(record: u64) -> u64 {
    scatter(record)
}

/// Returns FNV-1a of the eight bytes of `number`, without its sign.
fn scatter(number: u64) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let bytes = number.to_le_bytes();
    let hash =
        bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME));
    (hash as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(distribution: Distribution, records: u64) -> Vec<u32> {
        let mut chooser = Chooser::new(distribution, records, 0.99);
        let mut random = fastrand::Rng::with_seed(1);
        let mut counts = vec![0; records as usize];
        for _ in 0..200_000 {
            counts[chooser.record(records, &mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn distributions_have_the_expected_skew() {
        let uniform = counts(Distribution::Uniform, 1_000);
        assert!(uniform.iter().all(|count| (100..320).contains(count)));
        let latest = counts(Distribution::Latest, 1_000);
        assert!(latest[999] > latest[998] && latest[998] > 5 * latest[100]);
        let zipfian = counts(Distribution::Zipfian, 1_000);
        let most = scatter(0) % 1_000;
        // One in zeta(10^10, 0.99), 26.469, and its share of all other items that hash to it.
        let share = f64::from(zipfian[most as usize]) / 200_000.0;
        assert!((0.035..0.045).contains(&share), "{share}");
    }

    #[test]
    fn draws_follow_a_growing_number_of_records() {
        let mut chooser = Chooser::new(Distribution::Latest, 10, 0.99);
        let mut random = fastrand::Rng::with_seed(1);
        for records in 10..2_000 {
            assert!(chooser.record(records, &mut random) < records);
        }
    }

    #[test]
    fn keys_are_scattered_and_differ() {
        let mut keys: Vec<u64> = (0..100_000).map(key_of).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100_000);
    }
}
