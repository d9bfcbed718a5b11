//! The future of a feed's `next` is dropped at each of its polls in turn: no transaction is lost or
//! returned twice.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::common::{Watched, with_limit};
use braiddb::changes::{Change, ChangeTransaction, Changes, ChangesFrom};
use braiddb::{Database, Options, Table, TableOptions, Tuning};
use pollster::block_on;

/// A limit far above the duration of the test.
const LIMIT_SECONDS: u64 = 600;
/// The number of transactions before the feed begins: more than a feed finds at a time.
const TRANSACTIONS: u64 = 24;
const VALUE_BYTES: usize = 1000;
/// The number of records in large transactions, which are logged in parts; together they exceed one
/// piece of a snapshot.
const MANY: u64 = 1200;

type Rows = Table<u64, [u8]>;

/// Records its call and unparks its thread. Each poll has a new waker; a call of an earlier poll's
/// waker has no effect.
struct Woken {
    called: AtomicBool,
    thread: Thread,
}

impl Woken {
    fn new() -> Arc<Self> {
        Arc::new(Self { called: AtomicBool::new(false), thread: std::thread::current() })
    }

    fn wait(&self) {
        // Acquire: pairs with the release of the caller.
        while !self.called.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.called.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The polls at which a future of `next` is dropped.
#[derive(Clone, Copy, Debug)]
enum GivenUp {
    /// At the poll with this number among those without a result, before its waker is called.
    Waiting(usize),
    /// At the poll with this number, after its waker is called.
    Woken(usize),
    /// At each of these polls, after its waker is called.
    Always,
}

/// A feed, its number of polls without a result, and its number of drops.
struct Polled {
    changes: Changes,
    given_up: GivenUp,
    polls: usize,
    times: usize,
}

impl Polled {
    /// Returns the next transaction. Calls `waits` once if the first poll has no result.
    fn next(&mut self, waits: impl FnOnce()) -> ChangeTransaction {
        let mut waits = Some(waits);
        loop {
            let mut next = pin!(self.changes.next());
            loop {
                let woken = Woken::new();
                let waker = Waker::from(woken.clone());
                if let Poll::Ready(next) = next.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return next.unwrap().expect("a feed ends with an error");
                }
                self.polls += 1;
                if matches!(self.given_up, GivenUp::Waiting(at) if at == self.polls) {
                    self.times += 1;
                    break;
                }
                if let Some(waits) = waits.take() {
                    waits();
                }
                woken.wait();
                let is_now = match self.given_up {
                    GivenUp::Woken(at) => at == self.polls,
                    GivenUp::Always => true,
                    GivenUp::Waiting(_) => false,
                };
                if is_now {
                    self.times += 1;
                    break;
                }
            }
        }
    }
}

/// The commits, as returned by a feed that is never dropped.
struct Committed {
    witness: Changes,
    transactions: Vec<ChangeTransaction>,
}

impl Committed {
    fn take(&mut self) {
        self.transactions.push(block_on(self.witness.next()).unwrap().unwrap());
    }
}

fn write(db: &Database, [memory, paged]: [&Rows; 2], number: u64) {
    let tables = [memory.clone(), paged.clone()];
    let count = if number.is_multiple_of(6) { MANY } else { 100 };
    db.run_blocking(async move |tx| {
        for key in 0..count {
            let table = &tables[(key % 2) as usize];
            tx.put(table, &key, &[number as u8; VALUE_BYTES]).await?;
        }
        Ok(())
    })
    .unwrap();
}

/// Follows the feed up to the last commit, and one more transaction, which commits while the feed
/// waits. Returns the number of drops of `next`.
fn follow(
    db: &Database,
    tables: [&Rows; 2],
    committed: &mut Committed,
    from: &ChangesFrom,
    given_up: GivenUp,
) -> usize {
    let changes = db.changes(from.clone());
    let mut polled = Polled { changes, given_up, polls: 0, times: 0 };
    let mut rest = &committed.transactions[..];
    if *from == ChangesFrom::Snapshot {
        let mut records: Vec<Change> = Vec::new();
        loop {
            let piece = polled.next(|| {});
            assert!(piece.snapshot, "{given_up:?}: {piece:?}");
            records.extend(piece.changes);
            if piece.token.is_some() {
                break;
            }
        }
        let mut keys: Vec<_> = records.iter().map(|record| (&record.table, &record.key)).collect();
        let (count, ()) = (keys.len(), keys.sort_unstable());
        keys.dedup();
        // The tables, and the records of the largest transactions.
        let expected = MANY as usize + 2;
        assert_eq!((count, keys.len()), (expected, expected), "{given_up:?}");
        rest = &[];
    }
    for expected in rest {
        let given = polled.next(|| {});
        let is_same = given.commit_lsn == expected.commit_lsn && given.changes == expected.changes;
        assert!(is_same, "{given_up:?}: {} for {}", given.commit_lsn, expected.commit_lsn);
    }
    let last = polled.next(|| block_on(db.put(tables[0], &MANY, &[1])).unwrap());
    committed.take();
    let expected = committed.transactions.last().unwrap();
    assert_eq!((last.commit_lsn, &last.changes), (expected.commit_lsn, &expected.changes));
    // This record no longer exists in the snapshots of the others.
    block_on(db.delete(tables[0], &MANY)).unwrap();
    committed.take();
    let given = polled.next(|| {});
    assert_eq!(given.commit_lsn, committed.transactions.last().unwrap().commit_lsn);
    polled.times
}

#[test]
fn a_wait_for_the_next_change_is_cancelled_at_each_poll() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(1 << 20));
        let db = Database::open(directory.path(), options).unwrap().watched();
        let start = block_on(db.create_change_slot("s", 1 << 30)).unwrap();
        let memory: Rows = block_on(db.create_table("memory")).unwrap();
        let paged: Rows = db
            .run_blocking(async |tx| {
                tx.create_table_with("paged", TableOptions::default().paged()).await
            })
            .unwrap();
        let tables = [&memory, &paged];
        (0..TRANSACTIONS).for_each(|number| write(&db, tables, number));
        let witness = db.changes(start.into());
        let mut committed = Committed { witness, transactions: Vec::new() };
        // Includes the transactions that created the tables.
        (0..TRANSACTIONS + 2).for_each(|_| committed.take());
        let slot = ChangesFrom::Slot("s".to_owned());
        for from in [start.into(), slot, ChangesFrom::Snapshot] {
            let mut follow = |given_up| follow(&db, tables, &mut committed, &from, given_up);
            for kind in [GivenUp::Waiting, GivenUp::Woken] {
                let reached = (1..).take_while(|at| follow(kind(*at)) == 1).count();
                assert!(reached > 3, "{from:?}: given up at {reached} polls");
            }
            let times = follow(GivenUp::Always);
            assert!(times > 3, "{from:?}: given up {times} times");
        }
    });
}
