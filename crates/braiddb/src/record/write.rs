//! Writing: a new version at the head of its chain, installed with one compare-and-swap.
//!
//! First updater wins: a head that is in flight for another transaction, or newer than the
//! writer's begin stamp, is a conflict at once, never a wait.

use super::indirection::IndirectionEntry;
use super::records::Records;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched;
use crate::version::{Address, Link, Outcome, Stamp, Version, VersionRef, View};

/// What a new version would be installed on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base<'a> {
    /// A version that the writer sees, committed at this LSN.
    Committed(Version<'a>, Lsn),
    /// A version in the log, which everyone sees.
    Cold(Address),
    /// A version the writer itself installed.
    Own(Version<'a>),
}

/// Why a version cannot be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another transaction is writing the record.
    Conflict,
    /// Another transaction wrote the record, and committed at or after the writer's begin stamp.
    Newer,
    /// The record is gone for everyone; its index entry is about to be removed.
    Dead,
}

impl<'a> Base<'a> {
    /// Whether the record is absent as of this version.
    pub(crate) fn is_tombstone(self) -> bool {
        match self {
            Base::Committed(version, _) | Base::Own(version) => version.is_tombstone(),
            // Eviction leaves tombstones alone.
            Base::Cold(_) => false,
        }
    }
}

impl Records {
    /// Prefetches the head of a record's chain, so that `base` and `install` find it cached. Nothing
    /// is read of it: it may be freed by then.
    pub(crate) async fn prefetch_head(&self, rid: Rid) {
        if self.array_is_cold() {
            sched::touch(self.array().pointer(rid)).await;
        }
        if self.versions_are_cold()
            && let IndirectionEntry::Version(head) = self.array().load(rid)
        {
            sched::touch(head.pointer()).await;
        }
    }

    /// The head of a record's chain, if `view` may write on it.
    #[inline(always)]
    pub(crate) fn base<'o>(
        &self,
        rid: Rid,
        view: View<'o>,
        _operation: &'o OperationGuard,
    ) -> Result<Base<'o>, Refusal> {
        let head = match self.array().load(rid) {
            IndirectionEntry::Version(head) => head,
            IndirectionEntry::Address(address) => return Ok(Base::Cold(address)),
            IndirectionEntry::Empty | IndirectionEntry::Dead => return Err(Refusal::Dead),
        };
        // SAFETY: the head just loaded. If it is superseded, the transaction of the view keeps it, active for `'o`; if it
        // is unlinked, the operation does.
        let version = unsafe { head.get::<'o>() };
        loop {
            let stamp = version.stamp();
            let committed = match stamp.name() {
                None => stamp.lsn().expect("not in flight"),
                Some(name) if name == view.me => return Ok(Base::Own(version)),
                Some(name) => match view.status.outcome(name) {
                    Outcome::Committed(lsn) => lsn,
                    Outcome::Stale => continue,
                    Outcome::Active | Outcome::Committing(_) | Outcome::Aborted => {
                        return Err(Refusal::Conflict);
                    }
                },
            };
            return if committed < view.begin || is_planted(Bug::NewerVersionWrittenOver) {
                Ok(Base::Committed(version, committed))
            } else {
                Err(Refusal::Newer)
            };
        }
    }

    /// Installs `new` on `base`, which `base` returned.
    ///
    /// `false` if another transaction was faster, or the record was just evicted or brought back:
    /// `new` is still the caller's, who looks at the base again.
    #[inline(always)]
    pub(crate) fn install(&self, rid: Rid, base: Base<'_>, new: VersionRef) -> bool {
        let (head, next) = match base {
            Base::Committed(version, _) => {
                let head = Link::Version(version.reference());
                (head, Some(head))
            }
            Base::Cold(address) => (Link::Address(address), Some(Link::Address(address))),
            // A second write takes the first one's place: only the last is logged and committed.
            Base::Own(version) => (Link::Version(version.reference()), version.next()),
        };
        // SAFETY: `new` is not shared yet.
        unsafe { new.get() }.set_next(next);
        let installed = self.array().replace(rid, head.into(), IndirectionEntry::Version(new));
        let own = matches!(base, Base::Own(_));
        assert!(installed || !own, "nobody else replaces a version in flight");
        installed
    }

    /// Takes a version in flight back: the entry leads to `base` again, on which it was installed, or
    /// is dead if the record was new; then its id is retired. Eviction, compaction and readers may have
    /// found the version by its id, so the caller is to retire it.
    ///
    /// # Safety
    /// The caller's transaction, which will not commit `version`, installed it on `base`, and takes it
    /// back once. If `base` is none, the index does not lead to the id (any more).
    pub(crate) unsafe fn take_back(&self, rid: Rid, version: VersionRef, base: Option<Link>) {
        let before = base.map_or(IndirectionEntry::Dead, IndirectionEntry::from);
        let replaced = self.array().replace(rid, IndirectionEntry::Version(version), before);
        assert!(replaced, "nobody else replaces a version in flight");
        // SAFETY: unlinked just now, and retired by the caller only.
        unsafe { version.get() }.set_stamp(Stamp::ABORTED);
        if base.is_none() {
            self.retire_rid(rid);
        }
    }

    /// Puts a version in flight back in the place that a later write took; that one's version is the
    /// caller's to retire.
    ///
    /// # Safety
    /// The caller's transaction, which will not commit `undone`, installed it in the place of its own
    /// `version`.
    pub(crate) unsafe fn put_back(&self, rid: Rid, undone: VersionRef, version: VersionRef) {
        let replaced = self.array().replace(
            rid,
            IndirectionEntry::Version(undone),
            IndirectionEntry::Version(version),
        );
        assert!(replaced, "nobody else replaces a version in flight");
        // SAFETY: unlinked just now, and retired by the caller only.
        unsafe { undone.get() }.set_stamp(Stamp::ABORTED);
    }
}
