//! Answers and errors of calls.

/// The size of a counter, and the minimum size of a value.
pub const COUNTER_BYTES: usize = 8;

/// The error of a store.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The answer to a call: the number of records, the sum of their counters, and a digest of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub records: u64,
    pub sum: u64,
    pub digest: u64,
}

impl Answer {
    /// Adds one record, in its state before the call.
    #[inline]
    pub fn add(&mut self, key: u64, value: &[u8]) {
        let counter = counter(value);
        let last = u64::from(value[value.len() - 1]) << 56;
        self.records += 1;
        self.sum = self.sum.wrapping_add(counter);
        self.digest = (self.digest.rotate_left(7) ^ key ^ last).wrapping_add(counter);
    }
}

/// Returns a value's counter.
///
/// # Panics
/// Panics if the value is shorter than a counter. No store contains such a value.
#[inline]
pub fn counter(value: &[u8]) -> u64 {
    let bytes = value[..COUNTER_BYTES].try_into().expect("it has so many bytes");
    u64::from_le_bytes(bytes)
}

/// Adds one to a value's counter.
#[inline]
pub fn increment(value: &mut [u8]) {
    let next = counter(value).wrapping_add(1);
    value[..COUNTER_BYTES].copy_from_slice(&next.to_le_bytes());
}

/// A loaded record is missing or has another value.
#[derive(Debug)]
pub struct Missing(pub u64);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the record with the key {} is missing", self.0)
    }
}

impl std::error::Error for Missing {}
