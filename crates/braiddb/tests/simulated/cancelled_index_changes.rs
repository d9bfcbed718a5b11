//! The creation and the drop of indexes are abandoned after each number of polls. The next call
//! continues an abandoned creation. An abandoned drop continues without a caller.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::common::{Watched, with_limit};
use crate::settled::poll_settled;
use braiddb::indexes::IndexStage;
use braiddb::simulation::{CrashCounts, SimulatedDisk, block_on};
use braiddb::{
    BusyWith, Database, Error, Index, IndexError, IndexKeys, IndexOptions, Options, Table, Tuning,
};

type Records = Table<u64, u64>;
type Digits = Index<u64, u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;
const NAME: &str = "digits";

fn digits(mut value: u64, keys: &mut IndexKeys<'_, u64>) {
    while value > 0 {
        keys.push(&(value % 10));
        value /= 10;
    }
}

fn open(disk: &SimulatedDisk, seed: u64) -> (Database, Records) {
    let options = Options::default().tuning(Tuning::default().log_segment_bytes(64 << 10));
    let db = Database::open_simulated(disk, options, seed).unwrap().watched();
    let table = block_on(db.open_or_create_table("records")).unwrap();
    (db, table)
}

async fn attach(db: &Database, table: &Records) -> Result<Digits, Error> {
    db.index(table, NAME, IndexOptions::default(), digits).await
}

fn put_all(db: &Database, table: &Records, records: std::ops::Range<u64>) {
    let all: Vec<u64> = records.collect();
    for some in all.chunks(500) {
        let (table, some) = (table.clone(), some.to_vec());
        db.run_blocking(async move |tx| {
            for key in &some {
                tx.put(&table, key, &(key * 7)).await?;
            }
            Ok(())
        })
        .unwrap();
    }
}

/// Writes a record and checks that the index matches the table.
fn works(db: &Database, table: &Records, index: &Digits, key: u64) {
    let (records, by) = (table.clone(), index.clone());
    let run = db.transaction().max_attempts(4).run(async move |tx| {
        tx.put(&records, &key, &(key * 11 + 1)).await?;
        let (mut all, mut expected) = (tx.scan(&records, ..)?, BTreeSet::new());
        while let Some((key, value)) = all.next().await? {
            expected.extend(value.to_string().bytes().map(|d| (u64::from(d - b'0'), key, value)));
        }
        let (mut scan, mut found) = (tx.scan_by(&by, ..)?, Vec::new());
        while let Some(one) = scan.next().await? {
            found.push(one);
        }
        // A digit 0 is a key only if more digits follow it.
        assert_eq!(found, expected.into_iter().filter(|one| one.2 > 0).collect::<Vec<_>>());
        Ok(())
    });
    block_on(run).unwrap();
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
}

fn attached_again(db: &Database, table: &Records) -> Digits {
    loop {
        match block_on(attach(db, table)) {
            Ok(index) => return index,
            // The dropped index is still being deleted.
            Err(Error::Busy(BusyWith::TableChange { .. })) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn the_next_call_continues_a_cancelled_index_creation() {
    with_limit(LIMIT_SECONDS, |_| {
        for polls in 0.. {
            let disk = SimulatedDisk::new(polls as u64);
            let (db, table) = open(&disk, 1);
            put_all(&db, &table, 0..400);
            let over = poll_settled(&disk, attach(&db, &table), polls);
            let index = over
                .as_ref()
                .map_or_else(|| attached_again(&db, &table), |i| i.as_ref().unwrap().clone());
            works(&db, &table, &index, 3);
            let rows = block_on(db.indexes()).unwrap();
            assert_eq!(rows.iter().map(|row| row.stage).collect::<Vec<_>>(), [IndexStage::Ready]);
            db.close().unwrap();
            drop((db, table, index));
            let (db, table) = open(&disk, 2);
            let index = attached_again(&db, &table);
            works(&db, &table, &index, 4);
            db.close().unwrap();
            if over.is_some() {
                break;
            }
        }
    });
}

/// The drop is abandoned after its first poll, then the index is dropped again and created again.
#[test]
fn a_cancelled_index_drop_continues() {
    with_limit(LIMIT_SECONDS, |_| {
        for beside in 0..8 {
            let disk = SimulatedDisk::new(beside);
            let (db, table) = open(&disk, 1);
            put_all(&db, &table, 0..400);
            let index = attached_again(&db, &table);
            works(&db, &table, &index, 3);
            let over = poll_settled(&disk, db.drop_index(&table, NAME), 1);
            // It can be complete only if this thread paused after the worker received the drop.
            assert!(matches!(over, None | Some(Ok(()))), "{over:?}");
            for key in 0..beside {
                put_all(&db, &table, key..key + 1);
            }
            if beside % 2 == 0 {
                disk.settle();
                assert!(block_on(db.indexes()).unwrap().is_empty(), "it went on");
            }
            loop {
                match block_on(db.drop_index(&table, NAME)) {
                    Err(Error::Index(error)) if matches!(*error, IndexError::NotFound { .. }) => {
                        break;
                    }
                    // The abandoned drop continues.
                    Err(Error::Busy(BusyWith::TableChange { .. })) => std::thread::yield_now(),
                    other => panic!("it was dropped before: {other:?}"),
                }
            }
            put_all(&db, &table, 0..40);
            let index = attached_again(&db, &table);
            works(&db, &table, &index, 5);
            disk.settle();
            let rows = block_on(db.indexes()).unwrap();
            assert_eq!(rows.iter().map(|row| row.stage).collect::<Vec<_>>(), [IndexStage::Ready]);
            db.close().unwrap();
            drop((db, table, index));
            let (db, table) = open(&disk, 2);
            assert_eq!(block_on(db.indexes()).unwrap().len(), 1);
            let index = attached_again(&db, &table);
            works(&db, &table, &index, 4);
            db.close().unwrap();
        }
    });
}

/// After a crash at any disk operation, the next opening continues an interrupted drop. It keeps
/// the row of a new index with the same name that is created during the drop.
#[test]
fn an_index_that_is_created_again_outlives_the_deletion_of_the_old_one() {
    with_limit(LIMIT_SECONDS, |_| {
        const RECORDS: u64 = 2_000;
        let disk = SimulatedDisk::new(1);
        let (db, table) = open(&disk, 1);
        put_all(&db, &table, 0..RECORDS);
        let index = attached_again(&db, &table);
        disk.settle();
        let crashes = Arc::new(Mutex::new(Vec::new()));
        let (noted, mut seed) = (crashes.clone(), 0);
        disk.watch(move |moment| {
            seed += 1;
            noted.lock().unwrap().push(moment.crash(seed, &mut CrashCounts::default()));
        });
        // A record before the index.
        put_all(&db, &table, 0..1);
        block_on(db.drop_index(&table, NAME)).unwrap();
        disk.unwatch();
        db.close().unwrap();
        drop((db, table, index));
        let (mut there, mut went_on) = (0, 0);
        for (number, disk) in crashes.lock().unwrap().drain(..).enumerate() {
            let (db, table) = open(&disk, number as u64);
            // Apart from this, the test only opened the table.
            went_on += u32::from(db.stats().committed > 5);
            there += block_on(db.indexes()).unwrap().len();
            let index = attached_again(&db, &table);
            disk.settle();
            works(&db, &table, &index, 5);
            let rows = block_on(db.indexes()).unwrap();
            assert_eq!(rows.iter().map(|row| row.stage).collect::<Vec<_>>(), [IndexStage::Ready]);
            db.close().unwrap();
        }
        assert!(there > 0 && went_on > 1, "{there} with the index, {went_on} without some of it");
    });
}
