//! Loom models of structure changes. They run the engine's code on the smallest trees that can be
//! split or merged. One thread changes two or three pages while another reads, scans or inserts.

use std::ops::Bound;
use std::sync::Arc;

use loom::model::Builder;
use loom::thread;

use super::leaf::LeafView;
use super::*;
use crate::page::layout::{KeySlot, MIN_PAGE_BYTES, SlotFlags};
use crate::sched::run_now;

const VALUE_BYTES: usize = 8;
/// More bytes than a page has room for.
const MUCH: usize = 200;
const FRAMES: u32 = 4;

fn put(tree: &PageTree, key: u8) {
    let mut leaf = run_now(tree.latch(&[key], LeafRoom::value(VALUE_BYTES))).unwrap();
    let KeySlot::Before(place) = leaf.find(&[key]) else { panic!("{key} is new") };
    leaf.insert(place, &[key], &[key; VALUE_BYTES], SlotFlags::NONE);
}

fn get(tree: &PageTree, key: u8) -> Option<u8> {
    let key = [key];
    let read = tree.read(&key, |leaf, slot| match slot {
        KeySlot::At(place) => {
            let mut value = Vec::new();
            leaf.copy_value(place, &mut value);
            value.first().copied()
        }
        KeySlot::Before(_) => None,
    });
    run_now(read).unwrap()
}

fn scan(tree: &PageTree, reverse: bool) -> Vec<u8> {
    let mut cursor = tree.cursor(Bound::Unbounded, Bound::Unbounded, reverse);
    let mut found = Vec::new();
    let first_bytes = |leaf: LeafView<'_>, places: std::ops::Range<usize>| {
        let first = |place| {
            let mut key = Vec::new();
            leaf.copy_key(place, &mut key);
            key.first().copied().unwrap_or(0)
        };
        places.map(first).collect::<Vec<_>>()
    };
    while let Some(mut batch) = run_now(cursor.next(8, first_bytes)).unwrap() {
        if reverse {
            batch.reverse();
        }
        found.extend(batch);
    }
    found
}

/// Creates an empty tree.
fn empty() -> PageTree {
    in_space(PageSpace::new(MIN_PAGE_BYTES, FRAMES, u64::from(FRAMES), None).unwrap())
}

fn in_space(space: Arc<PageSpace>) -> PageTree {
    run_now(PageTree::create(space, TableId(1))).unwrap()
}

/// Creates a tree with two leaves below a root: key 10, and key 50 from the separator 30.
fn two_leaves() -> PageTree {
    leaves(empty(), 1)
}

/// Like `two_leaves`, with the keys 10 and 12 in the first leaf.
fn two_keys_in_a_leaf() -> PageTree {
    leaves(empty(), 2)
}

/// Like `two_keys_in_a_leaf`, with pages of a given space.
pub(in crate::page) fn two_keys_in_a_leaf_of(space: Arc<PageSpace>) -> PageTree {
    leaves(in_space(space), 2)
}

fn leaves(tree: PageTree, first_keys: u8) -> PageTree {
    {
        let new = [tree.space.take(1).unwrap(), tree.space.take(1).unwrap()];
        let step = *tree.path(&[], 0).unwrap().last().unwrap();
        let mut root = step.page.acquire(step.version).unwrap();
        root.changed();
        let [left, right] = new.map(|new| new.into_latched());
        left.page.format(&root.page.part(left.id().number(), &[], Some(&[30])));
        for number in 0..first_keys {
            let value = [10 + 2 * number; VALUE_BYTES];
            left.page.insert(number.into(), &value[..1], &value, SlotFlags::NONE);
        }
        right.page.format(&root.page.part(right.id().number(), &[30], None));
        right.page.insert(0, &[50], &[50], SlotFlags::NONE);
        let page = root.id().number();
        root.page.format(&PageFormat { level: 1, page, table: tree.table, low: &[], high: None });
        root.page.insert_child(0, &[], left.id().number());
        root.page.insert_child(1, &[30], right.id().number());
        tree.count_pages(0, 1);
        tree.count_pages(1, 1);
    }
    tree
}

pub(in crate::page) fn beside(
    preemptions: usize,
    make: fn() -> PageTree,
    change: fn(&PageTree),
    other: fn(&PageTree),
) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(move || {
        let tree = Arc::new(make());
        let other = {
            let tree = tree.clone();
            thread::spawn(move || other(&tree))
        };
        change(&tree);
        other.join().unwrap();
    });
}

/// Splits the leaf with two keys between them.
pub(in crate::page) fn split(tree: &PageTree) {
    while tree.make_room(&[11], 0, &split::EntryToFit::Slot(LeafRoom::value(MUCH))).is_err() {}
    assert_eq!(tree.pages_by_level(), [3, 1], "the leaf was split");
}

/// Merges the two leaves.
pub(in crate::page) fn merge(tree: &PageTree) {
    while tree.try_merge(&[10], 0) != Ok(true) {}
    assert_eq!(tree.pages_by_level(), [1, 1]);
}

fn one_leaf_below_a_root() -> PageTree {
    let tree = two_leaves();
    merge(&tree);
    tree
}

/// Replaces the root by its only child.
fn lower_root(tree: &PageTree) {
    while tree.try_lower_root() != Ok(true) {}
    assert_eq!(tree.pages_by_level(), [1]);
}

#[test]
fn model_of_a_look_up_beside_a_split_finds_what_moves() {
    beside(1, two_keys_in_a_leaf, split, |tree| {
        assert_eq!(get(tree, 12), Some(12));
    });
}

#[test]
fn model_of_a_look_up_beside_a_merge_finds_what_stays() {
    beside(1, two_leaves, merge, |tree| {
        assert_eq!(get(tree, 10), Some(10));
    });
}

#[test]
fn model_of_a_look_up_beside_a_merge_finds_what_moves() {
    beside(1, two_leaves, merge, |tree| {
        assert_eq!(get(tree, 50), Some(50));
    });
}

#[test]
fn model_of_a_scan_beside_a_merge_meets_what_stays() {
    beside(1, two_leaves, merge, |tree| {
        let found = scan(tree, false);
        assert_eq!(found, [10, 50]);
    });
}

#[test]
fn model_of_a_reverse_scan_beside_a_merge_meets_what_stays() {
    beside(1, two_leaves, merge, |tree| {
        let found = scan(tree, true);
        assert_eq!(found, [50, 10]);
    });
}

#[test]
fn model_of_an_insertion_beside_a_merge_is_not_lost() {
    beside(1, two_leaves, merge, |tree| {
        put(tree, 12);
        assert_eq!(get(tree, 12), Some(12));
    });
}

#[test]
fn model_of_a_look_up_beside_the_end_of_a_root_finds_what_stays() {
    beside(1, one_leaf_below_a_root, lower_root, |tree| {
        assert_eq!(get(tree, 10), Some(10));
    });
}
