//! Operations that find no memory for a page on a full disk wait for a checkpoint, which makes dirty
//! pages clean. Other users of the disk took all free space, and no checkpoint is due.

use pollster::block_on;

use super::super::{BusyWith, Database, Error, Options, TableOptions, Transaction, Tuning};
use super::full_disk::{LARGE, LIMIT, Records, SECTOR_BYTES, SEGMENT_BYTES, disk_of, put};
use crate::common::{Limit, Watched, with_limit};
use crate::io::{Faults, SimulatedDisk};

const SECTORS: u64 = 10_000;
const FRAMES: u32 = 64;
/// Far more than the frames hold.
const KEYS: u64 = 1000;
/// Between two changed records, which are on different pages.
const STRIDE: u64 = 4;

/// A database whose frames hold dirty pages only, on a full disk. No checkpoint has begun, and no
/// operation waits.
fn full_of_dirty_pages(limit: &Limit, version: u64) -> (SimulatedDisk, Database, Records) {
    let disk = disk_of(limit, SECTORS);
    let tuning = Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(1 << 40);
    let options = Options::default().tuning(tuning.page_frames(Some(FRAMES)));
    let db = Database::open_simulated(&disk, options, 1).unwrap().watched();
    let create = async move |tx: &Transaction| {
        tx.create_table_with("records", TableOptions::default().paged()).await
    };
    let table = db.run_blocking(create).unwrap();
    let keys = Vec::from_iter(0..KEYS);
    keys.chunks(10).for_each(|keys| put(&db, &table, keys, version).unwrap());
    block_on(db.checkpoint()).unwrap();
    let mut changes = (0..KEYS).step_by(STRIDE as usize).map(|key| put(&db, &table, &[key], 1));
    changes.by_ref().take(2 * FRAMES as usize).for_each(Result::unwrap);
    disk.settle();
    let reserve = disk.files().into_iter().find(|(name, _)| name == "braid.reserve").unwrap().1;
    let room = db.shared.engine.log.files().unwrap().room_for_checkpoint();
    let capacity = SECTORS - (room - reserve) / SECTOR_BYTES;
    disk.set_faults(Faults { capacity, max_delay: 3, ..Faults::default() });
    // Until this is dropped, an operation that finds no frame fails.
    let blocking = db.shared.engine.checkpoints.block().unwrap();
    let refused = changes.find_map(Result::err);
    assert!(matches!(refused, Some(Error::DiskFull(_))), "{refused:?}");
    assert_eq!(db.shared.engine.checkpoints.begun(), 1);
    drop((changes, blocking));
    (disk, db, table)
}

fn read(db: &Database, table: &Records, key: u64) -> Result<(), Error> {
    let table = table.clone();
    db.run_blocking(async move |tx: &Transaction| {
        assert!(tx.get(&table, &key).await?.is_some(), "key {key}");
        Ok(())
    })
}

fn assert_reads_wait(version: u64) {
    with_limit(LIMIT, move |limit| {
        let (_disk, db, table) = full_of_dirty_pages(limit, version);
        (0..KEYS).for_each(|key| read(&db, &table, key).unwrap());
        assert!(db.shared.engine.checkpoints.begun() > 1);
        db.close().unwrap();
    });
}

#[test]
fn reads_on_a_full_disk_wait_for_a_checkpoint() {
    assert_reads_wait(0);
}

#[test]
fn reads_of_large_values_on_a_full_disk_wait_for_a_checkpoint() {
    assert_reads_wait(LARGE);
}

/// `check` keeps checkpoints from running, so its reads of pages must not wait for one.
#[test]
fn a_check_on_a_full_disk_ends() {
    with_limit(LIMIT, |limit| {
        let (_disk, db, table) = full_of_dirty_pages(limit, 0);
        match db.check() {
            Ok(report) => assert_eq!(report.problems, Vec::<String>::new()),
            Err(Error::DiskFull(_) | Error::Busy(BusyWith::Checkpoint)) => {}
            Err(error) => panic!("{error}"),
        }
        (0..KEYS).for_each(|key| read(&db, &table, key).unwrap());
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
    });
}
