//! Loom models of concurrent operations on a record of a page: readers, aborts, commits, writers,
//! collectors, and removal of empty chains.
//!
//! The models run the engine's code on a page of one slot: latch, mapping table, chain, changes,
//! transaction states and reclamation. Freed memory is kept and overwritten, so that its use is
//! detected. Only the log is replaced, by a counter.

use std::process::Command;
use std::sync::Arc;

use loom::model::Builder;
use loom::thread;

use super::change::ChangeRef;
use super::mapping::Mapping;
use super::test_page::TestPage;
use crate::log::Lsn;
use crate::planted::{Bug, VARIABLE};
use crate::reclaim::{self, Participation};
use crate::version::{Readers, Stamp, TransactionName, Undecided};

const KEY: u8 = 0;
/// Number of attempts of a reader.
const TRIES: usize = 2;

/// Runs a model with a maximum number of preemptions.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// A record that was 9, then 10 since a commit at LSN 8, whose change is due for collection.
struct Record {
    page: Arc<TestPage>,
    due: ChangeRef,
}

impl Record {
    fn new(me: impl FnOnce(&TestPage) -> Participation, workers: usize) -> (Self, Participation) {
        let page = Arc::new(TestPage::new(&[Some(9)], workers, 1));
        let me = me(&page);
        let name = page.status.begin(0, 0);
        let view = page.view(page.tail(), name);
        let due = page.write(KEY, Some(10), view, false).unwrap().unwrap();
        let committing = page.status.committing(name);
        committing.drew(Lsn(8));
        committing.committed();
        // SAFETY: collected by the model, once.
        unsafe { due.get() }.set_stamp(Stamp::committed(Lsn(8)));
        (Self { page, due }, me)
    }

    /// Returns a transaction of worker 0 that has written `value` and is in flight.
    fn written(&self, value: u64) -> (TransactionName, ChangeRef) {
        let name = self.page.status.begin(0, 0);
        let view = self.page.view(self.page.tail(), name);
        (name, self.page.write(KEY, Some(value), view, false).unwrap().unwrap())
    }
}

/// Returns what a transaction with begin stamp `begin` reads; `None` if the outcome was not decided
/// in time. It enters its operation itself, because `turn` defines where retired memory may be
/// freed.
fn read(page: &TestPage, begin: Lsn, me: TransactionName) -> Option<u64> {
    let operation = reclaim::enter();
    for _ in 0..TRIES {
        match page.read(KEY, page.view(begin, me), &operation) {
            Ok(found) => return Some(found.value.expect("there always is a record")),
            Err(Undecided) => thread::yield_now(),
        }
    }
    None
}

/// Frees what this thread retired, if no operation can hold it.
fn free(me: &Participation) {
    me.turn();
    me.turn();
}

fn reader(page: &Arc<TestPage>, worker: usize, begin: Lsn) -> thread::JoinHandle<Option<u64>> {
    let page = page.clone();
    thread::spawn(move || {
        let _me = page.domain.participate();
        let name = page.status.begin(worker, 0);
        read(&page, begin, name)
    })
}

fn collector(page: &Arc<TestPage>, due: ChangeRef) -> thread::JoinHandle<()> {
    let page = page.clone();
    thread::spawn(move || {
        let me = page.domain.participate();
        // SAFETY: committed at 8, before all begin stamps of the models; collected here only.
        unsafe { due.collect(Lsn(16), &page.memory).release(&page.memory) };
        free(&me);
    })
}

fn pruner(page: &Arc<TestPage>, change: ChangeRef) -> thread::JoinHandle<()> {
    let page = page.clone();
    thread::spawn(move || {
        let me = page.domain.participate();
        // SAFETY: its owner retires the change after it is marked, or after this thread has ended.
        unsafe { change.prune_chain(&Readers::new(1).all_stamps(Lsn(100)), Lsn(100)) };
        free(&me);
    })
}

/// No reader sees an aborted write, and the record is rolled back once, regardless of the order.
#[test]
fn model_of_pages_an_abort_beside_a_reader() {
    check(3, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 2);
        let page = &record.page;
        let (name, change) = record.written(11);
        let reader = reader(page, 1, Lsn(100));
        page.status.aborted(name);
        page.abort(&[(KEY, change)]);
        free(&me);
        assert_ne!(reader.join().unwrap(), Some(11), "a reader sees what was aborted");
        assert_eq!(page.slot(KEY), Some(10));
    });
}

/// No reader sees a write in flight: value and change are consistent.
#[test]
fn model_of_pages_a_writer_beside_a_reader() {
    check(3, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 2);
        let page = &record.page;
        let reader = reader(page, 1, Lsn(100));
        let _written = record.written(12);
        free(&me);
        assert_ne!(reader.join().unwrap(), Some(12), "a reader sees what is in flight");
    });
}

#[test]
fn model_of_pages_an_abort_beside_a_collector() {
    check(3, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 2);
        let page = &record.page;
        let (name, change) = record.written(11);
        let collector = collector(page, record.due);
        page.status.aborted(name);
        page.abort(&[(KEY, change)]);
        free(&me);
        collector.join().unwrap();
        assert_eq!(page.slot(KEY), Some(10));
        assert_eq!(page.prune(), 1, "the chain is empty");
    });
}

#[test]
fn model_of_pages_an_abort_beside_the_next_writer() {
    check(2, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 2);
        let page = &record.page;
        let (name, change) = record.written(11);
        let writer = {
            let page = page.clone();
            thread::spawn(move || {
                let me = page.domain.participate();
                let name = page.status.begin(1, 0);
                let written = page.write(KEY, Some(12), page.view(Lsn(100), name), false);
                free(&me);
                written.is_ok()
            })
        };
        page.status.aborted(name);
        page.abort(&[(KEY, change)]);
        free(&me);
        let written = writer.join().unwrap();
        assert_eq!(page.slot(KEY), Some(if written { 12 } else { 10 }));
    });
}

/// A writer and a collector on one chain: a change that was cut off must not be linked again.
#[test]
fn model_of_pages_a_writer_beside_a_collector() {
    check(2, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 2);
        let page = &record.page;
        let collector = collector(page, record.due);
        let (name, change) = record.written(12);
        free(&me);
        collector.join().unwrap();
        let seen = read(page, Lsn(100), TransactionName::new(1, 0, 99));
        assert_eq!(seen, Some(10));
        page.status.aborted(name);
        page.abort(&[(KEY, change)]);
        assert_eq!(page.prune(), 1, "the chain is empty");
    });
}

/// The same with a concurrent reader that no longer needs the change that is cut off.
#[test]
fn model_of_pages_a_writer_beside_a_collector_and_a_reader() {
    check(1, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 3);
        let page = &record.page;
        let (collector, reader) = (collector(page, record.due), reader(page, 2, Lsn(100)));
        let _written = record.written(12);
        free(&me);
        collector.join().unwrap();
        assert!(matches!(reader.join().unwrap(), Some(10) | None));
    });
}

/// Abort, reader, collector and writer at the same time.
#[test]
fn model_of_pages_an_abort_beside_a_reader_a_collector_and_a_writer() {
    check(1, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 4);
        let page = &record.page;
        let (name, change) = record.written(11);
        let (reader, collector) = (reader(page, 1, Lsn(100)), collector(page, record.due));
        let writer = {
            let page = page.clone();
            thread::spawn(move || {
                let _me = page.domain.participate();
                let name = page.status.begin(3, 0);
                page.write(KEY, Some(12), page.view(Lsn(100), name), false).is_ok()
            })
        };
        page.status.aborted(name);
        page.abort(&[(KEY, change)]);
        free(&me);
        assert!(matches!(reader.join().unwrap(), Some(10) | None));
        collector.join().unwrap();
        let written = writer.join().unwrap();
        assert_eq!(page.slot(KEY), Some(if written { 12 } else { 10 }));
    });
}

/// Two committed transactions collect their changes, in either order, while the chain is removed
/// from the mapping table and a reader runs.
#[test]
fn model_of_pages_collectors_beside_pruning() {
    check(2, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 3);
        let page = &record.page;
        let (name, change) = record.written(11);
        let committing = page.status.committing(name);
        committing.drew(Lsn(12));
        committing.committed();
        // SAFETY: collected below.
        unsafe { change.get() }.set_stamp(Stamp::committed(Lsn(12)));
        let (collector, reader) = (collector(page, record.due), reader(page, 2, Lsn(100)));
        // SAFETY: committed before 16, and collected here only.
        unsafe { change.collect(Lsn(16), &page.memory).release(&page.memory) };
        page.prune();
        free(&me);
        collector.join().unwrap();
        assert!(matches!(reader.join().unwrap(), Some(11) | None));
        page.prune();
        // SAFETY: all other threads have ended.
        assert!(unsafe { Mapping::from_word(page.word()) }.is_none(), "the chain is gone");
    });
}

/// A task of another worker prunes a change, and its owner retires it. A reader that begins after
/// that does not find the change.
#[test]
fn model_of_pages_a_pruner_beside_the_owner() {
    check(3, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 3);
        let page = &record.page;
        let pruner = pruner(page, record.due);
        // SAFETY: retired below, once.
        while unsafe { !record.due.is_pruned() } {
            thread::yield_now();
        }
        // SAFETY: pruned, and collected here only.
        unsafe { record.due.collect_pruned(&page.memory).release(&page.memory) };
        free(&me);
        let reader = reader(page, 2, Lsn(100));
        pruner.join().unwrap();
        free(&me);
        assert!(matches!(reader.join().unwrap(), Some(10) | None));
        page.prune();
        // SAFETY: all other threads have ended.
        assert!(unsafe { Mapping::from_word(page.word()) }.is_none(), "the chain is gone");
    });
}

/// A snapshot is repeatable during a commit: the writer publishes `Committing` before it draws its
/// LSN.
#[test]
fn model_of_pages_a_commit_beside_a_reader() {
    check(3, || {
        let (record, _me) = Record::new(|page| page.domain.participate(), 2);
        let page = &record.page;
        let (name, change) = record.written(11);
        let reader = {
            let page = page.clone();
            thread::spawn(move || {
                let _me = page.domain.participate();
                let (name, begin) = (page.status.begin(1, 0), page.tail());
                (begin, read(&page, begin, name), read(&page, begin, name))
            })
        };
        let lsn = page.commit(name, &[(KEY, change)]);
        let (begin, first, second) = reader.join().unwrap();
        let expected = if lsn < begin { 11 } else { 10 };
        for seen in [first, second].into_iter().flatten() {
            assert_eq!(seen, expected, "began at {begin:?}, committed at {lsn:?}");
        }
    });
}

/// A mapping table grows while a reader looks up a chain in it.
#[test]
fn model_of_pages_a_mapping_table_that_grows() {
    check(2, || {
        let (record, me) = Record::new(|page| page.domain.participate(), 2);
        let page = &record.page;
        let (name, _change) = record.written(11);
        let reader = reader(page, 1, Lsn(100));
        {
            let latched = page.latch();
            for other in 1..=3 {
                page.make_chain(&latched, other);
            }
        }
        free(&me);
        assert!(matches!(reader.join().unwrap(), Some(10) | None));
        page.status.aborted(name);
    });
}

/// Each planted bug makes a model fail.
#[test]
fn model_of_pages_each_mistake_is_found() {
    let abort = "model_of_pages_an_abort_beside_a_reader";
    let write = "model_of_pages_a_writer_beside_a_reader";
    let collect = "model_of_pages_collectors_beside_pruning";
    let prune = "model_of_pages_a_pruner_beside_the_owner";
    for (bug, model, found) in [
        (Bug::ChainLookedUpAfterValidation, abort, "a reader sees what was aborted"),
        (Bug::ValidatedWithoutFence, write, "a reader sees what is in flight"),
        (Bug::ChangeFreedAtOnce, abort, "used after it was freed"),
        (Bug::ChangePushedWithoutLatch, "model_of_pages_a_writer_beside_a_collector", ""),
        (Bug::ChangeTakenOutWithoutLatch, "model_of_pages_an_abort_beside_a_collector", ""),
        (Bug::CollectorRetiresAllItCuts, collect, "used after it was freed"),
        (Bug::ChainFreedWithItsEntry, collect, "used after it was freed"),
        (Bug::PrunedChangeRetiredEarly, prune, "used after it was freed"),
        (Bug::CommittingTakenForActive, "model_of_pages_a_commit_beside_a_reader", "began at"),
    ] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("page::versions::model::{model}")])
            .env(VARIABLE, (bug as usize).to_string())
            .output()
            .unwrap();
        let told =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains("running 1 test"), "{bug:?}:\n{told}");
        assert!(told.contains(found), "{bug:?} is found as something else:\n{told}");
    }
}
