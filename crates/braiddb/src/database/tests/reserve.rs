//! Size of the disk reserve, and of small databases with it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pollster::block_on;

use super::super::{Database, Options, Table, TableOptions, Transaction, Tuning};
use crate::common::{PART_SECONDS, Watched, with_limit};
use crate::durability::estimate_checkpoint_file;
use crate::io::SimulatedDisk;

const PAGE_BYTES: u64 = 4096;
const BATCH: u64 = 10;

fn create(db: &Database) -> Table<u64, [u8]> {
    let paged = TableOptions::default().paged();
    db.run_blocking(async move |tx: &Transaction| tx.create_table_with("records", paged).await)
        .unwrap()
}

fn put(db: &Database, table: &Table<u64, [u8]>, keys: Vec<u64>, value_bytes: usize) {
    let table = table.clone();
    let put = async move |tx: &Transaction| {
        for key in &keys {
            tx.put(&table, key, &vec![*key as u8; value_bytes]).await?;
        }
        Ok(())
    };
    db.run_blocking(put).unwrap();
}

/// A checkpoint needs one more place for each dirty page, and the reserve covers as many pages more
/// as become dirty until it is adjusted.
#[test]
fn the_reserve_follows_dirty_pages_while_records_are_overwritten() {
    const SEGMENT_BYTES: u64 = 256 << 10;
    /// Number of pages that fit in memory, of several hundred.
    const FRAMES: u32 = 32;
    const RECORDS: u64 = 1000;
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let tuning = Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(1 << 20);
        let options = Options::default().tuning(tuning.page_frames(Some(FRAMES)));
        let db = Database::open_simulated(&disk, options, 1).unwrap().watched();
        let table = create(&db);
        let mut random = fastrand::Rng::with_seed(1);
        let mut reserved = 0;
        for round in 0..5 {
            for first in (0..RECORDS).step_by(BATCH as usize) {
                let key = |number| if round == 0 { number } else { random.u64(..RECORDS) };
                put(&db, &table, (first..first + BATCH).map(key).collect(), 1000);
                reserved = reserved.max(db.stats().log.reserve_bytes);
            }
        }
        let engine = &db.shared.engine;
        let step = engine.pages().unwrap().image_step();
        let images = (u64::from(FRAMES) + 2 * step) * PAGE_BYTES;
        // It may be twice what it should be.
        let bound = 2 * (images + 2 * estimate_checkpoint_file(engine) + 4 * SEGMENT_BYTES);
        assert!(reserved <= bound, "{reserved} bytes are reserved, more than {bound}");
        db.close().unwrap();
    });
}

/// Returns the disk space of the files in a directory in bytes.
fn allocated(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn compaction_leaves_the_directory_no_larger() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("database");
        let db = Database::open(&path, Options::default().workers(1)).unwrap().watched();
        let table = create(&db);
        for first in (0..60_000).step_by(1000) {
            put(&db, &table, (first..first + 1000).collect(), 24);
        }
        let before = allocated(&path);
        block_on(db.compact()).unwrap();
        let (after, reserve) = (allocated(&path), db.stats().log.reserve_bytes);
        let figures = format!("{before} bytes before, {after} after, {reserve} of them reserved");
        // The checkpoint file is new, and the only segment of the log stays.
        assert!(after <= before + (128 << 10) && reserve <= before / 4, "{figures}");
        block_on(db.compact()).unwrap();
        let again = allocated(&path);
        assert!(again <= after, "{figures}, {again} after another one");
        db.close().unwrap();
    });
}

/// A sixteenth of a million small records, with segments of a sixteenth of their default size.
#[test]
fn small_records_take_little_disk_space() {
    const SEGMENT_BYTES: u64 = 1 << 20;
    const RECORDS: u64 = 62_500;
    /// Bytes of a record's key and value.
    const RECORD_BYTES: u64 = 24;
    with_limit(PART_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let options = Options::default().tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES));
        let db = Database::open_simulated(&disk, options, 1).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(db.open_or_create_table("records")).unwrap();
        for first in (0..RECORDS).step_by(500) {
            put(&db, &table, (first..first + 500).collect(), 16);
        }
        let bytes = || disk.files().iter().map(|(_, bytes)| bytes).sum::<u64>();
        let (live, loaded) = (RECORDS * RECORD_BYTES, bytes());
        block_on(db.compact()).unwrap();
        let compacted = bytes();
        // The reserve for the next checkpoint has slack, which counts little for more records.
        let slack = 1 << 20;
        assert!(loaded <= 5 * live + slack, "{loaded} bytes for {live}, {:?}", disk.files());
        assert!(compacted <= 6 * live + slack, "{compacted} bytes for {live}, {:?}", disk.files());
    });
}
