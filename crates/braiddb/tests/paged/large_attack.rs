//! A stress test of large values in a paged table: writers that commit, fail, panic, drop futures
//! and roll back; range deletions, snapshots, scans in both directions, checkpoints, compaction,
//! checks, and page eviction.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::create_table;
use braiddb::{BusyWith, Database, Error, Options, Table, Transaction, Tuning};
use fastrand::Rng;
use pollster::block_on;

const LIMIT_SECONDS: u64 = 300;
/// The number of writers, each with separate keys.
const WRITERS: u64 = 3;
const KEYS: u64 = 40;
const ROUNDS: u64 = 250;

type Records = Table<u64, [u8]>;
/// The number of each writer's last transaction.
type Turns = Table<u64, u64>;
type Model = BTreeMap<u64, Vec<u8>>;

/// Returns a value whose first bytes determine all others. A third of the values are too long for a
/// page.
fn value(random: &mut Rng) -> Vec<u8> {
    let bytes = match random.u8(..12) {
        0..8 => random.usize(8..1200),
        8..11 => random.usize(1000..15_000),
        _ => random.usize(15_000..120_000),
    };
    whole(random.u64(..), bytes)
}

fn whole(seed: u64, bytes: usize) -> Vec<u8> {
    let mut value = seed.to_le_bytes().to_vec();
    let mut random = Rng::with_seed(seed ^ bytes as u64);
    value.resize(bytes, 0);
    random.fill(&mut value[8..]);
    value
}

fn is_whole(value: &[u8]) -> bool {
    let seed = value.first_chunk().map(|seed| u64::from_le_bytes(*seed));
    seed.is_some_and(|seed| value == whole(seed, value.len()))
}

fn key(random: &mut Rng, writer: u64) -> u64 {
    random.u64(..KEYS) * WRITERS + writer
}

/// Runs the work of a transaction on a copy of the model.
async fn work(
    tx: &Transaction,
    table: &Records,
    writer: u64,
    random: &mut Rng,
    model: &mut Model,
) -> Result<(), Error> {
    for _ in 0..random.u8(1..5) {
        let key = key(random, writer);
        match random.u8(..10) {
            0 => {
                assert_eq!(tx.delete(table, &key).await?, model.remove(&key).is_some());
            }
            1 => {
                let told = tx.insert(table, &key, &value(random)[..]).await;
                match told {
                    Err(Error::KeyExists(_)) => assert!(model.contains_key(&key)),
                    Err(error) => return Err(error),
                    Ok(()) => {
                        assert!(!model.contains_key(&key));
                        tx.delete(table, &key).await?;
                    }
                }
            }
            2 => {
                // Written repeatedly and rolled back.
                let savepoint = tx.savepoint();
                for _ in 0..3 {
                    tx.put(table, &key, &value(random)[..]).await?;
                }
                tx.rollback_to(&savepoint).await?;
            }
            3 => {
                let gone = tx.delete_range(table, key..key + 1).await?;
                assert_eq!(gone, u64::from(model.remove(&key).is_some()));
            }
            4 => {
                let read = tx.get(table, &key).await?;
                assert!(read == model.get(&key).map(|value| &value[..]), "key {key}");
            }
            _ => {
                let value = value(random);
                tx.put(table, &key, &value[..]).await?;
                model.insert(key, value);
            }
        }
    }
    for (key, value) in &*model {
        if random.u8(..8) == 0 {
            assert!(tx.get(table, key).await? == Some(&value[..]), "key {key}");
        }
    }
    Ok(())
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug)]
enum End {
    Commit,
    Fail,
    Panic,
    /// Its future is dropped after this number of polls.
    GiveUp(u32),
}

/// The contents of a writer's keys after each transaction that may be its last committed one, by
/// number. The caller of a dropped transaction cannot know whether it commits: the next transaction
/// reads its number.
#[derive(Clone)]
struct Models(BTreeMap<u64, Arc<Mutex<Option<Model>>>>);

impl Models {
    fn just(number: u64, model: Model) -> Self {
        Self([(number, Arc::new(Mutex::new(Some(model))))].into())
    }

    /// Returns the contents at the beginning of a transaction, if known.
    async fn find(&self, tx: &Transaction, turns: &Turns, writer: u64) -> Result<Model, Error> {
        let last = tx.get(turns, &writer).await?.unwrap_or(0);
        let model = self.0.get(&last).ok_or_else(|| turns.key_not_found(&last))?;
        Ok(model.lock().unwrap().clone().expect("it committed with that"))
    }
}

fn write(db: &Database, table: &Records, turns: &Turns, writer: u64) -> Model {
    let (mut random, mut models) = (Rng::with_seed(writer), Models::just(0, Model::new()));
    for number in 1..=ROUNDS {
        let end = match random.u8(..10) {
            0 => End::Fail,
            1 => End::Panic,
            2..4 => End::GiveUp(random.u32(1..6)),
            _ => End::Commit,
        };
        let (table, turns, known) = (table.clone(), turns.clone(), models.clone());
        let (draw, after) = (random.u64(..), Arc::new(Mutex::new(None)));
        let left = after.clone();
        let run = db.run(async move |tx| {
            let mut model = known.find(tx, &turns, writer).await?;
            work(tx, &table, writer, &mut Rng::with_seed(draw), &mut model).await?;
            tx.put(&turns, &writer, &number).await?;
            match end {
                End::Fail => return Err(Error::Closed),
                End::Panic => panic!("on purpose"),
                End::Commit | End::GiveUp(_) => {}
            }
            *left.lock().unwrap() = Some(model.clone());
            Ok(model)
        });
        let result = match end {
            End::GiveUp(polls) => give_up(run, polls),
            _ => Some(block_on(run)),
        };
        match (end, result) {
            (End::Commit | End::GiveUp(_), Some(Ok(model))) => models = Models::just(number, model),
            (End::GiveUp(_), None) => _ = models.0.insert(number, after),
            (End::Fail, Some(Err(Error::Closed))) => {}
            (End::Panic, Some(Err(Error::Panicked { .. }))) => {}
            (_, Some(Err(error))) if error.is_retryable() => {}
            (end, result) => panic!("transaction {number}, {end:?}: {result:?}"),
        }
    }
    // A transaction still in progress does not see this number, and so does not commit.
    let turns = turns.clone();
    let last = db.run_blocking(async move |tx| {
        let model = models.find(tx, &turns, writer).await?;
        tx.put(&turns, &writer, &u64::MAX).await?;
        Ok(model)
    });
    last.unwrap()
}

/// Polls a future this number of times, then drops it.
fn give_up<T>(future: impl Future<Output = T>, polls: u32) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        std::thread::yield_now();
    }
    None
}

fn all(db: &Database) -> Model {
    let read = async move |tx: &Transaction| {
        let table: Records = tx.open_table("records").await?;
        let (mut scan, mut model) = (tx.scan(&table, ..)?, Model::new());
        while let Some((key, value)) = scan.next().await? {
            model.insert(key, value.to_owned());
        }
        Ok(model)
    };
    db.run_blocking(read).unwrap()
}

/// Repeats an action until it is stopped. Returns the number of repetitions.
fn repeat(
    db: &Database,
    over: &Arc<AtomicBool>,
    mut act: impl FnMut(&Database) + Send + 'static,
) -> JoinHandle<u64> {
    let (db, over) = (db.clone(), over.clone());
    std::thread::spawn(move || {
        let mut times = 0;
        while !over.load(Ordering::SeqCst) {
            act(&db);
            times += 1;
        }
        times
    })
}

/// Checks that a snapshot has the same contents in both directions, and that every value is
/// complete.
fn read_twice(db: &Database, table: &Records) {
    let snapshot = block_on(db.snapshot()).unwrap();
    let mut seen = [false, true].map(|reverse| {
        let table = table.clone();
        let scan = snapshot.run(async move |tx| {
            let (mut all, mut scan) = (Vec::new(), tx.scan(&table, ..)?);
            if reverse {
                scan = scan.rev();
            }
            while let Some((key, value)) = scan.next().await? {
                assert!(is_whole(value), "key {key}, {} bytes", value.len());
                all.push((key, value.to_owned()));
            }
            Ok(all)
        });
        block_on(scan).unwrap()
    });
    seen[1].reverse();
    assert!(seen[0] == seen[1]);
}

fn keep_up(db: &Database, turn: u64) {
    let done = match turn % 3 {
        0 => block_on(db.checkpoint()).map(drop),
        1 => block_on(db.compact()).map(drop),
        _ => db.check().map(|report| assert_eq!(report.problems, Vec::<String>::new())),
    };
    match done {
        Ok(()) | Err(Error::Busy(BusyWith::Checkpoint)) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn large_values_are_correct_under_concurrent_operations() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options = || {
            Options::default()
                .workers(2)
                .tuning(Tuning::default().page_frames(Some(96)).log_segment_bytes(1 << 20))
        };
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Records = create_table(&db, "records", true);
        let turns: Turns = create_table(&db, "turns", false);
        let over = Arc::new(AtomicBool::new(false));
        let (read, turn) = (table.clone(), AtomicU64::new(0));
        let reader = repeat(&db, &over, move |db| read_twice(db, &read));
        let upkeep = repeat(&db, &over, move |db| keep_up(db, turn.fetch_add(1, Ordering::SeqCst)));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, table, turns) = (db.clone(), table.clone(), turns.clone());
                std::thread::spawn(move || write(&db, &table, &turns, writer))
            })
            .collect();
        let mut expected = Model::new();
        for writer in writers {
            expected.append(&mut writer.join().unwrap());
        }
        over.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 0 && upkeep.join().unwrap() > 0);
        assert!(db.stats().pages.evicted > 0, "{:?}", db.stats().pages);
        assert!(all(&db) == expected);
        db.close().unwrap();
        let again = Database::open(directory.path(), options()).unwrap().watched();
        assert!(all(&again) == expected);
        assert_eq!(once_free(|| again.check()).unwrap().problems, Vec::<String>::new());
        again.close().unwrap();
        let read_only =
            Database::open(directory.path(), options().read_only(true)).unwrap().watched();
        assert!(all(&read_only) == expected);
        read_only.close().unwrap();
    });
}
