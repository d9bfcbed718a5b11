//! Paged tables several times as large as the memory budget, together with tables in memory,
//! indexes and a long snapshot. The memory counted by the engine must stay within the budget, and
//! all records must be present.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::create_table;
use braiddb::stats::MemoryStats;
use braiddb::{
    Database, Error, Index, IndexKeys, IndexOptions, Options, Table, Transaction, Tuning,
};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 400;
const RING_BYTES: u64 = 32 << 20;
/// The part of the budget that remains after the ring.
const ROOM: u64 = 5 << 20;
const VALUE_BYTES: usize = 400;
/// About five times as many records as fit into this room.
const RECORDS: u64 = 5 * ROOM / 450;
const HOT_RECORDS: u64 = ROOM / 450;
const A_TIME: usize = 100;

type Records = Table<u64, [u8]>;
type Groups = Index<u64, u64, [u8]>;

fn options() -> Options {
    Options::default()
        .workers(2)
        .memory_budget(RING_BYTES + ROOM)
        .tuning(Tuning::default().log_segment_bytes(1 << 20).checkpoint_bytes(16 << 20))
}

fn value(key: u64, version: u8) -> Vec<u8> {
    let mut value = vec![version; VALUE_BYTES];
    value[..8].copy_from_slice(&key.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    value
}

/// Returns the key in the index, which some ten records share.
fn group(value: &[u8]) -> u64 {
    let number = u64::from_le_bytes(value[..8].try_into().unwrap());
    (number % (RECORDS / 10)) ^ u64::from(value[8])
}

fn groups(db: &Database, table: &Records) -> Groups {
    let extract = |value: &[u8], keys: &mut IndexKeys<'_, u64>| keys.push(&group(value));
    block_on(db.index(table, "groups", IndexOptions::default(), extract)).unwrap()
}

/// Returns the bytes that the engine counts, including the log's ring.
fn used(memory: &MemoryStats) -> u64 {
    let records = memory.versions + memory.index_nodes + memory.keys + memory.indirection;
    records + memory.copies + memory.reads + memory.pages + RING_BYTES
}

/// Samples the memory in use until `end`, which checks that the budget was never exceeded.
struct Watch {
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<(MemoryStats, u64)>>,
}

impl Watch {
    fn new(db: &Database) -> Self {
        let (over, db) = (Arc::new(AtomicBool::new(false)), db.clone());
        let ended = over.clone();
        let thread = std::thread::spawn(move || {
            let (mut most, mut looks) = (MemoryStats::default(), 0);
            while !ended.load(Ordering::Relaxed) {
                most = std::cmp::max_by_key(most, db.stats().memory, used);
                looks += 1;
                std::thread::yield_now();
            }
            (most, looks)
        });
        Self { over, thread: Some(thread) }
    }

    fn end(mut self) {
        self.over.store(true, Ordering::Relaxed);
        let (most, looks) = self.thread.take().unwrap().join().unwrap();
        let budget = RING_BYTES + ROOM;
        assert!(looks > 0 && used(&most) <= budget, "{} bytes of {budget}: {most:#?}", used(&most));
    }
}

fn write(db: &Database, table: &Records, keys: &[u64], version: u8) {
    for some in keys.chunks(A_TIME) {
        let (table, some) = (table.clone(), some.to_vec());
        let write = async move |tx: &Transaction| {
            for key in &some {
                tx.put(&table, key, &value(*key, version)[..]).await?;
            }
            Ok::<_, Error>(())
        };
        db.run_blocking(write).unwrap();
    }
}

async fn contents(
    tx: &Transaction,
    table: &Records,
    reverse: bool,
) -> Result<BTreeMap<u64, u8>, Error> {
    let (scan, mut found, mut last) = (tx.scan(table, ..)?, BTreeMap::new(), None);
    let mut scan = if reverse { scan.rev() } else { scan };
    while let Some((key, bytes)) = scan.next().await? {
        assert!(bytes == &value(key, bytes[8])[..], "{key}");
        assert!(last.is_none_or(|last| (last < key) != reverse), "in order");
        last = Some(key);
        found.insert(key, bytes[8]);
    }
    Ok(found)
}

fn check(db: &Database, table: &Records, model: &BTreeMap<u64, u8>) {
    for reverse in [false, true] {
        let table = table.clone();
        let found = db.run_blocking(async move |tx| contents(tx, &table, reverse).await).unwrap();
        assert!(found == *model, "what is there is what was written, in reverse: {reverse}");
    }
}

fn check_index(db: &Database, groups: &Groups, model: &BTreeMap<u64, u8>) {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..50 {
        let (key, groups) = (random.u64(..RECORDS), groups.clone());
        let version = model[&key];
        let found = db.run_blocking(async move |tx| {
            let group = group(&value(key, version));
            let (mut scan, mut found) = (tx.scan_by(&groups, group..=group)?, false);
            while let Some((_, key_found, bytes)) = scan.next().await? {
                found |= key_found == key && bytes == &value(key, version)[..];
            }
            Ok(found)
        });
        assert!(found.unwrap(), "{key}");
    }
}

#[test]
#[ignore = "slow: the gate runs it"]
fn tables_larger_than_the_memory_budget_stay_within_it() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Records = create_table(&db, "records", true);
        let hot: Records = create_table(&db, "hot", false);
        let watch = Watch::new(&db);
        let mut keys: Vec<u64> = (0..RECORDS).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut keys);
        write(&db, &table, &keys, 0);
        let index = groups(&db, &table);
        let pages = db.stats().pages;
        assert!(pages.evicted > 0 && pages.faults > 0 && pages.written > 0, "{pages:?}");
        assert!(pages.resident <= pages.frames, "{pages:?}");
        assert!(pages.zone_bytes > 3 * ROOM, "{pages:?}");
        // The table in memory is as large as the room.
        let hot_keys: Vec<u64> = (0..HOT_RECORDS).collect();
        write(&db, &hot, &hot_keys, 0);
        // The snapshot keeps versions.
        let snapshot = block_on(db.snapshot()).unwrap();
        let before: BTreeMap<_, _> = keys.iter().map(|key| (*key, 0)).collect();
        let mut model = before.clone();
        let updated = &keys[..1000];
        write(&db, &table, updated, 1);
        model.extend(updated.iter().map(|key| (*key, 1)));
        check(&db, &table, &model);
        check_index(&db, &index, &model);
        let snapshot_table = table.clone();
        let seen = snapshot.run(async move |tx| contents(tx, &snapshot_table, false).await);
        assert!(block_on(seen).unwrap() == before, "the snapshot sees what was there");
        drop(snapshot);
        let hot_model: BTreeMap<_, _> = hot_keys.iter().map(|key| (*key, 0)).collect();
        check(&db, &hot, &hot_model);
        check(&db, &table, &model);
        watch.end();
        once_free(|| block_on(db.compact())).unwrap();
        let report = once_free(|| db.check()).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
        let copy = tempfile::tempdir().unwrap();
        once_free(|| db.backup(copy.path())).unwrap();
        db.close().unwrap();
        drop(db);
        for directory in [&directory, &copy] {
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let table: Records = block_on(db.open_table("records")).unwrap();
            let watch = Watch::new(&db);
            let index = groups(&db, &table);
            check(&db, &table, &model);
            check_index(&db, &index, &model);
            watch.end();
        }
    });
}

/// Memory moves to the tables in use: to pages while only paged tables are read, to records in
/// memory when those are read.
#[test]
#[ignore = "slow: the gate runs it"]
fn memory_moves_to_the_tables_in_use() {
    // With many workers, each alone lacks only little memory.
    for (workers, ring_bytes) in [(2, RING_BYTES), (20, 2 * RING_BYTES)] {
        memory_moves_with(workers, ring_bytes);
    }
}

fn memory_moves_with(workers: usize, ring_bytes: u64) {
    with_limit(LIMIT_SECONDS, move |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = options().workers(workers).memory_budget(ring_bytes + ROOM);
        let db = Database::open(directory.path(), options).unwrap().watched();
        let paged: Records = create_table(&db, "paged", true);
        let hot: Records = create_table(&db, "hot", false);
        let keys: Vec<u64> = (0..2 * HOT_RECORDS).collect();
        write(&db, &paged, &keys, 0);
        write(&db, &hot, &keys, 0);
        let read = |table: &Records, seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..40 {
                let (table, seed) = (table.clone(), random.u64(..));
                let reads = async move |tx: &Transaction| {
                    let mut random = fastrand::Rng::with_seed(seed);
                    for _ in 0..200 {
                        let key = random.u64(..2 * HOT_RECORDS);
                        assert!(tx.get(&table, &key).await?.is_some(), "{key}");
                    }
                    Ok::<_, Error>(())
                };
                db.run_blocking(reads).unwrap();
            }
        };
        let parts = |db: &Database| {
            let memory = db.stats().memory;
            (memory.pages, memory.versions)
        };
        // Each table in turn gets more memory than the other.
        for round in 0..2 {
            let mut seed = round << 32;
            while {
                let (pages, versions) = parts(&db);
                pages < 2 * versions
            } {
                seed += 1;
                read(&paged, seed);
            }
            while {
                let (pages, versions) = parts(&db);
                versions < 2 * pages
            } {
                seed += 1;
                read(&hot, seed);
            }
        }
        db.close().unwrap();
    });
}

/// When a database is opened with a smaller budget, pages are evicted before the open returns.
#[test]
fn reopening_with_a_smaller_budget_stays_within_it() {
    with_limit(LIMIT_SECONDS, |_| {
        const MANY: u64 = 80_000;
        let directory = tempfile::tempdir().unwrap();
        let budget = RING_BYTES + 10 * ROOM;
        // No checkpoint, so that the log is replayed.
        let larger =
            options().memory_budget(budget).tune(|tuning| tuning.checkpoint_bytes(1 << 40));
        let db = Database::open(directory.path(), larger).unwrap().watched();
        let hot: Table<u64, u64> = block_on(db.open_or_create_table("hot")).unwrap();
        let table: Records = create_table(&db, "records", true);
        let keys: Vec<u64> = (0..RECORDS).collect();
        // These records come first and use all the memory.
        write(&db, &table, &keys, 0);
        for first in (0..MANY).step_by(1000) {
            let hot = hot.clone();
            let insert = async move |tx: &Transaction| {
                for key in first..first + 1000 {
                    tx.insert(&hot, &key, &key).await?;
                }
                Ok::<_, Error>(())
            };
            db.run_blocking(insert).unwrap();
        }
        db.close().unwrap();
        drop(db);
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let memory = db.stats().memory;
        assert!(used(&memory) <= RING_BYTES + ROOM, "{memory:#?}");
        assert!(memory.index_nodes + memory.indirection > ROOM / 2, "{memory:#?}");
        let table: Records = block_on(db.open_table("records")).unwrap();
        check(&db, &table, &keys.iter().map(|key| (*key, 0)).collect());
        db.close().unwrap();
    });
}

/// The log records that a transaction holds count as memory in use until the transaction ends in
/// any way.
#[test]
fn unlogged_values_count_as_memory() {
    const BYTES: u64 = 1 << 20;
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Records = create_table(&db, "records", true);
        write(&db, &table, &[0], 0);
        let versions = || db.stats().memory.versions;
        let value = [1; VALUE_BYTES];
        let ends = ["commit", "abort", "drop", "a savepoint, then commit"];
        for (end, first) in ends.into_iter().zip((1..).step_by(RECORDS as usize)) {
            let tx = block_on(db.begin()).unwrap();
            block_on(tx.put(&table, &0, &value[..])).unwrap();
            let savepoint = block_on(tx.savepoint()).unwrap();
            // New records have no before-images for older snapshots.
            for key in first..first + BYTES / VALUE_BYTES as u64 + 1 {
                block_on(tx.put(&table, &key, &value[..])).unwrap();
            }
            assert!(versions() > BYTES, "{end}: {}", versions());
            match end {
                "commit" => _ = block_on(tx.commit()).unwrap(),
                "abort" => block_on(tx.abort()).unwrap(),
                "drop" => drop(tx),
                _ => {
                    block_on(tx.rollback_to(&savepoint)).unwrap();
                    _ = block_on(tx.commit()).unwrap();
                }
            }
            while versions() > BYTES / 2 {
                std::thread::yield_now();
            }
        }
        db.close().unwrap();
    });
}
