//! Crashes at every disk operation in the life of a paged table: created, filled by transactions of
//! many blocks, changed, renamed, cleared, dropped. The recovered state must be the result of one
//! of these steps, and not earlier than the last acknowledged one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::simulation::{CrashCounts, Faults, SimulatedDisk, block_on};
use braiddb::{BusyWith, Database, Error, Options, Outcome, Table, TableOptions, Tuning};
use futures_util::future::join;

type Numbers = Table<u64, u64>;
type Contents = BTreeMap<u64, u64>;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 400;
const RECORDS: u64 = 1500;

/// The last completed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Before,
    Created,
    Filled,
    Changed,
    Renamed,
    /// Some of its records are deleted.
    Cleared,
    Dropped,
}

fn open(disk: &SimulatedDisk, seed: u64) -> Database {
    let options = Options::default()
        .tuning(Tuning::default().log_segment_bytes(64 << 10).checkpoint_bytes(24 << 10));
    Database::open_simulated(disk, options, seed).unwrap().watched()
}

/// Deletes every third record and inserts it again.
async fn change(db: &Database, table: &Numbers, factor: u64) {
    let table = table.clone();
    let changed = db.run(async move |tx| {
        for key in 0..RECORDS {
            tx.put(&table, &key, &(key * factor)).await?;
            if key % 3 == 0 {
                tx.delete(&table, &key).await?;
            }
            if key % 9 == 0 {
                tx.insert(&table, &key, &(key * factor)).await?;
            }
        }
        Ok(())
    });
    changed.await.unwrap();
}

fn changed(factor: u64) -> Contents {
    let left = (0..RECORDS).filter(|key| key % 3 != 0 || key % 9 == 0);
    left.map(|key| (key, key * factor)).collect()
}

fn contents(db: &Database, name: &str) -> Option<Contents> {
    let table: Numbers = match block_on(db.open_table(name)) {
        Err(Error::TableNotFound(_)) => return None,
        opened => opened.unwrap(),
    };
    let inner = table.clone();
    let found = db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&inner, ..)?, Contents::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value);
        }
        Ok(found)
    });
    let found = found.unwrap();
    assert_eq!(block_on(db.len(&table)).unwrap(), found.len() as u64);
    Some(found)
}

/// Returns the step that matches the contents.
fn step(db: &Database) -> Step {
    match (contents(db, "numbers"), contents(db, "figures")) {
        // No table: before the creation, or after the drop.
        (None, None) => Step::Dropped,
        (Some(found), None) if found.is_empty() => Step::Created,
        (Some(found), None) if found == changed(2) => Step::Filled,
        (Some(found), None) if found == changed(3) => Step::Changed,
        (None, Some(found)) if found == changed(3) => Step::Renamed,
        (None, Some(found)) => {
            // Deleted from the beginning on, many at a time.
            let first = found.keys().next().copied().unwrap_or(RECORDS);
            assert_eq!(found, changed(3).split_off(&first));
            Step::Cleared
        }
        found => panic!("{found:?}"),
    }
}

/// Writes some checkpoints while the tables change, unless another checkpoint is in progress.
async fn write_checkpoints(db: &Database) {
    for _ in 0..4 {
        match db.checkpoint().await {
            Ok(_) | Err(Error::Busy(BusyWith::Checkpoint)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Checks the state after a crash. Returns its step, and true if the open used a checkpoint with
/// records of the paged table.
fn check(disk: &SimulatedDisk, seed: u64, acknowledged: Step) -> (Step, bool) {
    let db = open(disk, seed);
    let others = changed(5).len() as u64 + 10;
    let by_checkpoint = db.stats().recovery.checkpoint.is_some_and(|one| one.records > others);
    let mut found = step(&db);
    if found == Step::Dropped && acknowledged < Step::Created {
        found = Step::Before;
    }
    let next = match acknowledged {
        Step::Before => Step::Created,
        Step::Created => Step::Filled,
        Step::Filled => Step::Changed,
        Step::Changed => Step::Renamed,
        Step::Renamed => Step::Cleared,
        Step::Cleared | Step::Dropped => Step::Dropped,
    };
    assert!([acknowledged, next].contains(&found), "{acknowledged:?} was told, {found:?} is there");
    assert_eq!(contents(&db, "others"), Some(changed(5)));
    disk.settle();
    let paged = !matches!(found, Step::Before | Step::Dropped);
    // Every second state is reopened from a checkpoint of the recovered state.
    while seed.is_multiple_of(2) {
        match block_on(db.checkpoint()) {
            Err(Error::Busy(BusyWith::Checkpoint)) => disk.settle(),
            written => {
                written.unwrap();
                break;
            }
        }
    }
    if !paged {
        // The name is free, and a new table contains nothing of the old one.
        for name in ["numbers", "figures"] {
            let again: Numbers = create_table(&db, name, seed.is_multiple_of(2));
            assert_eq!(contents(&db, name), Some(Contents::new()));
            block_on(db.put(&again, &1, &seed)).unwrap();
        }
    }
    loop {
        match db.check() {
            Err(Error::Busy(BusyWith::Checkpoint)) => disk.settle(),
            checked => {
                assert_eq!(checked.unwrap().problems, Vec::<String>::new());
                break;
            }
        }
    }
    db.close().unwrap();
    drop(db);
    let db = open(disk, seed + 1);
    if paged {
        assert_eq!(step(&db), found, "it stays");
    } else {
        let again = Some(Contents::from([(1, seed)]));
        assert_eq!([contents(&db, "numbers"), contents(&db, "figures")], [again.clone(), again]);
    }
    assert_eq!(contents(&db, "others"), Some(changed(5)));
    db.close().unwrap();
    (found, by_checkpoint)
}

#[test]
fn a_crash_recovers_the_state_after_a_step() {
    with_limit(LIMIT_SECONDS, |limit| {
        let disk = SimulatedDisk::new(1);
        let db = open(&disk, 1);
        let others: Numbers = create_table(&db, "others", false);
        block_on(change(&db, &others, 5));
        disk.settle();
        let crashes = Arc::new(Mutex::new(Vec::new()));
        let acknowledged = Arc::new(Mutex::new(Step::Before));
        let (noted, told, mut seed) = (crashes.clone(), acknowledged.clone(), 0);
        disk.watch(move |moment| {
            seed += 1;
            let crash = moment.crash(seed, &mut CrashCounts::default());
            noted.lock().unwrap().push((crash, *told.lock().unwrap()));
        });
        let tell = |step| {
            *acknowledged.lock().unwrap() = step;
            let crash = disk.crash(0, &mut CrashCounts::default());
            crashes.lock().unwrap().push((crash, step));
        };
        let table: Numbers = create_table(&db, "numbers", true);
        tell(Step::Created);
        block_on(join(change(&db, &table, 2), write_checkpoints(&db)));
        tell(Step::Filled);
        block_on(join(change(&db, &table, 3), write_checkpoints(&db)));
        tell(Step::Changed);
        block_on(db.rename_table("numbers", "figures")).unwrap();
        tell(Step::Renamed);
        block_on(join(db.clear(&table), write_checkpoints(&db))).0.unwrap();
        tell(Step::Cleared);
        block_on(join(db.drop_table("figures"), write_checkpoints(&db))).0.unwrap();
        tell(Step::Dropped);
        disk.unwatch();
        db.close().unwrap();
        let (mut found, mut by_checkpoint) = (BTreeMap::<Step, u64>::new(), 0);
        let crashes = std::mem::take(&mut *crashes.lock().unwrap());
        let under_way = Arc::new(Mutex::new((0, Step::Before)));
        let shown = under_way.clone();
        limit.on_timeout("crash", move || format!("{:?}", shown.lock().unwrap()));
        for (number, (disk, told)) in crashes.into_iter().enumerate() {
            *under_way.lock().unwrap() = (number, told);
            let (step, with_pages) = check(&disk, number as u64, told);
            *found.entry(step).or_default() += 1;
            by_checkpoint += u64::from(with_pages);
        }
        assert!(by_checkpoint > 20, "opened by a checkpoint with the table: {by_checkpoint}");
        let steps = [Step::Before, Step::Created, Step::Filled, Step::Changed, Step::Renamed];
        for step in steps.into_iter().chain([Step::Cleared, Step::Dropped]) {
            assert!(found.get(&step).is_some_and(|found| *found > 0), "{step:?}: {found:?}");
        }
    });
}

/// A checkpoint that began before the creation of a paged table, and ends while the table is
/// written, must not free the table's log.
#[test]
fn a_checkpoint_in_progress_keeps_the_log_of_a_new_paged_table() {
    with_limit(LIMIT_SECONDS, |_| {
        for seed in 0..12 {
            let disk = SimulatedDisk::new(seed);
            let options = Options::default()
                .tuning(Tuning::default().log_segment_bytes(64 << 10).checkpoint_bytes(1 << 30));
            let db = Database::open_simulated(&disk, options.clone(), seed).unwrap().watched();
            let others: Numbers = create_table(&db, "others", false);
            block_on(change(&db, &others, 5));
            disk.settle();
            disk.set_faults(Faults { max_delay: 60, ..Faults::default() });
            let crashes = Arc::new(Mutex::new(Vec::new()));
            let (noted, mut number) = (crashes.clone(), 0);
            disk.watch(move |moment| {
                number += 1;
                noted.lock().unwrap().push(moment.crash(number, &mut CrashCounts::default()));
            });
            let create = async {
                let options = TableOptions::default().paged();
                let create = db
                    .transaction()
                    .run(async move |tx| tx.create_table_with("numbers", options).await);
                let created: Outcome<Numbers> = create.await.unwrap();
                change(&db, &created.value, 2).await;
                created.commit_lsn
            };
            let (checkpoint, created_at) = block_on(join(db.checkpoint(), create));
            disk.unwatch();
            disk.set_faults(Faults::default());
            assert!(checkpoint.unwrap().lsn <= created_at, "seed {seed}: it was begun before");
            block_on(db.checkpoint()).unwrap();
            crashes.lock().unwrap().push(disk.crash(0, &mut CrashCounts::default()));
            db.close().unwrap();
            let (mut whole, mut based) = (0, 0);
            for disk in crashes.lock().unwrap().drain(..) {
                let db = Database::open_simulated(&disk, options.clone(), seed).unwrap().watched();
                assert_eq!(contents(&db, "others"), Some(changed(5)));
                let found = contents(&db, "numbers");
                assert!(
                    found.as_ref().is_none_or(|found| found.is_empty() || *found == changed(2))
                );
                let is_whole = found == Some(changed(2));
                whole += u64::from(is_whole);
                based += u64::from(is_whole && db.stats().recovery.checkpoint.is_some());
                db.close().unwrap();
            }
            assert!(
                whole > 0 && based > 0,
                "seed {seed}: {whole} whole, {based} after the checkpoint"
            );
        }
    });
}
