//! Dropped futures: each public operation of a transaction is polled a number of times, dropped,
//! and called again, for every number of polls it can take. Reads lose nothing, and a write took
//! effect exactly if its future became ready.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::Poll;

use crate::common::{Watched, with_limit};
use crate::polls::poll_at_most;
use crate::table_kind::create_table;
use braiddb::simulation::{Faults, SimulatedDisk};
use braiddb::{
    Database, Durability, Error, Options, Overload, Scan, Table, TableOptions, Transaction, Tuning,
};
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use pollster::block_on;

type Records = Table<u64, [u8]>;
type Model = BTreeMap<u64, Vec<u8>>;

/// Enough for versions to exceed the cache, so that reads of memory suspend.
const MANY: u64 = 66_000;
/// A limit far above the duration of any test, even on a loaded machine.
const LIMIT_SECONDS: u64 = 300;

/// Lets the worker's other tasks and its transfers proceed.
async fn give_way() {
    let mut gave_way = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The number of each event.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    cancelled: u64,
    failed: u64,
}

/// Calls an operation repeatedly, and drops it after one more poll each time, until it is ready.
/// After an error of the disk, or of an overloaded worker, the operation is called again.
macro_rules! insist {
    ($counts:expr, $operation:expr) => {{
        let mut polls = 1;
        loop {
            // By chance, each poll of the task may suspend although it could proceed, or may not.
            give_way().await;
            match poll_at_most($operation, polls).await {
                None => {
                    $counts.cancelled += 1;
                    polls += 1;
                }
                Some(Err(Error::Io(_) | Error::Overloaded)) => {
                    $counts.failed += 1;
                }
                Some(result) => break result,
            }
        }
    }};
}

async fn collect(mut scan: Scan<'_, u64, [u8]>) -> Result<(Vec<(u64, Vec<u8>)>, Counts), Error> {
    let (mut found, mut counts) = (Vec::new(), Counts::default());
    loop {
        let record = insist!(counts, async {
            Ok(scan.next().await?.map(|(key, value)| (key, value.to_vec())))
        })?;
        match record {
            Some(record) => found.push(record),
            None => return Ok((found, counts)),
        }
    }
}

/// Compares scans in both directions with the model: complete, partial, and limited.
async fn check_scans(tx: &Transaction, table: &Records, model: &Model) -> Result<Counts, Error> {
    let mut counts = Counts::default();
    let middle = MANY / 3;
    for reverse in [false, true] {
        for (from, limit) in [(0, u64::MAX), (middle, 1000), (middle, 1)] {
            let scan = tx.scan(table, from..)?.limit(limit);
            let (found, more) = collect(if reverse { scan.rev() } else { scan }).await?;
            let records = model.range(from..).map(|(key, value)| (*key, value.clone()));
            let expected: Vec<_> = if reverse {
                records.rev().take(limit as usize).collect()
            } else {
                records.take(limit as usize).collect()
            };
            let keys: Vec<_> = found.iter().map(|(key, _)| *key).collect();
            let wanted: Vec<_> = expected.iter().map(|(key, _)| *key).collect();
            assert!(keys == wanted, "from {from}, reverse {reverse}, limit {limit}");
            assert!(found == expected, "from {from}, reverse {reverse}, limit {limit}");
            counts.cancelled += more.cancelled;
            counts.failed += more.failed;
        }
    }
    let own = |record: Option<(u64, &[u8])>| record.map(|(key, value)| (key, value.to_vec()));
    let first = insist!(counts, async { Ok(own(tx.first(table).await?)) })?;
    assert!(first == model.first_key_value().map(|(key, value)| (*key, value.clone())));
    let last = insist!(counts, async { Ok(own(tx.last(table).await?)) })?;
    assert!(last == model.last_key_value().map(|(key, value)| (*key, value.clone())));
    Ok(counts)
}

fn fill(db: &Database, table: &Records, model: &Model) {
    let records: Vec<_> = model.clone().into_iter().collect();
    for some in records.chunks(1000) {
        let (table, some) = (table.clone(), some.to_vec());
        db.run_blocking(async move |tx| {
            for (key, value) in &some {
                tx.insert(&table, key, value).await?;
            }
            Ok(())
        })
        .unwrap();
    }
}

fn value(key: u64, bytes: usize) -> Vec<u8> {
    let word = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word.to_le_bytes().iter().copied().cycle().take(bytes).collect()
}

/// Opens a database in memory whose tasks suspend by chance at every possible point; most records
/// on pages are not in memory.
fn in_memory(seed: u64, paged: bool) -> (Database, Records, Model) {
    let options = Options::default()
        .durability(Durability::Volatile)
        .tuning(Tuning::default().page_frames(Some(64)));
    let db = Database::open_simulated(&SimulatedDisk::new(seed), options, seed).unwrap().watched();
    let table: Records = create_table(&db, "records", paged);
    let model: Model = (0..MANY).map(|key| (key, value(key, 8))).collect();
    fill(&db, &table, &model);
    (db, table, model)
}

#[test]
fn a_dropped_call_of_next_loses_no_record_that_is_not_logged() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| {
            let (db, table, model) = in_memory(1, paged);
            let counts = db.run_blocking(async move |tx| check_scans(tx, &table, &model).await);
            let counts = counts.unwrap();
            let expected = if paged { 100 } else { MANY / 64 };
            assert!(counts.cancelled > expected, "{counts:?}");
        });
    }
}

/// Returns a model of records that are only on disk, some of them large.
fn cold_model(records: u64) -> Model {
    (0..records)
        .map(|key| (key * 100, value(key, if key % 97 == 0 { 300_000 } else { 500 })))
        .collect()
}

/// Reopens a database on a simulated disk, so that none of its records are in memory, or hardly any
/// if they are on pages.
fn on_disk(
    seed: u64,
    options: &Options,
    records: u64,
    paged: bool,
) -> (SimulatedDisk, Database, Records, Model) {
    let (disk, model) = (SimulatedDisk::new(seed), cold_model(records));
    let options = options.clone().tune(|tuning| tuning.page_frames(Some(128)));
    let db = Database::open_simulated(&disk, options.clone(), seed).unwrap().watched();
    let uncached = match paged {
        true => TableOptions::default().paged(),
        false => TableOptions::default().cache_cold(false),
    };
    let table: Records =
        db.run_blocking(async move |tx| tx.create_table_with("records", uncached).await).unwrap();
    fill(&db, &table, &model);
    db.close().unwrap();
    drop((db, table));
    let db = Database::open_simulated(&disk, options, seed).unwrap().watched();
    let table = block_on(db.open_table("records")).unwrap();
    (disk, db, table, model)
}

#[test]
fn dropped_and_failed_calls_of_next_lose_no_record_on_disk() {
    for (seed, paged) in [(0, false), (1, false), (2, true)] {
        with_limit(LIMIT_SECONDS, move |_| {
            // Neighbours are read together, so many reads fail only with many records.
            let (disk, db, table, model) = on_disk(seed, &Options::default(), 4000, paged);
            // From here on only reads, so every error is a failed read.
            disk.set_faults(Faults {
                errors: 5,
                short_transfers: 10,
                max_delay: 5,
                ..Faults::default()
            });
            let counts = db.run_blocking(async move |tx| check_scans(tx, &table, &model).await);
            disk.set_faults(Faults::default());
            let counts = counts.unwrap();
            assert!(counts.cancelled > 200 && counts.failed > 20, "{counts:?}");
            assert!(disk.counts().read_errors > 20, "{:?}", disk.counts());
            db.close().unwrap();
        });
    }
}

#[test]
fn an_overloaded_scan_continues_at_its_position() {
    with_limit(LIMIT_SECONDS, |_| {
        let options =
            Options::default().tuning(Tuning::default().overload(Overload::Shed).cold_width(1));
        // Few records, because a refused read retries immediately, and each read needs thousands of
        // attempts.
        let (disk, db, table, model) = on_disk(9, &options, 800, false);
        disk.set_faults(Faults { max_delay: 20, ..Faults::default() });
        // Started from a transaction. From outside, each would begin only after the earlier ones
        // have ended, so that a simulation is reproducible.
        let within = db.clone();
        let scans = db.run(async move |_| {
            let scans = (0..4).map(|_| {
                let (table, model) = (table.clone(), model.clone());
                within.run(async move |tx| check_scans(tx, &table, &model).await)
            });
            join_all(scans).await.into_iter().collect::<Result<Vec<_>, _>>()
        });
        let counts = block_on(scans).unwrap();
        assert!(counts.iter().all(|counts| counts.cancelled > 100), "{counts:?}");
        assert!(counts.iter().map(|counts| counts.failed).sum::<u64>() > 100, "{counts:?}");
        db.close().unwrap();
    });
}

/// Tests point reads and writes, and the creation of tables.
#[test]
fn a_dropped_operation_has_no_effect() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| {
            let (db, table, model) = in_memory(3, paged);
            let counts = db.run_blocking(async move |tx| {
                let mut counts = Counts::default();
                let mut random = fastrand::Rng::with_seed(7);
                let mut model = model.clone();
                for step in 0..600u64 {
                    let key = random.u64(0..2 * MANY);
                    let bytes = &value(step, 16)[..];
                    let there = model.contains_key(&key);
                    // Until the future is ready, the record is unchanged.
                    let mut polls = 1;
                    loop {
                        give_way().await;
                        let made = match step % 4 {
                            0 => poll_at_most(tx.put(&table, &key, bytes), polls).await.map(Ok),
                            1 => poll_at_most(tx.insert(&table, &key, bytes), polls).await.map(Ok),
                            2 => poll_at_most(tx.update(&table, &key, bytes), polls).await.map(Ok),
                            _ => poll_at_most(tx.delete(&table, &key), polls).await.map(Err),
                        };
                        match made {
                            None => {
                                (counts.cancelled, polls) = (counts.cancelled + 1, polls + 1);
                                let found = tx.get(&table, &key).await?;
                                assert_eq!(
                                    found,
                                    model.get(&key).map(Vec::as_slice),
                                    "step {step}"
                                );
                                continue;
                            }
                            Some(Ok(Err(Error::KeyExists(_)))) => {
                                assert!(there && step % 4 == 1)
                            }
                            Some(Ok(Err(Error::KeyNotFound(_)))) => {
                                assert!(!there && step % 4 == 2)
                            }
                            Some(Ok(written)) => {
                                written?;
                                model.insert(key, bytes.to_vec());
                            }
                            Some(Err(deleted)) => {
                                assert_eq!(deleted?, model.remove(&key).is_some())
                            }
                        }
                        break;
                    }
                    let keys = [key, random.u64(0..MANY), random.u64(0..MANY)];
                    let found = insist!(counts, tx.multi_get(&table, &keys))?;
                    let wanted: Vec<_> =
                        keys.iter().map(|k| model.get(k).map(Vec::as_slice)).collect();
                    assert_eq!(found, wanted);
                    assert_eq!(insist!(counts, tx.get(&table, &key))?, wanted[0]);
                    let lent = insist!(counts, tx.get_with(&table, &key, <[u8]>::to_vec))?;
                    assert_eq!(lent.as_deref(), wanted[0]);
                    assert_eq!(insist!(counts, tx.contains(&table, &key))?, wanted[0].is_some());
                }
                Ok(counts)
            });
            let counts = counts.unwrap();
            assert!(counts.cancelled > 500, "{counts:?}");
        });
    }
}

/// Errors of the disk during a scan as a stream, or with a visitor: the records before it are
/// right, the stream ends, and its transaction continues.
#[test]
fn a_disk_error_ends_a_stream_but_not_its_transaction() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| {
            let (disk, db, table, model) = on_disk(5, &Options::default(), 4000, paged);
            let faults = Faults { errors: 20, max_delay: 5, ..Faults::default() };
            let within = disk.clone();
            let counts = db.run_blocking(async move |tx| {
                let (mut failed, mut given) = (Counts::default(), 0);
                let mut attempt = 0;
                while attempt < 40 || given == 0 {
                    attempt += 1;
                    within.set_faults(faults);
                    let mut expected = model.iter();
                    let error = if attempt % 2 == 0 {
                        let mut stream = pin!(tx.scan(&table, ..)?.into_stream());
                        let error = loop {
                            match stream.next().await {
                                Some(Ok((key, value))) => {
                                    assert!(expected.next() == Some((&key, &value)), "{key}");
                                    given += 1;
                                }
                                Some(Err(error)) => break Some(error),
                                None => break None,
                            }
                        };
                        assert!(stream.next().await.is_none(), "it has ended");
                        error
                    } else {
                        let each = |key: u64, value: &[u8]| {
                            let (wanted, bytes) = expected.next().expect("no more than there are");
                            assert!((key, value) == (*wanted, &bytes[..]), "{key}");
                            given += 1;
                            ControlFlow::<()>::Continue(())
                        };
                        tx.scan(&table, ..)?.visit(each).await.err()
                    };
                    within.set_faults(Faults::default());
                    match error {
                        Some(Error::Io(_)) => failed.failed += 1,
                        Some(error) => return Err(error),
                        None => assert!(expected.next().is_none(), "all were given"),
                    }
                }
                // The failed scan leaves nothing behind.
                let mut expected = model.iter();
                let mut stream = pin!(tx.scan(&table, ..)?.into_stream());
                while let Some(record) = stream.next().await {
                    let (key, value) = record?;
                    assert!(expected.next() == Some((&key, &value)), "{key}");
                }
                assert!(expected.next().is_none());
                tx.put(&table, &1, b"new").await?;
                Ok(failed)
            });
            assert!(counts.unwrap().failed > 5);
            assert!(disk.counts().read_errors > 5, "{:?}", disk.counts());
            db.close().unwrap();
        });
    }
}

/// A stream dropped at each of its polls, during its read, leaves nothing behind.
#[test]
fn a_stream_may_be_dropped_during_a_read() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| {
            let (disk, db, table, model) = on_disk(6, &Options::default(), 1500, paged);
            disk.set_faults(Faults { short_transfers: 10, max_delay: 5, ..Faults::default() });
            let dropped = db.run_blocking(async move |tx| {
                let mut dropped = 0;
                for polls in 1.. {
                    let scan = if polls % 2 == 0 {
                        tx.scan(&table, ..)?
                    } else {
                        tx.scan(&table, ..)?.rev()
                    };
                    give_way().await;
                    let collected = scan.into_stream().try_collect::<Vec<_>>();
                    let Some(found) = poll_at_most(collected, polls).await else {
                        dropped += 1;
                        continue;
                    };
                    let (mut found, wanted) =
                        (found?, model.clone().into_iter().collect::<Vec<_>>());
                    if polls % 2 != 0 {
                        found.reverse();
                    }
                    assert!(found == wanted);
                    break;
                }
                Ok(dropped)
            });
            let dropped = dropped.unwrap();
            assert!(dropped > 20, "{dropped}");
            db.close().unwrap();
        });
    }
}
