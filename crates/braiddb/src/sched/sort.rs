//! Sorting of lists that may be long: in steps, between which other tasks of the worker run.

use std::cmp::Ordering;

use super::count_steps;

/// Number of items that are sorted, or merged, without suspension.
const RUN: usize = if cfg!(test) { 4 } else { 1024 };
/// Number of items that count as one step.
const ITEMS_PER_STEP: usize = 8;
const STEPS: u32 = RUN.div_ceil(ITEMS_PER_STEP) as u32;

/// Sorts items: runs of a fixed length, which are then merged in pairs. Equal items stay in order.
pub(crate) async fn sort<T: Copy>(
    mut items: Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Vec<T> {
    for run in items.chunks_mut(RUN) {
        run.sort_by(&compare);
        count_steps(STEPS).await;
    }
    let mut merged = Vec::with_capacity(if items.len() > RUN { items.len() } else { 0 });
    let mut width = RUN;
    while width < items.len() {
        for pair in items.chunks(2 * width) {
            let (mut left, mut right) = pair.split_at(width.min(pair.len()));
            while !left.is_empty() || !right.is_empty() {
                merge_some(&mut left, &mut right, &mut merged, &compare);
                count_steps(STEPS).await;
            }
        }
        std::mem::swap(&mut items, &mut merged);
        merged.clear();
        width *= 2;
    }
    items
}

/// Moves up to a run of items from the fronts of two sorted slices to the end of `merged`.
fn merge_some<'i, T: Copy>(
    left: &mut &'i [T],
    right: &mut &'i [T],
    merged: &mut Vec<T>,
    compare: impl Fn(&T, &T) -> Ordering,
) {
    for _ in 0..RUN {
        let from = match (left.first(), right.first()) {
            (Some(one), Some(other)) if compare(other, one).is_lt() => &mut *right,
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
    fn items_are_sorted_and_equal_ones_stay_in_order() {
        with_limit(PART_SECONDS, |_| {
            let mut random = fastrand::Rng::with_seed(1);
            for count in (0..40).chain([1000]) {
                let items: Vec<(u64, usize)> =
                    (0..count).map(|place| (random.u64(..count as u64 / 2 + 1), place)).collect();
                let mut expected = items.clone();
                expected.sort_by_key(|item| item.0);
                let sorted = run_now(sort(items, |one, other| one.0.cmp(&other.0)));
                assert_eq!(sorted, expected, "{count} items");
            }
        });
    }
}
