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
