//! Tests of page trees against `BTreeMap`, single-threaded and with concurrent changes, with the
//! same requirements as the index.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::leaf::LeafView;
use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::page::layout::{KeySlot, MIN_PAGE_BYTES, SlotFlags};
use crate::sched::run_now;

type Model = BTreeMap<Vec<u8>, u64>;

const SMALL: usize = MIN_PAGE_BYTES;
const USUAL: usize = 4096;

fn tree(page_bytes: usize, frames: u32) -> PageTree {
    let space = PageSpace::new(page_bytes, frames, u64::from(frames), None).unwrap();
    run_now(PageTree::create(space, TableId(3))).unwrap()
}

fn number_in(value: &[u8]) -> u64 {
    assert!(value[8..].iter().all(|byte| *byte == value[0]), "one value, whole");
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Returns a value that encodes a number and has a length that depends on it.
fn value_of(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(8 + (number % 23) as usize, number as u8);
    value
}

fn entries(
    tree: &PageTree,
    low: Bound<&[u8]>,
    high: Bound<&[u8]>,
    reverse: bool,
) -> Vec<(Vec<u8>, u64)> {
    let (mut cursor, mut found) = (tree.cursor(low, high, reverse), Vec::new());
    let most = if reverse { 7 } else { 64 };
    let batch = |leaf: LeafView<'_>, places: std::ops::Range<usize>| {
        assert!((1..=most).contains(&places.len()));
        let entry = |place| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            leaf.copy_key(place, &mut key);
            leaf.copy_value(place, &mut value);
            (key, value)
        };
        places.map(entry).collect::<Vec<_>>()
    };
    while let Some(mut batch) = run_now(cursor.next(most, batch)).unwrap() {
        if reverse {
            batch.reverse();
        }
        found.extend(batch.into_iter().map(|(key, value)| (key, number_in(&value))));
    }
    found
}

fn all(tree: &PageTree) -> Vec<(Vec<u8>, u64)> {
    entries(tree, Bound::Unbounded, Bound::Unbounded, false)
}

fn get(tree: &PageTree, key: &[u8]) -> Option<u64> {
    let read = tree.read(key, |leaf, slot| match slot {
        KeySlot::At(place) => {
            let mut value = Vec::new();
            leaf.copy_value(place, &mut value);
            Some(value)
        }
        KeySlot::Before(_) => None,
    });
    run_now(read).unwrap().map(|value| number_in(&value))
}

/// Inserts a key. If it exists, returns its value as the error.
fn insert(tree: &PageTree, key: &[u8], number: u64) -> Result<(), u64> {
    let value = value_of(number);
    let mut leaf = tree.try_latch(key, LeafRoom::value(value.len())).unwrap();
    match leaf.find(key) {
        KeySlot::At(place) => {
            let mut value = Vec::new();
            leaf.copy_value(place, &mut value);
            Err(number_in(&value))
        }
        KeySlot::Before(place) => {
            leaf.insert(place, key, &value, SlotFlags::NONE);
            Ok(())
        }
    }
}

/// Replaces the value of an existing key.
fn update(tree: &PageTree, key: &[u8], number: u64) {
    let value = value_of(number);
    let mut leaf = run_now(tree.latch(key, LeafRoom::value(value.len()))).unwrap();
    let KeySlot::At(place) = leaf.find(key) else { panic!("it is there") };
    leaf.overwrite(place, &value, SlotFlags::NONE);
}

fn remove(tree: &PageTree, key: &[u8]) -> bool {
    let mut leaf = tree.try_latch(key, LeafRoom::NONE).unwrap();
    let KeySlot::At(place) = leaf.find(key) else { return false };
    leaf.remove(place);
    let is_sparse = leaf.is_sparse();
    drop(leaf);
    if is_sparse {
        tree.merge_if_in_memory(key);
    }
    true
}

/// Keys of at most 16 bytes, which fit on the smallest pages.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..2, 0..14),
        (0u64..3000).prop_map(|n| n.to_be_bytes().to_vec()),
        (0usize..15, 0u8..4).prop_map(|(n, last)| [vec![7; n], vec![last]].concat()),
        (0usize..16).prop_map(|n| vec![0xff; n]),
        (0u32..2000).prop_map(|n| format!("a prefix/{n}").into_bytes()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_table_behaves_as_a_map(
        small in any::<bool>(),
        steps in prop::collection::vec((key(), 0u8..5), 0..1500),
        bounds in prop::collection::vec((key(), key()), 8),
    ) {
        with_limit(PART_SECONDS, move |_| {
            let tree = tree(if small { SMALL } else { USUAL }, 1000);
            let mut model = Model::new();
            for (number, (key, step)) in steps.into_iter().enumerate() {
                match step {
                    0 => prop_assert_eq!(remove(&tree, &key), model.remove(&key).is_some()),
                    1 if model.contains_key(&key) => {
                        update(&tree, &key, number as u64);
                        model.insert(key.clone(), number as u64);
                    }
                    _ => {
                        let expected = model.get(&key).map_or(Ok(()), |there| Err(*there));
                        prop_assert_eq!(insert(&tree, &key, number as u64), expected);
                        model.entry(key.clone()).or_insert(number as u64);
                    }
                }
                prop_assert_eq!(get(&tree, &key), model.get(&key).copied());
                if number % 64 == 0 {
                    tree.check_all();
                }
            }
            for (low, high) in bounds {
                for (low, high) in [
                    (Bound::Included(low.clone()), Bound::Excluded(high.clone())),
                    (Bound::Excluded(low.clone()), Bound::Included(high.clone())),
                    (Bound::Unbounded, Bound::Included(high)),
                    (Bound::Excluded(low), Bound::Unbounded),
                ] {
                    if let (Bound::Included(l) | Bound::Excluded(l), Bound::Included(h) | Bound::Excluded(h))
                        = (&low, &high) && l >= h {
                        continue;
                    }
                    let mut expected: Vec<_> =
                        model.range((low.clone(), high.clone())).map(|(k, v)| (k.clone(), *v)).collect();
                    let (low, high) = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
                    prop_assert_eq!(entries(&tree, low, high, false), expected.clone());
                    expected.reverse();
                    prop_assert_eq!(entries(&tree, low, high, true), expected);
                }
            }
            for key in model.keys() {
                prop_assert!(remove(&tree, key));
            }
            tree.check_all();
            prop_assert!(all(&tree).is_empty());
            let pages: u64 = tree.pages_by_level().iter().sum();
            prop_assert!(pages <= 4, "{:?}", tree.pages_by_level());
            let space = tree.space.clone();
            prop_assert_eq!(space.frames_in_use(), pages);
            tree.free_all(None);
            prop_assert_eq!(space.frames_in_use(), 0);
            Ok::<_, TestCaseError>(())
        })?;
    }
}

/// One key in 64 is kept, and the others are removed in several orders.
#[test]
fn sparse_pages_are_merged() {
    with_limit(PART_SECONDS, |_| {
        const KEYS: u64 = 64 * 1000;
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| KEYS - 1 - n, |n| n * 7919 % KEYS];
        for order in orders {
            let tree = tree(USUAL, 2000);
            for number in 0..KEYS {
                insert(&tree, &number.to_be_bytes(), number).unwrap();
            }
            let before = tree.pages_by_level();
            for number in (0..KEYS).map(order).filter(|number| number % 64 != 0) {
                assert!(remove(&tree, &number.to_be_bytes()));
            }
            tree.check_all();
            let pages = tree.pages_by_level();
            assert!(pages[0] <= before[0] / 16, "{pages:?} of {before:?}");
            let left: Vec<_> =
                (0..KEYS).step_by(64).map(|n| (n.to_be_bytes().to_vec(), n)).collect();
            assert_eq!(all(&tree), left);
        }
    });
}

/// Keys are inserted at one end and removed at the other, or some distance behind. Few frames
/// suffice, and page ids are reused.
#[test]
fn a_queue_leaves_no_pages_behind() {
    with_limit(PART_SECONDS, |_| {
        for length in [1, 10, 100, 1000_u64] {
            let tree = tree(SMALL, 16 + length as u32 / 2);
            for number in 0..20_000_u64 {
                insert(&tree, &number.to_be_bytes(), number).unwrap();
                if let Some(gone) = number.checked_sub(length) {
                    assert!(remove(&tree, &gone.to_be_bytes()));
                }
            }
            tree.check_all();
            let pages = tree.pages_by_level();
            assert!(pages.iter().sum::<u64>() <= 12 + length / 2, "{pages:?}");
        }
    });
}

#[test]
fn loading_in_order_fills_pages() {
    with_limit(PART_SECONDS, |_| {
        let tree = tree(USUAL, 2000);
        let value = 7_u64.to_le_bytes();
        for number in 0..64_000u64 {
            let key = number.to_be_bytes();
            let mut leaf = tree.try_latch(&key, LeafRoom::value(8)).unwrap();
            let KeySlot::Before(place) = leaf.find(&key) else { panic!("{number} is new") };
            leaf.insert(place, &key, &value, SlotFlags::NONE);
        }
        tree.check_all();
        // Space after header, hints and fences: 16 bytes of entry and 8 of value for each key.
        let full = (USUAL as u64 - 128 - 16) / 24;
        assert!(tree.pages_by_level()[0] <= 64_000 / (full - 1) + 1, "{:?}", tree.pages_by_level());
    });
}

/// A lack of pages is an error, and no record is lost and no page leaked.
#[test]
fn frames_and_page_ids_that_are_used_up_are_told() {
    with_limit(PART_SECONDS, |_| {
        for (frames, pages) in [(8, 100), (100, 8)] {
            let space = PageSpace::new(SMALL, frames, pages, None).unwrap();
            let tree = run_now(PageTree::create(space.clone(), TableId(1))).unwrap();
            let mut kept = Vec::new();
            let refused = loop {
                let key = (kept.len() as u64 * 7919 % 1000).to_be_bytes();
                match run_now(tree.latch(&key, LeafRoom::value(8))) {
                    Ok(mut leaf) => {
                        let KeySlot::Before(place) = leaf.find(&key) else { panic!("it is new") };
                        leaf.insert(place, &key, &[0; 8], SlotFlags::NONE);
                        kept.push(key.to_vec());
                    }
                    Err(error) => break error,
                }
            };
            match refused {
                PageError::OutOfFrames { frames: 8, page_bytes: SMALL } => assert_eq!(frames, 8),
                PageError::OutOfPageIds => assert_eq!(pages, 8),
                other => panic!("{other}"),
            }
            tree.check_all();
            kept.sort();
            let found: Vec<_> = all(&tree).into_iter().map(|(key, _)| key).collect();
            assert_eq!(found, kept);
            assert_eq!(space.frames_in_use(), tree.pages_by_level().iter().sum::<u64>());
            // After a removal, room is available again.
            kept.iter().for_each(|key| assert!(remove(&tree, key)));
            insert(&tree, b"again", 1).unwrap();
            tree.check_all();
        }
    });
}

/// Returns the key of a record. Some keys have a common prefix, and some have the maximum length.
fn name(tree: &PageTree, number: u64) -> Vec<u8> {
    match number % 3 {
        0 => (number << 20).to_be_bytes().to_vec(),
        1 => format!("prefix {number:08}").into_bytes(),
        _ => [vec![7; tree.max_key_bytes() - 8], number.to_be_bytes().to_vec()].concat(),
    }
}

/// Pages fill, become sparse and are merged during scans in both directions. Each scan must visit
/// every permanent key, once and in order.
fn scans_beside_merges_and_splits(page_bytes: usize) {
    const KEYS: u64 = 3000;
    const ROUNDS: u64 = if cfg!(debug_assertions) { 6 } else { 60 };
    let stays = |number: u64| number.is_multiple_of(100);
    let tree = tree(page_bytes, 4000);
    let over = AtomicBool::new(false);
    let mut staying: Vec<_> =
        (0..KEYS).filter(|n| stays(*n)).map(|n| (name(&tree, n), n)).collect();
    staying.sort();
    staying.iter().for_each(|(key, number)| insert(&tree, key, *number).unwrap());
    std::thread::scope(|scope| {
        let (tree, over, staying) = (&tree, &over, &staying);
        for reverse in [false, true] {
            scope.spawn(move || {
                let mut scans = 0;
                while !over.load(Ordering::Relaxed) {
                    let mut found = entries(tree, Bound::Unbounded, Bound::Unbounded, reverse);
                    if reverse {
                        found.reverse();
                    }
                    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "in order, each once");
                    found.retain(|(_, number)| stays(*number));
                    assert!(found == *staying, "{} of {}", found.len(), staying.len());
                    scans += 1;
                }
                assert!(scans > 0);
            });
        }
        let changing = (0..2).map(|thread| {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let mine = |n: &u64| !stays(*n) && n % 2 == thread;
                let mut numbers: Vec<_> = (0..KEYS).filter(mine).collect();
                for _ in 0..ROUNDS {
                    random.shuffle(&mut numbers);
                    for number in &numbers {
                        assert_eq!(insert(tree, &name(tree, *number), *number), Ok(()));
                    }
                    random.shuffle(&mut numbers);
                    for number in &numbers {
                        assert_eq!(get(tree, &name(tree, *number)), Some(*number));
                        assert!(remove(tree, &name(tree, *number)));
                    }
                }
            })
        });
        let changing: Vec<_> = changing.collect();
        let changed: Vec<_> = changing.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(changed.iter().all(Result::is_ok));
    });
    tree.check_all();
    let pages = tree.pages_by_level();
    assert!(pages[0] <= staying.len() as u64, "{pages:?}: sparse ones were merged");
    assert_eq!(all(&tree), staying);
}

#[test]
fn scans_beside_merges_and_splits_meet_what_stays() {
    with_limit(PART_SECONDS, |_| {
        scans_beside_merges_and_splits(USUAL);
    });
}

#[test]
fn scans_of_a_deep_tree_beside_merges_and_splits_meet_what_stays() {
    with_limit(PART_SECONDS, |_| {
        scans_beside_merges_and_splits(SMALL);
    });
}

/// The keys of the threads interleave on every page, and each thread knows the contents of its
/// keys. Concurrent scans must see each unchanged key exactly once. Two trees share the space, so
/// frames and page ids move between them.
#[test]
fn threads_and_trees_do_not_disturb_each_other() {
    with_limit(PART_SECONDS, |_| {
        const THREADS: u64 = 3;
        const KEYS: u64 = 600;
        const ROUNDS: u64 = if cfg!(debug_assertions) { 10_000 } else { 60_000 };
        let space = PageSpace::new(SMALL, 1000, 1000, None).unwrap();
        let trees =
            [1, 2].map(|table| run_now(PageTree::create(space.clone(), TableId(table))).unwrap());
        let still = |number: u64| number % (THREADS + 1) == THREADS;
        for tree in &trees {
            for number in (0..KEYS).filter(|n| still(*n)) {
                insert(tree, &name(tree, number), number).unwrap();
            }
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let trees = &trees;
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(thread);
                    let mut mine = [Model::new(), Model::new()];
                    for round in 0..ROUNDS {
                        // One tree fills while the other empties.
                        let which = usize::from(random.u8(0..16) == 0) ^ (round / 500 % 2) as usize;
                        let (tree, mine) = (&trees[which], &mut mine[which]);
                        let number = random.u64(0..KEYS / (THREADS + 1)) * (THREADS + 1) + thread;
                        let key = name(tree, number);
                        if mine.contains_key(&key) {
                            if random.bool() {
                                mine.remove(&key);
                                assert!(remove(tree, &key));
                            } else {
                                mine.insert(key.clone(), round);
                                update(tree, &key, round);
                            }
                        } else {
                            assert_eq!(insert(tree, &key, number), Ok(()));
                            mine.insert(key.clone(), number);
                        }
                        assert_eq!(get(tree, &key), mine.get(&key).copied());
                    }
                });
            }
            let trees = &trees;
            scope.spawn(move || {
                let tree = &trees[0];
                let mut expected: Vec<_> =
                    (0..KEYS).filter(|n| still(*n)).map(|n| (name(tree, n), n)).collect();
                expected.sort();
                let names: Vec<_> = expected.iter().map(|(key, _)| key.clone()).collect();
                for round in 0..ROUNDS / 200 {
                    let mut found =
                        entries(tree, Bound::Unbounded, Bound::Unbounded, round % 2 == 1);
                    if round % 2 == 1 {
                        found.reverse();
                    }
                    assert!(found.is_sorted_by(|a, b| a.0 < b.0), "in order, each once");
                    found.retain(|(key, _)| names.binary_search(key).is_ok());
                    assert_eq!(found, expected);
                }
            });
        });
        trees.iter().for_each(PageTree::check_all);
        let pages = trees.iter().flat_map(|tree| tree.pages_by_level()).sum::<u64>();
        assert_eq!(space.frames_in_use(), pages, "no frame is lost");
    });
}
