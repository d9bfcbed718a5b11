//! An index always matches its table while clients write at random.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use braiddb::{Database, Error, IndexError, IndexOptions, Isolation, Options, Transaction};
use pollster::block_on;

use super::numbers::{Records, attach, check_now, create_table, in_memory, keys_of, scan, write};
use crate::common::{Watched, with_limit};

const RECORDS: u64 = 40;

/// Returns a value with keys that few other records have.
fn random_value(random: &mut fastrand::Rng) -> String {
    let count = random.usize(0..4);
    (0..count).map(|_| format!("{} ", random.u64(0..60))).collect()
}

/// Returns a value for one record with keys that hardly any other record has.
fn own_value(random: &mut fastrand::Rng, key: u64, records: u64) -> String {
    let owner = if random.u32(0..3000) == 0 { random.u64(0..records) } else { key };
    (0..3).filter(|_| random.bool()).map(|n| format!("{} ", owner * 3 + n)).collect()
}

/// Starts clients that write records until they are stopped. Returns their commits and conflicts.
/// The values of the `records` records have distinct keys or share them.
fn writers(
    db: &Database,
    table: &Records,
    stop: &Arc<AtomicBool>,
    count: u64,
    own: Option<u64>,
) -> Vec<std::thread::JoinHandle<(u64, u64)>> {
    let client = |seed: u64| {
        let (db, table, stop) = (db.clone(), table.clone(), stop.clone());
        std::thread::spawn(move || {
            let (mut random, mut counts) = (fastrand::Rng::with_seed(seed), (0, 0));
            while !stop.load(Ordering::Relaxed) {
                let writes: Vec<_> = (0..random.usize(1..4))
                    .map(|_| {
                        let key = random.u64(0..own.unwrap_or(RECORDS));
                        let value = random.bool().then(|| match own {
                            Some(records) => own_value(&mut random, key, records),
                            None => random_value(&mut random),
                        });
                        (key, value)
                    })
                    .collect();
                let give_up = random.u32(0..8) == 0;
                let isolation = [Isolation::Serializable, Isolation::Snapshot][random.usize(0..2)];
                let table = table.clone();
                let done = block_on(db.transaction().isolation(isolation).run(
                    async move |tx: &Transaction| {
                        for (key, value) in &writes {
                            match value {
                                Some(value) => tx.put(&table, key, value).await?,
                                None => _ = tx.delete(&table, key).await?,
                            }
                        }
                        if give_up { Err(Error::Closed) } else { Ok(()) }
                    },
                ));
                match done {
                    Ok(_) => counts.0 += 1,
                    Err(Error::Closed | Error::UniqueViolation(_)) => counts.1 += 1,
                    Err(error) if error.is_retryable() => counts.1 += 1,
                    Err(other) => panic!("{other:?}"),
                }
            }
            counts
        })
    };
    (0..count).map(client).collect()
}

fn stress(unique: bool, seconds: u64) {
    let (db, table, index) = in_memory(3, unique);
    let stop = Arc::new(AtomicBool::new(false));
    let writers = writers(&db, &table, &stop, 4, None);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let mut checks = 0;
    while checks < 50 || std::time::Instant::now() < end {
        check_now(&db, &table, &index);
        checks += 1;
    }
    stop.store(true, Ordering::Relaxed);
    let counts: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let committed: u64 = counts.iter().map(|counts| counts.0).sum();
    assert!(committed > 100, "{counts:?}");
    check_now(&db, &table, &index);
}

/// Keys move between records during scans; every scan sees exactly its snapshot.
#[test]
fn an_index_matches_its_table_under_concurrent_writes() {
    with_limit(240, |_| stress(false, 1));
}

#[test]
fn a_unique_index_matches_its_table_under_concurrent_writes() {
    with_limit(240, |_| stress(true, 1));
}

#[test]
#[ignore = "slow: the gate runs it"]
fn indexes_match_their_tables_under_concurrent_writes_for_long() {
    with_limit(240, |_| [false, true].into_iter().for_each(|unique| stress(unique, 4)));
}

/// Creates and drops an index repeatedly while others write: each time it must match the table.
fn create_beside_writers(unique: bool, records: u64, creations: u32) {
    let db = Database::in_memory(Options::default().workers(3)).unwrap().watched();
    let table: Records = create_table(&db, "records");
    for key in 0..records {
        write(&db, &table, &[(key, Some(&format!("{}", 3 * key)))]).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers = writers(&db, &table, &stop, 4, unique.then_some(records));
    let (mut created, mut duplicates) = (0, 0);
    while created < creations {
        match attach(&db, &table, IndexOptions::default().unique(unique)) {
            Ok(index) => {
                created += 1;
                for _ in 0..5 {
                    check_now(&db, &table, &index);
                }
                block_on(db.drop_index(&table, "numbers")).unwrap();
            }
            Err(Error::Index(error))
                if unique && matches!(*error, IndexError::DuplicateKey { .. }) =>
            {
                duplicates += 1
            }
            Err(other) => panic!("{other:?}"),
        }
        assert!(block_on(db.indexes()).unwrap().is_empty());
    }
    stop.store(true, Ordering::Relaxed);
    let counts: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    assert!(counts.iter().all(|counts| counts.0 > 0), "{counts:?}");
    println!("{created} created, {duplicates} with duplicates; committed and not: {counts:?}");
}

#[test]
fn an_index_is_created_and_dropped_under_concurrent_writes() {
    with_limit(240, |_| create_beside_writers(false, RECORDS, 15));
}

#[test]
fn a_unique_index_is_created_under_concurrent_writes() {
    with_limit(240, |_| create_beside_writers(true, 300, 15));
}

#[test]
#[ignore = "slow: the gate runs it"]
fn many_indexes_are_created_under_concurrent_writes() {
    with_limit(240, |_| {
        create_beside_writers(false, RECORDS, 40);
        create_beside_writers(true, 300, 40);
    });
}

/// A transaction that found no record through an index cannot commit if another transaction inserts
/// such a record, even while the index is being dropped.
#[test]
fn reads_of_a_dropped_index_are_validated() {
    with_limit(120, |_| {
        let (db, table, index) = in_memory(2, false);
        write(&db, &table, &[(1, Some("1")), (2, Some("2"))]).unwrap();
        let teller = block_on(db.begin()).unwrap();
        let three = (Bound::Included(3), Bound::Included(3));
        let by = index.clone();
        let told = block_on(teller.step(async move |tx| scan(tx, &by, three, false).await));
        assert_eq!(told.unwrap(), []);
        let dropping = std::thread::spawn({
            let (db, table) = (db.clone(), table.clone());
            move || block_on(db.drop_index(&table, "numbers"))
        });
        loop {
            let by = index.clone();
            match db.run_blocking(async move |tx| scan(tx, &by, three, false).await) {
                Ok(found) => assert_eq!(found, []),
                Err(Error::Index(error)) if matches!(*error, IndexError::NotFound { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        // The other transaction reads the record that the first will write, and inserts the one
        // that the first did not find.
        let records = table.clone();
        let made = db.run_blocking(async move |tx| {
            assert_eq!(tx.get(&records, &1).await?, Some("1"));
            tx.put(&records, &3, "3").await
        });
        made.unwrap();
        block_on(teller.put(&table, &1, "1 9")).unwrap();
        let committed = block_on(teller.commit());
        assert!(matches!(committed, Err(Error::NotSerializable { .. })), "{committed:?}");
        dropping.join().unwrap().unwrap();
        assert_eq!(block_on(db.indexes()).unwrap().len(), 0);
        write(&db, &table, &[(4, Some("4"))]).unwrap();
    });
}

/// The model contains the committed records by key.
#[test]
fn an_index_behaves_as_a_model() {
    with_limit(120, |_| {
        let (db, table, index) = in_memory(1, false);
        let mut model = BTreeMap::<u64, String>::new();
        let mut random = fastrand::Rng::with_seed(11);
        for _ in 0..2000 {
            let key = random.u64(0..RECORDS);
            if random.u32(0..3) == 0 {
                write(&db, &table, &[(key, None)]).unwrap();
                model.remove(&key);
            } else {
                let value = random_value(&mut random);
                write(&db, &table, &[(key, Some(&value))]).unwrap();
                model.insert(key, value);
            }
            let (low, high) = (random.u64(0..60), random.u64(0..60));
            let range = (Bound::Included(low.min(high)), Bound::Excluded(low.max(high)));
            let reverse = random.bool();
            let by = index.clone();
            let found =
                db.run_blocking(async move |tx| scan(tx, &by, range, reverse).await).unwrap();
            let expected: BTreeSet<_> = model
                .iter()
                .flat_map(|(key, value)| keys_of(value).map(|n| (n, *key, value.clone())))
                .filter(|(number, ..)| (low.min(high)..low.max(high)).contains(number))
                .collect();
            let mut expected: Vec<_> = expected.into_iter().collect();
            if reverse {
                expected.reverse();
            }
            assert_eq!(found, expected);
        }
    });
}
