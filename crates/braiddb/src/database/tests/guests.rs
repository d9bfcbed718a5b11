//! Reads on the caller's thread: when they need no worker, and when a worker takes over.

use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, UNIX_EPOCH};

use pollster::block_on;

use super::super::{Database, Error, Misuse, Options, Table, TableOptions, Transaction, Tuning};
use crate::common::{PART_SECONDS, Watched, with_limit};
use crate::reclaim::MAX_GUESTS;
use crate::transaction::{
    Direction, Guest, GuestRead, PanicPoint, ScanBounds, WallClock, WorkerCounters,
};
use crate::types::{DecodeError, EncodeError, EncodedValue, Value};

pub(super) fn open() -> (Database, Table<u64, u64>) {
    let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
    let table = block_on(db.create_table("records")).unwrap();
    (db, table)
}

/// Number of tasks that workers have completed, which includes requests.
fn tasks(db: &Database) -> u64 {
    db.stats().workers.iter().map(|worker| worker.finished).sum()
}

/// Number of reads on callers' threads, the failed ones included.
fn guest_reads(db: &Database) -> u64 {
    let engine = &db.shared.engine;
    let places = engine.counters[engine.workers()..].iter();
    let ended = |place: &WorkerCounters| {
        place.committed_read_only.get() + place.aborted.iter().map(|cause| cause.get()).sum::<u64>()
    };
    places.map(|place| ended(place)).sum()
}

/// Runs one read, and returns whether it used a worker.
fn uses_worker(db: &Database, read: impl FnOnce()) -> bool {
    let before = guest_reads(db);
    read();
    guest_reads(db) == before
}

#[test]
fn a_read_that_needs_no_wait_uses_no_worker() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        block_on(db.put(&table, &1, &10)).unwrap();
        let (before, tasks_before) = (db.stats(), tasks(&db));
        for _ in 0..1000 {
            assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(10));
            assert_eq!(block_on(db.get(&table, &2)).unwrap(), None);
            assert!(block_on(db.contains(&table, &1)).unwrap());
            assert!(!block_on(db.contains(&table, &2)).unwrap());
        }
        // A worker counts the tasks of earlier requests after its replies.
        assert!(tasks(&db) <= tasks_before + 2);
        assert_eq!(guest_reads(&db), 4000);
        let after = db.stats();
        assert!(after.committed_read_only >= before.committed_read_only + 4000);
        assert!(after.committed >= before.committed + 4000);
        assert_eq!(after.aborted, before.aborted);
    });
}

#[test]
fn a_worker_reads_what_is_not_decided_or_deleted() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        for key in 1..=3 {
            block_on(db.put(&table, &key, &10)).unwrap();
        }
        let writer = block_on(db.begin()).unwrap();
        block_on(writer.put(&table, &1, &11)).unwrap();
        block_on(writer.put(&table, &4, &40)).unwrap();
        assert!(uses_worker(&db, || assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(10))));
        assert!(uses_worker(&db, || assert_eq!(block_on(db.get(&table, &4)).unwrap(), None)));
        assert!(!uses_worker(&db, || assert_eq!(block_on(db.get(&table, &2)).unwrap(), Some(10))));
        // The old snapshot keeps the tombstone.
        assert!(block_on(db.delete(&table, &3)).unwrap());
        assert!(uses_worker(&db, || assert_eq!(block_on(db.get(&table, &3)).unwrap(), None)));
        block_on(writer.commit()).unwrap();
        assert!(!uses_worker(&db, || assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(11))));
    });
}

/// A task that only reads must not keep other tasks of its executor waiting.
#[test]
fn a_read_at_times_returns_to_the_executor_first() {
    struct Count(AtomicU64);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        block_on(db.put(&table, &1, &10)).unwrap();
        let (woken, mut paused) = (Arc::new(Count(AtomicU64::new(0))), 0);
        let waker = Waker::from(woken.clone());
        for _ in 0..1000 {
            let mut read = pin!(db.get(&table, &1));
            while read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                paused += 1;
            }
        }
        assert_eq!(woken.0.load(Ordering::SeqCst), paused);
        assert!((5..20).contains(&paused), "{paused}");
        assert_eq!(guest_reads(&db), 1000);
    });
}

#[test]
fn a_short_scan_uses_no_worker() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        for key in 0..100 {
            block_on(db.put(&table, &key, &(10 * key))).unwrap();
        }
        let records = |keys: std::ops::Range<u64>| keys.map(|key| (key, 10 * key));
        let first = || assert_eq!(block_on(db.first(&table)).unwrap(), Some((0, 0)));
        let last = || assert_eq!(block_on(db.last(&table)).unwrap(), Some((99, 990)));
        let range = |keys: std::ops::Range<u64>| {
            let expected: Vec<_> = records(keys.clone()).collect();
            assert_eq!(block_on(async { db.scan(&table, keys).await }).unwrap(), expected);
        };
        let reverse = || {
            let scan = block_on(async { db.scan(&table, 10..).rev().limit(64).await });
            assert!(scan.unwrap().into_iter().eq(records(36..100).rev()));
        };
        let limited = || {
            let scan = block_on(async { db.scan(&table, 10..).limit(3).await });
            assert!(scan.unwrap().into_iter().eq(records(10..13)));
        };
        for _ in 0..2 * MAX_GUESTS {
            assert!(!uses_worker(&db, first) && !uses_worker(&db, last));
            assert!(!uses_worker(&db, reverse) && !uses_worker(&db, limited));
            for end in [5, 6, 10, 69] {
                assert!(!uses_worker(&db, || range(5..end)), "to {end}");
            }
        }
        assert!(uses_worker(&db, || range(5..70)), "one record more");
        let writer = block_on(db.begin()).unwrap();
        block_on(writer.put(&table, &7, &0)).unwrap();
        assert!(uses_worker(&db, || range(5..10)), "a record is undecided");
        assert!(!uses_worker(&db, || range(8..10)));
        block_on(writer.abort()).unwrap();
        assert!(!uses_worker(&db, || range(5..10)));
    });
}

/// A scan is as of the admission of its guest. A worker reads a range with a later commit.
#[test]
fn a_guest_scans_one_snapshot() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        for key in 0..4 {
            block_on(db.put(&table, &key, &10)).unwrap();
        }
        let all = ScanBounds { low: Bound::Unbounded, high: Bound::Unbounded };
        let scanned = |guest: &Guest<'_>| {
            let found = guest.scan(&table.core, &all, Direction::Forward, 10);
            found.map(|found| found.len())
        };
        let guest = db.shared.engine.admit_guest().unwrap();
        assert_eq!(scanned(&guest), Some(4));
        block_on(db.put(&table, &4, &10)).unwrap();
        assert_eq!(scanned(&guest), None, "a later record");
        drop(guest);
        let guest = db.shared.engine.admit_guest().unwrap();
        assert_eq!(scanned(&guest), Some(5));
        block_on(db.delete(&table, &2)).unwrap();
        // The horizon keeps the tombstone and its entry.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(scanned(&guest), None, "a later deletion");
        drop(guest);
        while scanned(&db.shared.engine.admit_guest().unwrap()) != Some(4) {
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_worker_reports_errors() {
    with_limit(PART_SECONDS, |_| {
        let ((db, table), (other, _)) = (open(), open());
        block_on(db.put(&table, &1, &10)).unwrap();
        let foreign = block_on(other.get(&table, &1));
        assert!(matches!(foreign, Err(Error::Misuse(Misuse::ForeignTable(_)))), "{foreign:?}");
        block_on(db.drop_table("records")).unwrap();
        assert!(matches!(block_on(db.get(&table, &1)), Err(Error::TableNotFound(_))));
        db.close().unwrap();
        assert!(matches!(block_on(db.get(&table, &1)), Err(Error::Closed)));
    });
}

#[test]
fn a_worker_reads_if_every_place_is_taken() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        block_on(db.put(&table, &1, &10)).unwrap();
        let read = || assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(10));
        let engine = &db.shared.engine;
        let mut guests: Vec<_> = (0..MAX_GUESTS).map(|_| engine.admit_guest().unwrap()).collect();
        assert!(engine.admit_guest().is_none());
        assert!(uses_worker(&db, read));
        guests.pop();
        assert!(!uses_worker(&db, read));
        drop(guests);
        db.close().unwrap();
    });
}

#[test]
fn a_closure_reads_through_its_worker() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        block_on(db.put(&table, &1, &10)).unwrap();
        let inner = db.clone();
        let read = db.run_blocking(async move |_| {
            assert!(inner.shared.engine.admit_guest().is_none(), "a worker is no guest");
            inner.get(&table, &1).await
        });
        assert_eq!(read.unwrap(), Some(10));
        assert_eq!(guest_reads(&db), 0);
    });
}

/// A version that a guest reads is superseded many times.
#[test]
fn what_a_guest_reads_is_not_freed() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        block_on(db.put(&table, &1, &10)).unwrap();
        let freed = || db.stats().versions_freed;
        let guest = db.shared.engine.admit_guest().unwrap();
        let GuestRead::Found(value) = guest.get(&table.core, &1_u64.to_be_bytes()) else {
            panic!("it is resident and decided")
        };
        let before = freed();
        for value in 0..200 {
            block_on(db.put(&table, &1, &value)).unwrap();
        }
        assert_eq!(freed(), before, "the guest holds the horizon back");
        assert_eq!(<u64 as Value>::decode(value).unwrap(), 10);
        drop(guest);
        while freed() < before + 200 {
            std::thread::yield_now();
        }
    });
}

/// A guest polls a record that a thread overwrites. The log must be durable past each value that it
/// finds.
#[test]
fn a_guest_finds_only_what_is_durable() {
    const WRITES: u64 = 50;
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = Database::open(directory.path(), Options::default().workers(2)).unwrap().watched();
        let table: Table<u64, u64> = block_on(db.create_table("records")).unwrap();
        let (writing, records) = (db.clone(), table.clone());
        let writer = std::thread::spawn(move || {
            let put = |value| {
                let table = records.clone();
                let put = async move |tx: &Transaction| tx.put(&table, &1, &value).await;
                writing.transaction().run_blocking(put).unwrap().commit_lsn
            };
            (0..WRITES).map(put).collect::<Vec<_>>()
        });
        let (engine, key) = (&db.shared.engine, 1_u64.to_be_bytes());
        let (mut found, mut later) = (Vec::new(), 0);
        while !writer.is_finished() {
            let guest = engine.admit_guest().unwrap();
            match guest.get(&table.core, &key) {
                GuestRead::Found(value) => {
                    found.push((<u64 as Value>::decode(value).unwrap(), engine.log.durable().0));
                }
                GuestRead::Absent => assert!(found.is_empty()),
                GuestRead::Later => later += 1,
            }
        }
        let committed = writer.join().unwrap();
        assert!(later > 0, "no commit was in flight");
        for (value, durable) in found {
            let at = committed[value as usize];
            assert!(at < durable, "{value} was committed at {at}, and durable was {durable}");
        }
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(WRITES - 1));
        db.close().unwrap();
    });
}

#[test]
fn an_expired_record_is_absent_for_guests() {
    with_limit(PART_SECONDS, |_| {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let shown = now.clone();
        let clock = WallClock::new(move || {
            UNIX_EPOCH + Duration::from_millis(shown.load(Ordering::SeqCst))
        });
        let options = Options::default().workers(1).tuning(Tuning::default().wall_clock(clock));
        let db = Database::in_memory(options).unwrap().watched();
        let kind = TableOptions::default().ttl(Duration::from_secs(3600));
        let table: Table<u64, u64> = block_on(db.create_table_with("records", kind)).unwrap();
        block_on(db.put(&table, &1, &10)).unwrap();
        assert!(!uses_worker(&db, || assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(10))));
        now.fetch_add(3_600_000, Ordering::SeqCst);
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), None);
        assert!(!block_on(db.contains(&table, &1)).unwrap());
        block_on(db.put(&table, &2, &20)).unwrap();
        assert_eq!(block_on(db.first(&table)).unwrap(), Some((2, 20)));
    });
}

/// A value whose decoding panics if it is 0, fails if it is 1, and waits for a worker if it is
/// [`WAITS`].
struct Delicate;

const WAITS: u64 = u64::MAX;

/// The database that a decoding waits for.
static WAITED_FOR: std::sync::Mutex<Option<Database>> = std::sync::Mutex::new(None);

impl Value for Delicate {
    type Input = u64;
    type Ref<'a> = u64;
    type Owned = u64;
    fn type_name() -> String {
        "delicate".into()
    }
    fn encode(input: &u64) -> Result<EncodedValue<'_>, EncodeError> {
        <u64 as Value>::encode(input)
    }
    fn decode(bytes: &[u8]) -> Result<u64, DecodeError> {
        match <u64 as Value>::decode(bytes)? {
            0 => panic!("a decoding"),
            1 => <u64 as Value>::decode(&[]),
            WAITS => {
                let db = WAITED_FOR.lock().unwrap();
                let dropped = block_on(db.as_ref().unwrap().drop_table("other"));
                assert!(matches!(dropped, Err(Error::Misuse(Misuse::WouldBlock))), "{dropped:?}");
                Ok(WAITS)
            }
            value => Ok(value),
        }
    }
    fn into_owned(read: u64) -> u64 {
        read
    }
}

/// To drop a table, a worker waits until all guests have ended.
#[test]
fn a_decoding_that_waits_for_a_worker_is_refused() {
    with_limit(PART_SECONDS, |_| {
        let (db, other) = open();
        drop(other);
        block_on(db.rename_table("records", "other")).unwrap();
        let table: Table<u64, Delicate> = block_on(db.create_table("waiting")).unwrap();
        block_on(db.put(&table, &1, &WAITS)).unwrap();
        *WAITED_FOR.lock().unwrap() = Some(db.clone());
        let read = || assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(WAITS));
        assert!(!uses_worker(&db, read));
        *WAITED_FOR.lock().unwrap() = None;
        block_on(db.drop_table("other")).unwrap();
        db.close().unwrap();
    });
}

#[test]
fn failures_in_the_callers_code_free_the_place() {
    with_limit(PART_SECONDS, |_| {
        let db = Database::in_memory(Options::default().workers(1)).unwrap().watched();
        let table: Table<u64, Delicate> = block_on(db.create_table("records")).unwrap();
        for value in 0..3 {
            block_on(db.put(&table, &value, &value)).unwrap();
        }
        let before = db.stats().aborted;
        for _ in 0..2 * MAX_GUESTS {
            match block_on(db.get(&table, &0)) {
                Err(Error::Panicked(message)) => assert_eq!(message, "a decoding"),
                other => panic!("{other:?}"),
            }
            assert!(block_on(db.get(&table, &1)).is_err());
            assert!(matches!(block_on(db.first(&table)), Err(Error::Panicked(_))));
            assert_eq!(block_on(db.get(&table, &2)).unwrap(), Some(2));
        }
        assert_eq!(guest_reads(&db), 4 * 2 * MAX_GUESTS as u64);
        let after = db.stats().aborted;
        assert_eq!(after.panic, before.panic + 4 * MAX_GUESTS as u64);
        assert_eq!(after.requested, before.requested + 2 * MAX_GUESTS as u64);
        db.close().unwrap();
    });
}

#[test]
fn the_engine_fails_if_it_panics_in_a_guest() {
    for point in [PanicPoint::Read, PanicPoint::Scan] {
        with_limit(PART_SECONDS, move |_| {
            let (db, table) = open();
            block_on(db.put(&table, &1, &10)).unwrap();
            let transaction = block_on(db.begin()).unwrap();
            db.shared.engine.planted_panic.plant(point);
            let is_failed = |result: Result<(), Error>| match result {
                Err(Error::Failed { message }) => {
                    assert_eq!(message, format!("planted in {point:?}"));
                }
                other => panic!("{other:?}"),
            };
            match point {
                PanicPoint::Read => is_failed(block_on(db.get(&table, &1)).map(drop)),
                _ => is_failed(block_on(db.first(&table)).map(drop)),
            }
            is_failed(block_on(db.get(&table, &1)).map(drop));
            is_failed(block_on(transaction.commit()).map(drop));
            is_failed(db.close());
        });
    }
}
