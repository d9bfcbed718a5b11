//! SSN, the serial safety net (Wang, Johnson, Fekete, Pandis; CoroBase certifies by it): an
//! alternative certifier, for comparison, in databases opened with
//! [`Certifier::SerialSafetyNet`](crate::transaction::Certifier).
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

use crate::log::Lsn;
use crate::record::wait;
use crate::sync::RwLock;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Replaces an LSN: the worker has no commit in progress, or its reads are stamped.
const NO_COMMIT: u64 = u64::MAX;

/// Shared state of a database that is certified by the serial safety net.
#[derive(Debug)]
pub(crate) struct SafetyNet {
    /// For each worker a lower bound of the LSN of its commit in progress, then that LSN.
    pub(in crate::transaction) in_progress: Box<[CachePadded<AtomicU64>]>,
    /// π of commits for which it is earlier than the commit, while a transaction may need it.
    bounds: RwLock<BTreeMap<Lsn, Lsn>>,
}

/// A commit in progress; dropping this ends it.
#[derive(Debug)]
pub(in crate::transaction) struct CommitInProgress<'e>(pub(in crate::transaction) &'e AtomicU64);

impl SafetyNet {
    pub(in crate::transaction) fn new(workers: usize) -> Self {
        let none = || CachePadded::new(AtomicU64::new(NO_COMMIT));
        Self { in_progress: (0..workers).map(|_| none()).collect(), bounds: RwLock::default() }
    }

    /// Begins a worker's commit; `tail` is the log's tail, read before.
    pub(in crate::transaction) fn enter(&self, worker: usize, tail: Lsn) -> CommitInProgress<'_> {
        let word = &*self.in_progress[worker];
        // Release: made visible by the addition to the tail that follows, which every later draw
        // reads.
        word.store(tail.0, Ordering::Release);
        CommitInProgress(word)
    }

    /// Waits until all transactions that commit before `lsn` have stamped their reads.
    pub(in crate::transaction) fn await_readers(&self, worker: usize, lsn: Lsn) {
        for (_, word) in self.in_progress.iter().enumerate().filter(|(other, _)| *other != worker) {
            let mut looks = 0;
            // Acquire pairs with the Release in `stamped_reads`: the reader's stamps are seen.
            while word.load(Ordering::Acquire) < lsn.0 {
                wait(&mut looks);
            }
        }
    }

    /// π of a commit.
    pub(in crate::transaction) fn bound(&self, commit: Lsn) -> Lsn {
        self.bounds.read().get(&commit).copied().unwrap_or(commit)
    }

    /// Makes π of a commit visible to other transactions, before the commit is `Committed`; `bound`
    /// is earlier than the commit. Removes bounds of commits before `oldest`, which no transaction
    /// needs any more.
    pub(in crate::transaction) fn publish_bound(&self, commit: Lsn, bound: Lsn, oldest: Lsn) {
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
    pub(in crate::transaction) fn drew(&self, lsn: Lsn) {
        // Release: publishes nothing except the LSN.
        self.0.store(lsn.0, Ordering::Release);
    }

    /// Publishes that the transaction's reads are stamped.
    pub(super) fn stamped_reads(&self) {
        // Release pairs with the Acquire in `await_readers`.
        self.0.store(NO_COMMIT, Ordering::Release);
    }
}

impl Drop for CommitInProgress<'_> {
    fn drop(&mut self) {
        self.stamped_reads();
    }
}
