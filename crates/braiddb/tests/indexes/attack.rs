//! A stress test of a table with indexes. Clients drop transactions of all kinds after any number
//! of polls, extractors and partial reads panic, and savepoints roll back. At the same time
//! eviction, compaction, checkpoints and backups run, and indexes are created, dropped and
//! abandoned, until the database is closed. Then, and after each reopening, every index must match
//! its table.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::{Watched, once_free, with_limit};
use braiddb::{
    BusyWith, Database, Error, Index, IndexError, IndexKeys, IndexOptions, MemoryBudget, Options,
    Table, TableOptions, Transaction, TransactionEnd, Tuning,
};
use fastrand::Rng;
use pollster::block_on;

type Records = Table<u64, [u8]>;
type Numbers = Index<u64, u64, [u8]>;

const LIMIT_SECONDS: u64 = 300;
const ROUNDS: u64 = 3;
const WORKERS: usize = 3;
const KEYS: u64 = 3_000;
/// The prefix of values at which the extractor panics.
const BAD: u64 = u64::MAX;
const NAMES: [(&str, bool); 2] = [("many", false), ("one", true)];

/// Panics without the hook, which would print thousands of backtraces.
fn panic_if(panics: bool, message: &'static str) {
    if panics {
        std::panic::resume_unwind(Box::new(message));
    }
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

fn keys_of(unique: bool, number: u64) -> BTreeSet<u64> {
    match unique {
        true => number.is_multiple_of(3).then_some(number).into_iter().collect(),
        false => [number % 50, 100 + number % 7].into(),
    }
}

async fn attach(
    db: &Database,
    table: &Records,
    (name, unique): (&str, bool),
) -> Result<Numbers, Error> {
    let extract = move |value: &[u8], keys: &mut IndexKeys<'_, u64>| {
        let number = number(value);
        panic_if(number == BAD, "an extractor");
        keys_of(unique, number).iter().for_each(|key| keys.push(key));
    };
    db.index(table, name, IndexOptions::default().unique(unique), extract).await
}

/// The kind of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hot,
    Paged,
    /// The records expire, and are swept each second.
    Expiring,
    PagedExpiring,
}

impl Kind {
    fn is_paged(self) -> bool {
        matches!(self, Self::Paged | Self::PagedExpiring)
    }

    fn expires(self) -> bool {
        matches!(self, Self::Expiring | Self::PagedExpiring)
    }

    fn options(self) -> TableOptions {
        let options = TableOptions::default();
        let options = if self.is_paged() { options.paged() } else { options };
        if self.expires() { options.ttl(Duration::from_secs(2)) } else { options }
    }

    /// For paged tables, up to the room on a page with the expiry time; sometimes longer.
    fn value_bytes(self, random: &mut Rng) -> usize {
        let is_longer = random.u32(0..16) == 0;
        random.usize(match self.is_paged() {
            false => 8..2_000,
            true if is_longer => 1_000..10_000,
            true => 8..1_016,
        })
    }
}

fn open(directory: &Path, kind: Kind) -> (Database, Records) {
    let tuning = Tuning::default()
        .log_segment_bytes(1 << 20)
        .checkpoint_bytes(4 << 20)
        .log_ring_bytes(64 << 20);
    // Hardly more than the log's ring takes: everything is evicted as soon as possible.
    let budget = MemoryBudget::from(65 << 20);
    let options = Options::default().workers(WORKERS).memory_budget(budget).tuning(tuning);
    let db = Database::open(directory, options).unwrap().watched();
    let options = kind.options();
    let open = async move |tx: &Transaction| tx.open_or_create_table_with("records", options).await;
    let table = db.run_blocking(open).unwrap();
    (db, table)
}

/// Polls a future at most this number of times.
fn poll_at_most<T>(mut future: Pin<&mut impl Future<Output = T>>, polls: u32) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        std::thread::yield_now();
    }
    None
}

async fn some_writes(
    tx: &Transaction,
    table: &Records,
    kind: Kind,
    random: &mut Rng,
) -> Result<(), Error> {
    let mut savepoint = tx.savepoint();
    for _ in 0..random.u32(1..6) {
        let key = random.u64(0..KEYS);
        let number = if random.u32(0..60) == 0 { BAD } else { random.u64(0..9 * KEYS) };
        let mut value = number.to_le_bytes().to_vec();
        value.resize(kind.value_bytes(random), 7);
        let written = match random.u32(0..8) {
            0..3 if kind.expires() && random.bool() => {
                let life = Duration::from_millis(random.u64(1..100));
                tx.put_with_ttl(table, &key, &value, life).await
            }
            0..3 => tx.put(table, &key, &value).await,
            3 => tx.insert(table, &key, &value).await,
            4 => tx.update(table, &key, &value).await,
            5 => tx.delete(table, &key).await.map(drop),
            6 => tx.rollback_to(&savepoint).await,
            _ => {
                savepoint = tx.savepoint();
                let part = |value: &[u8]| number_or_panic(value);
                tx.get_part(table, &key, part).await.map(drop)
            }
        };
        match written {
            // The write was refused and changed nothing.
            Ok(())
            | Err(
                Error::KeyExists(_)
                | Error::KeyNotFound(_)
                | Error::UniqueViolation(_)
                | Error::Panicked(_),
            ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn number_or_panic(value: &[u8]) -> u64 {
    let number = number(value);
    panic_if(number.is_multiple_of(97), "a part");
    number % 10
}

#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    given_up: AtomicU64,
    panicked: AtomicU64,
    created: AtomicU64,
    dropped: AtomicU64,
    upkeep: AtomicU64,
}

fn add(counter: &AtomicU64) {
    // Relaxed: a sum.
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Returns true if this test causes the error on purpose.
fn expected(error: &Error) -> bool {
    match error {
        Error::Conflict { .. }
        | Error::NotSerializable { .. }
        | Error::Panicked(_)
        | Error::Closed
        | Error::TransactionEnded(TransactionEnd::Finished)
        | Error::Busy(BusyWith::Checkpoint)
        | Error::Busy(BusyWith::TableChange { .. }) => true,
        Error::Index(error) => {
            matches!(**error, IndexError::NotFound { .. } | IndexError::DuplicateKey { .. })
        }
        _ => false,
    }
}

fn client(db: &Database, table: &Records, kind: Kind, counts: &Counts, seed: u64) {
    let mut random = Rng::with_seed(seed);
    loop {
        let (table, seed, polls) = (table.clone(), random.u64(..), random.u32(1..5));
        let body = async move |tx: &Transaction| {
            let random = &mut Rng::with_seed(seed ^ u64::from(tx.attempt()));
            some_writes(tx, &table, kind, random).await
        };
        let done = match random.u32(0..6) {
            0..3 => Some(block_on(db.run(body))),
            3 => poll_at_most(pin!(db.run(body)), polls),
            4 => {
                let whole = pin!(async {
                    let tx = db.transaction().begin().await?;
                    let savepoint = tx.savepoint().await?;
                    tx.step(body).await?;
                    tx.rollback_to(&savepoint).await?;
                    tx.commit().await.map(drop)
                });
                poll_at_most(whole, 8 * polls)
            }
            _ => {
                let worker = random.usize(0..WORKERS);
                let source = db.run_source(worker, 0..4, async move |tx, _| body(tx).await);
                Some(source.and_then(braiddb::SourceRun::wait))
            }
        };
        match done {
            Some(Ok(())) => add(&counts.committed),
            None => add(&counts.given_up),
            Some(Err(Error::Closed | Error::TransactionEnded(TransactionEnd::Finished))) => return,
            Some(Err(error)) => {
                assert!(expected(&error), "{error}");
                if matches!(error, Error::Panicked(_)) {
                    add(&counts.panicked);
                }
            }
        }
    }
}

/// Creates and drops indexes, and abandons some of these operations.
fn changer(db: &Database, table: &Records, counts: &Counts, seed: u64) {
    let mut random = Rng::with_seed(seed);
    loop {
        let index = NAMES[random.usize(0..2)];
        let (creates, polls) = (random.u32(0..3) > 0, random.u32(1..400));
        let change = pin!(async {
            match creates {
                true => attach(db, table, index).await.map(drop),
                false => db.drop_index(table, index.0).await,
            }
        });
        let done = if random.bool() { Some(block_on(change)) } else { poll_at_most(change, polls) };
        match done {
            Some(Ok(())) if creates => add(&counts.created),
            Some(Ok(())) => add(&counts.dropped),
            None => add(&counts.given_up),
            Some(Err(Error::Closed)) => return,
            Some(Err(error)) => {
                assert!(expected(&error), "{error}");
                // Otherwise no index could be created any more, because no client overwrites this
                // value while an index exists.
                if matches!(error, Error::Panicked(_))
                    && let Err(error) = take_bad_values_away(db, table)
                {
                    assert!(expected(&error), "{error}");
                }
            }
        }
    }
}

fn upkeep(db: &Database, directory: &Path, counts: &Counts) {
    for number in 0.. {
        let done = match number % 5 {
            0 => block_on(db.compact()).map(drop),
            1 => block_on(db.checkpoint()).map(drop),
            2 => block_on(db.sweep_expired()).map(drop),
            3 => db.backup(directory.join(format!("backup-{number}"))).map(drop),
            // It may meet a value at which the extractor panics.
            _ => match db.check() {
                Ok(report) => {
                    assert_eq!(report.problems, Vec::<String>::new());
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        match done {
            Ok(()) => add(&counts.upkeep),
            Err(Error::Closed) => return,
            Err(error) => assert!(expected(&error), "{error}"),
        }
    }
}

/// Attaches each index, or creates it if it does not exist, and compares it with the table.
fn all_is_right(db: &Database, table: &Records) {
    let mut refused = false;
    // Twice: creating an index deletes expired records, also from other indexes, which must be
    // attached before.
    for (attempt, (name, unique)) in NAMES.into_iter().chain(NAMES).enumerate() {
        let index = match block_on(attach(db, table, (name, unique))) {
            Ok(index) => index,
            Err(Error::Index(error))
                if unique && matches!(*error, IndexError::DuplicateKey { .. }) =>
            {
                refused = true;
                continue;
            }
            // A value exists at which the extractor panics.
            Err(Error::Panicked(_)) => {
                refused = true;
                continue;
            }
            Err(Error::Index(error))
                if (attempt < NAMES.len() || refused)
                    && matches!(*error, IndexError::Detached { .. }) =>
            {
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let table = table.clone();
        let compared = db.run_blocking(async move |tx| {
            let (mut scan, mut expected) = (tx.scan(&table, ..)?, BTreeSet::new());
            while let Some((key, value)) = scan.next().await? {
                let keys = keys_of(unique, number(value)).into_iter();
                expected.extend(keys.map(|part| (part, key, value.to_vec())));
            }
            let (mut scan, mut found) = (tx.scan_by(&index, ..)?, Vec::new());
            while let Some((part, key, value)) = scan.next().await? {
                found.push((part, key, value.to_vec()));
            }
            assert!(expected.iter().eq(&found), "index {}", index.name());
            Ok(())
        });
        compared.unwrap();
    }
    assert_eq!(once_free(|| db.check()).unwrap().problems, Vec::<String>::new());
}

/// Clients can write values at which the extractor panics while the table has no index. This
/// function removes them, expired ones included, when no index is attached, unless another client
/// creates one at the same time.
fn take_bad_values_away(db: &Database, table: &Records) -> Result<(), Error> {
    for row in block_on(db.indexes())? {
        block_on(db.drop_index(table, &row.name))?;
    }
    block_on(db.sweep_expired())?;
    let table = table.clone();
    db.run_blocking(async move |tx| {
        let (mut scan, mut bad) = (tx.scan(&table, ..)?, Vec::new());
        while let Some((key, value)) = scan.next().await? {
            if number(value) == BAD {
                bad.push(key);
            }
        }
        for key in bad {
            tx.delete(&table, &key).await?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "slow: the gate runs it"]
fn indexes_match_their_table_under_concurrent_operations() {
    attack(Kind::Hot);
}

#[test]
#[ignore = "slow: the gate runs it"]
fn indexes_match_their_paged_table_under_concurrent_operations() {
    attack(Kind::Paged);
}

#[test]
#[ignore = "slow: the gate runs it"]
fn indexes_match_their_expiring_table_under_concurrent_operations() {
    attack(Kind::Expiring);
}

#[test]
#[ignore = "slow: the gate runs it"]
fn indexes_match_their_expiring_paged_table_under_concurrent_operations() {
    attack(Kind::PagedExpiring);
}

/// The budget of one database also limits the memory of the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn attack(kind: Kind) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    with_limit(LIMIT_SECONDS, move |_| {
        let directory = tempfile::tempdir().unwrap();
        let counts = Arc::new(Counts::default());
        for round in 0..ROUNDS {
            let (db, table) = open(&directory.path().join("db"), kind);
            all_is_right(&db, &table);
            take_bad_values_away(&db, &table).unwrap();
            all_is_right(&db, &table);
            std::thread::scope(|scope| {
                let (db, table, counts) = (&db, &table, &*counts);
                let mut threads = Vec::new();
                for seed in 0..4 {
                    let client = move || client(db, table, kind, counts, round << 8 | seed);
                    threads.push(scope.spawn(client));
                }
                for seed in 0..2 {
                    let changer = move || changer(db, table, counts, round << 16 | seed);
                    threads.push(scope.spawn(changer));
                }
                let backups = directory.path().join(format!("round-{round}"));
                std::fs::create_dir(&backups).unwrap();
                threads.push(scope.spawn(move || upkeep(db, &backups, counts)));
                let wait_until = |done: &dyn Fn() -> bool| {
                    while !done() {
                        if threads.iter().any(|thread| thread.is_finished()) {
                            // This ends the other threads, which are then joined.
                            _ = db.close();
                            panic!("one of the threads ended before the database was closed");
                        }
                        std::thread::sleep(Duration::from_millis(5));
                    }
                };
                let reached = |counter: &AtomicU64, least| {
                    wait_until(&|| counter.load(Ordering::Relaxed) >= least * (round + 1));
                };
                reached(&counts.committed, 1_000);
                reached(&counts.created, 4);
                reached(&counts.dropped, 3);
                reached(&counts.upkeep, 4);
                // Waits until the tested events have happened. Paged tables have no versions to
                // evict and no segments to free so far.
                wait_until(&|| {
                    let stats = db.stats();
                    kind.is_paged() || stats.versions_evicted > 0 && stats.log.segments_freed > 0
                });
                wait_until(&|| !kind.expires() || db.stats().expired_swept > 0);
                db.close().unwrap();
            });
            drop((db, table));
            let backups = directory.path().join(format!("round-{round}"));
            std::fs::remove_dir_all(backups).unwrap();
        }
        assert!(counts.given_up.load(Ordering::Relaxed) > 0, "{counts:?}");
        let (db, table) = open(&directory.path().join("db"), kind);
        all_is_right(&db, &table);
        take_bad_values_away(&db, &table).unwrap();
        all_is_right(&db, &table);
        db.close().unwrap();
    });
}
