//! Uniform record numbers: the same generator and the same keys on every side of a comparison.

/// Returns the key of record number `record`. Keys ascend with gaps, so that misses can be drawn
/// too.
#[inline]
pub fn key_of(record: u64) -> u64 {
    record * 7 + 1
}

/// Draws record numbers uniformly.
#[derive(Clone, Debug)]
pub struct Uniform {
    generator: fastrand::Rng,
    records: u64,
}

impl Uniform {
    /// Draws numbers below `records`, which must not be 0.
    pub fn below(records: u64, seed: u64) -> Self {
        assert!(records > 0, "nothing to draw from");
        Self { generator: fastrand::Rng::with_seed(seed), records }
    }

    /// Returns the same distribution with a new seed.
    pub fn with_seed(&self, seed: u64) -> Self {
        Self::below(self.records, seed)
    }

    /// Returns a record number.
    #[inline]
    pub fn record(&mut self) -> u64 {
        self.generator.u64(0..self.records)
    }

    /// Returns the key of a uniformly drawn record.
    #[inline]
    pub fn key(&mut self) -> u64 {
        key_of(self.record())
    }

    /// Returns the keys of `N` uniformly drawn records.
    #[inline]
    pub fn keys<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.key())
    }
}

/// Skewed ranks: the `k`-th is drawn about `1 / k^theta` times as often as the first (Gray et al.,
/// SIGMOD 1994, as in YCSB).
#[derive(Clone, Copy, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipfian {
    /// Returns a distribution over more than 2 items, with `theta` between 0 and 1.
    pub fn over(items: u64, theta: f64) -> Self {
        assert!(items > 2 && (0.0..1.0).contains(&theta), "{items} items, theta {theta}");
        let zeta = zeta(items, theta);
        Self { items, theta, zeta, eta: eta(items, theta, zeta) }
    }

    /// Extends the distribution to more items.
    pub fn grow_to(&mut self, items: u64) {
        if items > self.items {
            let more = self.items + 1..=items;
            self.zeta += more.map(|k| (k as f64).powf(-self.theta)).sum::<f64>();
            self.eta = eta(items, self.theta, self.zeta);
            self.items = items;
        }
    }

    /// Returns the rank for a uniform number from 0 to 1: the number of more frequent items.
    #[inline]
    pub fn rank(&self, drawn: f64) -> u64 {
        let scaled = drawn * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            return 1;
        }
        let alpha = 1.0 / (1.0 - self.theta);
        let rank = self.items as f64 * (self.eta * drawn - self.eta + 1.0).powf(alpha);
        (rank as u64).min(self.items - 1)
    }
}

fn eta(items: u64, theta: f64, zeta: f64) -> f64 {
    let half = 1.0 + 0.5_f64.powf(theta);
    (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - half / zeta)
}

/// Returns the sum of `1 / k^theta` for `k` from 1 to `items`: the first terms exactly, the rest by
/// the Euler-Maclaurin formula, whose error is then below the precision of a double.
fn zeta(items: u64, theta: f64) -> f64 {
    const SUMMED: u64 = 100_000;
    let term = |k: f64| k.powf(-theta);
    let summed = items.min(SUMMED);
    let first: f64 = (1..=summed).map(|k| term(k as f64)).sum();
    if items == summed {
        return first;
    }
    let (from, to) = (summed as f64, items as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    first + integral + (term(to) - term(from)) / 2.0
}

/// Draws record numbers with this skew; the frequent ones are scattered.
#[derive(Clone, Debug)]
pub struct Skewed {
    generator: fastrand::Rng,
    zipfian: Zipfian,
}

impl Skewed {
    /// Draws numbers below `records`, which must be more than 2, with `theta` between 0 and 1.
    pub fn below(records: u64, theta: f64, seed: u64) -> Self {
        let generator = fastrand::Rng::with_seed(seed);
        Self { generator, zipfian: Zipfian::over(records, theta) }
    }

    /// Returns the same distribution with a new seed.
    pub fn with_seed(&self, seed: u64) -> Self {
        Self { generator: fastrand::Rng::with_seed(seed), ..*self }
    }

    /// Returns the key of a record drawn with this skew.
    pub fn key(&mut self) -> u64 {
        let rank = self.zipfian.rank(self.generator.f64());
        key_of(rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.zipfian.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_their_frequencies() {
        let (records, draws) = (1_000, 200_000);
        let mut random = fastrand::Rng::with_seed(1);
        let zipfian = Zipfian::over(records, 0.99);
        let mut counts = vec![0_u64; records as usize];
        for _ in 0..draws {
            counts[zipfian.rank(random.f64()) as usize] += 1;
        }
        let expected = |rank: f64| draws as f64 / zipfian.zeta / rank.powf(0.99);
        for rank in [1, 2, 10, 100] {
            let ratio = counts[rank - 1] as f64 / expected(rank as f64);
            assert!((0.7..1.4).contains(&ratio), "rank {rank}: {ratio}");
        }
    }

    #[test]
    fn approximated_sums_equal_exact_sums() {
        for theta in [0.0, 0.5, 0.99] {
            let summed: f64 = (1..=3_000_000).map(|k| f64::from(k).powf(-theta)).sum();
            let apart = (zeta(3_000_000, theta) / summed - 1.0).abs();
            assert!(apart < 1e-9, "theta {theta}: {apart}");
        }
        // YCSB's constant for its ten billion items.
        assert!((zeta(10_000_000_000, 0.99) - 26.469_028_201_783_02).abs() < 1e-6);
        let mut grown = Zipfian::over(1_000, 0.9);
        grown.grow_to(5_000);
        assert!((grown.zeta - zeta(5_000, 0.9)).abs() < 1e-9);
    }
}
