//! SSN, the serial safety net (Wang, Johnson, Fekete, Pandis; CoroBase certifies by it): another way to
//! certify, for comparison, in databases opened with [`Certifier::SerialSafetyNet`](super::Certifier).
//!
//! A transaction may commit although what it read has changed: then it comes, in the serial order, before
//! whoever changed it. It fails only if it would also come after them. With each transaction T that
//! commits at `c` there are two bounds:
//!
//! - π(T), the earliest commit among those that T comes before: the least of `c` and of π(U) for each U that
//!   wrote over something T read and committed before `c`;
//! - η(T), the latest commit among those that T comes after: of what it saw or wrote over, and of those who
//!   read what it writes over and committed before `c`.
//!
//! T fails if π(T) <= η(T). It lowers its bound to the *bound* of U, not to U's commit: that is what
//! the proof needs, and CoroBase does otherwise.
//!
//! | | where it is kept |
//! |---|---|
//! | when a version was committed | its stamp |
//! | who last read a record, a range | `record/access.rs` |
//! | π of a commit, where it is not the commit itself | [`SafetyNet::bounds`] |
//!
//! # Commits at the same time
//!
//! After T has drawn `c`, without a suspension:
//!
//! 1. if it wrote, it waits until no other worker has a commit under way at an LSN before `c` that has not
//!    stamped yet what it read; then it takes η from the access stamps of what it writes over;
//! 2. for all it read, it looks who wrote over it, and waits for those who commit before `c` to be decided,
//!    then stamps it with `c`;
//! 3. it publishes that, by its worker's word in [`SafetyNet::under_way`];
//! 4. it compares, and publishes its π before it is `Committed`.
//!
//! Whoever drew an LSN before `c` had stored its word before, and its `Committing`, and T's addition to the
//! log's tail comes after that one's: so T sees them. Everybody waits for earlier LSNs only, so nobody waits in a
//! circle. A record's access stamp that T sees in 1 is of a reader before `c`: a later one that finds
//! T's version waits in 2. One of ranges may be later; then T fails although it need not.
//!
//! Readers are certified too, or an update could commit between two of whom a reader saw only the later one; so
//! each draws an LSN. A range is looked at again at the commit: a record that was inserted was written over
//! as any other, and whoever inserts comes after the readers of any range of the table.

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;

use super::certify::BATCH;
use super::context::Transaction;
use super::engine::Engine;
use super::read_set::NamedKeys;
use super::write_set::WriteKind;
use crate::index::LeafEntry;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim::{self, OperationGuard};
use crate::record::{Records, wait};
use crate::rid::Rid;
use crate::sched::run_now;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::Link;

/// In place of an LSN: the worker has no commit under way, or that one has stamped what it read.
const NONE: u64 = u64::MAX;

/// What all transactions of a database share that certifies by the serial safety net.
#[derive(Debug)]
pub(crate) struct SafetyNet {
    /// For each worker a bound of the LSN of its commit under way, then that LSN.
    under_way: Box<[CachePadded<AtomicU64>]>,
    /// π of commits for which it is earlier than the commit, while a transaction may ask.
    bounds: RwLock<BTreeMap<Lsn, Lsn>>,
}

/// A commit under way, until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'e>(&'e AtomicU64);

/// What a transaction has found of its two bounds.
#[derive(Debug)]
struct Bounds {
    commit: Lsn,
    /// η so far.
    after: Lsn,
    /// π so far, and what was read that gave it.
    before: Lsn,
    read: Option<Read>,
}

#[derive(Clone, Copy, Debug)]
enum Read {
    Point(usize),
    Part(usize),
    Range(usize),
}

impl SafetyNet {
    pub(super) fn new(workers: usize) -> Self {
        let none = || CachePadded::new(AtomicU64::new(NONE));
        Self { under_way: (0..workers).map(|_| none()).collect(), bounds: RwLock::default() }
    }

    /// A worker begins to commit; `tail` is the log's, read before.
    fn enter(&self, worker: usize, tail: Lsn) -> UnderWay<'_> {
        let word = &*self.under_way[worker];
        // Release: together with the addition to the tail that follows, which those who draw later read.
        word.store(tail.0, Ordering::Release);
        UnderWay(word)
    }

    /// Waits until all that commit before `lsn` have stamped what they read.
    fn await_readers(&self, worker: usize, lsn: Lsn) {
        for (_, word) in self.under_way.iter().enumerate().filter(|(other, _)| *other != worker) {
            let mut looks = 0;
            // Acquire pairs with the Release in `stamped_reads`: the reader's stamps are seen.
            while word.load(Ordering::Acquire) < lsn.0 {
                wait(&mut looks);
            }
        }
    }

    /// π of a commit.
    fn bound(&self, commit: Lsn) -> Lsn {
        self.bounds.read().get(&commit).copied().unwrap_or(commit)
    }

    /// Makes π of a commit visible to other transactions, before the commit is `Committed`; `bound` is earlier than the
    /// commit. Drops those of commits before `oldest`, which no transaction looks up any more.
    fn publish_bound(&self, commit: Lsn, bound: Lsn, oldest: Lsn) {
        let bounds = &mut *self.bounds.write();
        bounds.insert(commit, bound);
        while let Some(first) = bounds.first_entry()
            && *first.key() < oldest
        {
            first.remove();
        }
    }
}

impl UnderWay<'_> {
    fn drew(&self, lsn: Lsn) {
        // Release: nothing but the LSN is told.
        self.0.store(lsn.0, Ordering::Release);
    }

    /// Publishes that what the transaction read is stamped.
    fn stamped_reads(&self) {
        // Release pairs with the Acquire in `await_readers`.
        self.0.store(NONE, Ordering::Release);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.stamped_reads();
    }
}

impl Bounds {
    /// The transaction comes after a commit.
    fn comes_after(&mut self, commit: Lsn) {
        self.after = self.after.max(commit);
    }

    /// The transaction comes before all that a commit with this bound comes before.
    fn comes_before(&mut self, bound: Lsn, read: Read) {
        if bound < self.before {
            (self.before, self.read) = (bound, Some(read));
        }
    }
}

impl Engine {
    /// Begins a worker's commit, where that matters; before the LSN is drawn.
    pub(super) fn enter_safety_net(&self, worker: usize) -> Option<UnderWay<'_>> {
        self.safety_net.as_ref().map(|net| net.enter(worker, self.log.tail()))
    }
}

impl Transaction {
    /// Whether the transaction may commit at `commit`, by the serial safety net.
    ///
    /// # Errors
    /// What it read that makes it come before whom it comes after.
    pub(super) fn pass_safety_net(&self, commit: Lsn) -> Result<(), NamedKeys> {
        let engine = self.engine();
        let net = engine.safety_net.as_ref().expect("the transaction's mode says so");
        let number = self.worker().number();
        let under_way = UnderWay(&net.under_way[number]);
        under_way.drew(commit);
        let mut bounds = Bounds { commit, after: self.depends_on(), before: commit, read: None };
        self.look_at_writes(net, &mut bounds);
        self.look_at_reads(net, &mut bounds);
        drop(under_way);
        let Bounds { after, before, read, .. } = bounds;
        if before <= after {
            return Err(match read {
                Some(Read::Point(number)) => self.reads().name_point(number),
                Some(Read::Part(number)) => self.reads().name_projection(number),
                Some(Read::Range(number)) => self.reads().name_range(number),
                None => self.name_a_write(),
            });
        }
        if before < commit && !self.writes().borrow().is_empty() {
            net.publish_bound(commit, before, engine.horizon.oldest(engine.log.tail()));
        }
        Ok(())
    }

    /// Takes η from those who read what the transaction writes over.
    fn look_at_writes(&self, net: &SafetyNet, bounds: &mut Bounds) {
        let writes = self.writes().borrow();
        if writes.is_empty() {
            return;
        }
        if !is_planted(Bug::ReadersNotAwaited) {
            net.await_readers(self.worker().number(), bounds.commit);
        }
        for write in writes.writes().iter().filter(|write| write.kind != WriteKind::Void) {
            // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
            let table = unsafe { write.table.get() };
            bounds.comes_after(table.latest_reader(write.rid));
            if !write.existed() {
                bounds.comes_after(table.latest_range_reader());
            }
            if let Some(Link::Address(address)) = write.base {
                bounds.comes_after(address.lsn());
            }
        }
    }

    /// Takes π from those who wrote over what the transaction read, and stamps that.
    fn look_at_reads(&self, net: &SafetyNet, bounds: &mut Bounds) {
        let (reads, operation) = (self.reads(), reclaim::enter());
        let mut look = |table: &Records, rid: Rid, read: Read| {
            let overwritten = table.overwritten_at(rid, self.view(), bounds.commit, &operation);
            if let Some(commit) = overwritten {
                bounds.comes_before(net.bound(commit), read);
            }
            table.note_reader(rid, bounds.commit);
        };
        for number in 0..reads.points() {
            let point = reads.point(number);
            // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
            look(unsafe { point.table.get() }, point.rid, Read::Point(number));
        }
        for number in 0..reads.projections() {
            reads.with_projection(number, |point, _| {
                // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
                look(unsafe { point.table.get() }, point.rid, Read::Part(number));
            });
        }
        for number in 0..reads.ranges() {
            self.entries_of_range(number, &operation, |table, rid| {
                look(table, rid, Read::Range(number));
            });
        }
        for number in 0..reads.ranges() {
            reads.with_range(number, |table, _, _| {
                // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
                let table = unsafe { table.get() };
                bounds.comes_after(table.latest_reclaimed());
                table.note_range_reader(bounds.commit);
            });
        }
    }

    /// Calls `each` with the record of every index entry of a range.
    fn entries_of_range(
        &self,
        number: usize,
        operation: &OperationGuard,
        mut each: impl FnMut(&Records, Rid),
    ) {
        let cursor = self.reads().with_range(number, |table, low, high| {
            // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
            let table = unsafe { table.get() };
            (table, table.index.cursor(low, high, false))
        });
        let Some((table, mut cursor)) = cursor else { return };
        let mut entries = Vec::<LeafEntry<'_>>::new();
        while run_now(cursor.next_batch(operation, &mut entries, BATCH)) {
            entries.iter().for_each(|entry| each(table, entry.rid));
        }
    }

    /// Names a record that the transaction wrote.
    fn name_a_write(&self) -> NamedKeys {
        let writes = self.writes().borrow();
        let write =
            writes.writes().first().expect("one that read nothing and wrote nothing passes");
        // SAFETY: tables live as long as the engine, which `self` holds, or are the transaction's own.
        NamedKeys::record(unsafe { write.table.get() }, writes.key(write))
    }
}
