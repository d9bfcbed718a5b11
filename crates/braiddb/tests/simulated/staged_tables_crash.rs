//! Crashes at every disk operation while a staged table is filled and published: afterwards it
//! exists completely or not at all.

use std::sync::{Arc, Mutex};

use crate::common::{Watched, with_limit};
use braiddb::simulation::{CrashCounts, SimulatedDisk, block_on};
use braiddb::{Database, Error, Options, TableOptions, Tuning};

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const RECORDS: u64 = 1500;
const AT_ONCE: u64 = 100;

fn open(disk: &SimulatedDisk, seed: u64) -> Database {
    let options = Options::default()
        .tuning(Tuning::default().log_segment_bytes(64 << 10).checkpoint_bytes(24 << 10));
    Database::open_simulated(disk, options, seed).unwrap().watched()
}

/// Checks the state after a crash. Returns true if the table existed.
fn check(disk: &SimulatedDisk, seed: u64, told: bool) -> bool {
    let db = open(disk, seed);
    let there = match block_on(db.open_table::<u64, u64>("numbers")) {
        Ok(table) => {
            let counted = db.run_blocking(async move |tx| tx.count(&table, ..).await);
            assert_eq!(counted.unwrap(), RECORDS);
            true
        }
        Err(Error::TableNotFound(_)) => false,
        Err(error) => panic!("{error}"),
    };
    assert!(there || !told, "its publication was told");
    disk.settle();
    let report = db.check().unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    // The table's row and its records.
    assert_eq!(report.records, if there { RECORDS + 1 } else { 0 });
    db.close().unwrap();
    there
}

#[test]
fn a_crash_leaves_all_or_nothing_of_a_staged_table() {
    crash_at_every_operation(TableOptions::default());
}

#[test]
fn a_crash_leaves_all_or_nothing_of_a_paged_staged_table() {
    crash_at_every_operation(TableOptions::default().paged());
}

fn crash_at_every_operation(options: TableOptions) {
    with_limit(LIMIT_SECONDS, move |_| {
        let disk = SimulatedDisk::new(1);
        let db = open(&disk, 1);
        let crashes = Arc::new(Mutex::new(Vec::new()));
        let (noted, mut seed) = (crashes.clone(), 0);
        disk.watch(move |moment| {
            seed += 1;
            let crash = moment.crash(seed, &mut CrashCounts::default());
            noted.lock().unwrap().push((crash, false));
        });
        let staged = block_on(db.stage_table_with::<u64, u64>("numbers", options)).unwrap();
        for from in (0..RECORDS).step_by(AT_ONCE as usize) {
            let table = staged.table().clone();
            db.run_blocking(async move |tx| {
                for key in from..from + AT_ONCE {
                    tx.insert(&table, &key, &(key * 2)).await?;
                }
                Ok(())
            })
            .unwrap();
        }
        block_on(staged.publish()).unwrap();
        let told = disk.crash(0, &mut CrashCounts::default());
        disk.unwatch();
        crashes.lock().unwrap().push((told, true));
        db.close().unwrap();
        let (mut there, mut nothing) = (0, 0);
        for (number, (disk, told)) in crashes.lock().unwrap().drain(..).enumerate() {
            match check(&disk, number as u64, told) {
                true => there += 1,
                false => nothing += 1,
            }
        }
        assert!(there > 0 && nothing > 3, "{there} with the table, {nothing} without");
    });
}
