//! Certification of a record: whether it is, as of a commit, what a transaction saw when it began
//! (the read validation of Hekaton, at the point in the log that orders commits).
//!
//! The caller has drawn its commit LSN `c`, or asks as of [`Lsn::MAX`]; its begin stamp is `b`.
//! Proof of correctness:
//!
//! - A transaction that committed at `u < c` installed its versions, inserted its keys into the
//!   index and set `Committing` before its addition to the log's tail. The caller's own addition
//!   reads that one's result through the chain of additions, so all of that is visible here. A
//!   transaction that still appears active or aborted has no LSN before `c`, and will have none.
//! - A chain is in LSN order, and only its head may be in flight. So the first version that is
//!   committed before `c` decides.
//! - That version is still linked: garbage keeps versions that are superseded after `b`. The pruner
//!   cuts out only versions superseded before the latest stamp that the caller's worker has
//!   announced, which is before `c`.
//! - An address is before every begin stamp in use, and so before `b`.

use super::indirection::IndirectionEntry;
use super::records::MemoryRecords;
use crate::log::Lsn;
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched;
use crate::version::{Link, Stamp, TransactionStatus, Verdict, Version, View};

impl MemoryRecords {
    /// Returns whether [`Self::is_unchanged`] holds because of the newest version alone, as for most
    /// records: `view`'s transaction wrote it, or it was committed before `view`'s begin stamp.
    #[inline(always)]
    pub(crate) fn has_unchanged_head(
        &self,
        rid: Rid,
        view: View<'_>,
        _operation: &OperationGuard,
    ) -> bool {
        let IndirectionEntry::Version(head) = self.array().load(rid) else { return false };
        // SAFETY: linked when it was loaded, under the guard, which is older than its eviction; if it
        // is superseded, then after `view` began.
        view.wrote_or_precedes(unsafe { head.get() }.stamp())
    }

    /// Returns whether no other transaction committed a write to a record at or after `view`'s
    /// begin stamp and before `until`. A record in doubt counts as changed.
    pub(crate) fn is_unchanged(
        &self,
        rid: Rid,
        view: View<'_>,
        until: Lsn,
        operation: &OperationGuard,
    ) -> bool {
        let decided = self.deciding(rid, view, until, operation);
        !matches!(decided, Some((_, Verdict::Between | Verdict::Untold)))
    }

    /// The first version of a record, from the newest on, that determines its state before `until`.
    /// `None` if none does, or for an address, which is before `view`'s begin stamp.
    pub(super) fn deciding<'o>(
        &self,
        rid: Rid,
        view: View<'_>,
        until: Lsn,
        _operation: &'o OperationGuard,
    ) -> Option<(Version<'o>, Verdict)> {
        let mut link = self.array().load(rid).link();
        while let Some(Link::Version(reference)) = link {
            // SAFETY: linked when it was loaded, under the guard, which is older than its eviction;
            // and superseded, if at all, after `view` began: a successor that may have drawn its
            // LSN before ended the search.
            let version = unsafe { reference.get::<'o>() };
            match view.verdict(|| version.stamp(), until) {
                Verdict::After => link = version.next(),
                decided => return Some((version, decided)),
            }
        }
        None
    }

    /// The value of a record as of `until`, if another transaction has committed it at or after
    /// `view`'s begin stamp, and it is resident.
    pub(crate) fn value_before<'o>(
        &self,
        rid: Rid,
        view: View<'_>,
        until: Lsn,
        operation: &'o OperationGuard,
    ) -> Option<&'o [u8]> {
        let version = self.committed_between(rid, view, until, operation)?;
        let there = !version.is_tombstone() && !version.is_evicted();
        there.then(|| version.payload())
    }

    /// Returns whether another transaction has committed a write to a record at or after `view`'s
    /// begin stamp.
    pub(crate) fn is_overwritten(
        &self,
        rid: Rid,
        view: View<'_>,
        operation: &OperationGuard,
    ) -> bool {
        self.committed_between(rid, view, Lsn::MAX, operation).is_some()
    }

    /// The newest version of a record before `until`, if another transaction has committed it at or
    /// after `view`'s begin stamp.
    fn committed_between<'o>(
        &self,
        rid: Rid,
        view: View<'_>,
        until: Lsn,
        operation: &'o OperationGuard,
    ) -> Option<Version<'o>> {
        let (version, Verdict::Between) = self.deciding(rid, view, until, operation)? else {
            return None;
        };
        // A version that is not committed yet may abort, or has aborted since.
        let stamp = version.stamp();
        let committed = match stamp.name() {
            None => stamp != Stamp::ABORTED && stamp.lsn().is_some_and(|lsn| lsn < until),
            Some(name) => matches!(view.status.outcome(name), TransactionStatus::Committed(_)),
        };
        committed.then_some(version)
    }

    /// Prefetches the entry of a record that is certified soon.
    pub(crate) fn prefetch_entry(&self, rid: Rid) {
        sched::prefetch(self.array().pointer(rid));
    }

    /// Prefetches the newest version of a record whose entry was prefetched.
    pub(crate) fn prefetch_newest(&self, rid: Rid, _operation: &OperationGuard) {
        if let IndirectionEntry::Version(head) = self.array().load(rid) {
            sched::prefetch(head.pointer());
        }
    }
}
