//! Growth of a small database, with failures at every moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pollster::block_on;

use super::super::{Database, Error, Options, Table, Tuning};
use crate::common::with_limit;
use crate::io::{CrashCounts, Faults, SimulatedDisk};
use crate::sync::Mutex;

const SEGMENT_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 4096;
const VALUE_BYTES: usize = 20_000;
/// Time limit of a test, in seconds.
const LIMIT: u64 = 600;

type Records = Table<u64, [u8]>;

fn open(disk: &SimulatedDisk, seed: u64) -> Result<(Database, Records), Error> {
    let options = Options::default()
        .tuning(Tuning::default().log_segment_bytes(SEGMENT_BYTES).checkpoint_bytes(1 << 40));
    let db = Database::open_simulated(disk, options, seed)?;
    let table = block_on(db.open_or_create_table("records"))?;
    Ok((db, table))
}

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; VALUE_BYTES]
}

/// Counts the records, which must be the first ones in key order.
fn count(db: &Database, table: &Records) -> u64 {
    let table = table.clone();
    let counted = db.run_blocking(async move |tx| {
        let (mut scan, mut count) = (tx.scan(&table, ..)?, 0);
        while let Some((key, found)) = scan.next().await? {
            assert_eq!(key, count);
            assert!(found == value(key), "key {key}");
            count += 1;
        }
        Ok::<_, Error>(count)
    });
    counted.unwrap()
}

/// Returns the size of the first segment's file in bytes.
fn first_bytes(disk: &SimulatedDisk) -> u64 {
    let files = disk.files();
    files.iter().find(|(name, _)| name == "wal-0000000000000000.seg").map_or(0, |(_, bytes)| *bytes)
}

#[test]
fn a_crash_while_it_grows_loses_nothing() {
    with_limit(LIMIT, |_| {
        let disk = SimulatedDisk::new(7);
        let (acknowledged, crashes) =
            (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (told, noted, mut seed) = (acknowledged.clone(), crashes.clone(), 0);
        disk.watch(move |moment| {
            seed += 1;
            let crash = moment.crash(seed, &mut CrashCounts::default());
            noted.lock().push((told.load(Ordering::SeqCst), crash));
        });
        let (db, table) = open(&disk, 1).unwrap();
        for key in 0..110 {
            block_on(db.put(&table, &key, &value(key)[..])).unwrap();
            acknowledged.store(key + 1, Ordering::SeqCst);
        }
        disk.unwatch();
        db.close().unwrap();
        drop(db);
        let crashes = std::mem::take(&mut *crashes.lock());
        assert!(crashes.len() > 150, "{}", crashes.len());
        let (mut lengths, mut grown) = (BTreeSet::new(), 0);
        for (number, (acknowledged, disk)) in crashes.into_iter().enumerate() {
            let before = first_bytes(&disk);
            lengths.insert(before);
            let (db, table) = open(&disk, number as u64).unwrap();
            let found = count(&db, &table);
            assert!(found >= acknowledged, "{found} of {acknowledged} at {number}");
            assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
            // The database accepts further writes.
            for key in found..found + 8 {
                block_on(db.put(&table, &key, &value(key)[..])).unwrap();
            }
            db.close().unwrap();
            drop(db);
            grown += u64::from(first_bytes(&disk) > before);
            if number % 8 == 0 {
                let (db, table) = open(&disk, number as u64).unwrap();
                assert_eq!(count(&db, &table), found + 8);
                db.close().unwrap();
            }
        }
        let steps = [256, 512, 1024].map(|kibibytes| (kibibytes << 10) + SECTOR_BYTES);
        assert!(steps.iter().all(|step| lengths.contains(step)), "{lengths:?}");
        assert!(grown > 20, "{grown}");
    });
}

#[test]
fn a_disk_that_is_full_when_it_grows_refuses_commits_and_goes_on() {
    with_limit(LIMIT, |_| {
        let mut lengths = BTreeSet::new();
        // The first file, and the reserve for a checkpoint and for an extension of the log.
        const LEAST: u64 = 340;
        let mut refused_opening = 0;
        for sectors in (60..1100).step_by(13) {
            let disk = SimulatedDisk::new(sectors);
            let limited = |capacity| {
                disk.set_faults(Faults { capacity, max_delay: 3, ..Faults::default() });
            };
            limited(sectors);
            let (db, table) = match open(&disk, sectors) {
                Ok(opened) => opened,
                Err(error) => {
                    assert!(error.to_string().contains("simulated"), "{error}");
                    assert!(sectors < LEAST, "{error}, with {sectors} sectors");
                    refused_opening += 1;
                    continue;
                }
            };
            let mut records = 0;
            let error = loop {
                match block_on(db.put(&table, &records, &value(records)[..])) {
                    Ok(()) => records += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::DiskFull(_)), "{error}");
            lengths.insert(first_bytes(&disk));
            assert_eq!(count(&db, &table), records);
            // Deletions have reserved space.
            let most = records.min(5);
            for key in records - most..records {
                block_on(db.delete(&table, &key)).unwrap();
            }
            records -= most;
            db.close().unwrap();
            drop(db);
            let (db, table) = open(&disk, sectors + 1).unwrap();
            assert_eq!(count(&db, &table), records);
            // With enough disk space the log grows again.
            limited(4 * sectors + 2000);
            for key in records..records + 20 {
                block_on(db.put(&table, &key, &value(key)[..])).unwrap();
            }
            assert_eq!(count(&db, &table), records + 20);
            db.close().unwrap();
        }
        assert!(refused_opening > 0);
        let steps = [256, 512, 1024].map(|kibibytes| (kibibytes << 10) + SECTOR_BYTES);
        assert!(steps.iter().all(|step| lengths.contains(step)), "{lengths:?}");
    });
}
