//! Bulk operations on paged tables: atomic, invisible before their commit, never visible to older
//! snapshots, and without memory for versions.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::{create_table, value_of_any_size};
use braiddb::{
    BusyWith, Database, Error, Index, IndexKeys, IndexOptions, MemoryLimit, Misuse, Options,
    Snapshot, Table, TableOptions, Transaction, Tuning,
};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;
const KEYS: u64 = 400;

type Records = Table<u64, [u8]>;
type Model = BTreeMap<u64, Vec<u8>>;

/// Few frames, so that marked pages are evicted and loaded again.
fn options() -> Options {
    Options::default()
        .workers(2)
        .tuning(Tuning::default().page_frames(Some(24)).log_segment_bytes(1 << 20))
}

fn open(directory: &Path) -> Database {
    Database::open(directory, options()).unwrap().watched()
}

async fn contents_in(tx: &Transaction, table: &Records) -> Result<Model, Error> {
    let (mut scan, mut found) = (tx.scan(table, ..)?, Model::new());
    while let Some((key, value)) = scan.next().await? {
        found.insert(key, value.to_vec());
    }
    Ok(found)
}

fn contents(db: &Database, table: &Records) -> Model {
    let inner = table.clone();
    let found = db.run_blocking(async move |tx| contents_in(tx, &inner).await).unwrap();
    assert_eq!(block_on(db.len(table)).unwrap(), found.len() as u64);
    found
}

fn seen_by(snapshot: &Snapshot, table: &Records) -> Model {
    let table = table.clone();
    block_on(snapshot.run(async move |tx| contents_in(tx, &table).await)).unwrap()
}

/// The end of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Commit,
    Error,
    Panic,
    Dropped,
}

/// Makes random changes to a table, in a transaction of any kind, and to the model.
async fn change(
    tx: &Transaction,
    table: &Records,
    model: &mut Model,
    seed: u64,
    steps: u64,
) -> Result<(), Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..random.u64(1..steps) {
        let key = random.u64(..KEYS);
        let small = random.u8(..).to_be_bytes().repeat(random.usize(1..120));
        let value = if random.u8(..6) == 0 { value_of_any_size(&mut random) } else { small };
        match random.u8(..8) {
            0 | 1 => assert_eq!(tx.delete(table, &key).await?, model.remove(&key).is_some()),
            2 => match tx.insert(table, &key, &value).await {
                Ok(()) => assert!(model.insert(key, value).is_none()),
                Err(Error::KeyExists(_)) => assert!(model.contains_key(&key)),
                Err(error) => return Err(error),
            },
            3 => match tx.update(table, &key, &value).await {
                Ok(()) => assert!(model.insert(key, value).is_some()),
                Err(Error::KeyNotFound(_)) => assert!(!model.contains_key(&key)),
                Err(error) => return Err(error),
            },
            4 => {
                let found = tx.get(table, &key).await?;
                assert_eq!(found, model.get(&key).map(|value| &value[..]), "{key}");
            }
            _ => {
                tx.put(table, &key, &value).await?;
                model.insert(key, value);
            }
        }
    }
    assert_eq!(contents_in(tx, table).await?, *model);
    Ok(())
}

/// Runs a bulk operation with this end. Returns the expected contents.
fn bulk(db: &Database, table: &Records, before: &Model, seed: u64, end: End) -> Model {
    let (inner, mut model) = (table.clone(), before.clone());
    let (told, came_to) = std::sync::mpsc::channel();
    let operation = db.run_bulk(table, async move |tx| {
        change(tx, &inner, &mut model, seed, 300).await?;
        told.send(model).unwrap();
        match end {
            End::Commit => Ok(()),
            End::Error => Err(Error::Closed),
            End::Panic => panic!("a panic of the closure's own"),
            End::Dropped => std::future::pending().await,
        }
    });
    if end == End::Dropped {
        let given_up = async {
            loop {
                if came_to.try_recv().is_ok() {
                    return;
                }
                db.run(async |_| Ok(())).await.unwrap();
            }
        };
        let given_up = std::pin::pin!(given_up);
        let either = futures_util::future::select(operation, given_up);
        assert!(matches!(block_on(either), futures_util::future::Either::Right(_)));
        return before.clone();
    }
    match (end, block_on(operation)) {
        (End::Commit, Ok(())) => came_to.recv().unwrap(),
        (End::Error, Err(Error::Closed)) | (End::Panic, Err(Error::Panicked(_))) => before.clone(),
        (_, result) => panic!("{end:?}: {result:?}"),
    }
}

/// Runs operations of both kinds one after the other. Snapshots from before, between and during
/// them must keep their contents.
fn agrees_with_a_model(
    db: &Database,
    table: &Records,
    seeds: std::ops::Range<u64>,
    mut model: Model,
) -> Model {
    let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
    let mut random = fastrand::Rng::with_seed(seeds.start);
    for seed in seeds {
        // A bulk operation waits for transactions that do not see the last one.
        if random.u8(..3) > 0 {
            snapshots.clear();
        }
        if snapshots.is_empty() {
            snapshots.push((block_on(db.snapshot()).unwrap(), model.clone()));
            let ends =
                [End::Commit, End::Commit, End::Commit, End::Error, End::Panic, End::Dropped];
            let end = ends[random.usize(..ends.len())];
            model = bulk(db, table, &model, seed, end);
        } else {
            let (inner, before) = (table.clone(), model.clone());
            let write = async move |tx: &Transaction| {
                let mut model = before.clone();
                change(tx, &inner, &mut model, seed, 40).await?;
                if seed.is_multiple_of(4) { Err(Error::Closed) } else { Ok(model) }
            };
            match block_on(db.run(write)) {
                Ok(after) => model = after,
                Err(Error::Closed) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(contents(db, table), model, "{seed}");
        for (snapshot, seen) in &snapshots {
            assert_eq!(seen_by(snapshot, table), *seen, "{seed}");
        }
        snapshots.push((block_on(db.snapshot()).unwrap(), model.clone()));
    }
    model
}

#[test]
#[ignore = "slow: the gate runs it"]
fn bulk_operations_match_a_model_next_to_snapshots_and_transactions() {
    with_limit(LIMIT_SECONDS, |limit| {
        for seed in 0..6 {
            let directory = tempfile::tempdir().unwrap();
            let db = open(directory.path());
            limit.on_timeout("the database", {
                let db = db.clone();
                move || format!("{:#?}", db.stats())
            });
            let table: Records = create_table(&db, "numbers", true);
            let model =
                agrees_with_a_model(&db, &table, seed * 1000..seed * 1000 + 60, Model::new());
            assert!(db.stats().bulk_operations > 5);
            db.close().unwrap();
            let db = open(directory.path());
            let table: Records = block_on(db.open_table("numbers")).unwrap();
            assert_eq!(contents(&db, &table), model);
            let model =
                agrees_with_a_model(&db, &table, seed * 1000 + 500..seed * 1000 + 520, model);
            once_free(|| block_on(db.checkpoint())).unwrap();
            db.close().unwrap();
            let db = open(directory.path());
            let table: Records = block_on(db.open_table("numbers")).unwrap();
            assert_eq!(contents(&db, &table), model);
            assert!(once_free(|| db.check()).unwrap().problems.is_empty());
        }
    });
}

#[test]
fn a_database_in_memory_supports_bulk_operations() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Records = create_table(&db, "numbers", true);
        agrees_with_a_model(&db, &table, 7000..7050, Model::new());
    });
}

/// Returns the contents of a table, and the contents found through its index.
async fn both_contents(
    tx: &Transaction,
    table: &Records,
    index: &Index<u64, u64, [u8]>,
) -> Result<(Model, BTreeMap<u64, u64>), Error> {
    let found = contents_in(tx, table).await?;
    let (mut scan, mut by_index) = (tx.scan_by(index, ..)?, BTreeMap::new());
    while let Some((length, key, value)) = scan.next().await? {
        assert_eq!(length, value.len() as u64);
        assert!(by_index.insert(key, length).is_none());
    }
    Ok((found, by_index))
}

#[test]
fn a_bulk_operation_deletes_index_entries_with_their_records() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path());
        let table: Records = create_table(&db, "numbers", true);
        let by_length =
            |value: &[u8], keys: &mut IndexKeys<'_, u64>| keys.push(&(value.len() as u64));
        let options = IndexOptions::default();
        let index = block_on(db.index(&table, "by length", options, by_length)).unwrap();
        let look = |db: &Database| {
            let (table, index) = (table.clone(), index.clone());
            db.run_blocking(async move |tx| both_contents(tx, &table, &index).await).unwrap()
        };
        let mut model = Model::new();
        for round in 0..6 {
            let seeds = round * 100..round * 100 + 8;
            model = agrees_with_a_model(&db, &table, seeds, model);
            let lengths = model.iter().map(|(key, value)| (*key, value.len() as u64)).collect();
            assert_eq!(look(&db), (model.clone(), lengths));
        }
        assert!(once_free(|| db.check()).unwrap().problems.is_empty());
        db.close().unwrap();
    });
}

#[test]
fn a_unique_index_rejects_a_duplicate_of_a_bulk_operation() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, u64> = create_table(&db, "numbers", true);
        let options = IndexOptions::default().unique(true);
        let index =
            db.index(&table, "by value", options, |value: u64, keys: &mut IndexKeys<'_, u64>| {
                keys.push(&value)
            });
        let index = block_on(index).unwrap();
        let inner = table.clone();
        let operation = db.run_bulk(&table, async move |tx| {
            for key in 0..100 {
                tx.insert(&inner, &key, &(key + 1000)).await?;
            }
            let taken = tx.insert(&inner, &200, &1007).await;
            assert!(matches!(taken, Err(Error::UniqueViolation(_))), "{taken:?}");
            // The key is free once its record has another value.
            tx.put(&inner, &7, &5000).await?;
            tx.insert(&inner, &200, &1007).await?;
            tx.put(&inner, &200, &1007).await?;
            assert!(tx.delete(&inner, &8).await?);
            Ok(())
        });
        block_on(operation).unwrap();
        let found = db.run_blocking(async move |tx| {
            Ok::<_, Error>([
                tx.get_by(&index, &1007).await?,
                tx.get_by(&index, &5000).await?,
                tx.get_by(&index, &1008).await?,
            ])
        });
        assert_eq!(found.unwrap(), [Some((200, 1007)), Some((7, 5000)), None]);
    });
}

/// Starts an operation that waits for a message behind closed gates, after it wrote to the table.
fn waiting(
    db: &Database,
    table: &Table<u64, u64>,
) -> (std::thread::JoinHandle<Result<(), Error>>, futures_channel::oneshot::Sender<()>) {
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (go_on, word) = futures_channel::oneshot::channel();
    let (db, table) = (db.clone(), table.clone());
    let thread = std::thread::spawn(move || {
        let inner = table.clone();
        block_on(db.run_bulk(&table, async move |tx| {
            tx.put(&inner, &1, &100).await?;
            tx.put(&inner, &2, &200).await?;
            begun.send(()).unwrap();
            word.await.unwrap();
            Ok(())
        }))
    });
    has_begun.recv().unwrap();
    (thread, go_on)
}

#[test]
fn others_can_read_but_not_write_the_table_of_a_bulk_operation() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Table<u64, u64> = create_table(&db, "numbers", true);
        let other: Table<u64, u64> = create_table(&db, "others", true);
        block_on(db.put(&table, &1, &1)).unwrap();
        let (thread, go_on) = waiting(&db, &table);
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(1));
        assert_eq!(block_on(db.get(&table, &2)).unwrap(), None);
        let inner = table.clone();
        let refused =
            db.transaction().max_attempts(1).run(async move |tx| tx.put(&inner, &3, &3).await);
        let refused = block_on(refused).unwrap_err();
        assert!(
            matches!(&refused, Error::Busy(BusyWith::BulkOperation { table }) if table == "numbers"),
            "{refused:?}"
        );
        assert!(refused.is_retryable());
        assert!(matches!(
            block_on(db.drop_table("numbers")),
            Err(Error::Busy(BusyWith::TableChange { .. }))
        ));
        block_on(db.put(&other, &3, &3)).unwrap();
        // A transaction that retries succeeds after the operation has ended.
        let (later, inner) = (db.clone(), table.clone());
        let writer = std::thread::spawn(move || block_on(later.put(&inner, &3, &3)));
        go_on.send(()).unwrap();
        thread.join().unwrap().unwrap();
        writer.join().unwrap().unwrap();
        for (key, value) in [(1, 100), (2, 200), (3, 3)] {
            assert_eq!(block_on(db.get(&table, &key)).unwrap(), Some(value));
        }
    });
}

#[test]
fn a_transaction_that_read_before_a_bulk_operation_cannot_write_after_it() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Table<u64, u64> = create_table(&db, "numbers", true);
        let other: Table<u64, u64> = create_table(&db, "others", true);
        // A record that the operation changes, and one that does not exist.
        for keys in [1..2, 50..51] {
            let tx = block_on(db.begin()).unwrap();
            for key in keys {
                _ = block_on(tx.get(&table, &key)).unwrap();
            }
            let (thread, go_on) = waiting(&db, &table);
            go_on.send(()).unwrap();
            thread.join().unwrap().unwrap();
            let written = block_on(tx.put(&other, &1, &1));
            let committed = match written {
                Ok(()) => block_on(tx.commit()).map(drop),
                Err(error) => Err(error),
            };
            assert!(matches!(committed, Err(Error::NotSerializable { .. })), "{committed:?}");
        }
        // A read-only transaction does not fail and sees the same contents to its end.
        let tx = block_on(db.begin()).unwrap();
        assert_eq!(block_on(tx.get(&table, &1)).unwrap(), Some(100));
        let inner = table.clone();
        block_on(db.run_bulk(&table, async move |tx| tx.put(&inner, &1, &7).await)).unwrap();
        assert_eq!(block_on(tx.get(&table, &1)).unwrap(), Some(100));
        block_on(tx.commit()).unwrap();
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(7));
    });
}

#[test]
fn a_bulk_operation_larger_than_memory_uses_none_for_versions() {
    with_limit(LIMIT_SECONDS, |_| {
        const RECORDS: u64 = 20_000;
        let directory = tempfile::tempdir().unwrap();
        let options =
            options().tune(|tuning| tuning.page_frames(Some(64)).version_bytes(256 << 10));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Records = create_table(&db, "numbers", true);
        let inner = table.clone();
        let regular = db.run(async move |tx| {
            for key in 0..RECORDS {
                tx.insert(&inner, &key, &[1; 100]).await?;
            }
            Ok(())
        });
        let refused = block_on(regular).unwrap_err();
        assert!(
            matches!(&refused, Error::MemoryFull(full) if matches!(**full, MemoryLimit::Versions { limit: 262_144, .. })),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("run_bulk"));
        let before = db.stats().memory.versions;
        let write = |value: u8| {
            let (inner, seen, table) = (table.clone(), db.clone(), table.clone());
            block_on(db.run_bulk(&table, async move |tx| {
                let mut most = 0;
                for key in 0..RECORDS {
                    tx.put(&inner, &key, &[value; 100]).await?;
                    most = most.max(seen.stats().memory.versions);
                }
                Ok(most)
            }))
        };
        for value in 1..4 {
            let most = write(value).unwrap();
            assert!(most < before + (64 << 10), "{most} bytes, {before} before");
            let found = contents(&db, &table);
            assert!(
                found.len() as u64 == RECORDS
                    && found.values().all(|found| found[..] == [value; 100])
            );
        }
        assert_eq!(db.stats().bulk_records, 3 * RECORDS);
        db.close().unwrap();
        let db = Database::open(directory.path(), Options::default().workers(1)).unwrap().watched();
        let table: Records = block_on(db.open_table("numbers")).unwrap();
        let found = contents(&db, &table);
        assert!(found.len() as u64 == RECORDS && found.values().all(|found| found[..] == [3; 100]));
    });
}

#[test]
fn unsupported_bulk_operations_fail() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let hot: Table<u64, u64> = create_table(&db, "hot", false);
        let paged: Table<u64, u64> = create_table(&db, "paged", true);
        let told = block_on(db.run_bulk((&paged, &hot), async |_| Ok(()))).unwrap_err();
        assert!(
            matches!(&told, Error::Misuse(Misuse::NotPaged(name)) if name == "hot"),
            "{told:?}"
        );
        let other = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let told = block_on(other.run_bulk(&paged, async |_| Ok(()))).unwrap_err();
        assert!(matches!(told, Error::Misuse(Misuse::ForeignTable(_))), "{told:?}");
        let told = block_on(db.run_bulk(&paged, async |tx| tx.rollback_to(&tx.savepoint()).await))
            .unwrap_err();
        assert!(matches!(told, Error::Misuse(Misuse::BulkSavepoint)), "{told:?}");
        // Refused within a transaction, because it could wait for that transaction.
        let (inner, table) = (db.clone(), paged.clone());
        let told = block_on(db.run(async move |_| inner.run_bulk(&table, async |_| Ok(())).await))
            .unwrap_err();
        assert!(matches!(told, Error::Misuse(Misuse::WouldBlock)), "{told:?}");
        // The same commit writes other tables as usual.
        let (a, b) = (paged.clone(), hot.clone());
        let both = db.run_bulk([&paged, &paged], async move |tx| {
            tx.put(&a, &1, &1).await?;
            tx.put(&b, &1, &2).await
        });
        block_on(both).unwrap();
        assert_eq!(block_on(db.get(&paged, &1)).unwrap(), Some(1));
        assert_eq!(block_on(db.get(&hot, &1)).unwrap(), Some(2));
        block_on(db.run(async |tx| {
            let staged: Table<u64, u64> =
                tx.create_table_with("gone", TableOptions::default().paged()).await?;
            _ = staged;
            Ok(())
        }))
        .unwrap();
        let gone: Table<u64, u64> = block_on(db.open_table("gone")).unwrap();
        block_on(db.drop_table("gone")).unwrap();
        let told = block_on(db.run_bulk(&gone, async |_| Ok(()))).unwrap_err();
        assert!(matches!(told, Error::TableNotFound(_)), "{told:?}");
    });
}

/// Many threads operate on two tables in both orders, while transactions write both.
#[test]
fn bulk_operations_on_the_same_tables_take_turns() {
    with_limit(LIMIT_SECONDS, |_| {
        const EACH: u64 = 12;
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let tables: [Table<u64, u64>; 2] =
            [create_table(&db, "a", true), create_table(&db, "b", true)];
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (db, [a, b]) = (db.clone(), tables.clone());
                std::thread::spawn(move || {
                    for _ in 0..EACH {
                        let (first, second) = (a.clone(), b.clone());
                        let body = async move |tx: &Transaction| {
                            for table in [&first, &second] {
                                let sum = tx.get(table, &1).await?.unwrap_or(0);
                                tx.put(table, &1, &(sum + 1)).await?;
                            }
                            Ok(())
                        };
                        match thread {
                            0 => block_on(db.run_bulk([&a, &b], body)).unwrap(),
                            1 => block_on(db.run_bulk([&b, &a], body)).unwrap(),
                            _ => block_on(db.run(body)).unwrap(),
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        for table in &tables {
            assert_eq!(block_on(db.get(table, &1)).unwrap(), Some(4 * EACH));
        }
    });
}
