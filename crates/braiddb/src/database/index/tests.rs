//! Indexes across crashes: after each crash, the attached index matches its table.

use crate::database::Tuning;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Index, IndexDescription, IndexKeys, IndexOptions, IndexStage, erase};
use crate::common::{PART_SECONDS, with_limit};
use crate::database::{BusyWith, Database, Error, Options, Table, TableOptions, Transaction};
use crate::io::{CrashCounts, SimulatedDisk};
use crate::sync::Mutex;

type Records = Table<u64, u64>;
type Digits = Index<u64, u64, u64>;

const RECORDS: u64 = 60;
/// Maximum number of crashes tested per history.
const MAX_CRASHES: usize = 40;

fn options() -> Options {
    Options::default().tuning(Tuning::default().log_segment_bytes(64 << 10))
}

fn digits(mut value: u64, keys: &mut IndexKeys<'_, u64>) {
    while value > 0 {
        keys.push(&(value % 10));
        value /= 10;
    }
}

fn attach(db: &Database, table: &Records, unique: bool) -> Result<Digits, Error> {
    let options = IndexOptions::default().unique(unique);
    if unique {
        let whole = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        return crate::database::block_on(db.index(table, "whole", options, whole));
    }
    crate::database::block_on(db.index(table, "digits", options, digits))
}

/// Returns whether the table of a history is paged.
fn is_paged(seed: u64) -> bool {
    seed / 2 % 2 == 1
}

fn open_table(db: &Database, seed: u64) -> Records {
    let options = TableOptions::default();
    let options = if is_paged(seed) { options.paged() } else { options };
    let open = async move |tx: &Transaction| tx.open_or_create_table_with("records", options).await;
    db.run_blocking(open).unwrap()
}

/// Writes a few records in one transaction, which may fail.
fn write(db: &Database, table: &Records, random: &mut fastrand::Rng) {
    let some: Vec<_> = (0..random.u64(1..4))
        .map(|_| (random.u64(0..RECORDS), random.u64(0..4) > 0, random.u64(1..5000)))
        .collect();
    let (table, gives_up) = (table.clone(), random.u32(0..6) == 0);
    let done = db.run_blocking(async move |tx| {
        for (key, puts, value) in &some {
            match puts {
                // Few records share these values.
                true => tx.put(&table, key, &(value * RECORDS + key)).await?,
                false => _ = tx.delete(&table, key).await?,
            }
        }
        if gives_up { Err(Error::Closed) } else { Ok(()) }
    });
    assert!(matches!(done, Ok(()) | Err(Error::Closed)), "{done:?}");
}

fn check(db: &Database, table: &Records, index: &Digits, unique: bool) {
    let (records, by) = (table.clone(), index.clone());
    db.run_blocking(async move |tx| {
        let (mut all, mut expected) = (tx.scan(&records, ..)?, BTreeSet::new());
        while let Some((key, value)) = all.next().await? {
            match unique {
                true => _ = expected.insert((value, key, value)),
                false => expected
                    .extend(value.to_string().bytes().map(|d| (u64::from(d - b'0'), key, value))),
            }
        }
        let (mut scan, mut found) = (tx.scan_by(&by, ..)?, Vec::new());
        while let Some(one) = scan.next().await? {
            found.push(one);
        }
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        Ok::<_, Error>(())
    })
    .unwrap();
    let report = db.check().unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Runs the history of a database with an index: creates it during writes, writes, drops it (while
/// `dropping` is set), and creates it again.
fn history(disk: &SimulatedDisk, seed: u64, unique: bool, dropping: &Mutex<bool>) {
    let db = Database::open_simulated(disk, options(), seed).unwrap();
    let mut random = fastrand::Rng::with_seed(seed);
    let table = open_table(&db, seed);
    for round in 0..2 {
        for _ in 0..20 {
            write(&db, &table, &mut random);
        }
        let index = {
            let watch = |_| write(&db, &table, &mut random);
            let options = IndexOptions::default().unique(unique);
            let whole = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
            crate::database::block_on(async {
                match unique {
                    true => db.index_watched(&table, "whole", options, whole, watch).await,
                    false => db.index_watched(&table, "digits", options, digits, watch).await,
                }
            })
            .unwrap()
        };
        for number in 0..20 {
            write(&db, &table, &mut random);
            if number % 8 == 7 {
                crate::database::block_on(db.checkpoint()).unwrap();
            }
        }
        check(&db, &table, &index, unique);
        if round == 0 {
            *dropping.lock() = true;
            crate::database::block_on(db.drop_index(&table, index.name())).unwrap();
            *dropping.lock() = false;
        }
    }
    db.close().unwrap();
}

/// Opens a database after a crash, attaches or creates the index, and compares it with the table
/// before and after more writes. Returns the stage of the index found.
fn reopen(disk: &SimulatedDisk, seed: u64, number: u64, unique: bool) -> Option<IndexStage> {
    let db = Database::open_simulated(disk, options(), seed * 1000 + number).unwrap();
    let mut random = fastrand::Rng::with_seed(seed * 1000 + number);
    // Opens the kind of table that was created.
    let table = open_table(&db, seed);
    let before = crate::database::block_on(db.indexes()).unwrap();
    assert!(before.len() <= 1);
    let index = loop {
        match attach(&db, &table, unique) {
            Ok(index) => break index,
            // The dropped index is being deleted.
            Err(Error::Busy(BusyWith::TableChange { .. })) => write(&db, &table, &mut random),
            Err(other) => panic!("{other:?}"),
        }
    };
    check(&db, &table, &index, unique);
    for _ in 0..10 {
        write(&db, &table, &mut random);
    }
    check(&db, &table, &index, unique);
    db.close().unwrap();
    before.first().map(|row| row.stage)
}

#[test]
fn an_index_is_what_its_table_is_after_every_crash() {
    with_limit(PART_SECONDS, |_| {
        let (mut met, mut while_dropped) = (BTreeSet::new(), 0);
        for seed in 0..8 {
            let unique = seed % 2 == 1;
            let disk = SimulatedDisk::new(seed);
            let crashed = Arc::new(Mutex::new(Vec::new()));
            let found = crashed.clone();
            let dropping = Arc::new(Mutex::new(false));
            let dropped = dropping.clone();
            let mut random = fastrand::Rng::with_seed(seed);
            disk.watch(move |moment| {
                let (mut found, dropped) = (found.lock(), *dropped.lock());
                // A drop takes few operations.
                let one_in = if dropped { 2 } else { 40 };
                if found.len() < MAX_CRASHES && random.u32(0..one_in) == 0 {
                    let disk = moment.crash(random.u64(..), &mut CrashCounts::default());
                    found.push((disk, dropped));
                }
            });
            history(&disk, seed, unique, &dropping);
            disk.unwatch();
            let crashed = std::mem::take(&mut *crashed.lock());
            assert!(crashed.len() >= 5, "{}", crashed.len());
            for (number, (disk, dropped)) in crashed.iter().enumerate() {
                let stage = reopen(disk, seed, number as u64, unique);
                while_dropped += u32::from(*dropped);
                met.insert(match stage {
                    None => "none",
                    Some(IndexStage::Building) => "building",
                    Some(IndexStage::Ready) => "ready",
                    // The drop usually finishes before the test looks.
                    Some(IndexStage::Dropping) => continue,
                });
            }
        }
        assert_eq!(met.into_iter().collect::<Vec<_>>(), ["building", "none", "ready"]);
        assert!(while_dropped >= 8, "{while_dropped}");
    });
}

#[test]
fn a_creation_goes_on_when_one_that_was_given_up_makes_the_index_ready_meanwhile() {
    with_limit(PART_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap();
        let table = open_table(&db, 0);
        attach(&db, &table, false).unwrap();
        let ready = crate::database::block_on(db.indexes()).unwrap().remove(0);
        // The row as the second creation read it, before the last commit of the first.
        let read = IndexDescription { stage: IndexStage::Building, ..ready.clone() };
        let code = erase::<u64, u64, _>(digits);
        let (_, row) = crate::database::block_on(db.list_index(&table.core, read, code)).unwrap();
        assert_eq!((row.id, row.stage), (ready.id, IndexStage::Ready));
    });
}
