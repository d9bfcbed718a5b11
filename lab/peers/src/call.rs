//! Calls and values: the same for every store, so that answers can be compared.
//!
//! A value begins with a counter, which is the record's number when it is loaded. The rest follows
//! from the key and does not compress. A modification reads a value, adds one to its counter and
//! writes it back. Therefore the sum of all counters gives the number of committed modifications.

use std::sync::Mutex;

use braid_workloads::random::{Skewed, Uniform, key_of};
use serde::{Deserialize, Serialize};

use crate::answer::COUNTER_BYTES;
use crate::tpcc::{self, Trade};

/// The maximum number of records that one call reads or modifies.
pub const MOST: usize = 10;

/// The keys of one call.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    keys: [u64; MOST],
    count: usize,
}

impl std::ops::Deref for Keys {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        &self.keys[..self.count]
    }
}

/// One transaction.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Reads existing records.
    Read(Keys),
    /// Adds one to the counters of records.
    Modify(Keys),
    /// Reads records from a key on, in order, up to a limit.
    Scan { from: u64, limit: u64 },
    /// A transaction of TPC-C.
    Trade(Trade),
}

/// Names of the kinds of calls in tables.
pub const KINDS: [&str; 3] = ["reads", "modifications", "scans"];

impl Call {
    /// Returns the index in `KINDS`.
    pub fn kind(&self) -> usize {
        match self {
            Self::Read(_) => 0,
            Self::Modify(_) => 1,
            Self::Scan { .. } => 2,
            Self::Trade(trade) => usize::from(!trade.only_reads()),
        }
    }

    /// Returns true if the call writes nothing.
    pub fn only_reads(&self) -> bool {
        self.kind() != 1
    }

    /// Reads all records.
    pub const EVERYTHING: Self = Self::Scan { from: 0, limit: u64::MAX };
}

/// The mix of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// This number of uniform records in each transaction; this percentage of transactions only
    /// reads.
    Points { records: usize, read_percent: u8 },
    /// One record in each transaction, with YCSB's skew (theta 0.99); this percentage of
    /// transactions only reads.
    Skewed { read_percent: u8 },
    /// Scans of this number of records from a uniform start.
    Scans { records: u64 },
    /// TPC-C's mix.
    Trades,
    /// All of these except TPC-C's, for comparing answers.
    Everything,
}

impl Work {
    /// Returns true if no transaction writes.
    pub fn only_reads(self) -> bool {
        matches!(
            self,
            Self::Points { read_percent: 100, .. }
                | Self::Skewed { read_percent: 100 }
                | Self::Scans { .. }
        )
    }

    /// Returns true if some transactions read and others write.
    pub fn is_mixed(self) -> bool {
        !self.only_reads() && !matches!(self, Self::Points { read_percent: 0, .. })
    }

    /// Returns the number of records that one modifying transaction modifies.
    pub fn modified_by_one(self) -> u64 {
        match self {
            Self::Points { records, .. } => records as u64,
            Self::Skewed { .. } | Self::Trades => 1,
            Self::Scans { .. } => 0,
            Self::Everything => MOST as u64,
        }
    }
}

/// Draws calls.
#[derive(Clone, Debug)]
pub struct Calls {
    work: Work,
    uniform: Uniform,
    skewed: Option<Skewed>,
    random: fastrand::Rng,
    scale: tpcc::Scale,
}

impl Calls {
    /// Returns calls on a store with this number of records.
    pub fn new(work: Work, records: u64, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(!seed);
        let skewed = matches!(work, Work::Skewed { .. }).then(|| skewed(records, seed));
        Self {
            work,
            uniform: Uniform::below(records, seed),
            skewed,
            random,
            scale: tpcc::Scale::of(records),
        }
    }

    /// Draws the next call.
    #[inline]
    pub fn draw(&mut self) -> Call {
        match self.work {
            Work::Points { records, read_percent } => {
                let reads = read_percent == 100
                    || (read_percent > 0 && self.random.u8(0..100) < read_percent);
                let keys = self.keys(records);
                if reads { Call::Read(keys) } else { Call::Modify(keys) }
            }
            Work::Skewed { read_percent } => {
                let reads = self.random.u8(0..100) < read_percent;
                let mut keys = [0; MOST];
                keys[0] = self.skewed.as_mut().expect("made for this work").key();
                let keys = Keys { keys, count: 1 };
                if reads { Call::Read(keys) } else { Call::Modify(keys) }
            }
            Work::Trades => Call::Trade(Trade::draw(self.scale, &mut self.random)),
            Work::Scans { records } => Call::Scan { from: self.uniform.key(), limit: records },
            Work::Everything => match self.random.u8(0..3) {
                0 => Call::Read(self.keys(MOST)),
                1 => Call::Modify(self.keys(MOST)),
                _ => Call::Scan { from: self.uniform.key() - 1, limit: self.random.u64(1..100) },
            },
        }
    }

    fn keys(&mut self, count: usize) -> Keys {
        let mut keys = [0; MOST];
        keys[..count].fill_with(|| self.uniform.key());
        Keys { keys, count }
    }
}

/// Returns draws with YCSB's skew over this number of records. Summing the frequencies takes long,
/// so the last distribution is cached.
fn skewed(records: u64, seed: u64) -> Skewed {
    const THETA: f64 = 0.99;
    static LAST: Mutex<Option<(u64, Skewed)>> = Mutex::new(None);
    let mut last = LAST.lock().expect("no thread panics while it is locked");
    match &*last {
        Some((of, skewed)) if *of == records => skewed.with_seed(seed),
        _ => last.insert((records, Skewed::below(records, THETA, seed))).1.clone(),
    }
}

/// Sets `value` to that of a loaded record.
pub fn fill(record: u64, bytes: usize, value: &mut Vec<u8>) {
    value.clear();
    value.extend_from_slice(&record.to_le_bytes());
    let mut random = fastrand::Rng::with_seed(key_of(record));
    value.resize(bytes.max(COUNTER_BYTES), 0);
    random.fill(&mut value[COUNTER_BYTES..]);
}

/// Returns the sum of all counters of a store with this number of records and modifications.
pub fn sum_after(records: u64, modifications: u64) -> u64 {
    (records * (records.max(1) - 1) / 2).wrapping_add(modifications)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Answer, increment};

    #[test]
    fn calls_are_drawn_by_their_shares_and_find_loaded_records() {
        let work = Work::Points { records: 3, read_percent: 95 };
        let mut calls = Calls::new(work, 100, 1);
        let reads = (0..10_000).filter(|_| calls.draw().kind() == 0).count();
        assert!((9_300..9_700).contains(&reads), "{reads} of 10 000 read");
        let work = Work::Points { records: 3, read_percent: 100 };
        let Call::Read(keys) = Calls::new(work, 100, 1).draw() else { panic!("all read") };
        assert_eq!(keys.len(), 3);
        let mut calls = Calls::new(Work::Skewed { read_percent: 50 }, 1000, 1);
        let mut draws = std::collections::HashMap::<u64, usize>::new();
        let modifies = (0..10_000).filter(|_| {
            let call = calls.draw();
            let (Call::Read(keys) | Call::Modify(keys)) = &call else { panic!("no scans") };
            assert_eq!(keys.len(), 1);
            *draws.entry(keys[0]).or_default() += 1;
            matches!(call, Call::Modify(_))
        });
        let modifies = modifies.count();
        assert!((4_700..5_300).contains(&modifies), "{modifies} of 10 000 modify");
        assert!(draws.values().max().is_some_and(|most| *most > 500), "some keys are drawn often");

        let (mut value, mut answer) = (Vec::new(), Answer::default());
        for record in 0..5 {
            fill(record, 20, &mut value);
            assert_eq!(value.len(), 20);
            increment(&mut value);
            answer.add(key_of(record), &value);
        }
        assert_eq!((answer.records, answer.sum), (5, sum_after(5, 5)));
    }
}
