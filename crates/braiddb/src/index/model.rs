//! A loom model of merges: the real tree, with small nodes, in which one thread removes a key, so that
//! two leaves become one and the root goes, beside one that reads.

use std::ops::Bound;
use std::sync::Arc;

use loom::model::Builder;
use loom::thread;
use smallvec::SmallVec;

use super::*;
use crate::memory::MemoryCounters;
use crate::reclaim::{self, Domain, OperationGuard};
use crate::rid::Rid;
use crate::sched::run_now;

/// Two leaves below a root: the keys 1, 3 and 4, and 5.
fn two_leaves() -> Index {
    let index = Index::new(Arc::new(MemoryCounters::new()));
    let operation = reclaim::enter();
    for number in 1..=5_u8 {
        index.insert(&[number], Rid::new(number.into()), &operation).unwrap();
    }
    assert!(index.remove(&[2], Rid::new(2), &operation));
    assert_eq!(index.nodes_by_level(), [2, 1]);
    index
}

/// Runs `read` beside the removal of key 3, which merges the leaves.
fn beside_a_merge(read: fn(&Index, &OperationGuard)) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let domain = Arc::new(Domain::new(2));
        let me = domain.participate();
        let index = Arc::new(two_leaves());
        let reader = {
            let (domain, index) = (domain.clone(), index.clone());
            thread::spawn(move || {
                let me = domain.participate();
                let operation = reclaim::enter();
                read(&index, &operation);
                drop((operation, index));
                drop(me);
            })
        };
        let operation = reclaim::enter();
        assert!(index.remove(&[3], Rid::new(3), &operation));
        drop(operation);
        assert_eq!(index.nodes_by_level(), [1], "the leaves were merged");
        me.turn();
        reader.join().unwrap();
        drop(me);
    });
}

/// The keys that a scan meets.
fn scan(index: &Index, operation: &OperationGuard, reverse: bool) -> Vec<u64> {
    let (mut cursor, mut batch, mut found) =
        (index.cursor(Bound::Unbounded, Bound::Unbounded, reverse), Vec::new(), Vec::new());
    while run_now(cursor.next_batch(operation, &mut batch, 2)) {
        for entry in &batch {
            let mut key = SmallVec::<[u8; 8]>::new();
            entry.copy_key(&mut key);
            assert_eq!(entry.rid.number(), u64::from(key[0]));
            found.push(entry.rid.number());
        }
    }
    found
}

#[test]
fn model_of_a_look_up_beside_a_merge_finds_what_stays() {
    beside_a_merge(|index, operation| {
        assert_eq!(run_now(index.get(&[5], operation)), Some(Rid::new(5)));
    });
}

#[test]
fn model_of_a_scan_beside_a_merge_meets_what_stays() {
    beside_a_merge(|index, operation| {
        let found = scan(index, operation, false);
        assert!(found == [1, 3, 4, 5] || found == [1, 4, 5], "{found:?}");
    });
}

#[test]
fn model_of_a_reverse_scan_beside_a_merge_meets_what_stays() {
    beside_a_merge(|index, operation| {
        let found = scan(index, operation, true);
        assert!(found == [5, 4, 3, 1] || found == [5, 4, 1], "{found:?}");
    });
}

#[test]
fn model_of_an_insertion_beside_a_merge_is_not_lost() {
    beside_a_merge(|index, operation| {
        assert_eq!(index.insert(&[6], Rid::new(6), operation), Ok(()));
        assert_eq!(run_now(index.get(&[6], operation)), Some(Rid::new(6)));
    });
}
