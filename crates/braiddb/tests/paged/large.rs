//! Values of paged tables that are too long for a page: in all operations they behave like values
//! of tables in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::{create_table, value_of_any_size};
use braiddb::changes::ChangesFrom;
use braiddb::{
    Database, Durability, Error, Index, IndexKeys, IndexOptions, MAX_VALUE_BYTES, Options, Table,
    TableOptions, Tuning, WallClock,
};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 240;

type Records = Table<u64, [u8]>;
type Model = BTreeMap<u64, Vec<u8>>;

/// Returns bytes without repeated parts.
fn value(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut value = vec![0; bytes];
    random.fill(&mut value);
    value
}

/// Opens a database that evicts and loads pages often.
fn with_few_frames(directory: &std::path::Path, workers: usize) -> Database {
    let options =
        Options::default().workers(workers).tuning(Tuning::default().page_frames(Some(96)));
    let options =
        options.durability(Durability::Volatile).tune(|tuning| tuning.log_segment_bytes(1 << 20));
    Database::open(directory, options).unwrap().watched()
}

fn put(db: &Database, table: &Records, key: u64, value: &[u8]) {
    let (table, value) = (table.clone(), value.to_vec());
    db.run_blocking(async move |tx| tx.put(&table, &key, &value[..]).await).unwrap();
}

#[test]
fn values_of_all_sizes_are_read_by_every_operation() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = with_few_frames(directory.path(), 2);
        // Around a piece, a quarter of a page, a page; and up to the limit.
        let sizes = [
            0,
            1,
            959,
            960,
            961,
            1023,
            1024,
            1025,
            1919,
            1920,
            1921,
            2881,
            3839,
            3840,
            3841,
            4095,
            4096,
            4097,
            65_536,
            100_003,
            1 << 20,
            MAX_VALUE_BYTES,
        ];
        for paged in [true, false] {
            let name = if paged { "paged" } else { "hot" };
            let table: Records = create_table(&db, name, paged);
            for (key, bytes) in (0..).zip(sizes) {
                put(&db, &table, key, &value(bytes, key));
            }
            let expected: Arc<Vec<_>> =
                Arc::new((0..).zip(sizes).map(|(key, bytes)| (key, value(bytes, key))).collect());
            let (read, model) = (table.clone(), expected.clone());
            db.run_blocking(async move |tx| {
                for (key, value) in &*model {
                    assert!(tx.get(&read, key).await? == Some(&value[..]), "key {key}");
                    assert!(tx.contains(&read, key).await?);
                }
                let keys: Vec<u64> = (0..100).collect();
                let found = tx.multi_get(&read, &keys).await?;
                for (key, found) in keys.iter().zip(found) {
                    assert!(found == model.get(*key as usize).map(|(_, value)| &value[..]));
                }
                for reverse in [false, true] {
                    let scan = tx.scan(&read, ..)?;
                    let mut scan = if reverse { scan.rev() } else { scan };
                    let mut found = Vec::new();
                    while let Some((key, value)) = scan.next().await? {
                        found.push((key, value.to_vec()));
                    }
                    if reverse {
                        found.reverse();
                    }
                    assert!(found == *model, "in reverse: {reverse}");
                }
                let mut visited = Vec::new();
                tx.scan(&read, ..)?
                    .visit(|key, value| {
                        visited.push((key, value.to_vec()));
                        std::ops::ControlFlow::<()>::Continue(())
                    })
                    .await?;
                assert!(visited == *model);
                assert_eq!(tx.scan(&read, ..)?.count().await?, sizes.len() as u64);
                let (last, bytes) = tx.last(&read).await?.unwrap();
                assert!((last, bytes) == (21, &model[21].1[..]));
                Ok(())
            })
            .unwrap();
            assert_eq!(block_on(db.len(&table)).unwrap(), sizes.len() as u64);
            let contents = block_on(db.table_contents(&table)).unwrap();
            assert_eq!(contents.bytes(), sizes.iter().map(|bytes| *bytes as u64).sum::<u64>());
        }
        db.close().unwrap();
    });
}

/// Transactions have the same results on tables of both kinds, including rollbacks.
#[test]
fn tables_in_memory_and_on_pages_behave_alike() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = with_few_frames(directory.path(), 2);
        let tables: [Records; 2] =
            [create_table(&db, "hot", false), create_table(&db, "paged", true)];
        for round in 0..200_u64 {
            let used = tables.clone();
            let result = db.run_blocking(async move |tx| {
                let mut random = fastrand::Rng::with_seed(round);
                for _ in 0..random.usize(1..20) {
                    let savepoint = tx.savepoint();
                    for _ in 0..random.usize(1..5) {
                        let (key, bytes) = (random.u64(..40), value_of_any_size(&mut random));
                        match random.u8(..6) {
                            0 => {
                                let gone = tx.delete(&used[0], &key).await?;
                                assert_eq!(tx.delete(&used[1], &key).await?, gone);
                            }
                            1 => {
                                let hot = tx.insert(&used[0], &key, &bytes[..]).await;
                                let paged = tx.insert(&used[1], &key, &bytes[..]).await;
                                assert_eq!(hot.is_ok(), paged.is_ok(), "{hot:?} {paged:?}");
                            }
                            2 => {
                                let hot = tx.update(&used[0], &key, &bytes[..]).await;
                                let paged = tx.update(&used[1], &key, &bytes[..]).await;
                                assert_eq!(hot.is_ok(), paged.is_ok(), "{hot:?} {paged:?}");
                            }
                            _ => {
                                tx.put(&used[0], &key, &bytes[..]).await?;
                                tx.put(&used[1], &key, &bytes[..]).await?;
                            }
                        }
                    }
                    if random.u8(..4) == 0 {
                        tx.rollback_to(&savepoint).await?;
                    }
                    let key = random.u64(..40);
                    assert!(tx.get(&used[0], &key).await? == tx.get(&used[1], &key).await?);
                }
                let (mut hot, mut paged) = (tx.scan(&used[0], ..)?, tx.scan(&used[1], ..)?);
                loop {
                    let (one, other) = (hot.next().await?, paged.next().await?);
                    assert!(one == other, "round {round}");
                    if one.is_none() {
                        break;
                    }
                }
                if random.u8(..4) == 0 { Err(Error::Closed) } else { Ok(()) }
            });
            assert!(matches!(result, Ok(()) | Err(Error::Closed)), "{result:?}");
        }
        db.close().unwrap();
    });
}

/// A snapshot keeps its values although they are overwritten and evicted. Two concurrent writers of
/// one value conflict.
#[test]
fn a_snapshot_reads_the_large_values_of_its_lsn() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = with_few_frames(directory.path(), 2);
        let table: Records = create_table(&db, "records", true);
        let of = |key: u64, version: u64| {
            let mut random = fastrand::Rng::with_seed(key << 8 | version);
            value_of_any_size(&mut random)
        };
        let mut snapshots = Vec::new();
        for version in 0..6 {
            for key in 0..60 {
                put(&db, &table, key, &of(key, version));
            }
            snapshots.push((version, block_on(db.snapshot()).unwrap()));
        }
        let drop_table = table.clone();
        db.run_blocking(async move |tx| {
            for key in 0..60 {
                tx.delete(&drop_table, &key).await?;
            }
            Ok(())
        })
        .unwrap();
        // The middle ones are dropped first.
        for number in [3, 0, 2, 1, 1, 0] {
            for (version, snapshot) in &snapshots {
                let (version, scanned) = (*version, table.clone());
                let scan = snapshot.run(async move |tx| {
                    let (mut scan, mut found) = (tx.scan(&scanned, ..)?, 0);
                    while let Some((key, value)) = scan.next().await? {
                        assert!(value == of(key, version), "key {key}, version {version}");
                        found += 1;
                    }
                    Ok(found)
                });
                assert_eq!(block_on(scan).unwrap(), 60);
                assert!(block_on(snapshot.get(&table, &7)).unwrap() == Some(of(7, version)));
            }
            snapshots.remove(number);
        }
        let (inner, used) = (db.clone(), table.clone());
        let result = db.run_blocking(async move |tx| {
            assert_eq!(tx.get(&used, &1).await?.is_none(), tx.attempt() == 1);
            let (large, others) = (value(30_000, 1), used.clone());
            let write = inner.run(async move |tx| tx.put(&others, &1, &large[..]).await);
            if tx.attempt() == 1 {
                write.await?;
                let conflict = tx.put(&used, &1, &value(40_000, 2)[..]).await;
                assert!(conflict.as_ref().is_err_and(Error::is_retryable), "{conflict:?}");
                return conflict;
            }
            tx.put(&used, &1, &value(50_000, 3)[..]).await
        });
        result.unwrap();
        assert!(block_on(db.get(&table, &1)).unwrap() == Some(value(50_000, 3)));
        db.close().unwrap();
    });
}

/// An index function receives whole values: their last bytes are the keys.
#[test]
fn an_index_receives_whole_large_values() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = with_few_frames(directory.path(), 2);
        let table: Records = create_table(&db, "records", true);
        let with_end = |bytes: usize, end: u64| {
            let mut value = value(bytes, end);
            value.extend(end.to_le_bytes());
            value
        };
        (0..40).for_each(|key| put(&db, &table, key, &with_end(key as usize * 700, 1000 + key)));
        let index: Index<u64, u64, [u8]> = block_on(db.index(
            &table,
            "by_end",
            IndexOptions::default().unique(true),
            |value: &[u8], keys: &mut IndexKeys<'_, u64>| {
                keys.push(&u64::from_le_bytes(*value.last_chunk().expect("all have an end")));
            },
        ))
        .unwrap();
        for key in (0..40).step_by(3) {
            put(&db, &table, key, &with_end(20_000 - key as usize * 100, 2000 + key));
        }
        let (deleted, taken) = (table.clone(), table.clone());
        db.run_blocking(async move |tx| tx.delete(&deleted, &1).await).unwrap();
        let taken = db.run_blocking(async move |tx| {
            tx.insert(&taken, &100, &with_end(10_000, 1002)[..]).await
        });
        assert!(matches!(taken, Err(Error::UniqueViolation(_))), "{taken:?}");
        let found = db.run_blocking(async move |tx| {
            let mut scan = tx.scan_by(&index, ..)?;
            let mut found = Vec::new();
            while let Some((end, key, value)) = scan.next().await? {
                assert_eq!(value.last_chunk(), Some(&end.to_le_bytes()));
                found.push((end, key, value.len()));
            }
            Ok::<_, Error>(found)
        });
        let mut expected: Vec<_> = (0..40)
            .filter(|key| *key != 1)
            .map(|key| match key % 3 {
                0 => (2000 + key, key, 20_008 - key as usize * 100),
                _ => (1000 + key, key, key as usize * 700 + 8),
            })
            .collect();
        expected.sort_unstable();
        assert_eq!(found.unwrap(), expected);
        db.close().unwrap();
    });
}

/// Large values expire and are swept like others.
#[test]
fn large_values_expire() {
    with_limit(LIMIT_SECONDS, |_| {
        let now = Arc::new(AtomicU64::new(1 << 40));
        let shown = now.clone();
        let clock = WallClock::new(move || {
            UNIX_EPOCH + Duration::from_millis(shown.load(Ordering::SeqCst))
        });
        let db = Database::in_memory(
            Options::default().workers(1).tuning(Tuning::default().wall_clock(clock)),
        )
        .unwrap()
        .watched();
        let options = TableOptions::default().paged().ttl(Duration::from_secs(3600));
        let table: Records = db
            .run_blocking(async move |tx| tx.create_table_with("records", options).await)
            .unwrap();
        let most = MAX_VALUE_BYTES - 8;
        for (key, bytes) in [(1, 10), (2, 1016), (3, 1017), (4, 50_000), (5, most)] {
            put(&db, &table, key, &value(bytes, key));
        }
        now.fetch_add(1_800_000, Ordering::SeqCst);
        put(&db, &table, 4, &value(60_000, 9));
        let read = table.clone();
        let counts = move |db: &Database| {
            let read = read.clone();
            let found = db.run_blocking(async move |tx| {
                let mut keys = tx.keys(&read, ..)?;
                let mut found = Vec::new();
                while let Some(key) = keys.next().await? {
                    assert!(tx.contains(&read, &key).await?);
                    found.push(key);
                }
                let mut scan = tx.scan(&read, ..)?;
                while let Some((key, bytes)) = scan.next().await? {
                    let (bytes_of, seed) =
                        [(10, 1), (1016, 2), (1017, 3), (60_000, 9), (most, 5)][key as usize - 1];
                    assert!(bytes == value(bytes_of, seed), "key {key}");
                }
                Ok::<_, Error>(found)
            });
            found.unwrap()
        };
        assert_eq!(counts(&db), [1, 2, 3, 4, 5]);
        now.fetch_add(1_900_000, Ordering::SeqCst);
        assert_eq!(counts(&db), [4]);
        assert_eq!(block_on(db.sweep_expired()).unwrap(), 4);
        assert_eq!(counts(&db), [4]);
        db.close().unwrap();
    });
}

/// Recovers large values from the log, from a checkpoint whose chunks split them, and from both,
/// also in a read-only database.
#[test]
fn large_values_are_recovered() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = || {
            let options =
                Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(64 << 20));
            options.tune(|tuning| tuning.page_frames(Some(64)).checkpoint_bytes(1 << 40))
        };
        let mut random = fastrand::Rng::with_seed(5);
        let mut model = Model::new();
        for generation in 0..5_u64 {
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let table: Records = match generation {
                0 => create_table(&db, "records", true),
                _ => block_on(db.open_table("records")).unwrap(),
            };
            let contents = |db: &Database| {
                let table = table.clone();
                let found = db.run_blocking(async move |tx| {
                    let (mut scan, mut found) = (tx.scan(&table, ..)?, Model::new());
                    while let Some((key, value)) = scan.next().await? {
                        found.insert(key, value.to_vec());
                    }
                    Ok::<_, Error>(found)
                });
                found.unwrap()
            };
            assert!(contents(&db) == model, "generation {generation}");
            for number in 0..60 {
                let key = random.u64(..40);
                if random.u8(..4) == 0 {
                    let table = table.clone();
                    db.run_blocking(async move |tx| tx.delete(&table, &key).await).unwrap();
                    model.remove(&key);
                } else {
                    let bytes = match number {
                        7 => 3 << 20,
                        _ => [100, 17_000, 200_000, 500_000][random.usize(..4)],
                    };
                    let value = value(random.usize(bytes / 2..bytes), random.u64(..));
                    put(&db, &table, key, &value);
                    model.insert(key, value);
                }
                if generation % 2 == 1 && number == 40 {
                    let written = once_free(|| block_on(db.checkpoint())).unwrap();
                    // The catalog has one record.
                    assert_eq!(written.records, 1 + model.len() as u64);
                }
            }
            assert!(contents(&db) == model, "generation {generation}");
            let report = once_free(|| db.check()).unwrap();
            assert_eq!(report.problems, Vec::<String>::new());
            db.close().unwrap();
        }
        let db = Database::open(directory.path(), options().read_only(true)).unwrap().watched();
        let table: Records = block_on(db.open_table("records")).unwrap();
        for key in 0..40 {
            assert!(block_on(db.get(&table, &key)).unwrap().as_ref() == model.get(&key));
        }
        db.close().unwrap();
    });
}

/// An index of large values matches its table after rollbacks of single values and of whole
/// transactions.
#[test]
fn an_index_follows_large_values_that_are_rolled_back() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = with_few_frames(directory.path(), 2);
        let table: Records = create_table(&db, "records", true);
        let index: Index<u64, u64, [u8]> =
            block_on(db.index(&table, "by_start", IndexOptions::default(), by_start)).unwrap();
        let mut model = Model::new();
        for round in 0..150_u64 {
            let (used, scanned, before) = (table.clone(), index.clone(), model.clone());
            let result = db.run_blocking(async move |tx| {
                let mut random = fastrand::Rng::with_seed(round);
                let mut model = before.clone();
                for _ in 0..random.usize(1..8) {
                    let (savepoint, saved) = (tx.savepoint(), model.clone());
                    for _ in 0..random.usize(1..4) {
                        let key = random.u64(..10);
                        if random.u8(..5) == 0 {
                            tx.delete(&used, &key).await?;
                            model.remove(&key);
                        } else {
                            let bytes = [8, 900, 1025, 5000, 40_000][random.usize(..5)];
                            let value = starting_with(random.u64(..6), bytes);
                            tx.put(&used, &key, &value[..]).await?;
                            model.insert(key, value);
                        }
                    }
                    if random.bool() {
                        tx.rollback_to(&savepoint).await?;
                        model = saved;
                    }
                    assert!(
                        entries(tx, &scanned).await? == expected_entries(&model),
                        "round {round}"
                    );
                }
                if random.u8(..3) == 0 { Err(Error::Closed) } else { Ok(model) }
            });
            match result {
                Ok(committed) => model = committed,
                Err(Error::Closed) => {}
                Err(error) => panic!("{error}"),
            }
            let index = index.clone();
            let found = db.run_blocking(async move |tx| entries(tx, &index).await);
            assert!(found.unwrap() == expected_entries(&model), "round {round}");
        }
        db.close().unwrap();
    });
}

fn by_start(value: &[u8], keys: &mut IndexKeys<'_, u64>) {
    keys.push(&u64::from_le_bytes(*value.first_chunk().expect("all have a start")));
}

fn starting_with(start: u64, bytes: usize) -> Vec<u8> {
    let mut value = start.to_le_bytes().to_vec();
    value.resize(bytes, start as u8);
    value
}

/// Index key, key and value.
type Entry = (u64, u64, Vec<u8>);

async fn entries(
    tx: &braiddb::Transaction,
    index: &Index<u64, u64, [u8]>,
) -> Result<Vec<Entry>, Error> {
    let (mut scan, mut found) = (tx.scan_by(index, ..)?, Vec::new());
    while let Some((start, key, value)) = scan.next().await? {
        found.push((start, key, value.to_vec()));
    }
    Ok(found)
}

fn expected_entries(model: &Model) -> Vec<Entry> {
    let start = |value: &Vec<u8>| u64::from_le_bytes(*value.first_chunk().unwrap());
    let mut expected: Vec<Entry> =
        model.iter().map(|(key, value)| (start(value), *key, value.clone())).collect();
    expected.sort_unstable();
    expected
}

/// A feed returns whole values of any length; a backup contains them, and the check accepts it.
#[test]
fn feeds_and_backups_have_large_values() {
    with_limit(LIMIT_SECONDS, |_| {
        let (directory, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = || {
            let options =
                Options::default().workers(2).tuning(Tuning::default().page_frames(Some(64)));
            options.tune(|tuning| tuning.log_segment_bytes(1 << 20).checkpoint_bytes(1 << 40))
        };
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Records = create_table(&db, "records", true);
        let mut feed = db.changes(ChangesFrom::Now);
        let mut model = Model::new();
        let sizes = [10, 1024, 1025, 30_000, 300_000, 3 << 20];
        for (number, bytes) in (0..).zip(sizes.iter().cycle().take(24)) {
            let (key, value) = (number % 10, value(*bytes, number));
            put(&db, &table, key, &value);
            let given = block_on(feed.next()).unwrap().unwrap();
            let [change] = &given.changes[..] else { panic!("{} changes", given.changes.len()) };
            assert!(change.value[..] == value[..], "{bytes} bytes");
            assert_eq!(change.key_as::<u64>().unwrap(), key);
            model.insert(key, value);
        }
        drop(feed);
        let copy = copies.path().join("copy");
        once_free(|| db.backup(&copy)).unwrap();
        put(&db, &table, 3, &[1; 5]);
        db.close().unwrap();
        let db = Database::open(&copy, options()).unwrap().watched();
        let table: Records = block_on(db.open_table("records")).unwrap();
        for (key, value) in &model {
            assert!(block_on(db.get(&table, key)).unwrap().as_ref() == Some(value), "key {key}");
        }
        let report = once_free(|| db.check()).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        db.close().unwrap();
    });
}
