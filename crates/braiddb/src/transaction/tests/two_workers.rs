//! Two workers in lock-step: each schedule here is unlikely to occur by chance.

use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::super::*;
use super::NothingLogged;
use crate::common::{PART_SECONDS, with_limit};
use crate::log::Log;
use crate::memory::MemoryCounters;
use crate::reclaim::{self, Domain, Participation};
use crate::record::{IndirectionEntry, MemoryRecords, NewestVersion, Records, RecordsRef};
use crate::rid::{Rid, TableId};
use crate::sched;
use crate::transaction::memory::garbage::Garbage;
use crate::version::{Link, Stamp, VersionRef};

/// Number of superseded versions; enough that a worker prunes.
const MANY: u64 = 5000;

/// An in-memory engine that evicts everything evictable.
fn engine() -> Arc<Engine> {
    let options = EngineOptions {
        workers: 2,
        max_open: 32,
        durability: Durability::Volatile,
        read_only: false,
        isolation: Isolation::default(),
        interactive_idle: None,
        interactive_age: None,
        certifier: Certifier::default(),
        memory_budget: Some(1),
        page_frames: None,
        page_bytes: crate::log::DEFAULT_PAGE_BYTES,
        version_bytes: None,
        shed_beyond: None,
        checkpoint_bytes: u64::MAX,
        housekeeping: &NothingLogged,
    };
    let memory = MemoryCounters::of_database();
    let domain = Arc::new(Domain::new(2, memory.clone()));
    Arc::new(Engine::new(&options, Log::volatile(2), None, domain, memory))
}

/// A worker on the calling thread, whose turns the test takes.
struct Hand {
    worker: Rc<WorkerTransactions>,
    _participation: Participation,
}

impl Hand {
    fn new(engine: &Arc<Engine>, number: usize) -> Self {
        let participation = engine.domain.participate();
        let worker = WorkerTransactions::install(engine.clone(), number);
        Self { worker, _participation: participation }
    }

    fn engine(&self) -> &Engine {
        self.worker.engine()
    }

    /// Publishes the begin stamps of its transactions.
    fn publish_begins(&self) {
        let (engine, number) = (self.engine(), self.worker.number());
        let begins = self.worker.begins();
        let (extended, tail) = (begins.oldest_extended(), engine.log.tail());
        engine.readers.publish(number, begins.iter(), extended, tail);
    }

    /// Publishes the oldest of its begin stamps.
    fn publish(&self) {
        let engine = self.engine();
        let oldest = self.worker.oldest_begin().unwrap_or(engine.log.tail());
        engine.horizon.publish(self.worker.number(), oldest);
    }

    fn put(&self, table: &Records, value: u64) {
        let transaction = self.worker.begin().unwrap();
        let value = value.to_le_bytes();
        sched::run_now(async {
            transaction.write(table, b"key", WriteIntent::Put(&value), None).await.unwrap();
            transaction.commit().await.unwrap();
        });
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let engine = self.worker.engine();
        engine.leave(self.worker.garbage.take(), self.worker.aborted.queue.take());
        self.worker.uninstall();
    }
}

/// Gives the newest version a log position, so that it may be evicted.
fn say_logged(table: &MemoryRecords, rid: Rid) {
    let IndirectionEntry::Version(head) = table.array().load(rid) else {
        panic!("the record is in memory")
    };
    // SAFETY: the newest version, which no other thread frees concurrently.
    let head = unsafe { head.get() };
    let stamp = head.stamp().lsn().expect("committed");
    head.set_record(stamp, Some(stamp));
}

/// Runs `one` and `other` as the two workers of an engine. Each calls the function that it receives
/// to let the other one continue, and to wait for it.
fn in_lock_step(
    one: impl FnOnce(&Hand, &MemoryRecords, &dyn Fn()) + Send,
    other: impl FnOnce(&Hand, &MemoryRecords, &dyn Fn()) + Send,
) {
    let engine = engine();
    let table = engine.table(TableId(1));
    let (engine, table) = (&engine, table.in_memory().unwrap());
    let ((tell_one, one_told), (tell_other, other_told)) = (channel(), channel());
    std::thread::scope(|scope| {
        let first = scope.spawn(move || {
            one(&Hand::new(engine, 0), table, &meet(tell_other, one_told));
        });
        let second = scope.spawn(move || {
            other(&Hand::new(engine, 1), table, &meet(tell_one, other_told));
        });
        for thread in [first, second] {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

/// Lets another thread continue and waits for it; fails if it has ended or does not arrive.
fn meet(tell: Sender<()>, told: Receiver<()>) -> impl Fn() {
    move || {
        // If the other thread has ended, receiving fails.
        _ = tell.send(());
        told.recv_timeout(Duration::from_secs(60)).expect("the other worker comes");
    }
}

/// A reader on one worker was listed and has ended, and that worker evicts what the reader had
/// retained. Then the other worker prunes with the list that it still has.
#[test]
fn versions_evicted_behind_an_ended_reader_are_not_pruned() {
    with_limit(PART_SECONDS, |_| {
        let rid = Rid::new(0);
        in_lock_step(
            |writer, table, next| {
                writer.put(table, 0);
                next();
                next();
                (1..=MANY).for_each(|value| writer.put(table, value));
                say_logged(table, rid);
                writer.publish_begins();
                writer.publish();
                next();
                next();
                writer.worker.prune(false);
                assert_eq!(writer.worker.counters().versions_pruned.get(), 0);
                // The record is resident again and overwritten while a reader is active: this is
                // pruned.
                let reader = writer.worker.begin().unwrap();
                (0..2 * MANY).for_each(|value| writer.put(table, value));
                writer.publish_begins();
                writer.publish();
                next();
                next();
                writer.worker.collect_garbage();
                writer.worker.prune(false);
                assert!(writer.worker.counters().versions_pruned.get() > 0);
                reader.end_uncounted();
            },
            |evictor, table, next| {
                next();
                let reader = evictor.worker.begin().unwrap();
                evictor.publish();
                next();
                next();
                evictor.publish_begins();
                reader.end_uncounted();
                evictor.publish();
                // Like a worker that allocates.
                evictor.engine().note_memory_is_short(true);
                _ = evictor.worker.evict(true);
                assert_eq!(evictor.worker.counters().evicted.get(), 1);
                assert!(matches!(table.array().load(rid), IndirectionEntry::Address(_)));
                next();
                next();
                evictor.publish_begins();
                evictor.publish();
                next();
            },
        );
    });
}

/// A write whose transaction has committed but not stamped it may depend on a version that is
/// already freed. A write that was just aborted provides no reliable information.
#[test]
fn compaction_follows_no_write_that_is_being_decided() {
    with_limit(PART_SECONDS, |_| {
        let engine = engine();
        let table = engine.table(TableId(1));
        let table = table.in_memory().unwrap();
        let (hand, rid) = (Hand::new(&engine, 0), Rid::new(0));
        hand.put(table, 1);
        say_logged(table, rid);
        let IndirectionEntry::Version(base) = table.array().load(rid) else {
            panic!("it is in memory")
        };
        let name = engine.status.begin(1, 0);
        let stamp = Stamp::in_flight(name);
        let written = VersionRef::allocate(&engine.memory, stamp, b"written", false);
        // SAFETY: freed with the table, as the newest version of its record.
        let version = unsafe { written.get() };
        version.set_next(Some(Link::Version(base)));
        assert!(table.array().replace(
            rid,
            IndirectionEntry::Version(base),
            IndirectionEntry::Version(written)
        ));
        let newest = || {
            let operation = reclaim::enter();
            let transaction = hand.worker.begin().unwrap();
            let newest = table.newest(rid, transaction.view(), &operation);
            transaction.end_uncounted();
            newest
        };
        assert!(
            matches!(newest(), NewestVersion::InFlight(Some(_))),
            "it may abort: then the version below counts"
        );
        let committing = engine.status.committing(name);
        assert_eq!(newest(), NewestVersion::Deciding);
        let lsn = engine.log.advance_clock();
        committing.drew(lsn);
        committing.committed();
        assert_eq!(newest(), NewestVersion::Deciding, "the version below may be freed");
        version.set_stamp(Stamp::ABORTED);
        assert_eq!(newest(), NewestVersion::Deciding, "the entry has changed");
        version.set_record(lsn, Some(lsn));
        version.set_stamp(Stamp::committed(lsn));
        assert!(
            matches!(newest(), NewestVersion::Committed(Link::Version(head), _) if head == written)
        );
        let superseded = Garbage::Superseded { table: RecordsRef::new(table), rid, version: base };
        hand.worker.garbage.borrow_mut().push(lsn, superseded);
    });
}
