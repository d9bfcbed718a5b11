//! Tests of record versions with structure changes: mapping tables move with their keys, and bytes
//! for undoing are reserved on the page that has the key.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::leaf::{LatchedLeaf, LeafView};
use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::memory::{MemoryCounters, MemoryKind};
use crate::page::layout::{KeySlot, MIN_PAGE_BYTES, SlotFlags};
use crate::page::value::SlotValue;
use crate::page::versions::{ChangeRef, Mapping};
use crate::reclaim::Domain;
use crate::sched::run_now;
use crate::version::{Stamp, StatusTable};

const TABLE: TableId = TableId(5);
const LONG: usize = 32;

fn place_of(leaf: &LatchedLeaf<'_>, key: &[u8]) -> usize {
    match leaf.find(key) {
        KeySlot::At(place) => place,
        KeySlot::Before(_) => panic!("{key:?} is there"),
    }
}

/// Replaces a record's value with a shorter one, in flight, and reserves bytes for the longer one.
fn shrink(tree: &PageTree, key: &[u8], stamp: Stamp, memory: &MemoryCounters) -> ChangeRef {
    let mut leaf = run_now(tree.latch(key, LeafRoom::NONE)).unwrap();
    let (place, mut before) = (place_of(&leaf, key), Vec::new());
    leaf.copy_value(place, &mut before);
    // SAFETY: the leaf is latched, and the key has a slot on it.
    let (chain, word) = unsafe { Mapping::find_or_make(leaf.mapping(), memory, TABLE, key) };
    leaf.set_mapping(word);
    // SAFETY: the leaf is latched until the value is written.
    let change = unsafe { chain.push(memory, stamp, Some(SlotValue::Here(&before)), 0) };
    let value = &before[..before.len() % 5];
    leaf.overwrite(place, value, SlotFlags::VERSIONED);
    chain.note_on_page(value.len());
    leaf.reserve_for_undo();
    change
}

/// Rolls back that change.
fn undo(tree: &PageTree, key: &[u8], status: &StatusTable) {
    let mut leaf = run_now(tree.latch(key, LeafRoom::NONE)).unwrap();
    let place = place_of(&leaf, key);
    // SAFETY: the leaf is latched.
    let chain = unsafe { Mapping::find(leaf.mapping(), key) };
    let chain = chain.expect("a chain moves with its key");
    // SAFETY: the leaf is latched.
    unsafe {
        chain.roll_back(status, |before| {
            leaf.overwrite_value(place, before.expect("it was there"), SlotFlags::NONE);
        });
    }
    leaf.reserve_for_undo();
    // SAFETY: the leaf is latched.
    let word = unsafe { Mapping::prune(leaf.mapping(), |_| {}) };
    leaf.set_mapping(word);
}

/// Returns all records.
fn content(tree: &PageTree) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut cursor = tree.cursor(Bound::Unbounded, Bound::Unbounded, false);
    let mut found = BTreeMap::new();
    let mut entries = |leaf: LeafView<'_>, places: Range<usize>| {
        let entry = |place| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            leaf.copy_key(place, &mut key);
            leaf.copy_value(place, &mut value);
            (key, value)
        };
        places.map(entry).collect::<Vec<_>>()
    };
    while let Some(entries) = run_now(cursor.next(100, &mut entries)).unwrap() {
        found.extend(entries);
    }
    found
}

#[test]
fn what_is_undecided_can_be_undone_wherever_its_keys_have_gone() {
    with_limit(PART_SECONDS, |_| {
        for seed in 0..8 {
            let memory = Arc::new(MemoryCounters::new());
            let domain = Arc::new(Domain::new(1, memory.clone()));
            let me = domain.participate();
            let status = StatusTable::new(1, 1);
            let name = status.begin(0, 0);
            let space = PageSpace::new(MIN_PAGE_BYTES, 1000, 1000, None).unwrap();
            let tree = run_now(PageTree::create(space, TABLE)).unwrap();
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut model, mut changes) = (BTreeMap::new(), BTreeMap::new());
            let mut newest = 0_u16;
            for step in 0..3000 {
                let key = if seed % 2 == 0 {
                    let end = vec![random.u8(0..32), random.u8(0..4)];
                    [vec![b'k'; random.usize(0..8)], end].concat()
                } else {
                    // Keys are ascending, and the newest are changed, so the fences of the splits
                    // are long.
                    let number = newest.saturating_sub(random.u16(0..6));
                    newest += u16::from(number == newest);
                    [vec![b'k'; 14], number.to_be_bytes().to_vec()].concat()
                };
                let is_changed = changes.contains_key(&key);
                match (model.contains_key(&key), random.u8(0..4)) {
                    (false, _) => {
                        let value = vec![random.u8(..); random.usize(LONG - 8..=LONG)];
                        let mut leaf =
                            run_now(tree.latch(&key, LeafRoom::value(value.len()))).unwrap();
                        let KeySlot::Before(place) = leaf.find(&key) else { panic!("it is new") };
                        leaf.insert(place, &key, &value, SlotFlags::NONE);
                        model.insert(key, value);
                    }
                    (true, 0) if !is_changed => {
                        let mut leaf = tree.try_latch(&key, LeafRoom::NONE).unwrap();
                        let place = place_of(&leaf, &key);
                        leaf.remove(place);
                        drop(leaf);
                        tree.merge_if_in_memory(&key);
                        model.remove(&key);
                    }
                    (true, 1..) if !is_changed => {
                        let change = shrink(&tree, &key, Stamp::in_flight(name), &memory);
                        changes.insert(key, change);
                    }
                    (true, _) => {}
                }
                if step % 16 == 0 {
                    tree.check_all();
                }
            }
            tree.check_all();
            assert!(changes.len() > 100 && tree.pages_by_level()[0] > 10);
            for change in changes.values() {
                // SAFETY: retired below.
                unsafe { change.get() }.set_stamp(Stamp::ABORTED);
            }
            let mut keys: Vec<_> = changes.keys().cloned().collect();
            random.shuffle(&mut keys);
            for key in keys {
                undo(&tree, &key, &status);
                // SAFETY: aborted, and rolled back; retired once.
                unsafe { changes[&key].retire_aborted(&memory) };
            }
            status.aborted(name);
            tree.check_all();
            assert!(content(&tree) == model, "seed {seed}");
            while me.turn() {}
            assert_eq!(memory.bytes(MemoryKind::Change), 0, "no chain, no table is left");
        }
    });
}
