//! Snapshots: a snapshot shows the commits before it, regardless of later writes, eviction,
//! compaction and drops. After its drop nothing is kept for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Watched, with_limit};
use crate::table_kind::create_table;
use braiddb::{
    BusyWith, Certifier, Database, Error, IndexKeys, IndexOptions, Misuse, Options, Snapshot,
    Table, Transaction, TransactionEnd, Tuning,
};
use pollster::block_on;

/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;

type Records = Table<u64, [u8]>;
type Model = BTreeMap<u64, Vec<u8>>;

fn value(random: &mut fastrand::Rng) -> Vec<u8> {
    let (length, byte) = (random.usize(0..300), random.u8(..));
    vec![byte; length]
}

/// Writes some records to the database and to the model.
fn change(db: &Database, table: &Records, model: &mut Model, random: &mut fastrand::Rng) {
    let mut changes = Vec::new();
    for _ in 0..20 {
        let key = random.u64(0..500);
        changes.push((key, (random.u8(0..4) > 0).then(|| value(random))));
    }
    let (table, all) = (table.clone(), changes.clone());
    db.run_blocking(async move |tx| {
        for (key, value) in &all {
            match value {
                Some(value) => tx.put(&table, key, value).await?,
                None => _ = tx.delete(&table, key).await?,
            }
        }
        Ok(())
    })
    .unwrap();
    for (key, value) in changes {
        _ = match value {
            Some(value) => model.insert(key, value),
            None => model.remove(&key),
        };
    }
}

/// Compares all records of a snapshot, and single reads, with the model from the time of its
/// creation.
fn agrees(snapshot: &Snapshot, table: &Records, model: &Model) {
    let records = table.clone();
    let found = snapshot.run(async move |tx: &Transaction| {
        let (mut scan, mut found) = (tx.scan(&records, ..)?, Model::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value.to_vec());
        }
        Ok(found)
    });
    assert!(block_on(found).unwrap() == *model, "as of {}", snapshot.lsn());
    for key in (0..500).step_by(37) {
        assert_eq!(block_on(snapshot.get(table, &key)).unwrap(), model.get(&key).cloned());
    }
}

/// Several snapshots of different ages, each read by several threads while others write. Runs a
/// number of rounds, and more until `happened` returns true.
fn keep_their_records(db: Database, table: Records, happened: impl Fn() -> bool) {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut model, mut held) = (Model::new(), Vec::<(Snapshot, Arc<Model>)>::new());
    for round in 0.. {
        if round >= 60 && round % 10 == 0 && happened() {
            break;
        }
        change(&db, &table, &mut model, &mut random);
        held.push((block_on(db.snapshot()).unwrap(), Arc::new(model.clone())));
        if held.len() > 5 {
            held.swap_remove(random.usize(0..held.len()));
        }
        change(&db, &table, &mut model, &mut random);
        if round % 10 == 9 {
            std::thread::scope(|scope| {
                for (snapshot, then) in &held {
                    for _ in 0..2 {
                        scope.spawn(|| agrees(&snapshot.clone(), &table, then));
                    }
                }
                for _ in 0..20 {
                    change(&db, &table, &mut model, &mut random);
                }
            });
        }
    }
    assert!(held.windows(2).any(|pair| pair[0].0.lsn() != pair[1].0.lsn()));
    let refused = held[0].0.run({
        let table = table.clone();
        async move |tx: &Transaction| tx.put(&table, &1, &[]).await
    });
    assert!(matches!(block_on(refused), Err(Error::Misuse(Misuse::ReadOnlyTransaction))));
    drop(held);
    agrees(&block_on(db.snapshot()).unwrap(), &table, &model);
    db.close().unwrap();
}

/// Puts one value under all keys of a range, a hundred in each transaction.
fn put_all(db: &Database, table: &Records, keys: std::ops::Range<u64>, value: &[u8]) {
    let keys: Vec<u64> = keys.collect();
    for some in keys.chunks(100) {
        let (table, some, value) = (table.clone(), some.to_vec(), value.to_vec());
        db.run_blocking(async move |tx| {
            for key in &some {
                tx.put(&table, key, &value).await?;
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn snapshots_keep_their_records() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| {
            let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
            let table = create_table(&db, "records", paged);
            keep_their_records(db, table, || true);
        });
    }
}

/// Snapshots keep their records although eviction and compaction run at the same time.
#[test]
#[ignore = "slow: the gate runs it"]
fn snapshots_keep_their_records_during_eviction_and_compaction() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let ring = 64 << 20;
        let options =
            Options::default().workers(2).memory_budget(ring as u64 + (128 << 10)).tuning(
                Tuning::default()
                    .log_ring_bytes(ring)
                    .log_segment_bytes(64 << 10)
                    .checkpoint_bytes(512 << 10),
            );
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table = create_table(&db, "records", false);
        let [checkpoints, moved] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let compacting = {
            let (db, checkpoints, moved) = (db.clone(), checkpoints.clone(), moved.clone());
            std::thread::spawn(move || {
                loop {
                    match block_on(db.checkpoint()) {
                        Ok(_) => _ = checkpoints.fetch_add(1, Ordering::SeqCst),
                        // An automatic checkpoint.
                        Err(Error::Busy(BusyWith::Checkpoint)) => {}
                        Err(Error::Closed) => break,
                        Err(error) => panic!("{error}"),
                    }
                    // Compaction waits for snapshots that are older than the segments it frees.
                    match block_on(db.compact()) {
                        Ok(compaction) => _ = moved.fetch_add(compaction.moved, Ordering::SeqCst),
                        Err(Error::Busy(BusyWith::Checkpoint)) => {}
                        Err(Error::Closed) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        };
        let watched = db.clone();
        keep_their_records(db, table, || {
            let stats = watched.stats();
            let counts = [&checkpoints, &moved].map(|count| count.load(Ordering::SeqCst));
            counts.iter().all(|count| *count > 0)
                && stats.versions_evicted > 0
                && stats.log.segments_freed > 0
        });
        compacting.join().unwrap();
    });
}

/// The drop of the last handle frees the kept versions: a frequently changed record has few
/// versions.
#[test]
fn a_dropped_snapshot_keeps_no_versions() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Records = create_table(&db, "records", false);
        let put_all = |byte: u8| put_all(&db, &table, 0..500, &[byte; 1000]);
        put_all(0);
        let snapshot = block_on(db.snapshot()).unwrap();
        let clone = snapshot.clone();
        drop(snapshot);
        for byte in 1..20 {
            put_all(byte);
        }
        assert_eq!(block_on(clone.get(&table, &7)).unwrap(), Some(vec![0; 1000]));
        drop(clone);
        // Waits until the worker has handled the drop and freed the versions.
        while db.stats().memory.versions > 1_100_000 {
            put_all(99);
        }
    });
}

#[test]
fn readers_hold_their_snapshot_until_the_database_is_closed() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("numbers")).unwrap();
        block_on(db.put(&table, &1, &1)).unwrap();
        let snapshot = block_on(db.snapshot()).unwrap();
        // The snapshot is dropped inside a transaction that reads it and continues.
        let rounds = Arc::new(AtomicU64::new(0));
        let (other, records, done) = (db.clone(), table.clone(), rounds.clone());
        let read = snapshot.run(async move |tx: &Transaction| {
            for value in 2..200 {
                let written = records.clone();
                other.run(async move |tx| tx.put(&written, &1, &value).await).await?;
                assert_eq!(tx.get(&records, &1).await?, Some(1));
                done.store(value, Ordering::SeqCst);
            }
            Ok(())
        });
        drop(snapshot);
        block_on(read).unwrap();
        assert_eq!(rounds.load(Ordering::SeqCst), 199);
        let last = block_on(db.snapshot()).unwrap();
        assert_eq!(block_on(last.get(&table, &1)).unwrap(), Some(199));
        db.close().unwrap();
        assert!(matches!(
            block_on(last.get(&table, &1)),
            Err(Error::TransactionEnded(TransactionEnd::Finished))
        ));
        assert!(matches!(block_on(db.snapshot()), Err(Error::Closed)));
    });
}

#[test]
fn a_snapshot_does_not_contain_later_tables_and_indexes() {
    with_limit(LIMIT_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(2)).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("numbers")).unwrap();
        let snapshot = block_on(db.snapshot()).unwrap();
        let later: Table<u64, u64> = block_on(db.create_table("later")).unwrap();
        assert!(
            block_on(snapshot.run(async |tx: &Transaction| tx.tables().await)).unwrap().len() == 1
        );
        let found = block_on(snapshot.get(&later, &1));
        assert!(matches!(found, Ok(None) | Err(Error::TableNotFound(_))), "{found:?}");
        // Building an index waits for the snapshot.
        let value = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        let building = std::thread::spawn({
            let (db, table) = (db.clone(), table.clone());
            move || block_on(db.index(&table, "by_value", IndexOptions::default(), value))
        });
        while block_on(db.indexes()).unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(block_on(snapshot.get(&table, &1)).unwrap(), None);
        drop(snapshot);
        building.join().unwrap().unwrap();
    });
}

#[test]
fn the_safety_net_has_no_snapshots() {
    with_limit(LIMIT_SECONDS, |_| {
        let options = Options::default()
            .workers(1)
            .tuning(Tuning::default().certifier(Certifier::SerialSafetyNet));
        let db = Database::in_memory(options).unwrap().watched();
        let refused = block_on(db.snapshot()).unwrap_err().to_string();
        assert!(refused.contains("read validation"), "{refused}");
    });
}

/// The values read from a snapshot are not kept for its lifetime.
#[test]
fn reading_a_snapshot_repeatedly_uses_no_more_memory() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options::default().workers(1).tuning(Tuning::default().log_ring_bytes(64 << 20));
        let db = Database::open(directory.path(), options.memory_budget((64 << 20) + (1 << 20)))
            .unwrap()
            .watched();
        let table: Records = create_table(&db, "records", false);
        put_all(&db, &table, 0..3000, &[7; 4000]);
        let snapshot = block_on(db.snapshot()).unwrap();
        for _ in 0..4 {
            let records = table.clone();
            let read = snapshot.run(async move |tx: &Transaction| {
                for key in 0..3000 {
                    assert_eq!(tx.get(&records, &key).await?.map(<[u8]>::len), Some(4000));
                }
                Ok(())
            });
            block_on(read).unwrap();
            // They are freed after the answer.
            while db.stats().memory.copies > 100_000 {
                std::thread::yield_now();
            }
        }
        assert!(db.stats().versions_evicted > 0, "values are read from the log");
    });
}

/// Automatic and requested checkpoints complete while a snapshot is open.
#[test]
fn a_snapshot_does_not_delay_checkpoints() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = Options::default()
            .workers(2)
            .tuning(Tuning::default().log_segment_bytes(256 << 10).checkpoint_bytes(512 << 10));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let table: Records = create_table(&db, "records", false);
        put_all(&db, &table, 0..20, &[200; 5000]);
        // Whole segments that only the snapshot sees.
        put_all(&db, &table, 20..200, &[200; 5000]);
        let snapshot = block_on(db.snapshot()).unwrap();
        put_all(&db, &table, 20..200, &[1]);
        // Segments full of dead records, and many times the bytes after which a checkpoint is due.
        for round in 0..40 {
            put_all(&db, &table, 0..20, &[round; 5000]);
        }
        loop {
            match block_on(db.checkpoint()) {
                Ok(_) => break,
                // An automatic checkpoint ends without help.
                Err(Error::Busy(BusyWith::Checkpoint)) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        for key in 0..20 {
            let found = block_on(snapshot.get(&table, &key)).unwrap();
            assert_eq!(found.as_deref(), Some(&[200; 5000][..]), "key {key} of the snapshot");
        }
        let freed = db.stats().log.segments_freed;
        drop(snapshot);
        loop {
            match block_on(db.compact()) {
                // An automatic compaction may have freed what the snapshot kept.
                Ok(_) => break assert!(db.stats().log.segments_freed > freed),
                Err(Error::Busy(BusyWith::Checkpoint)) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
        db.close().unwrap();
    });
}

/// When the database closes during a read of a snapshot, the reader completes or receives an error.
#[test]
fn closing_ends_snapshot_readers() {
    with_limit(LIMIT_SECONDS, |_| {
        for workers in [1, 2] {
            let db = Database::in_memory(Options::default().workers(workers)).unwrap().watched();
            let table: Records = create_table(&db, "records", false);
            put_all(&db, &table, 0..2000, &[1; 100]);
            let snapshot = block_on(db.snapshot()).unwrap();
            put_all(&db, &table, 0..2000, &[2; 100]);
            let (begun, waits) = std::sync::mpsc::channel();
            let records = table.clone();
            let reading = std::thread::spawn(move || {
                block_on(snapshot.run(async move |tx: &Transaction| {
                    begun.send(()).unwrap();
                    for _ in 0..200 {
                        let mut scan = tx.scan(&records, ..)?;
                        while let Some((_, value)) = scan.next().await? {
                            assert_eq!(value, [1; 100], "as of the snapshot");
                        }
                    }
                    Ok(())
                }))
            });
            waits.recv().unwrap();
            db.close().unwrap();
            let read = reading.join().unwrap();
            assert!(
                matches!(read, Ok(()) | Err(Error::TransactionEnded(TransactionEnd::Finished))),
                "{read:?}"
            );
        }
    });
}
