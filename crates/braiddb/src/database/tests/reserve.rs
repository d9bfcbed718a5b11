//! Size of the disk reserve while the records of a paged table are overwritten.

use super::super::{Database, Options, Table, TableOptions, Transaction, Tuning};
use crate::common::{Watched, with_limit};
use crate::durability::estimate_checkpoint_file;
use crate::io::SimulatedDisk;

/// Time limit of a test, in seconds.
const LIMIT: u64 = 300;
const PAGE_BYTES: u64 = 4096;
const SEGMENT_BYTES: u64 = 256 << 10;
/// Number of pages that fit in memory, of several hundred.
const FRAMES: u32 = 32;
const RECORDS: u64 = 1000;
const VALUE_BYTES: usize = 1000;
const BATCH: u64 = 10;
const ROUNDS: u64 = 5;

fn put(db: &Database, table: &Table<u64, [u8]>, keys: Vec<u64>) {
    let table = table.clone();
    let put = async move |tx: &Transaction| {
        for key in &keys {
            tx.put(&table, key, &[*key as u8; VALUE_BYTES]).await?;
        }
        Ok(())
    };
    db.run_blocking(put).unwrap();
}

/// Pages that may be created before the next extension of the log take at most twice the log until
/// then. A checkpoint needs one more place for each of them, and for each resident page.
#[test]
fn the_reserve_counts_pages_that_may_be_created_once() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(1);
        let tuning = Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(1 << 20);
        let options = Options::default().tuning(tuning.page_frames(Some(FRAMES)));
        let db = Database::open_simulated(&disk, options, 1).unwrap().watched();
        let paged = TableOptions::default().paged();
        let create = async move |tx: &Transaction| tx.create_table_with("records", paged).await;
        let table = db.run_blocking(create).unwrap();
        let engine = &db.shared.engine;
        let mut random = fastrand::Rng::with_seed(1);
        let (mut reserved, mut logged) = (0, 0);
        for round in 0..ROUNDS {
            for first in (0..RECORDS).step_by(BATCH as usize) {
                let key = |number| if round == 0 { number } else { random.u64(..RECORDS) };
                put(&db, &table, (first..first + BATCH).map(key).collect());
                reserved = reserved.max(db.stats().log.reserve_bytes);
                logged = logged.max(engine.log.bytes_before_next_extension());
            }
        }
        let resident = u64::from(FRAMES) * PAGE_BYTES;
        let copies = 4 * SEGMENT_BYTES;
        let bound = 2 * logged + resident + copies + 2 * estimate_checkpoint_file(engine);
        assert!(reserved <= bound, "{reserved} bytes are reserved, more than {bound}");
        db.close().unwrap();
    });
}
