//! SSN, the serial safety net (Wang, Johnson, Fekete, Pandis; CoroBase certifies by it): an
//! alternative certifier, for comparison, in databases opened with
//! [`Certifier::SerialSafetyNet`](super::Certifier).
//!
//! A transaction may commit although its reads have changed: in the serial order it then precedes
//! the transactions that changed them. It fails only if it would also follow them. Each transaction
//! T that commits at `c` has two bounds:
//!
//! - π(T), the earliest commit that T precedes: the least of `c` and of π(U) for each U that
//!   overwrote something T read and committed before `c`;
//! - η(T), the latest commit that T follows: of the versions it read or overwrote, and of readers
//!   of what it overwrites that committed before `c`.
//!
//! T fails if π(T) <= η(T). It lowers its bound to the *bound* of U, not to U's commit: the proof
//! needs that, and CoroBase differs here.
//!
//! | information | where it is kept |
//! |---|---|
//! | commit LSN of a version | its stamp |
//! | last reader of a record or range | `record/access.rs` |
//! | π of a commit, where it is not the commit itself | [`SafetyNet::bounds`] |
//!
//! # Concurrent commits
//!
//! After T has drawn `c`, without suspension:
//!
//! 1. If T wrote, it waits for commits of other workers at LSNs before `c` that have not stamped
//!    their reads yet. Then it takes η from the access stamps of the records it overwrites.
//! 2. For everything it read, it finds the transactions that overwrote it, and waits until those
//!    that commit before `c` are decided. Then it stamps its reads with `c`.
//! 3. It publishes this through its worker's word in [`SafetyNet::in_progress`].
//! 4. It compares, and publishes its π before it is `Committed`.
//!
//! A transaction that drew an LSN before `c` had stored its word and its `Committing` before, and
//! T's addition to the log's tail follows that one's: so T sees them. Every transaction waits only
//! for earlier LSNs, so no cycle of waits exists. A record's access stamp that T sees in step 1
//! belongs to a reader before `c`: a later one that finds T's version waits in step 2. A range's
//! access stamp may be later; then T fails unnecessarily.
//!
//! Read-only transactions are certified too, and each draws an LSN. Otherwise an update could
//! commit between two updates of which a reader saw only the later one. A range is read again at
//! commit: an inserted record counts as overwritten, and an inserting transaction follows the
//! readers of any range of the table.

use std::collections::BTreeMap;

use crossbeam_utils::CachePadded;

use super::certify::BATCH;
use super::context::ActiveTransaction;
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

/// Replaces an LSN: the worker has no commit in progress, or its reads are stamped.
const NO_COMMIT: u64 = u64::MAX;

/// Shared state of a database that is certified by the serial safety net.
#[derive(Debug)]
pub(crate) struct SafetyNet {
    /// For each worker a lower bound of the LSN of its commit in progress, then that LSN.
    in_progress: Box<[CachePadded<AtomicU64>]>,
    /// π of commits for which it is earlier than the commit, while a transaction may need it.
    bounds: RwLock<BTreeMap<Lsn, Lsn>>,
}

/// A commit in progress; dropping this ends it.
#[derive(Debug)]
pub(super) struct CommitInProgress<'e>(&'e AtomicU64);

/// The two bounds of a transaction, as found so far.
#[derive(Debug)]
struct SerialBounds {
    commit: Lsn,
    /// η so far.
    after: Lsn,
    /// π so far, and the read that determined it.
    before: Lsn,
    read: Option<BoundingRead>,
}

#[derive(Clone, Copy, Debug)]
enum BoundingRead {
    Point(usize),
    Part(usize),
    Range(usize),
}

impl SafetyNet {
    pub(super) fn new(workers: usize) -> Self {
        let none = || CachePadded::new(AtomicU64::new(NO_COMMIT));
        Self { in_progress: (0..workers).map(|_| none()).collect(), bounds: RwLock::default() }
    }

    /// Begins a worker's commit; `tail` is the log's tail, read before.
    fn enter(&self, worker: usize, tail: Lsn) -> CommitInProgress<'_> {
        let word = &*self.in_progress[worker];
        // Release: made visible by the addition to the tail that follows, which every later draw
        // reads.
        word.store(tail.0, Ordering::Release);
        CommitInProgress(word)
    }

    /// Waits until all transactions that commit before `lsn` have stamped their reads.
    fn await_readers(&self, worker: usize, lsn: Lsn) {
        for (_, word) in self.in_progress.iter().enumerate().filter(|(other, _)| *other != worker) {
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

    /// Makes π of a commit visible to other transactions, before the commit is `Committed`; `bound`
    /// is earlier than the commit. Removes bounds of commits before `oldest`, which no transaction
    /// needs any more.
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

impl CommitInProgress<'_> {
    fn drew(&self, lsn: Lsn) {
        // Release: publishes nothing except the LSN.
        self.0.store(lsn.0, Ordering::Release);
    }

    /// Publishes that the transaction's reads are stamped.
    fn stamped_reads(&self) {
        // Release pairs with the Acquire in `await_readers`.
        self.0.store(NO_COMMIT, Ordering::Release);
    }
}

impl Drop for CommitInProgress<'_> {
    fn drop(&mut self) {
        self.stamped_reads();
    }
}

impl SerialBounds {
    /// Notes that the transaction follows a commit.
    fn comes_after(&mut self, commit: Lsn) {
        self.after = self.after.max(commit);
    }

    /// Notes that the transaction precedes everything that a commit with this bound precedes.
    fn comes_before(&mut self, bound: Lsn, read: BoundingRead) {
        if bound < self.before {
            (self.before, self.read) = (bound, Some(read));
        }
    }
}

impl Engine {
    /// Begins a worker's commit under the safety net, if it is in use; before the LSN is drawn.
    pub(super) fn enter_safety_net(&self, worker: usize) -> Option<CommitInProgress<'_>> {
        self.safety_net.as_ref().map(|net| net.enter(worker, self.log.tail()))
    }
}

impl ActiveTransaction {
    /// Decides whether the transaction may commit at `commit`, by the serial safety net.
    ///
    /// # Errors
    /// The read because of which it would precede a transaction that it also follows.
    pub(super) fn pass_safety_net(&self, commit: Lsn) -> Result<(), NamedKeys> {
        let engine = self.engine();
        let net = engine.safety_net.as_ref().expect("the transaction's mode says so");
        let number = self.worker().number();
        let in_progress = CommitInProgress(&net.in_progress[number]);
        in_progress.drew(commit);
        let mut bounds =
            SerialBounds { commit, after: self.depends_on(), before: commit, read: None };
        self.look_at_writes(net, &mut bounds);
        self.look_at_reads(net, &mut bounds);
        drop(in_progress);
        let SerialBounds { after, before, read, .. } = bounds;
        if before <= after {
            return Err(match read {
                Some(BoundingRead::Point(number)) => self.reads().name_point(number),
                Some(BoundingRead::Part(number)) => self.reads().name_projection(number),
                Some(BoundingRead::Range(number)) => self.reads().name_range(number),
                None => self.name_a_write(),
            });
        }
        if before < commit && !self.writes().borrow().is_empty() {
            net.publish_bound(commit, before, engine.horizon.oldest(engine.log.tail()));
        }
        Ok(())
    }

    /// Takes η from the readers of the records that the transaction overwrites.
    fn look_at_writes(&self, net: &SafetyNet, bounds: &mut SerialBounds) {
        let writes = self.writes().borrow();
        if writes.is_empty() {
            return;
        }
        if !is_planted(Bug::ReadersNotAwaited) {
            net.await_readers(self.worker().number(), bounds.commit);
        }
        for write in writes.writes().iter().filter(|write| write.kind != WriteKind::Void) {
            // SAFETY: tables live as long as the engine, which `self` holds, or belong to the
            // transaction.
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

    /// Takes π from the transactions that overwrote what this one read, and stamps the reads.
    fn look_at_reads(&self, net: &SafetyNet, bounds: &mut SerialBounds) {
        let (reads, operation) = (self.reads(), reclaim::enter());
        let mut look = |table: &Records, rid: Rid, read: BoundingRead| {
            let overwritten = table.overwritten_at(rid, self.view(), bounds.commit, &operation);
            if let Some(commit) = overwritten {
                bounds.comes_before(net.bound(commit), read);
            }
            table.note_reader(rid, bounds.commit);
        };
        for number in 0..reads.points() {
            let point = reads.point(number);
            // SAFETY: tables live as long as the engine, which `self` holds, or belong to the
            // transaction.
            look(unsafe { point.table.get() }, point.rid, BoundingRead::Point(number));
        }
        for number in 0..reads.projections() {
            reads.with_projection(number, |point, _| {
                // SAFETY: tables live as long as the engine, which `self` holds, or belong to the
                // transaction.
                look(unsafe { point.table.get() }, point.rid, BoundingRead::Part(number));
            });
        }
        for number in 0..reads.ranges() {
            self.entries_of_range(number, &operation, |table, rid| {
                look(table, rid, BoundingRead::Range(number));
            });
        }
        for number in 0..reads.ranges() {
            reads.with_range(number, |table, _, _| {
                // SAFETY: tables live as long as the engine, which `self` holds, or belong to the
                // transaction.
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
            // SAFETY: tables live as long as the engine, which `self` holds, or belong to the
            // transaction.
            let table = unsafe { table.get() };
            (table, table.index.cursor(low, high, false))
        });
        let Some((table, mut cursor)) = cursor else { return };
        let mut entries = Vec::<LeafEntry<'_>>::new();
        while run_now(cursor.next_batch(operation, &mut entries, BATCH)) {
            entries.iter().for_each(|entry| each(table, entry.rid()));
        }
    }

    /// Names a record that the transaction wrote.
    fn name_a_write(&self) -> NamedKeys {
        let writes = self.writes().borrow();
        let write =
            writes.writes().first().expect("one that read nothing and wrote nothing passes");
        // SAFETY: tables live as long as the engine, which `self` holds, or belong to the
        // transaction.
        NamedKeys::record(unsafe { write.table.get() }, writes.key(write))
    }
}
