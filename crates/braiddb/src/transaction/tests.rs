//! Races between transactions, stepped by hand on a worker without a scheduler.

mod extension;
mod two_workers;

use std::ops::Bound::Unbounded;
use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::common::{PART_SECONDS, with_limit};
use crate::log::{Log, Lsn};
use crate::memory::{MemoryCounters, MemoryKind};
use crate::reclaim::{self, Domain, Participation};
use crate::record::{IndirectionEntry, NewestVersion, Records};
use crate::rid::{Rid, TableId};
use crate::sched::{Job, run_now};
use crate::version::Stamp;

/// Housekeeping of an engine that logs nothing.
#[derive(Debug)]
struct NothingLogged;

impl Housekeeping for NothingLogged {
    fn checkpoint_job(&self) -> Job {
        unreachable!("no checkpoint is due")
    }

    fn estimate_checkpoint_file(&self, _: &Engine) -> u64 {
        0
    }

    fn table_id_of(&self, _: &[u8], _: &[u8]) -> Option<TableId> {
        None
    }
}

/// Test fixture: a worker of an engine that logs nothing, and a table. Fields are dropped in order,
/// so no thread participates any more when the engine drains its garbage.
struct Bench {
    participation: Participation,
    table: Arc<Records>,
    worker: Rc<WorkerTransactions>,
    memory: Arc<MemoryCounters>,
}

impl Bench {
    fn new() -> Self {
        let options = EngineOptions {
            workers: 1,
            max_open: 4,
            durability: Durability::Volatile,
            read_only: false,
            isolation: Isolation::default(),
            interactive_idle: None,
            interactive_age: None,
            certifier: Certifier::default(),
            memory_budget: None,
            page_frames: None,
            page_bytes: crate::log::DEFAULT_PAGE_BYTES,
            version_bytes: None,
            shed_beyond: None,
            checkpoint_bytes: u64::MAX,
            housekeeping: &NothingLogged,
        };
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(1, memory.clone()));
        let log = Log::volatile(1);
        let engine = Arc::new(Engine::new(&options, log, None, domain.clone(), memory.clone()));
        let participation = domain.participate();
        let table = engine.table(engine.take_table_id());
        let worker = WorkerTransactions::install(engine, 0);
        Self { participation, table, worker, memory }
    }

    fn version_bytes(&self) -> u64 {
        self.memory.bytes(MemoryKind::Version)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Like a worker's driver at its end.
        self.worker.engine().leave(self.worker.garbage.take(), self.worker.aborted.queue.take());
        self.worker.uninstall();
    }
}

#[test]
fn an_insert_that_loses_its_race_frees_nothing_that_others_may_hold() {
    with_limit(PART_SECONDS, |_| {
        let bench = Bench::new();
        let table = bench.table.in_memory().unwrap();
        let (winner, loser) = (bench.worker.begin().unwrap(), bench.worker.begin().unwrap());
        let operation = reclaim::enter();
        assert!(winner.write_new(table, b"key", b"winner", &operation, None).unwrap());
        let before = bench.version_bytes();
        // Both found the key absent. Code that reads entries by record id, such as eviction and
        // compaction, may have loaded the loser's version just before this fails.
        assert!(!loser.write_new(table, b"key", b"loser", &operation, None).unwrap());
        bench.participation.turn();
        bench.participation.turn();
        let lost = Rid::new(1);
        assert_eq!(bench.version_bytes() - before, 24 + b"loser".len() as u64);
        assert_eq!(table.array().load(lost), IndirectionEntry::Dead);
        assert_eq!(table.take_rid().unwrap(), Rid::new(2), "the id is not handed out again yet");
        drop(operation);
        while bench.participation.turn() {}
        assert_eq!(bench.version_bytes(), before, "freed once no operation can hold it");
        assert_eq!(table.array().load(lost), IndirectionEntry::Empty);
        assert_eq!(table.take_rid().unwrap(), lost);
    });
}

#[test]
fn an_aborted_version_that_is_found_before_it_is_unlinked_is_in_no_log() {
    with_limit(PART_SECONDS, |_| {
        let bench = Bench::new();
        let table = bench.table.in_memory().unwrap();
        let engine = bench.worker.engine().clone();
        let (inserter, looking) = (bench.worker.begin().unwrap(), bench.worker.begin().unwrap());
        let operation = reclaim::enter();
        for key in [b"first", b"other"] {
            assert!(inserter.write_new(table, key, b"value", &operation, None).unwrap());
        }
        // The second write of the transaction: its version holds that position until it is stamped.
        let lost = Rid::new(1);
        let IndirectionEntry::Version(head) = table.array().load(lost) else {
            panic!("just inserted")
        };
        // SAFETY: in flight, and found under the guard above.
        let version = unsafe { head.get() };
        assert_eq!(version.position(), 1);
        // Eviction and compaction may see this, if they loaded the entry just before an abort
        // stamps and unlinks the version.
        version.set_stamp(Stamp::ABORTED);
        assert_eq!(version.record(), None);
        let acting = engine.horizon.act(0, engine.log.tail()).unwrap();
        let evicted =
            table.evict(table.rids().bound(), &acting, Lsn::MAX, |_| panic!("not in the log"));
        assert_eq!(evicted, 0);
        drop(acting);
        let found = table.newest(lost, looking.view(), &operation);
        assert_eq!(found, NewestVersion::Deciding, "the caller retries");
        drop(inserter);
        assert_eq!(table.array().load(lost), IndirectionEntry::Dead);
        assert_eq!(table.newest(lost, looking.view(), &operation), NewestVersion::Gone);
    });
}

#[test]
fn a_scan_for_one_record_passes_deleted_ones_in_large_steps() {
    with_limit(PART_SECONDS, |_| {
        const DELETED: u64 = 10_000;
        let bench = Bench::new();
        let table = bench.table.in_memory().unwrap();
        let _held_back = bench.worker.begin().unwrap();
        let writer = bench.worker.begin().unwrap();
        let insert = WriteIntent::Insert(b"value");
        for key in 0..=DELETED {
            run_now(writer.write(table, &key.to_be_bytes(), insert, None)).unwrap();
        }
        run_now(writer.commit()).unwrap();
        let writer = bench.worker.begin().unwrap();
        for key in 0..DELETED {
            assert!(
                run_now(writer.write(table, &key.to_be_bytes(), WriteIntent::Delete, None))
                    .unwrap()
            );
        }
        run_now(writer.commit()).unwrap();
        let reader = bench.worker.begin().unwrap();
        let mut scan = reader.scan(table, ScanBounds { low: Unbounded, high: Unbounded });
        scan.expect_records(1);
        let mut batches = 0;
        while scan.current().is_none() {
            assert!(run_now(scan.read_batch()).unwrap(), "the last record is there");
            batches += 1;
        }
        assert_eq!(*scan.current().unwrap().0, DELETED.to_be_bytes());
        assert!(batches < DELETED / 32, "{batches} batches");
    });
}

#[test]
fn an_attempt_that_follows_another_is_not_refused() {
    with_limit(PART_SECONDS, |_| {
        let bench = Bench::new();
        let mut active: Vec<_> = (0..8).map(|_| bench.worker.begin().unwrap()).collect();
        assert!(bench.worker.begin().is_err(), "all contexts are in use");
        drop(active.pop());
        let next = NextAttempt::keep(&bench.worker);
        assert!(bench.worker.begin().is_err(), "the last one is kept");
        active.push(next.begin(TransactionMode::Snapshot, Lsn::ZERO));
        drop(active.pop());
        drop(NextAttempt::keep(&bench.worker));
        assert!(bench.worker.begin().is_ok(), "an unused one is released");
        let places: Vec<_> =
            (0..4).map(|_| InteractivePermit::take(&bench.worker).unwrap()).collect();
        assert!(InteractivePermit::take(&bench.worker).is_err(), "half of them may be interactive");
        drop(places);
        assert!(InteractivePermit::take(&bench.worker).is_ok());
    });
}

/// A version that a later write of its transaction replaces is freed, unless a savepoint needs it.
#[test]
fn own_overwrites_take_no_memory() {
    with_limit(PART_SECONDS, |_| {
        let bench = Bench::new();
        let table = bench.table.in_memory().unwrap();
        let writer = bench.worker.begin().unwrap();
        let write = |value: u64| {
            let value = value.to_be_bytes();
            run_now(writer.write(table, b"key", WriteIntent::Put(&value), None)).unwrap();
            while bench.participation.turn() {}
        };
        let read = || {
            let found = run_now(writer.get(table, b"key")).unwrap().expect("it was written");
            u64::from_be_bytes(found.bytes().try_into().unwrap())
        };
        write(0);
        let one = bench.version_bytes();
        let mut savepoints = Vec::new();
        for round in 1..4 {
            (0..100).for_each(|number| write(round * 1000 + number));
            assert_eq!(bench.version_bytes(), round * one);
            savepoints.push((writer.savepoint(), read()));
        }
        for (number, (savepoint, value)) in savepoints.iter().enumerate().rev() {
            for _ in 0..3 {
                (0..100).for_each(write);
                run_now(writer.rollback_to(*savepoint)).unwrap();
                while bench.participation.turn() {}
                assert_eq!((read(), bench.version_bytes()), (*value, (number as u64 + 1) * one));
            }
        }
        drop(writer);
        while bench.participation.turn() {}
        assert_eq!(bench.version_bytes(), 0);
    });
}

/// Created tables are closed and removed as other writes are undone: a few at a time.
#[test]
fn an_abort_removes_created_tables_in_steps() {
    with_limit(PART_SECONDS, |_| {
        const TABLES: usize = 300;
        for rolls_back in [false, true] {
            let bench = Bench::new();
            let engine = bench.worker.engine().clone();
            let before = engine.tables().len();
            let mut creator = bench.worker.begin().unwrap();
            let savepoint = creator.savepoint();
            for _ in 0..TABLES {
                let row = |id: TableId| (id.0.to_be_bytes().to_vec(), b"row".to_vec());
                run_now(creator.create_table(&bench.table, row, false)).unwrap();
            }
            if rolls_back {
                run_now(creator.rollback_to(savepoint)).unwrap();
            }
            let (mut left, mut steps) = (engine.tables().len(), 0);
            assert_eq!(left, before + TABLES);
            while !creator.abort_some() {
                let now = engine.tables().len();
                assert!(left - now <= 64, "{} tables are removed in one step", left - now);
                (left, steps) = (now, steps + 1);
            }
            assert!(engine.tables().len() == before && steps >= TABLES / 64, "{steps} steps");
        }
    });
}
