//! Loom models of a listing concurrent with a structure change, evictions and page writes. They run
//! the engine's code, except for the files.

use std::sync::Arc;

use super::images::each_image;
use super::*;
use crate::io::AlignedBuffer;
use crate::page::layout::{KeySlot, MIN_PAGE_BYTES, SlotFlags};
use crate::page::map::PageLocation;
use crate::page::tree::model::{beside, merge, split, two_keys_in_a_leaf_of};
use crate::page::tree::{LeafRoom, PageTree};
use crate::page::write_back::Images;
use crate::sched::run_now;
use crate::version::{StatusTable, View};

const FRAMES: u32 = 4;
const PAGES: u64 = 8;

fn tree() -> PageTree {
    let zones = Zones::modelled(MIN_PAGE_BYTES);
    two_keys_in_a_leaf_of(
        PageSpace::with_zones(MIN_PAGE_BYTES, FRAMES, PAGES, Some(zones)).unwrap(),
    )
}

/// Evicts pages if possible: the first sweep clears their marks of use, the second writes them.
fn evict(tree: &PageTree) {
    for _ in 0..2 {
        run_now(tree.space().evict_one()).unwrap();
    }
}

/// Overwrites a record of the second leaf, evicts the leaf, and writes other bytes to its former
/// place.
fn write_and_evict(tree: &PageTree) {
    let mut leaf = run_now(tree.latch(&[50], LeafRoom::NONE)).unwrap();
    let (KeySlot::At(place), id) = (leaf.find(&[50]), leaf.page_id()) else {
        panic!("it is there")
    };
    leaf.overwrite(place, &[51], SlotFlags::NONE);
    drop(leaf);
    let space = tree.space();
    while !matches!(space.map.get(id), PageLocation::OnDisk(_)) {
        // The first leaf, and so the root, stays recently used.
        run_now(tree.read(&[10], |_, _| ())).unwrap();
        run_now(space.evict_one()).unwrap();
    }
    let is_there = matches!(space.map.get(tree.root()), PageLocation::Frame(_));
    assert!(is_there, "the root stays resident, so the leaf's range is still valid");
    let run = space.zones.as_ref().expect("zones exist").take(1).unwrap();
    let bytes = AlignedBuffer::zeroed(MIN_PAGE_BYTES);
    let images = Arc::new(Images::new(bytes, run));
    images.run().write_then(images.clone(), |written| written.unwrap());
}

/// Lists all leaves. Each image must be the expected one, and together they must have all keys.
fn list(tree: &PageTree) {
    let status = StatusTable::new(1, 1);
    let me = status.begin(0, 0);
    // SAFETY: it is active for as long as this runs.
    let view = unsafe { View::new(crate::log::Lsn(100), me, &status) };
    let mut listing = Listing::begin(tree.space().clone()).unwrap();
    let (mut walk, mut leaves) = (LeafWalk::new(tree, None), Vec::new());
    loop {
        let mut some = Vec::new();
        let more = run_now(walk.list_some(&mut listing, view, &mut some)).unwrap();
        leaves.extend(some);
        if !more {
            break;
        }
    }
    let mut found = Vec::new();
    each_image(tree.space(), &leaves, |page| {
        found.extend((0..page.count()).map(|place| page.key(place)[0]));
    });
    assert_eq!(found, [10, 12, 50]);
}

/// Creates a tree whose second leaf is on disk.
fn evicted() -> PageTree {
    let tree = tree();
    let id = run_now(tree.latch(&[50], LeafRoom::NONE)).unwrap().page_id();
    while !matches!(tree.space().map.get(id), PageLocation::OnDisk(_)) {
        evict(&tree);
    }
    tree
}

#[test]
fn model_of_a_listing_beside_a_split() {
    beside(1, tree, list, split);
}

#[test]
fn model_of_a_listing_beside_a_merge() {
    beside(1, tree, list, merge);
}

#[test]
fn model_of_a_listing_beside_evictions() {
    beside(1, tree, list, evict);
}

#[test]
fn model_of_a_listing_beside_writes_of_pages_that_leave() {
    beside(1, evicted, list, write_and_evict);
}
