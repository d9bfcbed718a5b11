//! Crashes at every disk operation while a table with an index is dropped. Afterwards the table
//! exists completely, or is gone and its remaining records are deleted automatically.

use std::sync::{Arc, Mutex};

use crate::common::{Watched, with_limit};
use braiddb::simulation::{CrashCounts, SimulatedDisk, block_on};
use braiddb::{Database, Error, IndexOptions, Options, Table, Tuning};

type Numbers = Table<u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 1500;

fn open(disk: &SimulatedDisk, seed: u64) -> Database {
    let options = Options::default()
        .tuning(Tuning::default().log_segment_bytes(64 << 10).checkpoint_bytes(24 << 10));
    Database::open_simulated(disk, options, seed).unwrap().watched()
}

fn fill(db: &Database, table: &Numbers) {
    let table = table.clone();
    db.run_blocking(async move |tx| {
        for key in 0..RECORDS {
            tx.put(&table, &key, &(key * 2)).await?;
        }
        Ok(())
    })
    .unwrap();
}

fn attach(db: &Database, table: &Numbers) -> braiddb::Index<u64, u64, u64> {
    let options = IndexOptions::default();
    block_on(db.index(table, "halves", options, |value, keys| keys.push(&(value / 2)))).unwrap()
}

/// Checks the state after a crash. Returns true if the table existed.
fn check(disk: &SimulatedDisk, seed: u64, told: bool) -> bool {
    let db = open(disk, seed);
    let there = match block_on(db.open_table::<u64, u64>("numbers")) {
        Ok(table) => {
            assert!(!told, "its dropping was told");
            let index = attach(&db, &table);
            let counted = db.run_blocking(async move |tx| {
                let (mut scan, mut entries) = (tx.entries_by(&index, ..)?, 0);
                while scan.next().await?.is_some() {
                    entries += 1;
                }
                Ok((tx.count(&table, ..).await?, entries))
            });
            assert_eq!(counted.unwrap(), (RECORDS, RECORDS));
            true
        }
        Err(Error::TableNotFound(_)) => false,
        Err(error) => panic!("{error}"),
    };
    let other: Numbers = block_on(db.open_table("others")).unwrap();
    let counted = db.run_blocking(async move |tx| tx.count(&other, ..).await);
    assert_eq!(counted.unwrap(), RECORDS);
    disk.settle();
    if !there {
        assert_eq!(block_on(db.indexes()).unwrap(), [], "what was left is gone");
        // The name is free, and a new table contains nothing of the old one.
        let again: Numbers = block_on(db.create_table("numbers")).unwrap();
        let counted = db.run_blocking(async move |tx| tx.count(&again, ..).await);
        assert_eq!(counted.unwrap(), 0);
    }
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
    there
}

#[test]
fn a_crash_leaves_a_table_whole_or_dropped() {
    with_limit(LIMIT_SECONDS, |_| {
        let disk = SimulatedDisk::new(1);
        let db = open(&disk, 1);
        let others: Numbers = block_on(db.create_table("others")).unwrap();
        let table: Numbers = block_on(db.create_table("numbers")).unwrap();
        attach(&db, &table);
        fill(&db, &others);
        fill(&db, &table);
        disk.settle();
        let crashes = Arc::new(Mutex::new(Vec::new()));
        let (noted, mut seed) = (crashes.clone(), 0);
        disk.watch(move |moment| {
            seed += 1;
            let crash = moment.crash(seed, &mut CrashCounts::default());
            noted.lock().unwrap().push((crash, false));
        });
        // A record before the drop.
        block_on(db.put(&table, &0, &0)).unwrap();
        block_on(db.drop_table("numbers")).unwrap();
        let told = disk.crash(0, &mut CrashCounts::default());
        disk.unwatch();
        crashes.lock().unwrap().push((told, true));
        db.close().unwrap();
        let (mut there, mut gone) = (0, 0);
        for (number, (disk, told)) in crashes.lock().unwrap().drain(..).enumerate() {
            match check(&disk, number as u64, told) {
                true => there += 1,
                false => gone += 1,
            }
        }
        assert!(there > 0 && gone > 3, "{there} with the table, {gone} without");
    });
}
