//! Writes on the caller's thread: when they need no worker, and when a worker takes over.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pollster::block_on;

use super::super::{
    Database, Error, IndexKeys, IndexOptions, Misuse, Options, Table, TableOptions, Transaction,
    Tuning,
};
use super::guests::open;
use crate::common::{PART_SECONDS, Watched, with_limit};
use crate::memory::MemoryKind;
use crate::transaction::{Durability, PanicPoint, WorkerCounters};
use crate::types::{DecodeError, EncodeError, EncodedValue, Value};

pub(super) type Records = Table<u64, u64>;

pub(super) fn open_relaxed(directory: &std::path::Path, workers: usize) -> Database {
    let options = Options::default().workers(workers).durability(Durability::Relaxed);
    Database::open(directory, options).unwrap().watched()
}

/// Number of writes that guests have committed.
pub(super) fn guest_writes(db: &Database) -> u64 {
    let engine = &db.shared.engine;
    let places = engine.counters[engine.workers()..].iter();
    let written = |place: &WorkerCounters| place.committed.get() - place.committed_read_only.get();
    places.map(|place| written(place)).sum()
}

/// Runs one write, and returns whether a worker made it.
pub(super) fn uses_worker(db: &Database, write: impl FnOnce()) -> bool {
    let before = guest_writes(db);
    write();
    guest_writes(db) == before
}

#[test]
fn a_write_that_needs_no_wait_uses_no_worker() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    with_limit(PART_SECONDS, move |_| {
        let relaxed = open_relaxed(&path, 1);
        let table = block_on(relaxed.create_table("records")).unwrap();
        for (db, table) in [open(), (relaxed, table)] {
            let before = db.stats();
            for key in 0..500_u64 {
                block_on(db.insert(&table, &key, &1)).unwrap();
                block_on(db.put(&table, &key, &2)).unwrap();
                block_on(db.update(&table, &key, &3)).unwrap();
                assert_eq!(block_on(db.get(&table, &key)).unwrap(), Some(3));
                if key % 2 == 0 {
                    assert!(block_on(db.delete(&table, &key)).unwrap());
                    assert_eq!(block_on(db.get(&table, &key)).unwrap(), None);
                }
            }
            // A worker writes while it adopts garbage from the place of the guest.
            assert!((1600..=1750).contains(&guest_writes(&db)), "{}", guest_writes(&db));
            assert_eq!(block_on(db.len(&table)).unwrap(), 250);
            let after = db.stats();
            assert!(after.committed >= before.committed + 1750);
            assert_eq!(after.aborted, before.aborted);
            db.close().unwrap();
            assert!(matches!(block_on(db.put(&table, &1, &1)), Err(Error::Closed)));
        }
    });
}

#[test]
fn a_worker_writes_where_a_conflict_or_an_error_is_met() {
    with_limit(PART_SECONDS, |_| {
        let ((db, table), (other, _)) = (open(), open());
        block_on(db.put(&table, &1, &10)).unwrap();
        assert!(uses_worker(&db, || {
            let found = block_on(db.insert(&table, &1, &11));
            assert!(matches!(found, Err(Error::KeyExists(_))), "{found:?}");
            let missing = block_on(db.update(&table, &2, &20));
            assert!(matches!(missing, Err(Error::KeyNotFound(_))), "{missing:?}");
            assert!(!block_on(db.delete(&table, &2)).unwrap());
            let foreign = block_on(other.put(&table, &1, &11));
            assert!(matches!(foreign, Err(Error::Misuse(Misuse::ForeignTable(_)))), "{foreign:?}");
        }));
        let writer = block_on(db.begin()).unwrap();
        block_on(writer.put(&table, &1, &11)).unwrap();
        block_on(writer.put(&table, &3, &30)).unwrap();
        for key in [1, 3] {
            let mut put = Box::pin(db.put(&table, &key, &12));
            assert!(put.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(guest_writes(&db), 1);
        assert!(!uses_worker(&db, || block_on(db.put(&table, &4, &40)).unwrap()));
        block_on(writer.commit()).unwrap();
        assert_eq!(block_on(db.get(&table, &3)).unwrap(), Some(30));
        assert!(!uses_worker(&db, || block_on(db.put(&table, &1, &13)).unwrap()));
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(13));
        // Attempts of guests are not counted.
        let engine = &db.shared.engine;
        let aborted = engine.counters[engine.workers()..].iter().flat_map(|place| &place.aborted);
        assert_eq!(aborted.map(|count| count.get()).sum::<u64>(), 0);
        block_on(db.drop_table("records")).unwrap();
        assert!(matches!(block_on(db.put(&table, &1, &10)), Err(Error::TableNotFound(_))));
    });
}

/// A guest that reads may use a place in which guests do not write.
#[test]
fn a_thread_that_read_in_another_place_writes_as_a_guest() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        let guests: Vec<_> =
            (0..40).map(|_| db.shared.engine.admit_guest().expect("a place is free")).collect();
        drop(guests);
        assert!(!uses_worker(&db, || block_on(db.put(&table, &1, &1)).unwrap()));
        db.close().unwrap();
    });
}

/// Writes when it is dropped.
struct WritesAtEnd<'a>(&'a Database, &'a Records);

impl Drop for WritesAtEnd<'_> {
    fn drop(&mut self) {
        let Self(db, table) = self;
        assert!(!block_on(db.delete(table, &7)).unwrap());
        assert!(matches!(block_on(db.insert(table, &1, &2)), Err(Error::KeyExists(_))));
        assert!(uses_worker(db, || block_on(db.put(table, &2, &2)).unwrap()));
    }
}

#[test]
fn a_destructor_writes_while_its_thread_unwinds() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        block_on(db.put(&table, &1, &1)).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _writes = WritesAtEnd(&db, &table);
            panic!("of the caller");
        }));
        assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "of the caller");
        assert_eq!(block_on(db.get(&table, &2)).unwrap(), Some(2));
        assert!(!uses_worker(&db, || block_on(db.put(&table, &3, &3)).unwrap()));
        db.close().unwrap();
    });
}

#[test]
fn a_worker_writes_to_other_tables_and_with_group_durability() {
    with_limit(PART_SECONDS, |_| {
        let (db, plain) = open();
        let paged = TableOptions::default().paged();
        let expiring = TableOptions::default().ttl(Duration::from_secs(3600));
        for (name, kind) in [("paged", paged), ("expiring", expiring)] {
            let table: Records = block_on(db.create_table_with(name, kind)).unwrap();
            assert!(uses_worker(&db, || block_on(db.put(&table, &1, &10)).unwrap()), "{name}");
        }
        let keys_of = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
        block_on(db.index(&plain, "by value", IndexOptions::default(), keys_of)).unwrap();
        assert!(uses_worker(&db, || block_on(db.put(&plain, &1, &10)).unwrap()));

        let directory = tempfile::tempdir().unwrap();
        let options = Options::default().workers(1);
        let durable = Database::open(directory.path(), options).unwrap().watched();
        let table: Records = block_on(durable.create_table("records")).unwrap();
        assert!(uses_worker(&durable, || block_on(durable.put(&table, &1, &10)).unwrap()));
    });
}

#[test]
fn a_closure_writes_through_its_worker() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        let (inner, records) = (db.clone(), table.clone());
        assert!(uses_worker(&db, || {
            db.run_blocking(async move |_| inner.put(&records, &1, &10).await).unwrap();
        }));
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(10));
    });
}

/// Futures are dropped after each number of polls. The write is made completely or not at all.
#[test]
fn a_dropped_write_is_complete_or_has_no_effect() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        let mut context = Context::from_waker(Waker::noop());
        let mut written = 0;
        for key in 0..400_u64 {
            for polls in 0..3 {
                let mut put = Box::pin(db.put(&table, &key, &polls));
                let ready = (0..polls).any(|_| put.as_mut().poll(&mut context).is_ready());
                drop(put);
                let found = block_on(db.get(&table, &key)).unwrap();
                if ready {
                    written += 1;
                    assert_eq!(found, Some(polls));
                } else {
                    assert_ne!(found, Some(polls));
                }
            }
        }
        assert!(written > 700, "{written}");
        assert!(guest_writes(&db) > 600, "{}", guest_writes(&db));
    });
}

/// A value whose encoding panics if it is 0, and fails if it is 1.
struct Delicate;

impl Value for Delicate {
    type Input = u64;
    type Ref<'a> = u64;
    type Owned = u64;
    fn type_name() -> String {
        "delicate".into()
    }
    fn encode(input: &u64) -> Result<EncodedValue<'_>, EncodeError> {
        match input {
            0 => panic!("an encoding"),
            1 => Err(EncodeError::new("an encoding")),
            _ => <u64 as Value>::encode(input),
        }
    }
    fn decode(bytes: &[u8]) -> Result<u64, DecodeError> {
        <u64 as Value>::decode(bytes)
    }
    fn into_owned(read: u64) -> u64 {
        read
    }
}

#[test]
fn an_encoding_that_fails_changes_nothing() {
    with_limit(PART_SECONDS, |_| {
        let (db, _) = open();
        let table: Table<u64, Delicate> = block_on(db.create_table("delicate")).unwrap();
        for value in 2..100 {
            block_on(db.put(&table, &1, &value)).unwrap();
            let panicked = catch_unwind(AssertUnwindSafe(|| block_on(db.put(&table, &1, &0))));
            assert!(panicked.is_err());
            assert!(block_on(db.insert(&table, &2, &1)).is_err());
            assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(value));
        }
        assert!(guest_writes(&db) > 90, "{}", guest_writes(&db));
        assert_eq!(block_on(db.len(&table)).unwrap(), 1);
        db.close().unwrap();
    });
}

/// The log cannot grow, because the names of its next segments are taken. Writes then fail, and
/// succeed again once it can. All acknowledged records are kept.
#[test]
fn a_log_that_cannot_grow_fails_writes_of_guests() {
    const SEGMENT: u64 = 64 << 10;
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let tuning = Tuning::default().log_segment_bytes(SEGMENT);
            let options = Options::default().workers(2).durability(Durability::Relaxed);
            Database::open(directory.path(), options.tuning(tuning)).unwrap().watched()
        };
        let db = open();
        let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
        let name = |number| directory.path().join(format!("wal-{:016x}.seg.new", number * SEGMENT));
        let taken: Vec<_> = (8..64).map(name).collect();
        taken.iter().for_each(|name| std::fs::create_dir(name).unwrap());
        let mut written = Vec::new();
        let mut refused = 0;
        for key in 0..3000 {
            match block_on(db.insert(&table, &key, &[1; 1000])) {
                Ok(()) => written.push(key),
                Err(Error::Io(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 100 && guest_writes(&db) > 100, "{refused}, {}", written.len());
        taken.iter().for_each(|name| std::fs::remove_dir(name).unwrap());
        for key in 3000..3100 {
            block_on(db.insert(&table, &key, &[1; 1000])).unwrap();
            written.push(key);
        }
        db.close().unwrap();
        drop((db, table));
        let db = open();
        let table: Table<u64, [u8]> = block_on(db.open_table("records")).unwrap();
        assert_eq!(block_on(db.len(&table)).unwrap(), written.len() as u64);
        for key in written {
            assert!(block_on(db.contains(&table, &key)).unwrap(), "{key}");
        }
        db.close().unwrap();
    });
}

#[test]
fn the_engine_fails_if_it_panics_in_a_guest() {
    for point in [PanicPoint::Write, PanicPoint::Commit] {
        with_limit(PART_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let db = open_relaxed(directory.path(), 1);
            let table: Records = block_on(db.create_table("records")).unwrap();
            let log = &db.shared.engine.log;
            while log.durable() < log.tail() {
                thread::yield_now();
            }
            db.shared.engine.planted_panic.plant(point);
            let is_failed = |result: Result<(), Error>| match result {
                Err(Error::Failed { message }) => {
                    assert_eq!(message, format!("planted in {point:?}"));
                }
                other => panic!("{other:?}"),
            };
            is_failed(block_on(db.put(&table, &2, &20)));
            is_failed(block_on(db.put(&table, &3, &30)));
            is_failed(db.close());
            drop((db, table));
            let db = open_relaxed(directory.path(), 1);
            let table: Records = block_on(db.open_table("records")).unwrap();
            assert_eq!(block_on(db.get(&table, &2)).unwrap(), None);
            block_on(db.put(&table, &2, &21)).unwrap();
            db.close().unwrap();
        });
    }
}

/// Workers that sleep adopt what guests supersede and delete, and flush what they log.
#[test]
fn workers_free_and_flush_what_guests_leave() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    with_limit(PART_SECONDS, move |_| {
        let relaxed = open_relaxed(&path, 2);
        let table = block_on(relaxed.create_table("records")).unwrap();
        for (db, table) in [open(), (relaxed, table)] {
            for round in 0..5000 {
                block_on(db.put(&table, &(round % 10), &round)).unwrap();
            }
            let engine = &db.shared.engine;
            while engine.memory.bytes(MemoryKind::Version) > 100 * 100 {
                thread::yield_now();
            }
            for key in 0..10 {
                assert!(block_on(db.delete(&table, &key)).unwrap());
            }
            while db.stats().records_reclaimed < 10 {
                thread::yield_now();
            }
            while engine.log.durable() < engine.log.tail() {
                thread::yield_now();
            }
            assert!(guest_writes(&db) > 4500, "{}", guest_writes(&db));
            db.close().unwrap();
        }
    });
}

/// While a closure blocks the only worker, garbage is bounded: further writes wait for a worker.
#[test]
fn a_guest_that_finds_too_much_garbage_waits_for_a_worker() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        block_on(db.put(&table, &1, &0)).unwrap();
        let ((entered, has_entered), (release, released)) = (channel(), channel());
        let blocking = db.clone();
        let blocked = thread::spawn(move || {
            let released = std::sync::Mutex::new(released);
            let entered = std::sync::Mutex::new(entered);
            blocking.run_blocking(async move |_| {
                entered.lock().unwrap().send(()).unwrap();
                released.lock().unwrap().recv().unwrap();
                Ok(())
            })
        });
        has_entered.recv().unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut value = 0;
        let waiting = loop {
            value += 1;
            assert!(value < 100_000, "garbage has no bound");
            let mut put = Box::pin(db.put(&table, &1, &value));
            // The first poll may only return to the executor.
            if !(0..2).any(|_| put.as_mut().poll(&mut context).is_ready()) {
                break put;
            }
        };
        assert!(value > 10_000, "{value}");
        release.send(()).unwrap();
        block_on(waiting).unwrap();
        blocked.join().unwrap().unwrap();
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(value));
    });
}

const THREADS: u64 = 4;
const KEYS: u64 = 5;

/// Threads that insert and delete shared records. Each also puts records that no other thread writes.
struct Load {
    db: Database,
    table: Table<u64, [u8]>,
    /// Insertions less deletions of each shared record.
    counts: [AtomicI64; KEYS as usize],
    /// Acknowledged records of each thread.
    own: [AtomicU64; THREADS as usize],
    stops: AtomicBool,
}

impl Load {
    /// Runs the threads until the database is closed, or after `enough` records of each.
    fn run(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let thread = |number| {
            let load = self.clone();
            let run = move || {
                let batch = || load.batch(number);
                // Each batch has a separate thread.
                loop {
                    let is_open = thread::scope(|scope| scope.spawn(batch).join().unwrap());
                    if !is_open || load.stops.load(Ordering::SeqCst) {
                        return;
                    }
                }
            };
            thread::spawn(run)
        };
        (0..THREADS).map(thread).collect()
    }

    /// Waits until each thread has put this many records.
    fn wait_for(&self, enough: u64) {
        let is_behind = |own: &AtomicU64| own.load(Ordering::SeqCst) < enough;
        while self.own.iter().any(is_behind) {
            if self.db.shared.engine.durability == Durability::Relaxed {
                match block_on(self.db.checkpoint()) {
                    Ok(_) | Err(Error::Busy(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            thread::yield_now();
        }
    }

    /// Makes some writes of a thread. Returns `false` if the database is closed.
    fn batch(&self, number: u64) -> bool {
        (0..40).all(|step| match self.step(number, step) {
            Ok(()) => true,
            Err(Error::Closed) => false,
            Err(error) => panic!("{error}"),
        })
    }

    fn step(&self, number: u64, step: u64) -> Result<(), Error> {
        let Self { db, table, .. } = self;
        let own = &self.own[number as usize];
        let key = (number + step) % KEYS;
        let count = &self.counts[key as usize];
        let inserted = match step % 8 {
            0 => {
                let table = table.clone();
                let insert = async move |tx: &Transaction| tx.insert(&table, &key, &[0; 50]).await;
                db.run_blocking(insert)
            }
            _ => block_on(db.insert(table, &key, &[0; 50])),
        };
        match inserted {
            Ok(()) => _ = count.fetch_add(1, Ordering::SeqCst),
            Err(Error::KeyExists { .. } | Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        let next = own.load(Ordering::SeqCst);
        block_on(db.put(table, &(1_000_000 * (number + 1) + next), &[7; 900]))?;
        own.store(next + 1, Ordering::SeqCst);
        match block_on(db.delete(table, &key)) {
            Ok(deleted) => _ = count.fetch_sub(deleted.into(), Ordering::SeqCst),
            Err(Error::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The records that must exist: insertions less deletions of each shared record, and whether it
    /// exists.
    fn shared_records(&self, db: &Database, table: &Table<u64, [u8]>) -> Vec<(i64, i64)> {
        let records = self.counts.iter().zip(0_u64..);
        let look = |(count, key): (&AtomicI64, u64)| {
            (count.load(Ordering::SeqCst), block_on(db.contains(table, &key)).unwrap().into())
        };
        records.map(look).collect()
    }
}

/// Many short-lived threads write, and so do transactions of workers, during checkpoints and eviction.
/// Of the successes on one record, insertions and deletions take turns. A concurrent close keeps all
/// acknowledged writes.
#[test]
fn guests_and_workers_write_side_by_side() {
    for durability in [Durability::Volatile, Durability::Relaxed] {
        with_limit(PART_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let options = || Options::default().workers(2);
            let open = || match durability {
                Durability::Volatile => Database::in_memory(options()).unwrap().watched(),
                _ => {
                    let options = options().durability(durability).memory_budget(40 << 20);
                    Database::open(directory.path(), options).unwrap().watched()
                }
            };
            let db = open();
            let table: Table<u64, [u8]> = block_on(db.create_table("records")).unwrap();
            let (counts, own, stops) = Default::default();
            let load = Arc::new(Load { db, table, counts, own, stops });
            let Load { db, table, .. } = &*load;
            let first = load.run();
            load.wait_for(2000);
            load.stops.store(true, Ordering::SeqCst);
            first.into_iter().for_each(|thread| thread.join().unwrap());
            let shared = load.shared_records(db, table);
            assert!(shared.iter().all(|(count, exists)| count == exists), "{shared:?}");
            assert!(guest_writes(db) > 4000, "{}", guest_writes(db));
            load.stops.store(false, Ordering::SeqCst);
            let second = load.run();
            load.wait_for(4000);
            db.close().unwrap();
            second.into_iter().for_each(|thread| thread.join().unwrap());
            if durability == Durability::Volatile {
                return;
            }
            let reopened = open();
            let table: Table<u64, [u8]> = block_on(reopened.open_table("records")).unwrap();
            // The close may have prevented one result of each thread.
            let shared = load.shared_records(&reopened, &table);
            let is_possible =
                |(count, exists): &(i64, i64)| (count - exists).abs() <= THREADS as i64;
            assert!(shared.iter().all(is_possible), "{shared:?}");
            for (own, number) in load.own.iter().zip(1..) {
                for record in 0..own.load(Ordering::SeqCst) {
                    let key = 1_000_000 * number + record;
                    assert!(block_on(reopened.contains(&table, &key)).unwrap(), "{key}");
                }
            }
            reopened.close().unwrap();
        });
    }
}
