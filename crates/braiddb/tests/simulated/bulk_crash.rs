//! Crashes at every disk operation in the life of a paged table that bulk operations load, change,
//! fail to change, and empty, with concurrent checkpoints and a transaction on another table.
//! Recovery restores each operation completely or not at all, and at least the acknowledged ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::simulation::{CrashCounts, SimulatedDisk, block_on};
use braiddb::{BusyWith, Database, Error, Options, Table, Transaction, Tuning};
use futures_util::future::join;

type Numbers = Table<u64, [u8]>;
type Contents = BTreeMap<u64, Vec<u8>>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 400;
const RECORDS: u64 = 600;

fn open(disk: &SimulatedDisk, seed: u64) -> Database {
    // Few frames, so that uncommitted pages are evicted.
    let options = Options::default().tuning(
        Tuning::default()
            .log_segment_bytes(64 << 10)
            .checkpoint_bytes(48 << 10)
            .page_frames(Some(12)),
    );
    Database::open_simulated(disk, options, seed).unwrap().watched()
}

fn value(key: u64, step: u64) -> Vec<u8> {
    // Some values do not fit on a page.
    let bytes = if (key + step).is_multiple_of(97) { 3000 } else { 20 + (key * step) % 150 };
    vec![(key ^ step) as u8; bytes as usize]
}

/// Returns the contents after this number of steps.
fn after(step: u64) -> Contents {
    let mut contents = Contents::new();
    for step in 1..=step {
        match step {
            // Rolled back.
            3 => {}
            5 => contents.clear(),
            step => (0..RECORDS).filter(|key| !key.is_multiple_of(step + 1)).for_each(|key| {
                contents.insert(key, value(key, step));
            }),
        }
        if step != 3 && step != 5 {
            contents.retain(|key, _| !key.is_multiple_of(step + 5));
        }
    }
    contents
}

/// Runs a step in a bulk operation.
async fn change(db: &Database, table: &Numbers, step: u64) {
    let inner = table.clone();
    let operation = db.run_bulk(table, async move |tx: &Transaction| {
        for key in 0..RECORDS {
            if step == 5 {
                tx.delete(&inner, &key).await?;
                continue;
            }
            if !key.is_multiple_of(step + 1) {
                tx.put(&inner, &key, &value(key, step)).await?;
            }
            if key.is_multiple_of(step + 5) {
                tx.delete(&inner, &key).await?;
            }
        }
        if step == 3 { Err(Error::Closed) } else { Ok(()) }
    });
    match operation.await {
        Ok(()) => assert_ne!(step, 3),
        Err(error) => assert!(step == 3 && matches!(error, Error::Closed), "{error}"),
    }
}

fn contents(db: &Database, table: &Numbers) -> Contents {
    let inner = table.clone();
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&inner, ..)?, Contents::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value.to_vec());
        }
        Ok(found)
    });
    let found = found.unwrap();
    assert_eq!(block_on(db.len(table)).unwrap(), found.len() as u64);
    found
}

async fn beside(db: &Database, others: &Numbers, step: u64) {
    for key in 0..6 {
        let value = value(key, step);
        db.put(others, &key, &value).await.unwrap();
        match db.checkpoint().await {
            Ok(_) | Err(Error::Busy(BusyWith::Checkpoint)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_crash_leaves_all_or_nothing_of_a_bulk_operation() {
    with_limit(LIMIT_SECONDS, |limit| {
        const STEPS: u64 = 7;
        let disk = SimulatedDisk::new(1);
        let db = open(&disk, 1);
        let others: Numbers = create_table(&db, "others", true);
        let table: Numbers = create_table(&db, "numbers", true);
        disk.settle();
        let crashes = Arc::new(Mutex::new(Vec::new()));
        let acknowledged = Arc::new(Mutex::new(0));
        let (noted, told, mut seed) = (crashes.clone(), acknowledged.clone(), 0);
        disk.watch(move |moment| {
            seed += 1;
            // Only some of the crashes, because pages are written all the time.
            if seed % 7 == 0 {
                let crash = moment.crash(seed, &mut CrashCounts::default());
                noted.lock().unwrap().push((crash, *told.lock().unwrap()));
            }
        });
        for step in 1..=STEPS {
            block_on(join(change(&db, &table, step), beside(&db, &others, step)));
            assert_eq!(contents(&db, &table), after(step), "step {step}");
            *acknowledged.lock().unwrap() = step;
            crashes.lock().unwrap().push((disk.crash(0, &mut CrashCounts::default()), step));
        }
        disk.unwatch();
        assert!(db.stats().pages.evicted > 100);
        db.close().unwrap();
        let crashes = std::mem::take(&mut *crashes.lock().unwrap());
        let under_way = Arc::new(Mutex::new((0, 0)));
        let shown = under_way.clone();
        limit.on_timeout("crash", move || format!("{:?}", shown.lock().unwrap()));
        let mut found = BTreeMap::<u64, u64>::new();
        for (number, (disk, told)) in crashes.into_iter().enumerate() {
            *under_way.lock().unwrap() = (number, told);
            let db = open(&disk, number as u64);
            let table: Numbers = block_on(db.open_table("numbers")).unwrap();
            let left = contents(&db, &table);
            let step = [told, told + 1].into_iter().find(|step| left == after(*step));
            let step = step.unwrap_or_else(|| {
                panic!("crash {number}: neither {told} steps nor one more are there")
            });
            *found.entry(step).or_default() += 1;
            // Operations continue after recovery.
            block_on(change(&db, &table, 6));
            disk.settle();
            db.close().unwrap();
        }
        // A rolled-back operation leaves the previous contents.
        for step in [0, 1, 2, 4, 5, 6, 7] {
            assert!(found.get(&step).is_some_and(|found| *found > 0), "{step}: {found:?}");
        }
    });
}
