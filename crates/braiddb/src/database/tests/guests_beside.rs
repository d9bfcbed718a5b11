//! Guests together with all other parts of a program and of the engine: threads that stop or end, other
//! databases, code of the caller that writes or panics, upkeep, feeds, snapshots, and changes of tables
//! and indexes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use pollster::block_on;

use super::super::{
    ChangesFrom, Database, Error, Index, IndexKeys, IndexOptions, Misuse, Options, Result, Table,
    Transaction, Tuning,
};
use super::guest_writes::{Records, guest_writes, open_relaxed, uses_worker};
use super::guests::open;
use crate::common::{PART_SECONDS, Watched, once_free, with_limit};
use crate::reclaim::MAX_GUESTS;
use crate::transaction::Durability;
use crate::types::{DecodeError, EncodeError, EncodedValue, Value};

/// Number of threads that write.
const WRITERS: u64 = 3;

async fn create_index(db: &Database, table: &Records) -> Result<Index<u64, u64, u64>> {
    let keys_of = |value: u64, keys: &mut IndexKeys<'_, u64>| keys.push(&value);
    db.index(table, "by value", IndexOptions::default(), keys_of).await
}

/// A thread may stop at any step of its operation. That delays only tasks that wait until all
/// transactions have ended.
#[test]
fn a_guest_that_stops_delays_only_tasks_that_wait_for_all() {
    const ROUNDS: u64 = 30;
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open_relaxed(directory.path(), 2);
        let table: Records = block_on(db.create_table("records")).unwrap();
        let _: Records = block_on(db.create_table("other")).unwrap();
        block_on(db.put(&table, &1, &1)).unwrap();
        let mut feed = db.changes(ChangesFrom::Now).tables([&table]);
        let guest = db.shared.engine.admit_guest().unwrap();
        thread::scope(|scope| {
            let index = scope.spawn(|| block_on(create_index(&db, &table)));
            let drop_table = scope.spawn(|| block_on(db.drop_table("other")));
            for round in 0..ROUNDS {
                block_on(db.put(&table, &2, &round)).unwrap();
                let records = table.clone();
                let put = async move |tx: &Transaction| tx.put(&records, &3, &round).await;
                let (_, ticket) = block_on(db.transaction().run_visible(put)).unwrap();
                block_on(ticket.durable()).unwrap();
                let snapshot = block_on(db.snapshot()).unwrap();
                assert_eq!(block_on(snapshot.get(&table, &3)).unwrap(), Some(round));
                for key in [2, 3] {
                    let change = block_on(feed.next()).unwrap().unwrap().changes.remove(0);
                    let written = (change.key_as::<u64>(), change.value_as::<u64>());
                    assert_eq!((written.0.unwrap(), written.1.unwrap()), (key, round));
                }
                once_free(|| block_on(db.checkpoint())).unwrap();
            }
            assert!(!index.is_finished() && !drop_table.is_finished(), "they wait for the guest");
            drop(guest);
            index.join().unwrap().unwrap();
            drop_table.join().unwrap().unwrap();
        });
        assert_eq!(once_free(|| db.check()).unwrap().problems, [""; 0]);
        db.close().unwrap();
    });
}

/// Writes and closes a database when its thread ends, and reports whether a guest wrote.
struct WritesLast(Database, Records, Sender<bool>);

impl Drop for WritesLast {
    fn drop(&mut self) {
        let Self(db, table, by_guest) = self;
        let uses_worker = uses_worker(db, || {
            super::super::block_on(db.put(table, &1, &10)).unwrap();
            assert_eq!(super::super::block_on(db.get(table, &1)).unwrap(), Some(10));
        });
        db.close().unwrap();
        by_guest.send(!uses_worker).unwrap();
    }
}

#[test]
fn a_destructor_of_a_thread_that_ends_writes_as_a_guest() {
    thread_local! {
        static LAST: RefCell<Option<WritesLast>> = const { RefCell::new(None) };
    }
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        let (by_guest, is_by_guest) = channel();
        let last = WritesLast(db.clone(), table.clone(), by_guest);
        thread::spawn(move || LAST.set(Some(last))).join().unwrap();
        assert!(is_by_guest.recv().unwrap());
        assert!(matches!(block_on(db.put(&table, &1, &1)), Err(Error::Closed)));
    });
}

#[test]
fn a_worker_of_one_database_is_no_guest_of_another() {
    with_limit(PART_SECONDS, |_| {
        let ((db, table), (other, others)) = (open(), open());
        let (inner, records, own) = (other.clone(), others.clone(), table.clone());
        let write = async move |tx: &Transaction| {
            tx.put(&own, &1, &1).await?;
            inner.put(&records, &1, &10).await?;
            inner.get(&records, &1).await
        };
        assert!(uses_worker(&other, || assert_eq!(db.run_blocking(write).unwrap(), Some(10))));
        // A thread with an open transaction, of which it writes other records.
        let open = block_on(db.begin()).unwrap();
        block_on(open.put(&table, &2, &2)).unwrap();
        assert!(!uses_worker(&db, || block_on(db.put(&table, &3, &3)).unwrap()));
        assert!(!uses_worker(&other, || block_on(other.put(&others, &2, &20)).unwrap()));
        block_on(open.commit()).unwrap();
        assert_eq!(block_on(db.len(&table)).unwrap(), 3);
        db.close().unwrap();
        assert!(!uses_worker(&other, || block_on(other.put(&others, &3, &30)).unwrap()));
    });
}

#[test]
fn a_read_only_database_has_no_guests_that_write() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open_relaxed(directory.path(), 1);
        let table: Records = block_on(db.create_table("records")).unwrap();
        block_on(db.put(&table, &1, &10)).unwrap();
        db.close().unwrap();
        let options = Options::default().durability(Durability::Relaxed).read_only(true);
        let db = Database::open(directory.path(), options).unwrap().watched();
        assert!(!db.shared.guests.are_admitted());
        let table: Records = block_on(db.open_table("records")).unwrap();
        let refused = block_on(db.put(&table, &1, &11));
        assert!(matches!(refused, Err(Error::Misuse(Misuse::ReadOnlyDatabase))), "{refused:?}");
        assert!(block_on(db.delete(&table, &1)).is_err());
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(10));
    });
}

/// A value whose decoding overwrites the record many times.
struct Overwriting;

static OVERWRITTEN: Mutex<Option<(Database, Table<u64, Overwriting>)>> = Mutex::new(None);

impl Value for Overwriting {
    type Input = u64;
    type Ref<'a> = u64;
    type Owned = u64;
    fn type_name() -> String {
        "overwriting".into()
    }
    fn encode(input: &u64) -> Result<EncodedValue<'_>, EncodeError> {
        <u64 as Value>::encode(input)
    }
    fn decode(bytes: &[u8]) -> Result<u64, DecodeError> {
        let overwritten = OVERWRITTEN.lock().unwrap();
        let (db, table) = overwritten.as_ref().unwrap();
        let before = guest_writes(db);
        for value in 100..400 {
            match block_on(db.put(table, &1, &value)) {
                // A worker would have to write while it adopts garbage.
                Ok(()) | Err(Error::Misuse(Misuse::WouldBlock)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(guest_writes(db) > before, "a guest that reads writes as another one");
        <u64 as Value>::decode(bytes)
    }
    fn into_owned(read: u64) -> u64 {
        read
    }
}

#[test]
fn a_decoding_overwrites_its_record() {
    with_limit(PART_SECONDS, |_| {
        let (db, _) = open();
        let table = block_on(db.create_table("overwritten")).unwrap();
        block_on(db.put(&table, &1, &7)).unwrap();
        *OVERWRITTEN.lock().unwrap() = Some((db.clone(), table.clone()));
        assert_eq!(block_on(db.get(&table, &1)).unwrap(), Some(7));
        assert!((100..400).contains(&block_on(db.get(&table, &1)).unwrap().unwrap()));
        *OVERWRITTEN.lock().unwrap() = None;
        db.close().unwrap();
    });
}

/// At times an operation wakes its task before it begins.
#[test]
fn a_waker_that_panics_leaves_no_guest() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker");
        }
    }
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        let waker = Waker::from(Arc::new(Panics));
        let (mut written, mut panicked) = (0, 0);
        for key in 0..600_u64 {
            let mut put = Box::pin(db.put(&table, &key, &1));
            let polled = catch_unwind(AssertUnwindSafe(|| {
                put.as_mut().poll(&mut Context::from_waker(&waker))
            }));
            match polled {
                Ok(Poll::Ready(done)) => done.map(|()| written += 1).unwrap(),
                // A worker writes while it adopts garbage. It contains the panic.
                Ok(Poll::Pending) => {}
                Err(_) => {
                    panicked += 1;
                    assert_eq!(block_on(db.get(&table, &key)).unwrap(), None);
                }
            }
        }
        assert!(panicked >= 4 && written > 0, "{panicked}, {written}");
        let engine = &db.shared.engine;
        let guests: Vec<_> = (0..MAX_GUESTS).map(|_| engine.admit_guest()).collect();
        assert!(guests.iter().all(Option::is_some), "each place is free");
        drop(guests);
        db.close().unwrap();
    });
}

/// A pair of records of each writer, of which the first one is always written first.
struct Pairs(Table<u64, [u8]>);

impl Pairs {
    fn write(&self, db: &Database, writer: u64, number: u64) {
        let mut value = [9; 700];
        value[..8].copy_from_slice(&number.to_le_bytes());
        for key in [2 * writer, 2 * writer + 1] {
            block_on(db.put(&self.0, &key, &value)).unwrap();
        }
    }

    fn number(value: Option<&[u8]>) -> u64 {
        value.map_or(0, |value| u64::from_le_bytes(value[..8].try_into().unwrap()))
    }

    /// Checks the pairs of one snapshot, which reads the same twice.
    fn check(&self, db: &Database) {
        let snapshot = block_on(db.snapshot()).unwrap();
        let read = || {
            (0..2 * WRITERS).map(|key| {
                let found = block_on(snapshot.get(&self.0, &key)).unwrap();
                Self::number(found.as_deref())
            })
        };
        let numbers: Vec<_> = read().collect();
        for pair in numbers.chunks(2) {
            assert!(pair[0] == pair[1] || pair[0] == pair[1] + 1, "{numbers:?}");
        }
        assert!(read().eq(numbers), "of one snapshot");
    }
}

#[test]
fn feeds_and_snapshots_see_writes_of_guests_once_and_in_order() {
    const WRITES: u64 = 1500;
    with_limit(PART_SECONDS, |_| {
        let (directory, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tuning = Tuning::default().log_segment_bytes(256 << 10).checkpoint_bytes(512 << 10);
        let options = Options::default().workers(2).durability(Durability::Relaxed).tuning(tuning);
        let db = Database::open(directory.path(), options.clone()).unwrap().watched();
        let pairs = Pairs(block_on(db.create_table("records")).unwrap());
        let mut feed = db.changes(ChangesFrom::Now).tables([&pairs.0]);
        thread::scope(|scope| {
            let (db, pairs) = (&db, &pairs);
            let write = |writer| move || (1..=WRITES).for_each(|n| pairs.write(db, writer, n));
            let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(write(writer))).collect();
            let followed = scope.spawn(move || {
                let (mut last, mut position) = ([0; 2 * WRITERS as usize], 0);
                for _ in 0..2 * WRITERS * WRITES {
                    let mut transaction = block_on(feed.next()).unwrap().unwrap();
                    assert!(std::mem::replace(&mut position, transaction.commit_lsn) < position);
                    let change = transaction.changes.pop().unwrap();
                    assert!(transaction.changes.is_empty(), "each is a transaction");
                    let key = change.key_as::<u64>().unwrap() as usize;
                    last[key] += 1;
                    assert_eq!(Pairs::number(Some(&change.value)), last[key], "of {key}");
                    assert!(last[key & !1] >= last[key], "{key} before the other one");
                }
                last
            });
            let mut backup = None;
            while !writers.iter().all(|writer| writer.is_finished()) {
                pairs.check(db);
                once_free(|| block_on(db.checkpoint())).unwrap();
                pairs.check(db);
                once_free(|| block_on(db.compact())).unwrap();
                backup.get_or_insert_with(|| once_free(|| db.backup(copy.path())).unwrap());
            }
            assert!(followed.join().unwrap().iter().all(|last| *last == WRITES));
        });
        assert!(guest_writes(&db) > WRITES, "{}", guest_writes(&db));
        assert_eq!(once_free(|| db.check()).unwrap().problems, [""; 0]);
        db.close().unwrap();
        let restored = Database::open(copy.path(), options).unwrap().watched();
        Pairs(block_on(restored.open_table("records")).unwrap()).check(&restored);
        assert_eq!(once_free(|| restored.check()).unwrap().problems, [""; 0]);
    });
}

/// Threads that write until they are stopped.
struct Writers {
    table: Records,
    inserted_into: Records,
    rounds: [AtomicU64; WRITERS as usize],
    stops: AtomicBool,
}

impl Writers {
    /// Returns the number of inserted records.
    fn run(&self, db: &Database, writer: u64) -> u64 {
        let rounds = &self.rounds[writer as usize];
        let mut random = fastrand::Rng::with_seed(writer);
        while !self.stops.load(Ordering::SeqCst) {
            let round = rounds.load(Ordering::SeqCst);
            let (key, value) = (random.u64(..20), random.u64(..100));
            let written = match random.u8(..4) {
                0 => block_on(db.delete(&self.table, &key)).map(drop),
                _ => block_on(db.put(&self.table, &key, &value)),
            };
            assert!(matches!(written, Ok(()) | Err(Error::Conflict { .. })), "{written:?}");
            block_on(db.insert(&self.inserted_into, &(writer << 32 | round), &round)).unwrap();
            rounds.store(round + 1, Ordering::SeqCst);
        }
        rounds.load(Ordering::SeqCst)
    }

    /// Waits until each has made some more rounds.
    fn go_on(&self) {
        let counts = self.rounds.each_ref().map(|count| count.load(Ordering::SeqCst));
        let is_behind = |(now, then): (&AtomicU64, u64)| now.load(Ordering::SeqCst) < then + 20;
        while self.rounds.iter().zip(counts).any(is_behind) {
            thread::yield_now();
        }
    }
}

/// Creates a table, and drops it while threads write to it.
fn drop_beside_writers(db: &Database, name: &str) {
    let table: Records = block_on(db.create_table(name)).unwrap();
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        let writers = [1, 2].map(|writer| {
            let (table, written) = (&table, &written);
            scope.spawn(move || {
                for round in 0.. {
                    match block_on(db.put(table, &(writer * (round % 50)), &round)) {
                        Ok(()) => _ = written.fetch_add(1, Ordering::SeqCst),
                        Err(error) => return error,
                    }
                }
                unreachable!("the table is dropped")
            })
        });
        while written.load(Ordering::SeqCst) < 100 {
            thread::yield_now();
        }
        block_on(db.drop_table(name)).unwrap();
        for writer in writers {
            let told = writer.join().unwrap();
            assert!(matches!(told, Error::TableNotFound(_)), "{told:?}");
        }
    });
}

#[test]
fn tables_and_indexes_change_beside_guests() {
    const ROUNDS: usize = 2;
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open_relaxed(directory.path(), 2);
        let [table, inserted_into] =
            ["records", "inserted"].map(|name| block_on(db.create_table(name)).unwrap());
        let (rounds, stops) = Default::default();
        let writers = Writers { table, inserted_into, rounds, stops };
        let Writers { table, inserted_into, .. } = &writers;
        let mut cleared = 0;
        let inserted: u64 = thread::scope(|scope| {
            let (db, writers) = (&db, &writers);
            let run = |writer| scope.spawn(move || writers.run(db, writer));
            let threads: Vec<_> = (0..WRITERS).map(run).collect();
            for round in 0..ROUNDS {
                let index = block_on(create_index(db, table)).unwrap();
                writers.go_on();
                let records = table.clone();
                let reader = db.transaction().read_only(true);
                let compared = reader.run_blocking(async move |tx| {
                    let (mut scan, mut expected) = (tx.scan(&records, ..)?, BTreeSet::new());
                    while let Some((key, value)) = scan.next().await? {
                        expected.insert((value, key));
                    }
                    let (mut scan, mut found) = (tx.entries_by(&index, ..)?, BTreeSet::new());
                    while let Some(entry) = scan.next().await? {
                        found.insert(entry);
                    }
                    Ok((found, expected))
                });
                let (found, expected) = compared.unwrap().value;
                assert!(found == expected, "round {round}: {found:?}, {expected:?}");
                block_on(db.drop_index(table, "by value")).unwrap();
                writers.go_on();
                cleared += block_on(db.clear(inserted_into)).unwrap();
                drop_beside_writers(db, &format!("round {round}"));
            }
            writers.stops.store(true, Ordering::SeqCst);
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(cleared + block_on(db.len(inserted_into)).unwrap(), inserted);
        assert!(guest_writes(&db) > inserted / 10, "{} of {inserted}", guest_writes(&db));
        assert_eq!(once_free(|| db.check()).unwrap().problems, [""; 0]);
        db.close().unwrap();
        let db = open_relaxed(directory.path(), 2);
        let names: Vec<_> = block_on(db.tables()).unwrap();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(once_free(|| db.check()).unwrap().problems, [""; 0]);
    });
}
