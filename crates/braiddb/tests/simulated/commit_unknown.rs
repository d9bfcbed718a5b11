//! Results of transactions when the log fails. `Ok` means that the transaction survives a
//! reopening, `CommitUnknown` that it may survive, every other error that it does not.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use crate::common::{Watched, with_limit};
use braiddb::simulation::{CrashCounts, Faults, SimulatedDisk};
use braiddb::{Database, Error, LogError, Options, Outcome, Table, Transaction, Tuning};

const LIMIT_SECONDS: u64 = 600;

type Records = Table<u64, [u8]>;
/// The future result of a request.
type Told = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Writes the key with this number through `run`.
    Write(u64),
    /// Writes the key with this number in an interactive transaction.
    Interactive(u64),
    /// Writes the key with this number, and a value that is logged in parts.
    Large(u64),
    /// Writes nothing and reads the key with this number, which another request writes.
    Read(u64),
}

/// The number of observations of each outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    committed: u64,
    unknown_there: u64,
    unknown_absent: u64,
    refused: u64,
    readers_refused: u64,
}

fn options() -> Options {
    Options::default().tuning(Tuning::default().log_segment_bytes(64 << 10).max_open(64))
}

fn request(db: &Database, table: &Records, request: Request) -> Told {
    let (db, table) = (db.clone(), table.clone());
    match request {
        Request::Write(key) | Request::Large(key) => {
            let bytes = if matches!(request, Request::Large(_)) { 700_000 } else { 500 };
            Box::pin(db.run(async move |tx: &Transaction| {
                // The third part holds the commit.
                tx.put(&table, &(key + SECOND), &vec![1; bytes]).await?;
                tx.put(&table, &key, &vec![2; bytes]).await
            }))
        }
        Request::Interactive(key) => Box::pin(async move {
            let transaction = db.begin().await?;
            transaction.put(&table, &(key + SECOND), &[3; 100]).await?;
            transaction.put(&table, &key, &[4; 100]).await?;
            transaction.commit().await.map(drop)
        }),
        Request::Read(key) => {
            Box::pin(db.run(async move |tx: &Transaction| tx.get(&table, &key).await.map(drop)))
        }
    }
}

/// The second key of each transaction, to detect partial writes.
const SECOND: u64 = 1 << 32;

/// Makes many requests, a few at a time. Returns the result of each, and the number of writes of
/// the disk when the last of them began.
fn serve(
    db: &Database,
    disk: &SimulatedDisk,
    table: &Records,
) -> (Vec<(Request, Result<(), Error>)>, u64) {
    let (mut told, mut writes) = (Vec::new(), 0);
    for batch in 0..12 {
        writes = disk.counts().writes;
        let first = batch * 10;
        let mut requests: Vec<_> = (first..first + 4).map(Request::Write).collect();
        requests.extend((first..first + 2).map(Request::Read));
        requests.push(Request::Interactive(first + 4));
        if batch % 4 == 2 {
            requests.push(Request::Large(first + 5));
        }
        let mut waiting: Vec<(Request, Told)> =
            requests.into_iter().map(|kind| (kind, request(db, table, kind))).collect();
        let mut rounds = 0;
        while !waiting.is_empty() {
            let mut context = Context::from_waker(Waker::noop());
            waiting.retain_mut(|(kind, future)| match future.as_mut().poll(&mut context) {
                std::task::Poll::Ready(result) => {
                    told.push((*kind, result));
                    false
                }
                std::task::Poll::Pending => true,
            });
            disk.settle();
            rounds += 1;
            assert!(rounds < 100, "{} requests wait, and nothing is under way", waiting.len());
        }
    }
    (told, writes)
}

/// Runs on a disk whose `failing`th write after the open fails. Returns the number of writes.
fn run(seed: u64, failing: u64, seen: &mut Seen) -> u64 {
    let disk = SimulatedDisk::new(seed);
    let db = Database::open_simulated(&disk, options(), seed).unwrap().watched();
    let table = db.run_blocking(async |tx| tx.create_table("records").await).unwrap();
    disk.settle();
    let before = disk.counts().writes;
    let short_transfers = if seed.is_multiple_of(2) { 3 } else { 0 };
    let failing_write = if failing == 0 { 0 } else { before + failing };
    disk.set_faults(Faults { max_delay: 5, short_transfers, failing_write, ..Faults::default() });
    let (told, writes_at_last) = serve(&db, &disk, &table);
    let crashed = disk.crash(seed ^ failing, &mut CrashCounts::default());
    let writes = disk.counts().writes - before;
    // The requests are dropped before, because the database closes with the last handle.
    let closed = db.close();
    let failed = told.iter().any(|(_, result)| result.as_ref().is_err_and(fails_the_log));
    assert!(closed.is_err() || !failed, "{told:?}");
    // A write of the last batch may follow the last reply. Then only `close` reports its failure.
    let reported = failed || failing_write > writes_at_last;
    assert!(closed.is_ok() || reported, "write {failing} of {writes}: {closed:?} {told:?}");
    drop((table, db));
    // Checks the disk without a crash, and after a crash at the last request.
    for disk in &[disk.copy(seed), crashed] {
        check(&told, &contents(disk, seed), seen);
    }
    writes
}

/// Returns true if the log failed with this error. A segment that cannot be created fails only the
/// commits that need it.
fn fails_the_log(error: &Error) -> bool {
    !matches!(error, Error::DiskFull(_))
        && !matches!(error, Error::Io(cause) if matches!(**cause, LogError::CannotGrow { .. }))
}

/// Returns the keys after reopening.
fn contents(disk: &SimulatedDisk, seed: u64) -> BTreeMap<u64, usize> {
    let db = Database::open_simulated(disk, options(), seed).unwrap().watched();
    let found = db.run_blocking(async |tx| {
        let table: Records = tx.open_table("records").await?;
        let (mut scan, mut found) = (tx.scan(&table, ..)?, BTreeMap::new());
        while let Some((key, value)) = scan.next().await? {
            found.insert(key, value.len());
        }
        Ok(found)
    });
    db.close().unwrap();
    found.unwrap()
}

fn check(told: &[(Request, Result<(), Error>)], found: &BTreeMap<u64, usize>, seen: &mut Seen) {
    for (request, result) in told {
        let key = match request {
            Request::Write(key) | Request::Interactive(key) | Request::Large(key) => key,
            Request::Read(_) => {
                match result {
                    Ok(()) => {}
                    Err(Error::Io(_)) => seen.readers_refused += 1,
                    Err(other) => panic!("{request:?} wrote nothing, and was told {other}"),
                }
                continue;
            }
        };
        let there = found.contains_key(key);
        assert_eq!(there, found.contains_key(&(key + SECOND)), "half of {request:?} is there");
        match result {
            Ok(()) => {
                assert!(there, "{request:?} was acknowledged, and is lost");
                seen.committed += 1;
            }
            Err(error @ Error::CommitUnknown { .. }) => {
                assert!(!error.is_retryable());
                *if there { &mut seen.unknown_there } else { &mut seen.unknown_absent } += 1;
            }
            Err(error) => {
                assert!(!there, "{request:?} was told {error}, and is there");
                seen.refused += 1;
            }
        }
    }
}

#[test]
fn an_error_states_whether_the_transaction_may_be_committed() {
    with_limit(LIMIT_SECONDS, |_| {
        let mut seen = Seen::default();
        for seed in 1..=2 {
            let writes = run(seed, 0, &mut Seen::default());
            assert!(writes > 20, "{writes} writes");
            for failing in 1..=writes {
                run(seed, failing, &mut seen);
            }
        }
        let Seen { committed, unknown_there, unknown_absent, refused, readers_refused } = seen;
        for count in [committed, unknown_there, unknown_absent, refused, readers_refused] {
            assert!(count > 0, "an outcome was never seen: {seen:?}");
        }
    });
}

#[test]
fn an_unknown_commit_is_not_retried() {
    with_limit(LIMIT_SECONDS, |_| {
        let disk = SimulatedDisk::new(9);
        let db = Database::open_simulated(&disk, options(), 9).unwrap().watched();
        let table: Records = db.run_blocking(async |tx| tx.create_table("records").await).unwrap();
        disk.set_faults(Faults { errors: 1, ..Faults::default() });
        let runs = Arc::new(Mutex::new(0));
        let (counted, written) = (runs.clone(), table.clone());
        let result = pollster::block_on(db.transaction().max_attempts(100).run(
            async move |tx: &Transaction| {
                *counted.lock().unwrap() += 1;
                tx.put(&written, &1, &[1]).await
            },
        ));
        let error = result.unwrap_err();
        let Error::CommitUnknown { lsn, .. } = error else { panic!("{error}") };
        assert!(lsn >= db.stats().lsn.durable, "what is durable is known");
        assert_eq!(*runs.lock().unwrap(), 1);
        // From here on no operation begins with an unknown result.
        let (source_table, ends) = (table.clone(), Arc::new(Mutex::new(Vec::new())));
        let replies = ends.clone();
        let source = db.transaction().run_source(
            0,
            0..3,
            async move |tx, key| tx.put(&source_table, key, &[1]).await,
            move |_, result: Result<Outcome<()>, Error>| {
                replies.lock().unwrap().push(result.unwrap_err());
                Ok(())
            },
        );
        source.unwrap().wait().unwrap();
        let ends = ends.lock().unwrap();
        assert!(ends.len() == 3 && ends.iter().all(|error| matches!(error, Error::Io(_))));
        assert!(matches!(db.close(), Err(Error::Io(_))));
    });
}

#[test]
fn an_unknown_commit_is_reported_to_its_source_once() {
    with_limit(LIMIT_SECONDS, |_| {
        let disk = SimulatedDisk::new(10);
        let db = Database::open_simulated(&disk, options(), 10).unwrap().watched();
        let table: Records = db.run_blocking(async |tx| tx.create_table("records").await).unwrap();
        disk.set_faults(Faults { errors: 1, ..Faults::default() });
        let ends = Arc::new(Mutex::new(Vec::new()));
        let replies = ends.clone();
        let source = db.transaction().run_source(
            0,
            0..3,
            async move |tx, key| tx.put(&table, key, &[1]).await,
            move |key, result: Result<Outcome<()>, Error>| {
                replies.lock().unwrap().push((key, result.unwrap_err()));
                Ok(())
            },
        );
        source.unwrap().wait().unwrap();
        let mut ends = ends.lock().unwrap();
        ends.sort_by_key(|(key, _)| *key);
        assert!(ends.iter().map(|(key, _)| *key).eq(0..3), "each is told once: {ends:?}");
        assert!(matches!(ends[0].1, Error::CommitUnknown { .. }), "{ends:?}");
    });
}
