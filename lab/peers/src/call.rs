//! Calls, and values: the same for every store, so that answers can be compared.
//!
//! A value begins with a counter, which is the record's number when it is loaded; the rest follows from the key and does
//! not compress. A modification reads a value, adds one to its counter and writes it back. So the sum of all counters
//! tells how many modifications are there.

use std::sync::Mutex;

use braid_workloads::random::{Skewed, Uniform, key_of};
use serde::{Deserialize, Serialize};

use crate::answer::COUNTER_BYTES;
use crate::tpcc::{self, Trade};

/// Records that one call reads or modifies at most.
pub const MOST: usize = 10;

/// Keys of one call.
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

/// What one transaction does.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Reads records, all of which are there.
    Read(Keys),
    /// Adds one to the counters of records.
    Modify(Keys),
    /// Reads the records from a key on, in order, so many at most.
    Scan { from: u64, limit: u64 },
    /// A transaction of TPC-C.
    Trade(Trade),
}

/// Names of the kinds of calls, as tables show them.
pub const KINDS: [&str; 3] = ["reads", "modifications", "scans"];

impl Call {
    /// Its place in `KINDS`.
    pub fn kind(&self) -> usize {
        match self {
            Self::Read(_) => 0,
            Self::Modify(_) => 1,
            Self::Scan { .. } => 2,
            Self::Trade(trade) => usize::from(!trade.only_reads()),
        }
    }

    /// Whether it writes nothing.
    pub fn only_reads(&self) -> bool {
        self.kind() != 1
    }

    /// All records.
    pub const EVERYTHING: Self = Self::Scan { from: 0, limit: u64::MAX };
}

/// What transactions do, by shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// So many uniformly drawn records a transaction; of a hundred transactions so many only read.
    Points { records: usize, read_percent: u8 },
    /// One record a transaction, drawn with YCSB's skew (theta 0.99); of a hundred transactions so many only read.
    Skewed { read_percent: u8 },
    /// Scans of so many records from a uniformly drawn one on.
    Scans { records: u64 },
    /// TPC-C's mix.
    Trades,
    /// All of these, but TPC-C's, for comparing answers.
    Everything,
}

impl Work {
    /// Whether no transaction writes.
    pub fn only_reads(self) -> bool {
        matches!(
            self,
            Self::Points { read_percent: 100, .. }
                | Self::Skewed { read_percent: 100 }
                | Self::Scans { .. }
        )
    }

    /// Whether some transactions read and others write.
    pub fn is_mixed(self) -> bool {
        !self.only_reads() && !matches!(self, Self::Points { read_percent: 0, .. })
    }

    /// Records that one modifying transaction modifies.
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
    /// On a store of so many records.
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

    /// The next one.
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

/// Draws of so many records with YCSB's skew. Adding up the frequencies takes long, so the last ones are kept.
fn skewed(records: u64, seed: u64) -> Skewed {
    const THETA: f64 = 0.99;
    static LAST: Mutex<Option<(u64, Skewed)>> = Mutex::new(None);
    let mut last = LAST.lock().expect("nobody panics while it is locked");
    match &*last {
        Some((of, skewed)) if *of == records => skewed.with_seed(seed),
        _ => last.insert((records, Skewed::below(records, THETA, seed))).1.clone(),
    }
}

/// Makes `value` that of a loaded record.
pub fn fill(record: u64, bytes: usize, value: &mut Vec<u8>) {
    value.clear();
    value.extend_from_slice(&record.to_le_bytes());
    let mut random = fastrand::Rng::with_seed(key_of(record));
    value.resize(bytes.max(COUNTER_BYTES), 0);
    random.fill(&mut value[COUNTER_BYTES..]);
}

/// The sum of all counters of a store with so many records after so many modifications.
pub fn sum_after(records: u64, modifications: u64) -> u64 {
    (records * (records.max(1) - 1) / 2).wrapping_add(modifications)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Answer, increment};

    #[test]
    fn draws_by_shares_and_answers_what_was_loaded() {
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
