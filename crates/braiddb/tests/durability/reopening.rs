//! Committed records survive any end of the process. Corrupt files cause an error that names the
//! place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::common::{Limit, Watched, with_limit};
use braiddb::{Database, DeviceKind, Durability, Error, LogError, Options, Table};
use pollster::block_on;
use proptest::prelude::*;
use tempfile::TempDir;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

type Bytes = Table<[u8], [u8]>;
type Numbers = Table<u64, u64>;

fn options() -> Options {
    Options::default().workers(2)
}

fn open(directory: &Path) -> Database {
    Database::open(directory, options()).unwrap().watched()
}

fn numbers(db: &Database, name: &str) -> Numbers {
    block_on(db.open_or_create_table(name)).unwrap()
}

fn put(db: &Database, table: &Numbers, records: impl Iterator<Item = (u64, u64)>) {
    let (table, records) = (table.clone(), records.collect::<Vec<_>>());
    db.run_blocking(async move |tx| {
        for (key, value) in &records {
            tx.put(&table, key, value).await?;
        }
        Ok(())
    })
    .unwrap();
}

fn all(db: &Database, table: &Numbers) -> Vec<(u64, u64)> {
    let table = table.clone();
    db.run_blocking(async move |tx| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, Vec::new());
        while let Some(record) = scan.next().await? {
            found.push(record);
        }
        Ok(found)
    })
    .unwrap()
}

/// Returns the segment files of a database, in order.
fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> =
        entries.filter(|p| p.extension().is_some_and(|e| e == "seg")).collect();
    segments.sort();
    segments
}

#[test]
fn committed_records_survive_closing_and_dropping() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        for round in 0..4u64 {
            let db = open(directory.path());
            let table = numbers(&db, "numbers");
            assert_eq!(all(&db, &table), (0..round * 100).map(|n| (n, n * 7)).collect::<Vec<_>>());
            put(&db, &table, (round * 100..round * 100 + 100).map(|n| (n, n * 7)));
            if round % 2 == 0 {
                db.close().unwrap();
            }
        }
    });
}

#[test]
fn the_blocking_device_writes_the_same_log() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        for device in [DeviceKind::Blocking, DeviceKind::Auto, DeviceKind::Blocking] {
            let db =
                Database::open(directory.path(), options().tune(|tuning| tuning.device(device)))
                    .unwrap()
                    .watched();
            let table = numbers(&db, "numbers");
            let before = all(&db, &table).len() as u64;
            put(&db, &table, (before..before + 500).map(|n| (n, n)));
            assert_eq!(all(&db, &table).len() as u64, before + 500);
        }
    });
}

#[test]
fn relaxed_commits_are_durable_after_closing() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        let db = Database::open(directory.path(), options().durability(Durability::Relaxed))
            .unwrap()
            .watched();
        let table = numbers(&db, "numbers");
        for n in 0..200 {
            put(&db, &table, std::iter::once((n, n)));
        }
        db.close().unwrap();
        drop(db);
        let db = open(directory.path());
        assert_eq!(all(&db, &numbers(&db, "numbers")).len(), 200);
    });
}

#[test]
fn a_volatile_database_reads_the_log_but_does_not_write_it() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        let db = open(directory.path());
        put(&db, &numbers(&db, "numbers"), (0..10).map(|n| (n, n)));
        drop(db);
        let volatile = options().durability(Durability::Volatile);
        let db = Database::open(directory.path(), volatile).unwrap().watched();
        let table = numbers(&db, "numbers");
        assert_eq!(all(&db, &table).len(), 10);
        put(&db, &table, (0..20).map(|n| (n, n + 1)));
        assert_eq!(all(&db, &table).len(), 20);
        let second = Database::open(directory.path(), options());
        assert!(
            matches!(second, Err(Error::Directory(error)) if matches!(*error, LogError::Locked { .. }))
        );
        drop(db);
        let db = open(directory.path());
        assert_eq!(all(&db, &numbers(&db, "numbers")), (0..10).map(|n| (n, n)).collect::<Vec<_>>());
    });
}

#[test]
fn a_directory_can_be_open_only_once() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        let db = open(directory.path());
        let second = Database::open(directory.path(), options());
        assert!(
            matches!(second, Err(Error::Directory(error)) if matches!(*error, LogError::Locked { .. }))
        );
        drop(db);
        open(directory.path());
    });
}

#[test]
fn a_missing_database_is_created_only_on_request() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        let missing = directory.path().join("missing");
        let error = Database::open(&missing, options().create(false)).unwrap_err();
        assert!(
            matches!(&error, Error::Directory(error) if matches!(**error, LogError::NotADatabase { .. }))
        );
        assert!(!missing.exists());
    });
}

#[test]
fn large_transactions_and_values_are_recovered_whole() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        let value = |n: u64| vec![n as u8; 3000];
        let largest = vec![9u8; 16 << 20];
        let db = open(directory.path());
        let table: Bytes = block_on(db.open_or_create_table("large")).unwrap();
        let (written, big) = (table.clone(), largest.clone());
        db.run_blocking(async move |tx| {
            // About 6 MB, logged in parts.
            for n in 0..2000u64 {
                tx.put(&written, &n.to_be_bytes(), &value(n)).await?;
            }
            tx.put(&written, b"the largest", &big).await
        })
        .unwrap();
        // A transaction that is rolled back leaves nothing, although parts of others surround it.
        let taken_back = table.clone();
        let result = db.run_blocking(async move |tx| {
            for n in 0..2000u64 {
                tx.put(&taken_back, &n.to_be_bytes(), b"never").await?;
            }
            Err::<(), _>(Error::Closed)
        });
        assert!(matches!(result, Err(Error::Closed)));
        drop((table, db));
        let db = open(directory.path());
        let table: Bytes = block_on(db.open_table("large")).unwrap();
        db.run_blocking(async move |tx| {
            for n in 0..2000u64 {
                assert_eq!(tx.get(&table, &n.to_be_bytes()).await?, Some(&value(n)[..]));
            }
            assert_eq!(tx.get(&table, b"the largest").await?, Some(&largest[..]));
            Ok(())
        })
        .unwrap();
    });
}

#[test]
fn tables_keep_their_ids_after_reopening() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        for round in 0..3u64 {
            let db = open(directory.path());
            for n in 0..20 {
                let table = numbers(&db, &format!("table {n}"));
                assert_eq!(all(&db, &table).len() as u64, round);
                put(&db, &table, std::iter::once((round, n)));
            }
            // An empty table's id is not reused for the next one.
            numbers(&db, &format!("empty {round}"));
            let tables = block_on(db.tables()).unwrap();
            let mut ids: Vec<_> = tables.iter().map(|table| table.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len() as u64, 20 + round + 1);
        }
    });
}

#[test]
fn damage_before_the_end_is_reported_with_its_position() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = TempDir::new().unwrap();
        let db = open(directory.path());
        let table = numbers(&db, "numbers");
        for n in 0..50 {
            put(&db, &table, (n * 100..n * 100 + 100).map(|n| (n, n)));
        }
        drop((table, db));
        let segment = segments(directory.path()).remove(0);
        let whole = std::fs::read(&segment).unwrap();
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20 {
            let mut damaged = whole.clone();
            // Within the first flushes, each of which later ones attest.
            let place = random.usize(4096 + 4096..4096 + 20 * 4096);
            if damaged[place] == 0 {
                // Possibly padding, whose contents do not matter.
                continue;
            }
            damaged[place] ^= 1 << random.u32(0..8);
            std::fs::write(&segment, &damaged).unwrap();
            let error = Database::open(directory.path(), options()).unwrap_err();
            match &error {
                Error::Corrupt(error) => match &**error {
                    LogError::Corrupt { path, offset, .. } => {
                        assert_eq!(path.file_name(), segment.file_name());
                        assert!(*offset <= place as u64, "{error} for byte {place}");
                    }
                    other => panic!("{other}"),
                },
                other => panic!("{other}"),
            }
        }
        std::fs::write(&segment, &whole).unwrap();
        let db = open(directory.path());
        assert_eq!(all(&db, &numbers(&db, "numbers")).len(), 5000);
    });
}

#[derive(Clone, Debug)]
enum Change {
    Put(u8, u16),
    Delete(u8),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        2 => (any::<u8>(), any::<u16>()).prop_map(|(key, bytes)| Change::Put(key, bytes)),
        1 => any::<u8>().prop_map(Change::Delete),
    ];
    prop::collection::vec(change, 0..20)
}

/// Sessions of transactions, each committed or aborted; the database is dropped between sessions.
type Sessions = Vec<Vec<(Vec<Change>, bool)>>;

fn reopen(limit: &Limit, sessions: Sessions) {
    let told = sessions.clone();
    limit.on_timeout("sessions", move || format!("{told:?}"));
    let directory = TempDir::new().unwrap();
    let mut model = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    for transactions in sessions {
        let db = open(directory.path());
        let table: Bytes = block_on(db.open_or_create_table("model")).unwrap();
        for (changes, commit) in transactions {
            let mut after = model.clone();
            for change in &changes {
                match change {
                    Change::Put(key, bytes) => after.insert(
                        vec![*key; 1 + usize::from(*key) % 12],
                        vec![*key; usize::from(*bytes) % 5000],
                    ),
                    Change::Delete(key) => after.remove(&vec![*key; 1 + usize::from(*key) % 12]),
                };
            }
            let table = table.clone();
            let result = db.run_blocking(async move |tx| {
                for change in &changes {
                    match change {
                        Change::Put(key, bytes) => {
                            let value = vec![*key; usize::from(*bytes) % 5000];
                            tx.put(&table, &vec![*key; 1 + usize::from(*key) % 12], &value).await?;
                        }
                        Change::Delete(key) => {
                            _ = tx.delete(&table, &vec![*key; 1 + usize::from(*key) % 12]).await?
                        }
                    }
                }
                if commit { Ok(()) } else { Err(Error::Closed) }
            });
            assert_eq!(result.is_ok(), commit);
            if commit {
                model = after;
            }
        }
        let found = db.run_blocking(async move |tx| {
            let (mut scan, mut found) = (tx.scan(&table, ..)?, BTreeMap::new());
            while let Some((key, value)) = scan.next().await? {
                found.insert(key, value.to_vec());
            }
            Ok(found)
        });
        assert_eq!(found.unwrap(), model.clone());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn reopening_changes_no_record(
        sessions in prop::collection::vec(prop::collection::vec((changes(), any::<bool>()), 0..12), 1..4)
    ) {
        with_limit(LIMIT_SECONDS, move |limit| reopen(limit, sessions));
    }
}
