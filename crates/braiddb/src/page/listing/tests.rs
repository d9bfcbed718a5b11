//! Tests of listings of trees that change concurrently.

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::ops::Range;
use std::sync::Arc;

use super::images::each_image;
use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::io::SimulatedDisk;
use crate::log::{Log, LogOptions, Lsn};
use crate::page::large::LargeValues;
use crate::page::layout::{KeySlot, MIN_PAGE_BYTES, SlotFlags};
use crate::page::tree::{LeafRoom, LeafView, PageTree};
use crate::rid::TableId;
use crate::sched::run_now;
use crate::sync::statistic::{AtomicU64, Ordering};
use crate::version::{StatusTable, View};

/// Number of leaves that were listed in part. Relaxed: a count.
static PARTS: AtomicU64 = AtomicU64::new(0);
const TABLE: TableId = TableId(3);
const KEYS: u64 = 1200;
const PAGES: u64 = 4096;
/// Fewer frames than leaves, so that pages are evicted during the test.
const FRAMES: u32 = 40;

type Records = BTreeMap<u64, Vec<u8>>;

fn log(disk: &SimulatedDisk) -> Log {
    let options = LogOptions { disk: Some(disk.clone()), ..LogOptions::new("x", 1) };
    Log::open(options).unwrap().0
}

fn put(tree: &PageTree, key: u64, value: &[u8]) {
    let key = key.to_be_bytes();
    let mut leaf = run_now(tree.latch(&key, LeafRoom::value(value.len()))).unwrap();
    match leaf.find(&key) {
        KeySlot::Before(place) => leaf.insert(place, &key, value, SlotFlags::NONE),
        KeySlot::At(place) => leaf.overwrite(place, value, SlotFlags::NONE),
    }
}

fn remove(tree: &PageTree, key: u64) {
    let key = key.to_be_bytes();
    {
        let mut leaf = run_now(tree.latch(&key, LeafRoom::NONE)).unwrap();
        if let KeySlot::At(place) = leaf.find(&key) {
            leaf.remove(place);
        }
    }
    run_now(tree.merge_waiting(&key)).unwrap();
}

/// Returns the records of the listed images, after checking that each is listed with its range.
fn contents(space: &PageSpace, leaves: &[ListedLeaf]) -> BTreeMap<u64, Vec<u8>> {
    let mut found = BTreeMap::new();
    each_image(space, leaves, |page| {
        page.check();
        for place in 0..page.count() {
            let mut value = Vec::new();
            page.copy_value(place, &mut value);
            let key = u64::from_be_bytes(page.key(place)[..].try_into().unwrap());
            assert!(found.insert(key, value).is_none(), "listed once");
        }
    });
    found
}

fn write_files(zones: &Zones) {
    zones.take_unsynced().iter().for_each(|file| file.sync().unwrap());
}

/// Puts and removes some records with odd keys, near the position of the walk, which has listed
/// `leaves`, or at random.
fn change_some(tree: &PageTree, random: &mut fastrand::Rng, leaves: &[ListedLeaf]) {
    let mut low = [0; 8];
    let last = &leaves.last().unwrap().low;
    low[..last.len()].copy_from_slice(last);
    let near = u64::from_be_bytes(low).saturating_sub(random.u64(..60)).min(KEYS - 1);
    let at = if random.bool() { near } else { random.u64(..KEYS) };
    for _ in 0..random.usize(..200) {
        let key = (at + random.u64(..60)) | 1;
        match random.bool() {
            true => put(tree, key, &[7; 16][..random.usize(..16)]),
            false => remove(tree, key),
        }
    }
}

/// Lists the leaves of a tree, which changes between two steps.
fn list_beside_changes(
    tree: &PageTree,
    random: &mut fastrand::Rng,
    listing: &mut Listing,
) -> Vec<ListedLeaf> {
    let status = StatusTable::new(1, 1);
    let me = status.begin(0, 0);
    // SAFETY: it is active for as long as this runs.
    let view = unsafe { View::new(Lsn(100), me, &status) };
    let (mut walk, mut leaves) = (walk::LeafWalk::new(tree, None), Vec::new());
    loop {
        let mut some = Vec::new();
        let more = run_now(walk.list_some(listing, view, &mut some)).unwrap();
        leaves.extend(some);
        if !more {
            return leaves;
        }
        change_some(tree, random, &leaves);
    }
}

/// Returns all records of a tree.
fn scan(tree: &PageTree) -> BTreeMap<u64, Vec<u8>> {
    let (mut cursor, mut found) = (tree.cursor(Unbounded, Unbounded, false), BTreeMap::new());
    let mut look = |leaf: LeafView<'_>, places: Range<usize>| {
        let each = |place| {
            let (mut key, mut value) = (KeyBytes::new(), Vec::new());
            leaf.copy_key(place, &mut key);
            leaf.copy_value(place, &mut value);
            (u64::from_be_bytes(key[..].try_into().unwrap()), value)
        };
        places.map(each).collect::<Vec<_>>()
    };
    while let Some(some) = run_now(cursor.next(100, &mut look)).unwrap() {
        found.extend(some);
    }
    found
}

/// Opens the pages on a disk again, and continues to use them.
fn reopen(disk: &SimulatedDisk, limit: u64, leaves: &[ListedLeaf], expected: &Records) {
    let log = log(disk);
    let files = log.cold_store().unwrap().files();
    let space = PageSpace::new(MIN_PAGE_BYTES, FRAMES, PAGES, Some(files)).unwrap();
    assert!(space.begin_loading(limit));
    let tree = load(&space, leaves);
    space.finish_loading(limit);
    space.finish_opening().unwrap();
    assert_eq!(tree.stored().records, expected.len() as u64);
    (0..2).for_each(|_| assert!(scan(&tree) == *expected));
    (0..2 * KEYS).for_each(|key| put(&tree, key, &[1; 12]));
    (0..2 * KEYS).for_each(|key| remove(&tree, key));
    assert_eq!(tree.stored().records, 0);
    tree.free_all(None);
}

/// Pages are split, merged, evicted and written between two steps of a walk. The listed leaves must
/// have each unchanged record once, and no record that never existed. The listed images must exist
/// until the next listing is published, and must load as the tree.
#[test]
fn leaves_are_listed_beside_splits_and_merges() {
    for seed in 0..12 {
        with_limit(PART_SECONDS, move |_| {
            let disk = SimulatedDisk::new(1);
            let first = log(&disk);
            let files = first.cold_store().unwrap().files();
            let space = PageSpace::new(MIN_PAGE_BYTES, FRAMES, PAGES, Some(files)).unwrap();
            let tree = run_now(PageTree::create(space.clone(), TABLE)).unwrap();
            let mut random = fastrand::Rng::with_seed(seed);
            // Unchanged records have keys that are multiples of four.
            let stay: Records =
                (0..KEYS).step_by(4).map(|key| (key, vec![seed as u8; 9])).collect();
            stay.iter().for_each(|(key, value)| put(&tree, *key, value));
            let mut published = None;
            for _ in 0..6 {
                let mut listing = Listing::begin(space.clone()).unwrap();
                let leaves = list_beside_changes(&tree, &mut random, &mut listing);
                let mut found = contents(&space, &leaves);
                found.retain(|key, _| key.is_multiple_of(4));
                assert!(found == stay);
                // The previously published images still exist.
                published.iter().for_each(|published: &Vec<_>| _ = contents(&space, published));
                let made_up = |leaf: &&ListedLeaf| listing.made_up.contains(&leaf.page);
                // Relaxed: a count.
                PARTS.fetch_add(leaves.iter().filter(made_up).count() as u64, Ordering::Relaxed);
                write_files(listing.zones());
                if random.u8(..4) > 0 {
                    listing.publish();
                    published = Some(leaves);
                }
            }
            let published = published.expect("one of six");
            let (expected, limit) = (contents(&space, &published), space.map.limit());
            // Simulates a crash.
            std::mem::forget(tree);
            drop((space, first));
            reopen(&disk, limit, &published, &expected);
        });
    }
    // Relaxed: a count.
    assert!(PARTS.load(Ordering::Relaxed) > 0, "some leaf was listed in part");
}

fn load(space: &Arc<PageSpace>, leaves: &[ListedLeaf]) -> PageTree {
    let mut loader = TreeLoader::of_table(space.clone(), TABLE);
    for leaf in leaves {
        let ListedLeaf { low, page, place, stored } = leaf;
        let (page, place) = (page.number(), place.word());
        run_now(loader.add(LeafFromFile { low, page, place, stored: *stored })).unwrap();
    }
    run_now(loader.finish()).unwrap()
}

/// After a failed sync, a zone may have lost images that can still be read, so no checkpoint lists
/// it any more.
#[test]
fn nothing_is_listed_once_a_zone_could_not_be_made_durable() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let log = log(&disk);
        let files = log.cold_store().unwrap().files();
        let space = PageSpace::new(MIN_PAGE_BYTES, FRAMES, PAGES, Some(files)).unwrap();
        let listing = Listing::begin(space.clone()).unwrap();
        let failed = std::io::Error::other("it failed");
        let told = listing.note_failed_sync(LogError::io("sync", "zone".as_ref(), 0, failed));
        assert!(told.to_string().contains("it failed"), "{told}");
        drop(listing);
        let told = Listing::begin(space).unwrap_err();
        assert!(told.to_string().contains("it failed"), "{told}");
    });
}

/// A writer appends more leaves between two steps than a step lists. The walk ends, and lists the
/// records that existed when it began.
#[test]
fn a_walk_ends_although_keys_are_appended() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let log = log(&disk);
        let files = log.cold_store().unwrap().files();
        let space = PageSpace::new(MIN_PAGE_BYTES, 500, 20_000, Some(files)).unwrap();
        let tree = run_now(PageTree::create(space.clone(), TABLE)).unwrap();
        let (begun, added) = (200, 300);
        (0..begun).for_each(|key| put(&tree, key, &[1; 16]));
        let mut listing = Listing::begin(space.clone()).unwrap();
        let (status, mut leaves, mut next) = (StatusTable::new(1, 1), Vec::new(), begun);
        let me = status.begin(0, 0);
        // SAFETY: it is active for as long as this runs.
        let view = unsafe { View::new(Lsn(100), me, &status) };
        let mut walk = walk::LeafWalk::new(&tree, None);
        let mut some = Vec::new();
        while run_now(walk.list_some(&mut listing, view, &mut some)).unwrap() {
            leaves.append(&mut some);
            (next..next + added).for_each(|key| put(&tree, key, &[1; 16]));
            next += added;
            assert!(next < 100 * added, "the walk does not end");
        }
        leaves.append(&mut some);
        let found = contents(&space, &leaves);
        assert!((0..begun).all(|key| found.contains_key(&key)));
        assert!(found.len() < next as usize, "the last records are not listed");
        drop(listing);
        tree.free_all(None);
    });
}

/// Values that are named while a table is listed are not listed, and do not prolong the listing.
#[test]
fn pieces_of_later_values_are_not_listed() {
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let log = log(&disk);
        let files = log.cold_store().unwrap().files();
        let space = PageSpace::new(MIN_PAGE_BYTES, 500, 20_000, Some(files)).unwrap();
        let large = run_now(LargeValues::create(space.clone(), TABLE)).unwrap();
        let put = || _ = run_now(large.put(&[7; 500])).unwrap();
        let status = StatusTable::new(1, 1);
        let me = status.begin(0, 0);
        // SAFETY: it is active for as long as this runs.
        let view = unsafe { View::new(Lsn(100), me, &status) };
        for (before, beside) in [(20, 20), (20, 0), (0, 20), (0, 0)] {
            let mut listing = Listing::begin(space.clone()).unwrap();
            (0..before).for_each(|_| put());
            let records = large.stored().records;
            large.begin_listing();
            let (mut leaves, mut walk) = (Vec::new(), large.walk_leaves());
            let mut some = Vec::new();
            (0..beside).for_each(|_| put());
            while run_now(walk.list_some(&mut listing, view, &mut some)).unwrap() {
                leaves.append(&mut some);
                (0..beside).for_each(|_| put());
                assert!(leaves.len() < 2000, "the walk does not end");
            }
            leaves.append(&mut some);
            let (next, listed) = large.end_listing();
            let (end, unowned) = listed.expect("it was begun");
            assert!(unowned.is_empty() && next >= end + beside);
            let mut found = 0;
            each_image(&space, &leaves, |page| {
                page.check();
                found += page.count() as u64;
                for place in 0..page.count() {
                    assert!(page.key(place)[..] < end.to_be_bytes()[..]);
                }
            });
            assert_eq!(found, records);
        }
    });
}
