//! Loom model of installation, visibility and commit. Runs every interleaving of one writer with
//! readers on another worker, under the memory model, with the real chain, status and indirection
//! code.

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

use super::indirection::{IndirectionArray, IndirectionEntry};
use crate::log::Lsn;
use crate::memory::MemoryCounters;
use crate::rid::Rid;
use crate::version::{Address, Link, Stamp, StatusTable, TransactionName, VersionRef, Visibility};

/// Shared state of a model's workers: one record with a first version committed at 8.
struct Shared {
    tail: AtomicU64,
    status: StatusTable,
    array: IndirectionArray,
    memory: MemoryCounters,
}

const RECORD: u64 = 1;
const BLOCK_BYTES: u64 = 8;

impl Shared {
    fn new() -> Self {
        let memory = MemoryCounters::new();
        let array = IndirectionArray::default();
        array.grow(RECORD).unwrap();
        let first = VersionRef::allocate(&memory, Stamp::committed(Lsn(8)), b"old", false);
        array.publish(Rid::new(RECORD), first);
        let tail = AtomicU64::new(8 + BLOCK_BYTES);
        Self { tail, status: StatusTable::new(2, 1), array, memory }
    }

    fn head(&self) -> VersionRef {
        match self.array.load(Rid::new(RECORD)) {
            IndirectionEntry::Version(head) => head,
            other => panic!("{other:?}"),
        }
    }

    /// Writes the record in a transaction of worker 0, which commits or aborts.
    fn write(&self, commit: bool) -> Option<Lsn> {
        let name = self.status.begin(0, 0);
        let base = self.head();
        let new = VersionRef::allocate(&self.memory, Stamp::in_flight(name), b"new", false);
        // SAFETY: not shared yet; the model frees nothing while threads run.
        let version = unsafe { new.get() };
        version.set_next(Some(Link::Version(base)));
        let rid = Rid::new(RECORD);
        assert!(self.array.replace(
            rid,
            IndirectionEntry::Version(base),
            IndirectionEntry::Version(new)
        ));
        if !commit {
            self.status.aborted(name);
            assert!(self.array.replace(
                rid,
                IndirectionEntry::Version(new),
                IndirectionEntry::Version(base)
            ));
            version.set_stamp(Stamp::ABORTED);
            return None;
        }
        let committing = self.status.committing(name);
        let lsn = Lsn(self.tail.fetch_add(BLOCK_BYTES, Ordering::AcqRel));
        committing.drew(lsn);
        committing.committed();
        version.set_stamp(Stamp::committed(lsn));
        // The context is reused by its next transaction: earlier names are outdated now.
        let next = self.status.begin(0, 0);
        self.status.aborted(next);
        Some(lsn)
    }

    /// The value that a transaction with begin stamp `begin` reads; `None` while undecided.
    fn read(&self, begin: Lsn) -> Option<&'static [u8]> {
        let mut next = Some(Link::Version(self.head()));
        while let Some(link) = next {
            let Link::Version(reference) = link else { panic!("nothing is evicted here") };
            // SAFETY: the model frees nothing while threads run.
            let version = unsafe { reference.get::<'static>() };
            match self.status.visible(version.stamp(), begin, None, || version.stamp())? {
                Visibility::No => next = version.next(),
                Visibility::Own | Visibility::Committed(_) => return Some(version.payload()),
            }
        }
        panic!("the first version is visible to everyone");
    }
}

/// Runs one writer concurrently with one reader that reads twice in one snapshot.
fn writer_beside_reader(commit: bool) {
    loom::model(move || {
        let shared = Arc::new(Shared::new());
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || shared.write(commit))
        };
        let begin = Lsn(shared.tail.load(Ordering::Acquire));
        let (first, second) = (shared.read(begin), shared.read(begin));
        let committed = writer.join().unwrap();
        let expected: &[u8] =
            if committed.is_some_and(|lsn| lsn < begin) { b"new" } else { b"old" };
        for read in [first, second].into_iter().flatten() {
            assert_eq!(read, expected, "a snapshot never changes");
        }
        assert_eq!(shared.read(begin), Some(expected), "decided once the writer is done");
    });
}

#[test]
fn model_a_snapshot_sees_a_commit_exactly_if_it_began_after() {
    writer_beside_reader(true);
}

#[test]
fn model_a_snapshot_never_sees_an_abort() {
    writer_beside_reader(false);
}

#[test]
fn model_of_two_writers_one_wins() {
    loom::model(|| {
        let shared = Arc::new(Shared::new());
        let attempt = |shared: Arc<Shared>, worker: usize| {
            let name: TransactionName = shared.status.begin(worker, 0);
            let base = shared.head();
            // SAFETY: the model frees nothing while threads run.
            if unsafe { base.get() }.stamp().name().is_some() {
                return false;
            }
            let stamp = Stamp::in_flight(name);
            let new = VersionRef::allocate(&shared.memory, stamp, b"new", false);
            // SAFETY: not shared yet.
            unsafe { new.get() }.set_next(Some(Link::Version(base)));
            let (from, to) = (IndirectionEntry::Version(base), IndirectionEntry::Version(new));
            shared.array.replace(Rid::new(RECORD), from, to)
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || attempt(shared, 0))
        };
        let mine = attempt(shared.clone(), 1);
        assert!(mine != other.join().unwrap(), "exactly one writer is first");
    });
}

/// A chain of versions committed at 8, 16 and 24, newest first.
fn three_versions(shared: &Shared) -> [VersionRef; 3] {
    let first = shared.head();
    let add = |on: VersionRef, lsn, payload: &[u8]| {
        let stamp = Stamp::committed(Lsn(lsn));
        let version = VersionRef::allocate(&shared.memory, stamp, payload, false);
        // SAFETY: not shared yet.
        unsafe { version.get() }.set_next(Some(Link::Version(on)));
        let (from, to) = (IndirectionEntry::Version(on), IndirectionEntry::Version(version));
        assert!(shared.array.replace(Rid::new(RECORD), from, to));
        version
    };
    let second = add(first, 16, b"between");
    [add(second, 24, b"new"), second, first]
}

#[test]
fn model_an_old_reader_finds_its_version_while_others_are_unlinked() {
    loom::model(|| {
        let shared = Arc::new(Shared::new());
        let [newest, between, _] = three_versions(&shared);
        let pruner = thread::spawn(move || {
            // SAFETY: the model frees nothing while threads run.
            let (newer, unseen) = unsafe { (newest.get(), between.get()) };
            newer.set_next(unseen.next());
        });
        assert_eq!(shared.read(Lsn(10)), Some(&b"old"[..]));
        assert_eq!(shared.read(Lsn(25)), Some(&b"new"[..]));
        pruner.join().unwrap();
        assert_eq!(shared.read(Lsn(10)), Some(&b"old"[..]));
    });
}

#[test]
fn model_a_write_beside_an_eviction_is_not_lost() {
    loom::model(|| {
        let shared = Arc::new(Shared::new());
        let (head, rid) = (shared.head(), Rid::new(RECORD));
        let address = Address::new(Lsn(8), 3);
        let evictor = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.array.replace(
                    rid,
                    IndirectionEntry::Version(head),
                    IndirectionEntry::Address(address),
                )
            })
        };
        let stamp = Stamp::committed(Lsn(16));
        let new = VersionRef::allocate(&shared.memory, stamp, b"new", false);
        let base = loop {
            let base = match shared.array.load(rid) {
                IndirectionEntry::Version(version) => Link::Version(version),
                IndirectionEntry::Address(address) => Link::Address(address),
                other => panic!("{other:?}"),
            };
            // SAFETY: not shared yet.
            unsafe { new.get() }.set_next(Some(base));
            if shared.array.replace(rid, base.into(), IndirectionEntry::Version(new)) {
                break base;
            }
        };
        let evicted = evictor.join().unwrap();
        assert_eq!(shared.array.load(rid), IndirectionEntry::Version(new), "the write stands");
        assert_eq!(evicted, base == Link::Address(address), "on what the eviction left");
    });
}
