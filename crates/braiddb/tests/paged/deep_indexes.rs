//! Paged tables with an index whose inner pages do not fit into the frames: writing a record with
//! its entries needs several paths from roots to leaves at the same time.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{Watched, with_limit};
use braiddb::{
    Database, Error, Index, IndexKeys, IndexOptions, Options, Table, TableOptions, Tuning,
};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;
/// The frames that one operation needs, and a few more; fewer than the inner pages.
const FRAMES: u32 = 24;
const RECORDS: u64 = 1200;
const THREADS: u64 = 3;

type Records = Table<[u8], [u8]>;
type ByText = Index<[u8], [u8], [u8]>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns a long key that differs little within its group, so that neither prefixes nor short
/// separators save room.
fn long(number: u64, bytes: usize) -> Vec<u8> {
    let mut key = (number / 25).to_be_bytes()[4..].to_vec();
    key.resize(bytes - 8, 7);
    key.extend((number % 25).to_be_bytes());
    key
}

fn key(number: u64) -> Vec<u8> {
    long(number, 200)
}

/// The first part is the index key.
fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut value = long(random.u64(..RECORDS), 250);
    value.resize(250 + random.usize(..150), 1);
    value
}

fn open(directory: &Path) -> (Database, Records, ByText) {
    let options = Options::default()
        .workers(2)
        .tuning(Tuning::default().page_frames(Some(FRAMES)).log_segment_bytes(1 << 20));
    let db = Database::open(directory, options).unwrap().watched();
    let paged = TableOptions::default().paged();
    let table: Records = db
        .run_blocking(async move |tx| tx.open_or_create_table_with("records", paged).await)
        .unwrap();
    let extract = |value: &[u8], keys: &mut IndexKeys<'_, [u8]>| keys.push(&value[..250]);
    let index = block_on(db.index(&table, "texts", IndexOptions::default(), extract)).unwrap();
    (db, table, index)
}

/// Puts and deletes records with the keys of one thread, in transactions of which one in four rolls
/// back.
fn work(db: &Database, table: &Records, thread: u64, mut model: Model) -> Model {
    let mut random = fastrand::Rng::with_seed(thread);
    for _ in 0..150 {
        let mut after = model.clone();
        let writes: Vec<_> = (0..4)
            .map(|_| {
                let key = key(random.u64(..RECORDS / THREADS) * THREADS + thread);
                let value = (random.u8(..4) > 0).then(|| value(&mut random));
                match &value {
                    Some(value) => _ = after.insert(key.clone(), value.clone()),
                    None => _ = after.remove(&key),
                }
                (key, value)
            })
            .collect();
        let (table, commits) = (table.clone(), random.u8(..4) > 0);
        let body = async move |tx: &braiddb::Transaction| {
            for (key, value) in &writes {
                match value {
                    Some(value) => tx.put(&table, &key[..], &value[..]).await?,
                    None => _ = tx.delete(&table, &key[..]).await?,
                }
            }
            if commits { Ok(()) } else { Err(Error::Closed) }
        };
        match db.run_blocking(body) {
            Ok(()) => model = after,
            Err(Error::Closed) => {}
            Err(error) => panic!("{error}"),
        }
    }
    model
}

fn check(db: &Database, table: &Records, index: &ByText, model: &Model) {
    let (table, index) = (table.clone(), index.clone());
    let body = async move |tx: &braiddb::Transaction| {
        let (mut scan, mut found) = (tx.scan(&table, ..)?, Model::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value.to_vec());
        }
        let (mut entries, mut pairs) = (tx.entries_by(&index, ..)?, Vec::new());
        while let Some(pair) = entries.next().await? {
            pairs.push(pair);
        }
        Ok::<_, Error>((found, pairs))
    };
    let (found, mut pairs) = db.run_blocking(body).unwrap();
    assert!(found == *model, "what is there is what was written");
    let mut expected: Vec<_> =
        model.iter().map(|(key, value)| (value[..250].to_vec(), key.clone())).collect();
    expected.sort();
    pairs.sort();
    assert!(pairs == expected, "the index has the same");
}

#[test]
fn records_and_entries_of_deep_trees_are_written_together() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (db, table, index) = open(directory.path());
        let models: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || {
                        let mut random = fastrand::Rng::with_seed(100 + thread);
                        let numbers = (0..RECORDS).filter(|number| number % THREADS == thread);
                        let model: Model =
                            numbers.map(|number| (key(number), value(&mut random))).collect();
                        for some in model.clone().into_iter().collect::<Vec<_>>().chunks(10) {
                            let (table, some) = (table.clone(), some.to_vec());
                            let insert = async move |tx: &braiddb::Transaction| {
                                for (key, value) in &some {
                                    tx.insert(&table, &key[..], &value[..]).await?;
                                }
                                Ok::<_, Error>(())
                            };
                            db.run_blocking(insert).unwrap();
                        }
                        work(db, table, thread, model)
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let model: Model = models.into_iter().flatten().collect();
        let pages = db.stats().pages;
        assert!(pages.inner_faults > 500 && pages.inner_evicted > 500, "{pages:?}");
        check(&db, &table, &index, &model);
        db.close().unwrap();
        drop((db, table, index));
        let (db, table, index) = open(directory.path());
        check(&db, &table, &index, &model);
        // Replay visits pages in key order, and so each inner page rarely.
        assert!(db.stats().pages.inner_faults > 10, "{:?}", db.stats().pages);
        db.close().unwrap();
    });
}
