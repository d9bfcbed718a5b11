//! Loom models of certification: transactions on two threads under the memory model. They use the
//! real table, transaction states, installation and certification; only the log is replaced by a
//! counter.

use std::ops::Bound;
use std::sync::Arc;

use loom::model::Builder;
use loom::thread;

use super::indirection::IndirectionEntry;
use super::read::{NotReady, SeenVersion};
use super::records::MemoryRecords;
use super::records::Records;
use super::write::InstallRefusal;
use crate::index::LeafEntry;
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::reclaim::{self, Domain, OperationGuard};
use crate::rid::{Rid, TableId};
use crate::sched::run_now;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{
    Horizon, Link, Readers, Stamp, StatusTable, TransactionName, Verdict, VersionRef, View,
};

const BLOCK_BYTES: u64 = 8;
/// The begin stamp of writing transactions.
const BEGIN: Lsn = Lsn(16);
/// Record ids; as bytes, also the keys of their records.
const ONE: u8 = 0;
const TWO: u8 = 1;
/// A key that has no record at first.
const THREE: u8 = 2;

/// Shared state of a model's workers: records one and two, committed at 8.
struct Shared {
    tail: AtomicU64,
    status: StatusTable,
    /// Dropped before the table, which retired items reference.
    domain: Arc<Domain>,
    table: Records,
}

/// Reads of a transaction.
#[derive(Clone, Copy, Debug)]
enum Read {
    Nothing,
    Record(u8),
    /// All records from a key on.
    From(u8),
}

/// Outcome of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Committed(Lsn),
    /// It met another transaction's write.
    Conflict,
    /// Its read set had changed.
    Changed,
    /// Its read set was still in doubt after all polls.
    Untold,
}

fn rid(number: u8) -> Rid {
    Rid::new(u64::from(number))
}

impl Shared {
    fn table(&self) -> &MemoryRecords {
        self.table.in_memory().unwrap()
    }

    fn new() -> Self {
        let memory = Arc::new(MemoryCounters::new());
        let domain = Arc::new(Domain::new(2, memory.clone()));
        let records = Records::new(TableId(1), memory, None, false);
        {
            let table = records.in_memory().unwrap();
            let _me = domain.participate();
            let operation = reclaim::enter();
            for number in [ONE, TWO] {
                let id = table.take_rid().unwrap();
                assert_eq!(id, rid(number));
                let stamp = Stamp::committed(Lsn(8));
                table
                    .array()
                    .publish(id, VersionRef::allocate(table.memory(), stamp, b"old", false));
                table.index().insert(&[number], id, &operation).unwrap();
            }
        }
        Self {
            tail: AtomicU64::new(BEGIN.0),
            status: StatusTable::new(2, 1),
            domain,
            table: records,
        }
    }

    fn tail(&self) -> Lsn {
        Lsn(self.tail.load(Ordering::SeqCst))
    }

    fn view(&self, begin: Lsn, me: TransactionName) -> View<'_> {
        // SAFETY: nothing is freed while a model's threads run.
        unsafe { View::new(begin, me, &self.status) }
    }

    /// Runs a transaction of a worker that reads, writes one record, and commits or aborts. All
    /// transactions begin before any of them continues.
    fn run(&self, worker: usize, read: Read, written: u8) -> End {
        let _me = self.domain.participate();
        let operation = &reclaim::enter();
        let name = self.status.begin(worker, 0);
        let view = self.view(BEGIN, name);
        let stamp = Stamp::in_flight(name);
        let new = VersionRef::allocate(self.table().memory(), stamp, b"new", false);
        let Some((id, base)) = self.install(view, written, new, operation) else {
            self.status.aborted(name);
            return End::Conflict;
        };
        let committing = self.status.committing(name);
        // SeqCst, like the log's.
        let lsn = Lsn(self.tail.fetch_add(BLOCK_BYTES, Ordering::SeqCst));
        committing.drew(lsn);
        let end = self.certify(view, read, lsn, operation);
        if let End::Committed(_) = end {
            committing.committed();
            // SAFETY: nothing is freed while a model's threads run.
            unsafe { new.get() }.set_stamp(Stamp::committed(lsn));
        } else {
            self.status.aborted(name);
            if base.is_none() {
                self.table().index().remove(&[written], id, operation);
            }
            // SAFETY: installed above on that base.
            unsafe { self.table().roll_back(id, new, base) };
        }
        end
    }

    /// Installs a version, or inserts it under a key without a record, like `Transaction::write`.
    fn install(
        &self,
        view: View<'_>,
        written: u8,
        new: VersionRef,
        operation: &OperationGuard,
    ) -> Option<(Rid, Option<Link>)> {
        loop {
            let Ok(id) = self.table().look_up_now(&[written], operation) else {
                let id = self.table().take_rid().unwrap();
                self.table().array().publish(id, new);
                if self.table().index().insert(&[written], id, operation).is_ok() {
                    return Some((id, None));
                }
                // SAFETY: published above; the index never referenced it.
                unsafe { self.table().roll_back(id, new, None) };
                continue;
            };
            match self.table().base(self.table().array().entry(id), view, operation) {
                Ok(base) if self.table().install(self.table().array().entry(id), base, new) => {
                    return Some((id, base.link()));
                }
                Ok(_) | Err(InstallRefusal::Dead) => {}
                Err(InstallRefusal::Conflict | InstallRefusal::Newer) => return None,
            }
        }
    }

    fn certify(&self, view: View<'_>, read: Read, lsn: Lsn, operation: &OperationGuard) -> End {
        let judge = |id| match self.table().deciding(id, view, lsn, operation) {
            Some((_, Verdict::Between)) => End::Changed,
            Some((_, Verdict::Untold)) => End::Untold,
            _ => End::Committed(lsn),
        };
        match read {
            Read::Nothing => End::Committed(lsn),
            Read::Record(number)
                if self.table().has_unchanged_head(rid(number), view, operation) =>
            {
                End::Committed(lsn)
            }
            Read::Record(number) => judge(rid(number)),
            Read::From(first) => {
                let low = Bound::Included(&[first][..]);
                let mut cursor = self.table().index().cursor(low, Bound::Unbounded, false);
                let mut entries = Vec::<LeafEntry<'_>>::new();
                while run_now(cursor.next_batch(operation, &mut entries, 4)) {
                    let ends = entries.iter().map(|entry| judge(entry.rid()));
                    if let Some(end) = ends.into_iter().find(|end| *end != End::Committed(lsn)) {
                        return end;
                    }
                }
                End::Committed(lsn)
            }
        }
    }
}

/// Runs two transactions concurrently, and passes their outcomes to `holds`.
fn beside(one: (Read, u8), other: (Read, u8), holds: fn(End, End)) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let shared = Arc::new(Shared::new());
        let thread = {
            let shared = shared.clone();
            thread::spawn(move || shared.run(1, other.0, other.1))
        };
        let end = shared.run(0, one.0, one.1);
        holds(end, thread.join().unwrap());
    });
}

fn committed(end: End) -> bool {
    matches!(end, End::Committed(_))
}

/// If each of two transactions writes what the other has read, committing both would be write skew.
/// One of them commits, unless the other was about to publish its LSN during all polls.
fn skewed(one: End, other: End) {
    assert!(!(committed(one) && committed(other)), "write skew");
    let told = one != End::Untold && other != End::Untold;
    assert!(!told || committed(one) || committed(other), "neither commits: {one:?}, {other:?}");
}

#[test]
fn model_of_two_in_write_skew_one_commits() {
    beside((Read::Record(ONE), TWO), (Read::Record(TWO), ONE), skewed);
}

#[test]
fn model_an_insertion_beside_a_scan_is_a_phantom() {
    beside((Read::From(THREE), ONE), (Read::Record(ONE), THREE), skewed);
}

#[test]
fn model_of_two_who_claim_a_key_one_wins() {
    beside((Read::Nothing, THREE), (Read::Nothing, THREE), |one, other| {
        let ends = [one, other];
        assert!(ends.iter().any(|end| committed(*end)), "{ends:?}");
        assert!(ends.contains(&End::Conflict), "{ends:?}");
    });
}

/// A reader that begins while a transaction is being certified, which passes or fails.
fn reader_beside_certification(fails: bool) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Arc::new(Shared::new());
        if fails {
            assert!(committed(shared.run(1, Read::Nothing, ONE)));
        }
        let thread = {
            let shared = shared.clone();
            thread::spawn(move || shared.run(0, Read::Record(ONE), TWO))
        };
        let me = shared.domain.participate();
        let operation = reclaim::enter();
        let begin = shared.tail();
        let view = shared.view(begin, shared.status.begin(1, 0));
        let read = || match shared.table().find_now(rid(TWO), view, &operation) {
            Ok(seen) => Some(seen.and_then(SeenVersion::value).expect("it is there").to_vec()),
            Err(NotReady::Undecided) => None,
            Err(NotReady::InLog(place)) => panic!("{place:?}"),
        };
        let seen = read();
        let end = thread.join().unwrap();
        assert_eq!(committed(end), !fails, "{end:?}");
        let expected = match end {
            End::Committed(lsn) if lsn < begin => &b"new"[..],
            _ => b"old",
        };
        assert!(seen.is_none_or(|seen| seen == expected), "the reader saw an undecided write");
        assert_eq!(read().as_deref(), Some(expected), "decided once the writer is done");
        drop(operation);
        drop(me);
    });
}

#[test]
fn model_a_reader_begun_later_sees_who_passes() {
    reader_beside_certification(false);
}

#[test]
fn model_a_reader_begun_later_sees_nothing_of_who_fails() {
    reader_beside_certification(true);
}

/// A pruner cuts out versions that two readers, begun at 10 and 20, do not see. At the same time
/// the second reader is certified at 28; its worker last announced a tail of 26.
#[test]
fn model_what_decides_a_certification_is_not_pruned() {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let shared = Arc::new(Shared::new());
        let stamps = [12, 16, 24, 32];
        let versions = stamps.map(|lsn| {
            let IndirectionEntry::Version(below) = shared.table().array().load(rid(ONE)) else {
                panic!("it is in memory")
            };
            let stamp = Stamp::committed(Lsn(lsn));
            let new = VersionRef::allocate(shared.table().memory(), stamp, b"new", false);
            // SAFETY: nothing is freed while a model's threads run.
            unsafe { new.get() }.set_next(Some(Link::Version(below)));
            let (from, to) = (IndirectionEntry::Version(below), IndirectionEntry::Version(new));
            assert!(shared.table().array().replace(rid(ONE), from, to));
            new
        });
        let (horizon, readers) = (Horizon::new(2), Readers::new(2));
        readers.publish(0, [Lsn(10)].into_iter(), Lsn::MAX, Lsn(40));
        readers.publish(1, [Lsn(20)].into_iter(), Lsn::MAX, Lsn(26));
        let pruner = thread::spawn(move || {
            let pruning = horizon.prune().expect("no worker acts");
            let begins = readers.stamps(Lsn(40), &pruning);
            let mut cut = 0;
            for place in 0..3 {
                if begins.is_only_stepped_over(Lsn(stamps[place]), Lsn(stamps[place + 1])) {
                    // SAFETY: nothing is freed while a model's threads run.
                    let (newer, version) =
                        unsafe { (versions[place + 1].get(), versions[place].get()) };
                    newer.set_next(version.next());
                    cut += 1;
                }
            }
            cut
        });
        let me = shared.domain.participate();
        let operation = reclaim::enter();
        let name = shared.status.begin(1, 0);
        let end =
            shared.certify(shared.view(Lsn(20), name), Read::Record(ONE), Lsn(28), &operation);
        assert_eq!(end, End::Changed, "a version was committed at 24");
        let seen = |begin| {
            let seen = shared.table().find_now(rid(ONE), shared.view(Lsn(begin), name), &operation);
            seen.unwrap().and_then(|seen| seen.committed)
        };
        assert_eq!((seen(10), seen(20)), (Some(Lsn(8)), Some(Lsn(16))));
        assert_eq!(pruner.join().unwrap(), 1, "no reader sees the version of 12");
        drop(operation);
        drop(me);
    });
}
