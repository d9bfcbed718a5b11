//! Uniform record numbers, the same generator and the same keys on every side of a comparison.

/// The key of record number `record`: ascending, with gaps, so that misses can be asked for too.
#[inline]
pub(crate) fn key_of(record: u64) -> u64 {
    record * 7 + 1
}

/// Draws record numbers uniformly.
#[derive(Clone, Debug)]
pub(crate) struct Uniform {
    generator: fastrand::Rng,
    records: u64,
}

impl Uniform {
    /// Below `records`, which must not be 0.
    pub(crate) fn below(records: u64, seed: u64) -> Self {
        assert!(records > 0, "nothing to draw from");
        Self { generator: fastrand::Rng::with_seed(seed), records }
    }

    /// A record number.
    #[inline]
    pub(crate) fn record(&mut self) -> u64 {
        self.generator.u64(0..self.records)
    }

    /// The key of a uniformly drawn record.
    #[inline]
    pub(crate) fn key(&mut self) -> u64 {
        key_of(self.record())
    }

    /// The keys of `N` uniformly drawn records.
    #[inline]
    pub(crate) fn keys<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.key())
    }
}

/// Draws record numbers of which few are drawn often: the `k`-th most frequent about `1 / k^theta` times
/// as often as the most frequent (Gray et al., SIGMOD 1994, as YCSB has it). Which these are is scattered.
#[derive(Clone, Debug)]
pub(crate) struct Skewed {
    generator: fastrand::Rng,
    records: u64,
    alpha: f64,
    zeta: f64,
    eta: f64,
    half: f64,
}

impl Skewed {
    /// Below `records`, which must be more than 2, with `theta` between 0 and 1. Takes a step a record.
    pub(crate) fn below(records: u64, theta: f64, seed: u64) -> Self {
        assert!(records > 2 && (0.0..1.0).contains(&theta), "{records} records, theta {theta}");
        let zeta: f64 = (1..=records).map(|k| (k as f64).powf(-theta)).sum();
        let half = 1.0 + 0.5_f64.powf(theta);
        let eta = (1.0 - (2.0 / records as f64).powf(1.0 - theta)) / (1.0 - half / zeta);
        let generator = fastrand::Rng::with_seed(seed);
        Self { generator, records, alpha: 1.0 / (1.0 - theta), zeta, eta, half }
    }

    /// The same distribution, drawn anew.
    pub(crate) fn with_seed(&self, seed: u64) -> Self {
        Self { generator: fastrand::Rng::with_seed(seed), ..*self }
    }

    /// The key of a record that is drawn so.
    pub(crate) fn key(&mut self) -> u64 {
        key_of(self.rank().wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.records)
    }

    /// How many are more frequent.
    fn rank(&mut self) -> u64 {
        let drawn = self.generator.f64();
        let scaled = drawn * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.half {
            return 1;
        }
        let rank = self.records as f64 * (self.eta * drawn - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.records - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skewed_ranks_have_their_frequencies() {
        let (records, draws) = (1_000, 200_000);
        let mut skewed = Skewed::below(records, 0.99, 1);
        let mut counts = vec![0_u64; records as usize];
        for _ in 0..draws {
            counts[skewed.rank() as usize] += 1;
        }
        let expected = |rank: f64| draws as f64 / skewed.zeta / rank.powf(0.99);
        for rank in [1, 2, 10, 100] {
            let ratio = counts[rank - 1] as f64 / expected(rank as f64);
            assert!((0.7..1.4).contains(&ratio), "rank {rank}: {ratio}");
        }
    }
}
