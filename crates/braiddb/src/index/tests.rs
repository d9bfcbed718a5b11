//! Tests of the index against `BTreeMap`, single-threaded and with concurrent changes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use smallvec::SmallVec;

use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::memory::{MemoryCounters, MemoryKind};
use crate::reclaim::{self, Domain, Participation};
use crate::rid::Rid;
use crate::sched::run_now;

type Model = BTreeMap<Vec<u8>, u64>;

fn entries(
    index: &IndexTree,
    low: Bound<&[u8]>,
    high: Bound<&[u8]>,
    reverse: bool,
) -> Vec<(Vec<u8>, u64)> {
    let guard = reclaim::enter();
    let (mut cursor, mut batch, mut found) =
        (index.cursor(low, high, reverse), Vec::new(), Vec::new());
    let most = if reverse { 7 } else { 64 };
    while run_now(cursor.next_batch(&guard, &mut batch, most)) {
        for entry in &batch {
            let mut key = SmallVec::<[u8; 8]>::new();
            entry.copy_key(&mut key);
            found.push((key.to_vec(), entry.rid().number()));
        }
    }
    found
}

fn get(index: &IndexTree, key: &[u8]) -> Option<u64> {
    let guard = reclaim::enter();
    index.get(key, &guard).map(Rid::number)
}

fn insert(index: &IndexTree, key: &[u8], rid: u64) -> Result<(), u64> {
    let guard = reclaim::enter();
    index.insert(key, Rid::new(rid), &guard).map_err(Rid::number)
}

fn remove(index: &IndexTree, key: &[u8], rid: u64) -> bool {
    let guard = reclaim::enter();
    index.remove(key, Rid::new(rid), &guard)
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..2, 0..14),
        (0u64..3000).prop_map(|n| n.to_be_bytes().to_vec()),
        (0usize..400, 0u8..4).prop_map(|(n, last)| [vec![7; n], vec![last]].concat()),
        (0usize..20).prop_map(|n| vec![0xff; n]),
        (0u32..2000).prop_map(|n| format!("a long common prefix/{n}").into_bytes()),
        (0u32..3, 0u64..500).prop_map(|(first, second)| pair(first.into(), second)),
    ]
}

/// Returns the key of a pair of numbers.
fn pair(first: u64, second: u64) -> Vec<u8> {
    [first.to_be_bytes(), second.to_be_bytes()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_table_behaves_as_a_map(
        steps in prop::collection::vec((key(), 0u8..4), 0..1500),
        bounds in prop::collection::vec((key(), key()), 8),
    ) {
        with_limit(PART_SECONDS, move |_| {
            let memory = Arc::new(MemoryCounters::new());
            let domain = Arc::new(Domain::new(1, memory.clone()));
            let me = domain.participate();
            let index = IndexTree::new(memory.clone());
            let mut model = Model::new();
            for (number, (key, step)) in steps.into_iter().enumerate() {
                let rid = number as u64;
                match step {
                    0 => {
                        let there = model.remove(&key);
                        prop_assert_eq!(remove(&index, &key, there.unwrap_or(rid)), there.is_some());
                    }
                    _ => {
                        let expected = model.get(&key).map_or(Ok(()), |there| Err(*there));
                        prop_assert_eq!(insert(&index, &key, rid), expected);
                        model.entry(key.clone()).or_insert(rid);
                    }
                }
                prop_assert_eq!(get(&index, &key), model.get(&key).copied());
                if number % 64 == 0 {
                    me.turn();
                    index.check();
                }
            }
            for (low, high) in bounds {
                for (low, high) in [
                    (Bound::Included(low.clone()), Bound::Excluded(high.clone())),
                    (Bound::Excluded(low.clone()), Bound::Included(high.clone())),
                    (Bound::Unbounded, Bound::Included(high)),
                    (Bound::Excluded(low), Bound::Unbounded),
                ] {
                    let ordered = match (&low, &high) {
                        (Bound::Included(l) | Bound::Excluded(l), Bound::Included(h) | Bound::Excluded(h)) => l < h,
                        _ => true,
                    };
                    let mut expected: Vec<_> = if ordered {
                        model.range((low.clone(), high.clone())).map(|(k, v)| (k.clone(), *v)).collect()
                    } else {
                        Vec::new()
                    };
                    let (low, high) = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                    if ordered {
                        prop_assert_eq!(entries(&index, low, high, false), expected.clone());
                        expected.reverse();
                        prop_assert_eq!(entries(&index, low, high, true), expected);
                    }
                }
            }
            for (key, rid) in &model {
                prop_assert!(remove(&index, key, *rid));
            }
            prop_assert!(entries(&index, Bound::Unbounded, Bound::Unbounded, false).is_empty());
            while me.turn() {}
            prop_assert_eq!(memory.bytes(MemoryKind::Key), 0, "every long key was freed");
            prop_assert!(index.nodes_by_level().iter().sum::<u64>() <= 2);
            drop(index);
            prop_assert_eq!(memory.bytes(MemoryKind::Node), 0);
            Ok::<_, TestCaseError>(())
        })?;
    }
}

/// Creates a domain for `threads` threads, and an empty index.
fn empty(threads: usize) -> (Arc<Domain>, IndexTree) {
    let memory = Arc::new(MemoryCounters::new());
    (Arc::new(Domain::new(threads, memory.clone())), IndexTree::new(memory))
}

/// Creates a domain in which this thread participates, and an empty index.
fn alone() -> (Participation, IndexTree) {
    let (domain, index) = empty(1);
    (domain.participate(), index)
}

/// Keys that differ only in the eight bytes behind a common prefix are stored without cells, until a
/// key without the prefix arrives in their node.
#[test]
fn keys_with_a_common_prefix_need_no_cells() {
    with_limit(PART_SECONDS, |_| {
        const KEYS: u64 = 2000;
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(1, memory.clone()));
        let me = domain.participate();
        let index = IndexTree::new(memory.clone());
        let number_of = |n: u64| n * 7919 % KEYS;
        for number in (0..KEYS).map(number_of) {
            insert(&index, &pair(7, number), number).unwrap();
        }
        index.check();
        while me.turn() {}
        let leaves = index.nodes_by_level()[0];
        assert!(memory.bytes(MemoryKind::Key) <= (leaves + 10) * 64, "{leaves} leaves");
        let (low, high) = (vec![0; 3], vec![0xff; 40]);
        for (key, rid) in [(&low, KEYS), (&high, KEYS + 1)] {
            insert(&index, key, rid).unwrap();
            index.check();
        }
        let mut expected: Vec<_> = (0..KEYS).map(|number| (pair(7, number), number)).collect();
        expected.insert(0, (low, KEYS));
        expected.push((high, KEYS + 1));
        assert_eq!(entries(&index, Bound::Unbounded, Bound::Unbounded, false), expected);
        for (key, rid) in &expected {
            assert_eq!(get(&index, key), Some(*rid));
        }
    });
}

/// Nodes are split between groups of keys. So the keys of one group, appended in order, fill their
/// leaves.
#[test]
fn splits_separate_groups_of_keys() {
    with_limit(PART_SECONDS, |_| {
        const GROUPS: u64 = 20;
        const EACH: u64 = 1000;
        let (me, index) = alone();
        for number in 0..EACH {
            for group in 0..GROUPS {
                insert(&index, &pair(group, number), number).unwrap();
            }
            me.turn();
        }
        index.check();
        let (leaves, full) =
            (index.nodes_by_level()[0], GROUPS * EACH / super::node::FANOUT as u64);
        assert!(leaves <= full * 5 / 4, "{leaves} leaves, {full} full ones");
    });
}

/// The last places of an inner node that was split have no separators any more. Searched keys have the
/// largest possible heads.
#[test]
fn keys_above_all_separators_of_a_node_are_searched_in_its_last_child() {
    with_limit(PART_SECONDS, |_| {
        const GROUPS: u64 = 12;
        let (me, index) = alone();
        for number in 0..GROUPS * 2000 {
            let key = pair(number % GROUPS, number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            insert(&index, &key, number).unwrap();
        }
        me.turn();
        index.check();
        for group in 0..GROUPS {
            let end = pair(group, u64::MAX);
            assert_eq!(get(&index, &end), None);
            let (low, high) = (pair(group, 0), Bound::Included(&end[..]));
            assert_eq!(entries(&index, Bound::Included(&low), high, true).len(), 2000);
            assert!(insert(&index, &end, group).is_ok());
            assert_eq!(get(&index, &end), Some(group));
        }
        index.check();
    });
}

/// A leaf becomes empty, and a neighbour with a prefix takes over its range: keys without the prefix
/// belong to the neighbour then.
#[test]
fn a_neighbour_that_takes_over_a_range_compares_its_prefix() {
    with_limit(PART_SECONDS, |_| {
        const LEAF: u64 = super::node::FANOUT as u64;
        for (group, emptied, neighbour) in
            [(0, 0..LEAF, LEAF + 1), (2, 3 * LEAF..200, 3 * LEAF - 1)]
        {
            let (_me, index) = alone();
            for number in 0..200 {
                insert(&index, &pair(1, number), number).unwrap();
            }
            for number in emptied {
                assert!(remove(&index, &pair(1, number), number));
            }
            index.check();
            // Both keys end alike.
            assert_eq!(get(&index, &pair(1, neighbour)), Some(neighbour));
            assert_eq!(get(&index, &pair(group, neighbour)), None);
            insert(&index, &pair(group, neighbour), 1000).unwrap();
            index.check();
            assert_eq!(get(&index, &pair(group, neighbour)), Some(1000));
        }
    });
}

/// One key in 64 is kept, and the others are removed in several orders.
#[test]
fn sparse_nodes_are_merged() {
    with_limit(PART_SECONDS, |_| {
        const KEYS: u64 = 64 * 1000;
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| KEYS - 1 - n, |n| n * 7919 % KEYS];
        for order in orders {
            let (me, index) = alone();
            for number in 0..KEYS {
                insert(&index, &number.to_be_bytes(), number).unwrap();
            }
            for number in (0..KEYS).map(order).filter(|number| number % 64 != 0) {
                assert!(remove(&index, &number.to_be_bytes(), number));
                if number % 1024 == 1 {
                    me.turn();
                }
            }
            index.check();
            let nodes = index.nodes_by_level();
            assert!(nodes[0] <= KEYS / 64 / 16 && nodes[1] <= nodes[0] / 16 + 2, "{nodes:?}");
            let left: Vec<_> =
                (0..KEYS).step_by(64).map(|n| (n.to_be_bytes().to_vec(), n)).collect();
            assert_eq!(entries(&index, Bound::Unbounded, Bound::Unbounded, false), left);
        }
    });
}

/// Keys are inserted at one end and removed at the other, or some distance behind.
#[test]
fn a_queue_leaves_no_nodes_behind() {
    with_limit(PART_SECONDS, |_| {
        for length in [1, 10, 100, 1000_u64] {
            let (me, index) = alone();
            for number in 0..50_000_u64 {
                insert(&index, &number.to_be_bytes(), number).unwrap();
                if let Some(gone) = number.checked_sub(length) {
                    assert!(remove(&index, &gone.to_be_bytes(), gone));
                }
                if number % 256 == 0 {
                    me.turn();
                    let nodes: u64 = index.nodes_by_level().iter().sum();
                    assert!(nodes <= length / 16 + 6, "{number}: {:?}", index.nodes_by_level());
                }
            }
            index.check();
        }
    });
}

/// Nodes fill, become sparse and are merged during scans in both directions. Each scan must visit
/// every permanent key, once and in order.
#[test]
fn scans_beside_merges_and_splits_meet_what_stays() {
    with_limit(PART_SECONDS, |_| {
        const KEYS: u64 = 6000;
        const ROUNDS: u64 = if cfg!(debug_assertions) { 12 } else { 60 };
        let stays = |number: u64| number.is_multiple_of(100);
        let name = |number: u64| match number % 3 {
            0 => (number << 20).to_be_bytes().to_vec(),
            1 => format!("a common prefix {number:08}").into_bytes(),
            _ => [vec![7; 2040], number.to_be_bytes().to_vec()].concat(),
        };
        let (domain, index) = empty(4);
        let over = AtomicBool::new(false);
        let mut staying: Vec<_> = (0..KEYS).filter(|n| stays(*n)).map(|n| (name(n), n)).collect();
        staying.sort();
        {
            let _me = domain.participate();
            staying.iter().for_each(|(key, number)| insert(&index, key, *number).unwrap());
        }
        std::thread::scope(|scope| {
            let (domain, index, over, staying) = (&domain, &index, &over, &staying);
            for reverse in [false, true] {
                scope.spawn(move || {
                    let (me, mut scans) = (domain.participate(), 0);
                    while !over.load(Ordering::Relaxed) {
                        let mut found = entries(index, Bound::Unbounded, Bound::Unbounded, reverse);
                        if reverse {
                            found.reverse();
                        }
                        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "in order, each once");
                        found.retain(|(_, number)| stays(*number));
                        assert!(found == *staying, "{} of {}", found.len(), staying.len());
                        scans += 1;
                        me.turn();
                    }
                    assert!(scans > 0);
                });
            }
            let changing = (0..2).map(|thread| {
                scope.spawn(move || {
                    let (me, mut random) = (domain.participate(), fastrand::Rng::with_seed(thread));
                    let mine = |n: &u64| !stays(*n) && n % 2 == thread;
                    let mut numbers: Vec<_> = (0..KEYS).filter(mine).collect();
                    for _ in 0..ROUNDS {
                        random.shuffle(&mut numbers);
                        for number in &numbers {
                            assert_eq!(insert(index, &name(*number), *number), Ok(()));
                        }
                        me.turn();
                        random.shuffle(&mut numbers);
                        for number in &numbers {
                            assert_eq!(get(index, &name(*number)), Some(*number));
                            assert!(remove(index, &name(*number), *number));
                        }
                        me.turn();
                    }
                })
            });
            let changing: Vec<_> = changing.collect();
            let changed: Vec<_> = changing.into_iter().map(|thread| thread.join()).collect();
            over.store(true, Ordering::Relaxed);
            assert!(changed.iter().all(Result::is_ok));
        });
        index.check();
        let leaves = index.nodes_by_level()[0];
        assert!(leaves <= staying.len() as u64 / 8, "{leaves} leaves: sparse ones were merged");
    });
}

#[test]
fn loading_in_order_fills_nodes() {
    with_limit(PART_SECONDS, |_| {
        let (_me, index) = alone();
        for number in 0..1000 * node::FANOUT as u64 {
            insert(&index, &number.to_be_bytes(), number).unwrap();
        }
        assert_eq!(index.nodes_by_level()[0], 1000, "leaves are full");
    });
}

/// The keys of the threads interleave in every leaf, and each thread knows the contents of its
/// keys. Concurrent scans must see each unchanged key exactly once.
#[test]
fn threads_do_not_disturb_each_other() {
    with_limit(PART_SECONDS, |_| {
        const THREADS: u64 = 3;
        const KEYS: u64 = 2000;
        const ROUNDS: u64 = if cfg!(debug_assertions) { 20_000 } else { 60_000 };
        let (domain, index) = empty(THREADS as usize + 2);
        let name = |number: u64| match number % 3 {
            0 => (number << 20).to_be_bytes().to_vec(),
            _ => format!("a key with a common prefix {number:08}").into_bytes(),
        };
        let still = |number: u64| number % (THREADS + 1) == THREADS;
        {
            let _me = domain.participate();
            for number in (0..KEYS).filter(|n| still(*n)) {
                insert(&index, &name(number), number).unwrap();
            }
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (domain, index) = (&domain, &index);
                scope.spawn(move || {
                    let me = domain.participate();
                    let mut random = fastrand::Rng::with_seed(thread);
                    let mut mine = Model::new();
                    for round in 0..ROUNDS {
                        let number = random.u64(0..KEYS / (THREADS + 1)) * (THREADS + 1) + thread;
                        let key = name(number);
                        if let Some(rid) = mine.remove(&key) {
                            assert!(remove(index, &key, rid));
                        } else {
                            assert_eq!(insert(index, &key, number), Ok(()));
                            mine.insert(key.clone(), number);
                        }
                        assert_eq!(get(index, &key), mine.get(&key).copied());
                        if round % 32 == 0 {
                            me.turn();
                        }
                    }
                });
            }
            let (domain, index) = (&domain, &index);
            scope.spawn(move || {
                let me = domain.participate();
                let mut expected: Vec<_> =
                    (0..KEYS).filter(|n| still(*n)).map(|n| (name(n), n)).collect();
                expected.sort();
                for round in 0..ROUNDS / 400 {
                    let mut found =
                        entries(index, Bound::Unbounded, Bound::Unbounded, round % 2 == 1);
                    if round % 2 == 1 {
                        found.reverse();
                    }
                    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "in order, each once");
                    found.retain(|(_, number)| still(*number));
                    assert_eq!(found, expected);
                    me.turn();
                }
            });
        });
        drop(index);
    });
}

/// A scan up to the last key of its beginning ends although keys are appended.
#[test]
fn a_scan_to_the_last_key_passes_no_later_key() {
    with_limit(PART_SECONDS, |_| {
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(1, memory.clone()));
        let me = domain.participate();
        let index = IndexTree::new(memory);
        let guard = reclaim::enter();
        assert!(!run_now(run_now(index.cursor_to_last_key(&guard)).next_batch(
            &guard,
            &mut Vec::new(),
            7
        )));
        let append = |keys: std::ops::Range<u64>| {
            keys.for_each(|key| insert(&index, &key.to_be_bytes(), key).unwrap());
        };
        append(0..100);
        let mut cursor = run_now(index.cursor_to_last_key(&guard));
        let (mut batch, mut found, mut next) = (Vec::new(), 0, 100);
        while run_now(cursor.next_batch(&guard, &mut batch, 7)) {
            found += batch.len();
            append(next..next + 20);
            next += 20;
        }
        assert_eq!(found, 100);
        drop(batch);
        drop(guard);
        drop(index);
        while me.turn() {}
    });
}
