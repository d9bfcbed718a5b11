//! Order of the records to be moved. There may be millions, so they are sorted in steps, between which
//! other tasks of the worker run.

use crate::sched;

/// Number of records that are sorted, or merged, without suspension.
const RUN: usize = if cfg!(test) { 4 } else { 4096 };
/// Steps of a task that a run counts as.
const STEPS_PER_RUN: u32 = RUN.div_ceil(8) as u32;

/// Sorts records by a key: runs of a fixed length, which are then merged in pairs.
pub(super) async fn sort<T: Copy, K: Ord>(mut records: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    for run in records.chunks_mut(RUN) {
        run.sort_unstable_by_key(&key);
        sched::count_steps(STEPS_PER_RUN).await;
    }
    let mut merged = Vec::with_capacity(if records.len() > RUN { records.len() } else { 0 });
    let mut width = RUN;
    while width < records.len() {
        for pair in records.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while !left.is_empty() || !right.is_empty() {
                merge_some(&mut left, &mut right, &mut merged, &key);
                sched::count_steps(STEPS_PER_RUN).await;
            }
        }
        std::mem::swap(&mut records, &mut merged);
        merged.clear();
        width *= 2;
    }
    records
}

/// Moves up to a run of records from the fronts of two sorted slices to the end of `merged`.
fn merge_some<'r, T: Copy, K: Ord>(
    left: &mut &'r [T],
    right: &mut &'r [T],
    merged: &mut Vec<T>,
    key: impl Fn(&T) -> K,
) {
    for _ in 0..RUN {
        let from = match (left.first(), right.first()) {
            (Some(one), Some(other)) if key(other) < key(one) => &mut *right,
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
    use crate::common::{PART_SECONDS, with_limit};
    use crate::sched::run_now;

    #[test]
    fn records_are_sorted_by_their_keys() {
        with_limit(PART_SECONDS, |_| {
            let mut random = fastrand::Rng::with_seed(1);
            for count in (0..40).chain([1000]) {
                let records: Vec<_> =
                    (0..count).map(|number| (random.u64(..500), number)).collect();
                let mut expected = records.clone();
                let mut sorted = run_now(sort(records, |(key, _)| *key));
                assert!(sorted.is_sorted_by_key(|(key, _)| *key), "{count} records");
                sorted.sort_unstable();
                expected.sort_unstable();
                assert_eq!(sorted, expected);
            }
        });
    }
}
