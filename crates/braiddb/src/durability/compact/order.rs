//! Log order of the records to be moved. There may be millions, so they are sorted in steps, between
//! which other tasks of the worker run.

use super::find::{RecordToMove, steps};
use crate::sched;

/// Number of records that are sorted, or merged, without suspension.
const RUN: usize = if cfg!(test) { 4 } else { 4096 };

/// Sorts records by their places in the log: runs of a fixed length, which are then merged in pairs.
pub(super) async fn sort(mut records: Vec<RecordToMove>) -> Vec<RecordToMove> {
    for run in records.chunks_mut(RUN) {
        run.sort_unstable_by_key(|record| record.from);
        sched::count_steps(steps(run.len())).await;
    }
    let mut merged = Vec::with_capacity(if records.len() > RUN { records.len() } else { 0 });
    let mut width = RUN;
    while width < records.len() {
        for pair in records.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while !left.is_empty() || !right.is_empty() {
                merge_some(&mut left, &mut right, &mut merged);
                sched::count_steps(steps(RUN)).await;
            }
        }
        std::mem::swap(&mut records, &mut merged);
        merged.clear();
        width *= 2;
    }
    records
}

/// Moves up to a run of records from the fronts of two sorted slices to the end of `merged`.
fn merge_some<'r>(
    left: &mut &'r [RecordToMove],
    right: &mut &'r [RecordToMove],
    merged: &mut Vec<RecordToMove>,
) {
    for _ in 0..RUN {
        let from = match (left.first(), right.first()) {
            (Some(one), Some(other)) if other.from < one.from => &mut *right,
            (Some(_), _) => &mut *left,
            (None, _) => &mut *right,
        };
        let Some((first, rest)) = from.split_first() else { break };
        merged.push(*first);
        *from = rest;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::log::Lsn;
    use crate::record::HeldLogRange;
    use crate::rid::Rid;
    use crate::sched::run_now;

    #[test]
    fn records_are_sorted_by_their_places_in_the_log() {
        let mut random = fastrand::Rng::with_seed(1);
        for count in (0..40).chain([1000]) {
            let record = |number| {
                let lsn = Lsn(random.u64(..500));
                RecordToMove::new(0, Rid::new(number), HeldLogRange { lsn, expected_bytes: 8 })
            };
            let records: Vec<_> = (0..count).map(record).collect();
            let key = |record: &RecordToMove| (record.from, record.rid);
            let mut expected: Vec<_> = records.iter().map(key).collect();
            let sorted = run_now(sort(records));
            assert!(sorted.is_sorted_by_key(|record| record.from), "{count} records");
            let mut sorted: Vec<_> = sorted.iter().map(key).collect();
            sorted.sort_unstable();
            expected.sort_unstable();
            assert_eq!(sorted, expected);
        }
    }
}
