//! An engine that fails while guests write: all callers receive the failure, and the log keeps a prefix
//! of the writes.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use pollster::block_on;
use tracing::subscriber::with_default;
use tracing::{Event, Metadata, Subscriber, level_filters::LevelFilter, span};

use super::super::{Database, Error, Misuse, Result, Table, Transaction};
use super::guest_writes::{guest_writes, open_relaxed};
use super::guests::open;
use crate::common::{PART_SECONDS, with_limit};
use crate::transaction::PanicPoint;

/// Number of threads that write.
const WRITERS: u64 = 3;

fn is_failed(result: &Result<()>, point: PanicPoint) {
    match result {
        Err(Error::Failed { message }) => assert_eq!(*message, format!("planted in {point:?}")),
        other => panic!("{other:?}"),
    }
}

/// Writes of several guests. Each stores how many records of each guest were acknowledged before.
struct Prefix {
    table: Table<u64, [u8]>,
    acknowledged: [AtomicU64; WRITERS as usize],
}

impl Prefix {
    /// Inserts the next record of a guest.
    fn insert(&self, db: &Database, writer: u64) -> Result<()> {
        let seen = self.acknowledged.each_ref().map(|count| count.load(Ordering::SeqCst));
        let number = seen[writer as usize];
        let value: Vec<u8> = seen.iter().flat_map(|count| count.to_le_bytes()).collect();
        block_on(db.insert(&self.table, &(writer << 32 | number), &value))?;
        self.acknowledged[writer as usize].store(number + 1, Ordering::SeqCst);
        Ok(())
    }

    /// Checks that the records in a table are those of a prefix of the log. Returns the number of each
    /// guest's.
    fn check(db: &Database, table: &Table<u64, [u8]>) -> [u64; WRITERS as usize] {
        let records = block_on(async { db.scan(table, ..).await }).unwrap();
        let mut counts = [0; WRITERS as usize];
        for (key, _) in &records {
            let (writer, number) = ((key >> 32) as usize, key & 0xFFFF_FFFF);
            assert_eq!(number, counts[writer], "a record of {writer} is missing");
            counts[writer] += 1;
        }
        for (key, value) in &records {
            let seen = value.chunks(8).map(|count| u64::from_le_bytes(count.try_into().unwrap()));
            let is_there = seen.zip(counts).all(|(seen, count)| seen <= count);
            assert!(is_there, "{key:x} is there, and {value:?} are not all: {counts:?}");
        }
        counts
    }
}

/// All callers receive the message of the failure, also those that wait. The log keeps a prefix of the
/// guests' writes.
#[test]
fn an_engine_that_fails_in_one_guest_fails_for_all() {
    for point in [PanicPoint::Write, PanicPoint::Commit] {
        with_limit(PART_SECONDS, move |_| {
            let directory = tempfile::tempdir().unwrap();
            let db = open_relaxed(directory.path(), 2);
            let table = block_on(db.create_table("records")).unwrap();
            let prefix = Prefix { table, acknowledged: Default::default() };
            thread::scope(|scope| {
                let (db, prefix) = (&db, &prefix);
                let pending = async |_: &Transaction| std::future::pending().await;
                let waiting = [(); 3].map(|()| scope.spawn(move || db.run_blocking(pending)));
                let writers: Vec<_> = (0..WRITERS)
                    .map(|writer| {
                        let write = move || loop {
                            prefix.insert(db, writer)?;
                        };
                        scope.spawn(move || -> Result<()> { write() })
                    })
                    .collect();
                let is_slow = |count: &AtomicU64| count.load(Ordering::SeqCst) < 300;
                while prefix.acknowledged.iter().any(is_slow) {
                    thread::yield_now();
                }
                db.shared.engine.planted_panic.plant(point);
                writers.into_iter().for_each(|writer| is_failed(&writer.join().unwrap(), point));
                waiting.into_iter().for_each(|waiting| is_failed(&waiting.join().unwrap(), point));
            });
            assert!(guest_writes(&db) > 100, "{}", guest_writes(&db));
            is_failed(&db.close(), point);
            let Prefix { acknowledged, table } = prefix;
            drop((db, table));
            let db = open_relaxed(directory.path(), 2);
            let counts = Prefix::check(&db, &block_on(db.open_table("records")).unwrap());
            for (count, acknowledged) in counts.iter().zip(acknowledged) {
                // One insertion of each may have ended after the failure.
                assert!(*count <= acknowledged.into_inner() + 1);
            }
            db.close().unwrap();
        });
    }
}

/// The hook of a program runs on the thread of the guest, in its place.
#[test]
fn a_panic_hook_that_closes_the_database_is_refused() {
    thread_local! {
        static CLOSES: RefCell<Option<(Database, Sender<Result<()>>)>> = const { RefCell::new(None) };
    }
    with_limit(PART_SECONDS, |_| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match CLOSES.take() {
            Some((db, told)) => told.send(db.close()).unwrap(),
            None => before(panic),
        }));
        let (db, table) = open();
        let (told, is_told) = channel();
        CLOSES.set(Some((db.clone(), told)));
        db.shared.engine.planted_panic.plant(PanicPoint::Write);
        is_failed(&block_on(db.put(&table, &1, &1)), PanicPoint::Write);
        let closed = is_told.recv().unwrap();
        assert!(matches!(closed, Err(Error::Misuse(Misuse::WouldBlock))), "{closed:?}");
        is_failed(&db.close(), PanicPoint::Write);
    });
}

/// A subscriber that panics at each event.
struct PanicsAtEvents;

impl Subscriber for PanicsAtEvents {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::ERROR)
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &Event<'_>) {
        panic!("a subscriber");
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// The failure is reported to a subscriber too, whose panic must not keep it from others.
#[test]
fn a_subscriber_that_panics_hides_no_failure() {
    with_limit(PART_SECONDS, |_| {
        let (db, table) = open();
        let (began, begun) = channel();
        let began = std::sync::Mutex::new(began);
        let waiting = db.clone();
        let waiting = thread::spawn(move || {
            waiting.run_blocking(async move |_| {
                began.lock().unwrap().send(()).unwrap();
                std::future::pending().await
            })
        });
        begun.recv().unwrap();
        db.shared.engine.planted_panic.plant(PanicPoint::Write);
        let put = || with_default(PanicsAtEvents, || block_on(db.put(&table, &1, &1)));
        _ = catch_unwind(AssertUnwindSafe(put));
        is_failed(&waiting.join().unwrap(), PanicPoint::Write);
        is_failed(&db.close(), PanicPoint::Write);
    });
}
