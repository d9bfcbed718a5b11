//! What a call answers, or why it fails.

/// The bytes of a counter: no value is shorter.
pub const COUNTER_BYTES: usize = 8;

/// Why a store refused or failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a call answers: how many records it met, the sum of their counters, and a digest of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub records: u64,
    pub sum: u64,
    pub digest: u64,
}

impl Answer {
    /// One more record, as it was before the call.
    #[inline]
    pub fn add(&mut self, key: u64, value: &[u8]) {
        let counter = counter(value);
        let last = u64::from(value[value.len() - 1]) << 56;
        self.records += 1;
        self.sum = self.sum.wrapping_add(counter);
        self.digest = (self.digest.rotate_left(7) ^ key ^ last).wrapping_add(counter);
    }
}

/// A value's counter.
///
/// # Panics
/// When it is shorter than a counter: no store was given such a value.
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

/// A record that was loaded is not there, or has another value.
#[derive(Debug)]
pub struct Missing(pub u64);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the record with the key {} is missing", self.0)
    }
}

impl std::error::Error for Missing {}
