//! Space left on disk by an uncommitted bulk operation is freed by the next opening.

use std::sync::Arc;

use pollster::block_on;

use super::super::{Database, Error, Options, Table, TableOptions, Transaction, Tuning};
use crate::common::{Watched, with_limit};
use crate::durability;
use crate::io::{CrashCounts, SimulatedDisk};
use crate::sync::Mutex;

const SEGMENT_BYTES: u64 = 1 << 20;
const VALUE_BYTES: usize = 4000;
/// Records that exist before the operation.
const KEPT: u64 = 100;
/// Records that the operation inserts.
const INSERTED: u64 = 3000;
/// Time limit of a test, in seconds.
const LIMIT: u64 = 300;

type Records = Table<u64, [u8]>;

fn open(disk: &SimulatedDisk, seed: u64) -> (Database, Records) {
    let options = Options::default().tuning(
        Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(4 * SEGMENT_BYTES),
    );
    let db = Database::open_simulated(disk, options, seed).unwrap().watched();
    let paged = TableOptions::default().paged();
    let table =
        db.run_blocking(async move |tx| tx.open_or_create_table_with("records", paged).await);
    let table = table.unwrap();
    (db, table)
}

fn put_all(
    db: &Database,
    table: &Records,
    keys: std::ops::Range<u64>,
    fails: bool,
) -> Result<(), Error> {
    let inner = table.clone();
    block_on(db.run_bulk(table, async move |tx| {
        for key in keys.clone() {
            tx.put(&inner, &key, &[key as u8; VALUE_BYTES]).await?;
        }
        if fails { Err(Error::Closed) } else { Ok(()) }
    }))
}

/// Returns the start positions of the log's segments.
fn segments(disk: &SimulatedDisk) -> Vec<u64> {
    let begin = |(name, _): (String, u64)| {
        let digits = name.strip_prefix("wal-")?.strip_suffix(".seg")?.to_owned();
        Some(u64::from_str_radix(&digits, 16).unwrap())
    };
    disk.files().into_iter().filter_map(begin).collect()
}

/// Opens the database and checks its contents. If the operation logged much, checks that none of
/// that is left in the log, and returns true. Also checks that no reserve remains for the pages
/// that the operation filled.
fn check_freed(disk: &SimulatedDisk, seed: u64) -> bool {
    let (db, table) = open(disk, seed);
    let stats = db.stats();
    let was_much = stats.recovery.log_bytes > 3 * SEGMENT_BYTES;
    if was_much {
        // The first segment contains rows of the catalog.
        let is_needed = |begin: u64| begin == 0 || begin + SEGMENT_BYTES > stats.lsn.checkpoint;
        let segments = segments(disk);
        assert!(segments.into_iter().all(is_needed), "{:?} {stats:?}", disk.files());
    }
    // The reserve is four times the amount that can be logged until the next check, plus space for
    // the existing records.
    let for_log = 4 * (stats.log.disk_bytes + SEGMENT_BYTES);
    let held = disk.files().into_iter().find(|(name, _)| name == "braid.reserve").unwrap().1;
    assert!(held <= for_log + (4 << 20), "{held}, {for_log} for the log");
    assert_eq!(block_on(db.len(&table)).unwrap(), KEPT);
    for key in 0..KEPT {
        let found = block_on(db.get(&table, &key)).unwrap();
        assert!(found.is_some_and(|value| *value == [key as u8; VALUE_BYTES]), "key {key}");
    }
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
    was_much
}

/// Returns possible disk contents after a crash at each `every`-th disk operation while `run` runs.
fn crashes_during(disk: &SimulatedDisk, every: u64, run: impl FnOnce()) -> Vec<SimulatedDisk> {
    let crashes = Arc::new(Mutex::new(Vec::new()));
    let (noted, mut seed) = (crashes.clone(), 0);
    disk.watch(move |moment| {
        seed += 1;
        if seed % every == 0 {
            noted.lock().push(moment.crash(seed, &mut CrashCounts::default()));
        }
    });
    run();
    disk.unwatch();
    std::mem::take(&mut *crashes.lock())
}

#[test]
fn what_an_interrupted_bulk_operation_logged_is_given_back_on_the_next_opening() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(7);
        let (db, table) = open(&disk, 1);
        put_all(&db, &table, 0..KEPT, false).unwrap();
        let crashes = crashes_during(&disk, 10, || {
            let error = put_all(&db, &table, 1000..1000 + INSERTED, true).unwrap_err();
            assert!(matches!(error, Error::Closed), "{error}");
        });
        db.close().unwrap();
        drop((db, table));
        let mut much = 0;
        for (number, crash) in crashes.iter().enumerate() {
            much += u64::from(check_freed(crash, number as u64));
        }
        assert!(much > 10, "{much}");
        // The operation was rolled back, not crashed. A checkpoint may have ended since.
        check_freed(&disk, 100);
    });
}

/// An interrupted program leaves such a reserve if it expected a large checkpoint.
#[test]
fn what_was_held_back_beyond_what_should_be_is_given_back_on_the_next_opening() {
    const HELD: u64 = 64 << 20;
    with_limit(LIMIT, |_| {
        let directory = tempfile::tempdir().unwrap();
        let reserve = directory.path().join("braid.reserve");
        let length = || std::fs::metadata(&reserve).unwrap().len();
        let open = |options: Options| Database::open(directory.path(), options).unwrap().watched();
        let table =
            open(Options::default()).run_blocking(async |tx| tx.create_table("names").await);
        let _: Table<u64, u64> = table.unwrap();
        let held = length();
        std::fs::File::options().write(true).open(&reserve).unwrap().set_len(HELD).unwrap();
        open(Options::default().read_only(true)).close().unwrap();
        assert_eq!(length(), HELD, "reading writes nothing");
        open(Options::default()).close().unwrap();
        assert!(length() <= 2 * held, "{} after {held}", length());
    });
}

/// Loads records into a staged table in many transactions.
fn load_staged(db: &Database, paged: bool) {
    let options = if paged { TableOptions::default().paged() } else { TableOptions::default() };
    let staged = block_on(db.stage_table_with::<u64, [u8]>("staged", options)).unwrap();
    for from in (0..INSERTED).step_by(100) {
        let load = async move |tx: &Transaction, table: &Records| {
            for key in from..from + 100 {
                tx.put(table, &key, &[key as u8; VALUE_BYTES]).await?;
            }
            Ok(())
        };
        block_on(db.run_on(staged.table(), load)).unwrap();
    }
}

/// Opens the database, waits until it has deleted the staged table, and checks that only the end of
/// the log still contains such data. After another crash, a removed file may reappear; the next
/// compaction removes it.
fn check_load_freed(disk: &SimulatedDisk, seed: u64, after_crash: bool) {
    let (db, table) = open(disk, seed);
    while db.stats().removals_under_way > 0 {
        std::thread::yield_now();
    }
    if after_crash {
        block_on(db.compact()).unwrap();
    }
    let stats = db.stats();
    let checkpoint = stats.lsn.checkpoint;
    // The log needs the segments from the checkpoint to the tail, and one ahead. A file may have the
    // name of an earlier segment.
    let needed = stats.lsn.tail / SEGMENT_BYTES - checkpoint / SEGMENT_BYTES + 2;
    // Two segments contain rows of the catalog and the earlier records.
    let files = segments(disk).len() as u64;
    assert!(files <= needed + 2, "{:?} {stats:?}", disk.files());
    // Garbage smaller than a checkpoint is left to the next checkpoint.
    assert!(stats.lsn.tail - checkpoint < 3 * SEGMENT_BYTES, "{:?}", stats.lsn);
    let zones = disk.files().into_iter().filter(|(name, _)| name.ends_with(".zone"));
    let zones = zones.map(|(_, bytes)| bytes).sum::<u64>();
    assert!(zones < 1 << 20, "{:?}", disk.files());
    assert_eq!(block_on(db.len(&table)).unwrap(), KEPT);
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
}

#[test]
#[ignore = "slow: the gate runs it"]
fn what_an_interrupted_load_left_is_given_back_on_the_next_opening() {
    with_limit(LIMIT, |_| {
        for paged in [false, true] {
            let disk = SimulatedDisk::new(7);
            let (db, table) = open(&disk, 1);
            put_all(&db, &table, 0..KEPT, false).unwrap();
            let crashes = crashes_during(&disk, 10, || {
                load_staged(&db, paged);
                db.close().unwrap();
            });
            drop((db, table));
            assert!(crashes.len() > 10, "{}", crashes.len());
            for (number, crash) in crashes.iter().chain([&disk]).enumerate() {
                let check = || check_load_freed(crash, number as u64, false);
                for again in crashes_during(crash, 120, check) {
                    check_load_freed(&again, number as u64, true);
                }
            }
        }
    });
}

/// Ids of deleted records do not count for the checkpoint reserve.
#[test]
fn a_table_that_is_emptied_asks_for_no_room() {
    with_limit(LIMIT, |_| {
        let db = Database::open_simulated(&SimulatedDisk::new(7), Options::default(), 1);
        let db = db.unwrap().watched();
        let estimate = || durability::estimate_checkpoint_file(&db.shared.engine);
        let table: Table<u64, u64> = block_on(db.create_table("records")).unwrap();
        let empty = estimate();
        block_on(db.run_on(&table, async |tx, table| {
            for key in 0..50_000 {
                tx.put(table, &key, &key).await?;
            }
            Ok(())
        }))
        .unwrap();
        assert!(estimate() > empty + (50_000 * 16), "{} after {empty}", estimate());
        block_on(db.clear(&table)).unwrap();
        // The workers reclaim the ids.
        while estimate() > empty + (1 << 18) {
            std::thread::yield_now();
        }
    });
}
