//! In-place read-modify-writes of the bare tree on one thread, interleaved like look-ups. They show
//! the cost of an engine without versions, and the cost of recording the owner of each write.

use std::cell::Cell;
use std::time::Instant;

use super::hinted_lookup::{HintedLookup, READS};
use super::interleave::{interleave, touch};
use crate::harness::latency::Latencies;
use crate::harness::rounds::{Effort, Sample};
use crate::random::Uniform;

/// The bookkeeping for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// A write only replaces the value.
    NoVersions,
    /// A transaction has a status, and a record stores its writer and the commit time.
    Status,
}

/// The number of interleaved transactions.
const WIDTH: usize = 24;

/// The phase of a transaction, as in an engine's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Active,
    Committed(u64),
}

impl HintedLookup {
    /// Adds one to ten records in each transaction.
    pub(crate) fn modify(&mut self, layer: Layer, effort: Effort, seed: u64) -> Sample {
        let tree = &*self;
        let clock = Cell::new(1_u64);
        let mut draw = Uniform::below(tree.records(), seed);
        let (mut started, mut transactions) = (0_u64, 0);
        let begin = Instant::now();
        let next = || {
            if effort.is_over(started, begin) {
                return None;
            }
            started += 1;
            let keys = draw.keys::<READS>();
            Some(tree.modify_records(keys, layer, &clock))
        };
        interleave(WIDTH, next, |()| transactions += 1);
        Sample::plain(transactions, begin.elapsed(), Latencies::one_in(1))
    }

    async fn modify_records(&self, keys: [u64; READS], layer: Layer, clock: &Cell<u64>) {
        let phase = Cell::new(Phase::Active);
        let name = clock.get() | 1 << 63;
        let mut written = [0_usize; READS];
        for (key, written) in keys.iter().zip(&mut written) {
            let rid = self.find(*key).await.expect("every drawn key is in the tree") as usize;
            touch(&raw const self.indirection[rid]).await;
            let number = self.indirection[rid] as usize;
            let version = self.versions.pointer(number);
            touch(version).await;
            // SAFETY: `pointer` is in bounds. `modify` borrows the tree exclusively. During that
            // time, only such pointers on this thread access versions, and only between
            // suspensions.
            unsafe {
                (*version).value = (*version).value.wrapping_add(1);
                if layer == Layer::Status {
                    (*version).stamp = name;
                }
            }
            *written = number;
        }
        if layer == Layer::NoVersions {
            return;
        }
        clock.set(clock.get() + 1);
        phase.set(Phase::Committed(clock.get()));
        let Phase::Committed(at) = std::hint::black_box(phase.get()) else { return };
        for number in written {
            // SAFETY: `pointer` is in bounds. `modify` borrows the tree exclusively. During that
            // time, only such pointers on this thread access versions, and only between
            // suspensions.
            unsafe { (*self.versions.pointer(number)).stamp = at };
        }
    }

    /// Returns the sum of all values.
    #[cfg(test)]
    fn sum(&self) -> u64 {
        self.versions.iter().fold(0, |sum, version| sum.wrapping_add(version.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_modification_is_applied_once() {
        for layer in [Layer::NoVersions, Layer::Status] {
            for records in [3, 5_000] {
                let mut tree = HintedLookup::build(records).unwrap();
                let before = tree.sum();
                let sample = tree.modify(layer, Effort::Transactions(2_000), 1);
                assert_eq!(sample.transactions, 2_000);
                assert_eq!(tree.sum(), before + 2_000 * READS as u64, "{layer:?}");
                let sample = tree.modify(layer, Effort::Seconds(0.01), 2);
                let all = 2_000 + sample.transactions;
                assert_eq!(tree.sum(), before + all * READS as u64, "{layer:?}");
            }
        }
    }
}
