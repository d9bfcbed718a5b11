//! Loom models of merges. They run the engine's code on the smallest tree that can be merged. One
//! thread merges two leaves and removes the root while another reads or inserts.

use std::ops::Bound;
use std::sync::Arc;

use loom::model::Builder;
use loom::thread;
use smallvec::SmallVec;

use super::key::{KeyWord, SearchKey, UnusedCells};
use super::node::LatchedNode;
use super::*;
use crate::memory::MemoryCounters;
use crate::reclaim::{self, Domain, OperationGuard};
use crate::rid::Rid;
use crate::sched::run_now;

/// Creates a tree with two leaves below a root: key 1, and key 5 from the separator 3.
fn two_leaves(memory: Arc<MemoryCounters>) -> IndexTree {
    let index = IndexTree::new(memory);
    let operation = reclaim::enter();
    index.insert(&[1], Rid::new(1), &operation).unwrap();
    let (left, _) = index.root(&operation).unwrap();
    let right = LatchedNode::allocate(&index.memory, 0);
    let (key, separator) = (SearchKey::new(&[5]), SearchKey::new(&[3]));
    right.insert_at(0, key.head, KeyWord::inline(1, 5).0, KeyWord::NONE);
    let root = LatchedNode::allocate(&index.memory, 1);
    root.insert_at(0, 0, left.reference().0, KeyWord::NONE);
    root.insert_at(1, separator.head, right.release().0, separator.word(0, &index.memory));
    index.count_nodes(0, 1);
    index.count_nodes(1, 1);
    index.set_root(root.release());
    assert_eq!(index.nodes_by_level(), [2, 1]);
    index
}

/// Creates a tree of one leaf, in which two keys have a prefix in common.
fn leaf_with_prefix(memory: Arc<MemoryCounters>) -> IndexTree {
    let index = IndexTree::new(memory);
    let operation = reclaim::enter();
    for number in 1..=2 {
        index.insert(&long_key(number), Rid::new(number.into()), &operation).unwrap();
    }
    let (leaf, version) = index.root(&operation).unwrap();
    let leaf = leaf.acquire(version).unwrap();
    let mut unused = UnusedCells::new();
    index.choose_prefix(&leaf, [None, None], &mut unused);
    assert_eq!(leaf.prefix_bytes(), 8);
    index.retire_cells(&mut unused);
    drop(leaf);
    drop(operation);
    index
}

fn long_key(number: u8) -> [u8; 9] {
    [b'p', b'r', b'e', b'f', b'i', b'x', 0, 0, number]
}

type Operation = fn(&IndexTree, &OperationGuard);

/// Runs `other` concurrently with `change` of a tree.
fn beside(
    preemptions: usize,
    tree: fn(Arc<MemoryCounters>) -> IndexTree,
    change: Operation,
    other: Operation,
) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(move || {
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(2, memory.clone()));
        let me = domain.participate();
        let index = Arc::new(tree(memory));
        let other = {
            let (domain, index) = (domain.clone(), index.clone());
            thread::spawn(move || {
                let me = domain.participate();
                let operation = reclaim::enter();
                other(&index, &operation);
                drop((operation, index));
                drop(me);
            })
        };
        let operation = reclaim::enter();
        change(&index, &operation);
        drop(operation);
        other.join().unwrap();
        assert_eq!(index.nodes_by_level(), [1], "one leaf is left");
        drop(me);
    });
}

/// Runs `other` concurrently with a merge of the two leaves.
fn beside_a_merge(other: Operation) {
    let merge: Operation = |index, operation| index.merge_from(0, &SearchKey::new(&[1]), operation);
    beside(2, two_leaves, merge, other);
}

/// One preemption, because a change of the prefix stores all entries again.
#[test]
fn model_of_a_look_up_beside_a_change_of_the_prefix_finds_its_key() {
    let insert: Operation = |index, operation| {
        index.insert(&[1], Rid::new(9), operation).unwrap();
    };
    beside(1, leaf_with_prefix, insert, |index, operation| {
        assert_eq!(index.get(&long_key(2), operation), Some(Rid::new(2)));
    });
}

/// Returns the keys that a scan visits.
fn scan(index: &IndexTree, operation: &OperationGuard, reverse: bool) -> Vec<u64> {
    let (mut cursor, mut batch, mut found) =
        (index.cursor(Bound::Unbounded, Bound::Unbounded, reverse), Vec::new(), Vec::new());
    while run_now(cursor.next_batch(operation, &mut batch, 2)) {
        for entry in &batch {
            let mut key = SmallVec::<[u8; 8]>::new();
            entry.copy_key(&mut key);
            assert_eq!(entry.rid().number(), u64::from(key[0]));
            found.push(entry.rid().number());
        }
    }
    found
}

#[test]
fn model_of_a_look_up_beside_a_merge_finds_what_stays() {
    beside_a_merge(|index, operation| {
        assert_eq!(index.get(&[5], operation), Some(Rid::new(5)));
    });
}

#[test]
fn model_of_a_scan_beside_a_merge_meets_what_stays() {
    beside_a_merge(|index, operation| {
        let found = scan(index, operation, false);
        assert_eq!(found, [1, 5]);
    });
}

#[test]
fn model_of_a_reverse_scan_beside_a_merge_meets_what_stays() {
    beside_a_merge(|index, operation| {
        let found = scan(index, operation, true);
        assert_eq!(found, [5, 1]);
    });
}

#[test]
fn model_of_an_insertion_beside_a_merge_is_not_lost() {
    beside_a_merge(|index, operation| {
        assert_eq!(index.insert(&[6], Rid::new(6), operation), Ok(()));
        assert_eq!(index.get(&[6], operation), Some(Rid::new(6)));
    });
}
