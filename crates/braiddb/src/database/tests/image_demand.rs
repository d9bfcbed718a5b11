//! Images that a checkpoint writes of pages with versions, and the places that they take.

use pollster::block_on;

use super::super::{BusyWith, Database, Error, Options, TableOptions, Transaction, Tuning};
use super::full_disk::{LARGE, LIMIT, Records, delete, disk_of, put};
use super::full_disk_cycles::{Model, fill, open};
use crate::common::{PART_SECONDS, Watched, with_limit};
use crate::io::SimulatedDisk;
use crate::page::PageSpace;

const PAGE_BYTES: u64 = 4096;
/// One record of each of that many pages is changed.
const CHANGED: u64 = 60;
/// Records per page at most, and between two changed records.
const STRIDE: u64 = 8;

fn pages(db: &Database) -> &PageSpace {
    db.shared.engine.pages().unwrap()
}

/// A checkpointed database with far more pages than frames.
fn checkpointed(disk: &SimulatedDisk) -> (Database, Records) {
    let (db, table) = open(disk, 1, 2 * CHANGED as u32, TableOptions::default().paged()).unwrap();
    let keys = Vec::from_iter(0..2 * STRIDE * CHANGED);
    keys.chunks(10).for_each(|keys| put(&db, &table, keys, 0).unwrap());
    block_on(db.checkpoint()).unwrap();
    (db, table)
}

/// Writes a checkpoint after an automatic one has ended.
fn checkpoint(db: &Database) {
    while let Err(error) = block_on(db.checkpoint()) {
        assert!(matches!(error, Error::Busy(BusyWith::Checkpoint)), "{error}");
        std::thread::yield_now();
    }
}

fn read(db: &Database, table: &Records, keys: impl Iterator<Item = u64>) {
    let (table, keys) = (table.clone(), Vec::from_iter(keys));
    let read = async move |tx: &Transaction| {
        for key in &keys {
            _ = tx.get(&table, key).await?;
        }
        Ok::<_, Error>(())
    };
    db.run_blocking(read).unwrap();
}

fn changed_keys() -> impl Iterator<Item = u64> {
    (0..CHANGED).map(|number| number * STRIDE)
}

/// A clean page with versions needs another image in the next checkpoint.
#[test]
fn pages_with_versions_are_in_demand_whether_resident_or_evicted() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = checkpointed(&SimulatedDisk::new(1));
        let _snapshot = block_on(db.snapshot()).unwrap();
        changed_keys().for_each(|key| put(&db, &table, &[key], 1).unwrap());
        assert!(pages(&db).images_needed() >= CHANGED);
        read(&db, &table, STRIDE * CHANGED..2 * STRIDE * CHANGED);
        assert!(pages(&db).images_needed() >= CHANGED, "they are evicted");
        read(&db, &table, changed_keys());
        assert!(pages(&db).images_needed() >= CHANGED, "they are resident and clean");
    });
}

/// A checkpoint lists a copy without the changes of open transactions. The page itself has no image
/// then, so it has one place.
#[test]
fn a_page_with_an_uncommitted_change_has_one_place_after_a_checkpoint() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = checkpointed(&SimulatedDisk::new(1));
        let before = pages(&db).stats().zone_bytes;
        let open = block_on(db.begin()).unwrap();
        for key in changed_keys() {
            block_on(open.put(&table, &key, b"changed")).unwrap();
        }
        block_on(db.checkpoint()).unwrap();
        let after = pages(&db).stats().zone_bytes;
        assert!(after < before + CHANGED / 4 * PAGE_BYTES, "{after}, {before}");
        block_on(open.abort()).unwrap();
    });
}

/// Evictions would take the places that the next checkpoint needs, because it needs as many images
/// afterwards as before.
#[test]
fn scans_of_a_full_disk_leave_room_for_checkpoints_while_a_snapshot_is_open() {
    const FRAMES: u32 = 512;
    with_limit(LIMIT, |limit| {
        let disk = disk_of(limit, 4000);
        let (db, table) = open(&disk, 1, FRAMES, TableOptions::default().paged()).unwrap();
        let model: Model = fill(&db, &disk, &table, 0);
        let snapshot = block_on(db.snapshot()).unwrap();
        let keys = Vec::from_iter(model.into_keys());
        let deleted = keys.iter().step_by(STRIDE as usize).take(FRAMES as usize);
        let deleted = deleted.take_while(|key| delete(&db, &table, &[**key]).is_ok()).count();
        assert!(deleted > 0);
        for _ in 0..2 {
            read(&db, &table, keys.iter().copied());
            checkpoint(&db);
        }
        drop(snapshot);
        delete(&db, &table, &keys[keys.len() - 1..]).unwrap();
        db.close().unwrap();
    });
}

/// The pieces of deleted values are removed later, and each changes another page. They wait while
/// the next checkpoint would not fit.
#[test]
fn removals_of_large_values_leave_room_for_the_next_checkpoint() {
    with_limit(LIMIT, |limit| {
        let disk = disk_of(limit, 4000);
        let (db, table) = open(&disk, 1, 4096, TableOptions::default().paged()).unwrap();
        let model: Model = fill(&db, &disk, &table, LARGE);
        checkpoint(&db);
        let engine = &db.shared.engine;
        let running = loop {
            match engine.checkpoints.begin() {
                Some(running) => break running,
                None => std::thread::yield_now(),
            }
        };
        // Few leaves, and many pieces on different pages.
        let keys = Vec::from_iter(model.into_keys().step_by(2).take(400));
        delete(&db, &table, &keys).unwrap();
        disk.settle();
        let files = engine.log.files().expect("on disk");
        let room = files.room_for_checkpoint();
        let needed = engine.missing_images(0);
        assert!(needed <= room, "{needed} bytes of images, and {room} bytes of room");
        drop(running);
        checkpoint(&db);
        db.close().unwrap();
    });
}

/// A failed opening leaves no zone to which it evicted pages.
#[test]
fn openings_that_fail_while_they_load_a_checkpoint_leave_no_zones() {
    const GROUPS: u64 = 500;
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let open = || {
            let tuning = Tuning::default().page_bytes(PAGE_BYTES as usize).page_frames(Some(16));
            Database::open_simulated(&disk, Options::default().tuning(tuning), 1)
        };
        let db = open().unwrap().watched();
        db.run_blocking(async |tx: &Transaction| {
            let paged = TableOptions::default().paged();
            let table = tx.create_table_with::<[u8], [u8]>("records", paged).await?;
            for group in 0..GROUPS {
                // Long separators, to get many inner pages.
                let mut random = fastrand::Rng::with_seed(group);
                let mut key = Vec::from_iter((0..500).map(|_| random.u8(..)));
                for number in 0..8 {
                    key.push(number);
                    tx.put(&table, &key, &[number; 1500]).await?;
                    key.pop();
                }
            }
            Ok::<_, Error>(())
        })
        .unwrap();
        block_on(db.checkpoint()).unwrap();
        db.close().unwrap();
        let files = disk.files();
        let (checkpoint, bytes) = files.iter().find(|(name, _)| name.ends_with(".ckpt")).unwrap();
        assert!(*bytes > 300 << 10, "{bytes}");
        assert!(disk.flip(checkpoint, bytes - 100, 1));
        for _ in 0..2 {
            open().map(|_| ()).unwrap_err();
            let zones = |files: &[(String, u64)]| {
                files.iter().filter(|(name, _)| name.ends_with(".zone")).count()
            };
            assert_eq!(zones(&disk.files()), zones(&files));
        }
        assert!(disk.flip(checkpoint, bytes - 100, 1));
        open().unwrap().close().unwrap();
    });
}
