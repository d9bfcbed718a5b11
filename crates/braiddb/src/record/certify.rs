//! Certification: whether a record is, as of a commit, what a transaction saw when it began (the read
//! validation of Hekaton, at the place in the log that orders commits).
//!
//! The caller has drawn its commit LSN `c`, or asks as of [`Lsn::MAX`]; its begin stamp is `b`. Why the
//! answer is right:
//!
//! - Whoever committed at `u < c` installed its versions, entered its keys in the index and said
//!   `Committing` before its addition to the log's tail. The caller's own addition reads that one's
//!   result through the chain of additions, so all of that is seen here. One that is still seen as
//!   active or aborted has no LSN before `c`, nor will it.
//! - A chain is in the order of LSNs, and only its head may be in flight. So the first version that is
//!   committed before `c` decides.
//! - That version is still linked: garbage keeps what is superseded after `b`; the pruner cuts out only
//!   what is superseded before the latest that the caller's worker has told, which is before `c`.
//! - An address is before every begin stamp in use, and so before `b`.

use super::indirection::IndirectionEntry;
use super::records::Records;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched;
use crate::sync;
use crate::version::{Link, Outcome, Stamp, Version, View};

/// How often a transaction is asked again that has begun to draw its LSN: it is about to publish it,
/// within a few instructions, unless its thread was interrupted.
const MOST_LOOKS: u32 = if cfg!(loom) { 2 } else { 100 };

/// What a version says of the time between a begin stamp and a commit.
pub(super) enum Verdict {
    /// It was committed before both.
    Before,
    /// It was committed between them.
    Between,
    /// It was not committed before the later one.
    After,
    /// That cannot be told at once.
    Untold,
}

impl Records {
    /// Whether nobody else committed a write to a record at or after `view`'s begin stamp and before
    /// `until`. If that cannot be told at once, it counts as changed.
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

    /// The first version of a record, from the newest on, that says something of the time before `until`;
    /// `None` if there is none, or an address, which is before `view`'s begin stamp.
    pub(super) fn deciding<'o>(
        &self,
        rid: Rid,
        view: View<'_>,
        until: Lsn,
        _operation: &'o OperationGuard,
    ) -> Option<(Version<'o>, Verdict)> {
        let mut link = self.array().load(rid).link();
        while let Some(Link::Version(reference)) = link {
            // SAFETY: linked when it was loaded, under the guard, which is older than its eviction; and
            // superseded, if at all, after `view` began, or else its successor ended the search.
            let version = unsafe { reference.get::<'o>() };
            match verdict(version, view, until) {
                Verdict::After => link = version.next(),
                decided => return Some((version, decided)),
            }
        }
        None
    }

    /// The value of a record as of `until`, if somebody else has committed it at or after `view`'s begin
    /// stamp, and it is in memory.
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

    /// Whether somebody else has committed a write to a record at or after `view`'s begin stamp.
    pub(crate) fn is_overwritten(
        &self,
        rid: Rid,
        view: View<'_>,
        operation: &OperationGuard,
    ) -> bool {
        self.committed_between(rid, view, Lsn::MAX, operation).is_some()
    }

    /// The newest version of a record before `until`, if somebody else has committed it, at or after
    /// `view`'s begin stamp.
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
        // One that is not committed yet may abort, or has aborted since.
        let stamp = version.stamp();
        let committed = match stamp.name() {
            None => stamp != Stamp::ABORTED && stamp.lsn().is_some_and(|lsn| lsn < until),
            Some(name) => matches!(view.status.outcome(name), Outcome::Committed(_)),
        };
        committed.then_some(version)
    }

    /// Brings a record near that is to be certified soon.
    pub(crate) fn prefetch_entry(&self, rid: Rid) {
        sched::prefetch(self.array().pointer(rid));
    }

    /// Brings the newest version near of a record whose entry is.
    pub(crate) fn prefetch_newest(&self, rid: Rid, _operation: &OperationGuard) {
        if let IndirectionEntry::Version(head) = self.array().load(rid) {
            sched::prefetch(head.pointer());
        }
    }
}

fn verdict(version: Version<'_>, view: View<'_>, until: Lsn) -> Verdict {
    let (mut stamp, mut looks) = (version.stamp(), 0);
    let committed = loop {
        let Some(name) = stamp.name() else {
            // An aborted one's is later than any LSN.
            break stamp.lsn().expect("not in flight");
        };
        if name == view.me {
            // First updater wins: what it was installed on is what the transaction saw.
            return Verdict::Before;
        }
        match view.status.outcome(name) {
            Outcome::Active | Outcome::Aborted => return Verdict::After,
            Outcome::Committing(_) if is_planted(Bug::CertifiedBesideCommitting) => {
                return Verdict::After;
            }
            // Whatever becomes of it: nobody waits here, so nobody waits in a circle.
            Outcome::Committing(Some(lsn)) if lsn < until => return Verdict::Between,
            Outcome::Committing(Some(_)) => return Verdict::After,
            Outcome::Committing(None) if until == Lsn::MAX => return Verdict::After,
            Outcome::Committing(None) if looks == MOST_LOOKS => return Verdict::Untold,
            Outcome::Committing(None) => {
                looks += 1;
                sync::spin_loop();
            }
            Outcome::Committed(lsn) => break lsn,
            Outcome::Stale => stamp = version.stamp(),
        }
    };
    match committed {
        lsn if lsn < view.begin => Verdict::Before,
        lsn if lsn < until => Verdict::Between,
        _ => Verdict::After,
    }
}
