//! Writes: install a new version at the head of its chain with one compare-and-swap.
//!
//! First updater wins: a head that another transaction has in flight, or that is newer than the
//! writer's begin stamp, is an immediate conflict. Writers never wait.

use super::indirection::{EntryAccess, IndirectionEntry};
use super::records::MemoryRecords;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::version::{Address, Link, Stamp, TransactionStatus, Version, VersionRef, View};

/// The current head, on which a new version would be installed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InstallBase<'a> {
    /// A visible version, committed at this LSN.
    Committed(Version<'a>, Lsn),
    /// A version in the log, visible to every transaction.
    Cold(Address),
    /// A version that the writer itself installed.
    Own(Version<'a>),
}

/// Reasons why a version cannot be installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstallRefusal {
    /// Another transaction is writing the record.
    Conflict,
    /// Another transaction wrote the record, and committed at or after the writer's begin stamp.
    Newer,
    /// The record is dead for every transaction; its index entry is about to be removed.
    Dead,
}

impl InstallBase<'_> {
    /// The link to the head, which is the version that the new one supersedes unless it is the
    /// writer's own.
    #[inline(always)]
    pub(crate) fn link(self) -> Option<Link> {
        Some(match self {
            InstallBase::Committed(version, _) | InstallBase::Own(version) => {
                Link::Version(version.reference())
            }
            InstallBase::Cold(address) => Link::Address(address),
        })
    }

    /// Returns whether the record is absent as of this version.
    pub(crate) fn is_tombstone(self) -> bool {
        match self {
            InstallBase::Committed(version, _) | InstallBase::Own(version) => {
                version.is_tombstone()
            }
            // Tombstones are never evicted.
            InstallBase::Cold(_) => false,
        }
    }
}

impl MemoryRecords {
    /// The head of the chain of a record with this entry, if `view` may write on it.
    #[inline(always)]
    pub(crate) fn base<'o>(
        &self,
        entry: EntryAccess<'_>,
        view: View<'o>,
        _operation: &'o OperationGuard,
    ) -> Result<InstallBase<'o>, InstallRefusal> {
        let head = match entry.load() {
            IndirectionEntry::Version(head) => head,
            IndirectionEntry::Address(address) => return Ok(InstallBase::Cold(address)),
            IndirectionEntry::Empty | IndirectionEntry::Dead => return Err(InstallRefusal::Dead),
        };
        // SAFETY: the head just loaded. If it is superseded, the transaction of the view keeps it,
        // active for `'o`; if it is unlinked, the operation does.
        let version = unsafe { head.get::<'o>() };
        loop {
            let stamp = version.stamp();
            let committed = match stamp.name() {
                None => stamp.lsn().expect("not in flight"),
                Some(name) if name == view.me => return Ok(InstallBase::Own(version)),
                Some(name) => match view.status.outcome(name) {
                    TransactionStatus::Committed(lsn) => lsn,
                    TransactionStatus::Stale => continue,
                    TransactionStatus::Active
                    | TransactionStatus::Committing(_)
                    | TransactionStatus::Aborted => {
                        return Err(InstallRefusal::Conflict);
                    }
                },
            };
            return if committed < view.begin || is_planted(Bug::NewerVersionWrittenOver) {
                Ok(InstallBase::Committed(version, committed))
            } else {
                Err(InstallRefusal::Newer)
            };
        }
    }

    /// Installs `new` on `base`, which `base` returned for the same entry.
    ///
    /// `false` if another transaction was faster, or the record was just evicted or made resident.
    /// The caller then still owns `new`, and reads the base again.
    #[inline(always)]
    pub(crate) fn install(
        &self,
        entry: EntryAccess<'_>,
        base: InstallBase<'_>,
        new: VersionRef,
    ) -> bool {
        let (head, next) = match base {
            InstallBase::Committed(version, _) => {
                let head = Link::Version(version.reference());
                (head, Some(head))
            }
            InstallBase::Cold(address) => (Link::Address(address), Some(Link::Address(address))),
            // A second write replaces the first one: only the last is logged and committed.
            InstallBase::Own(version) => (Link::Version(version.reference()), version.next()),
        };
        // SAFETY: `new` is not shared yet.
        unsafe { new.get() }.set_next(next);
        let installed = entry.replace(head.into(), IndirectionEntry::Version(new));
        let own = matches!(base, InstallBase::Own(_));
        assert!(installed || !own, "only its transaction replaces a version in flight");
        installed
    }

    /// Undoes a version in flight: restores the entry to `base`, on which the version was
    /// installed. Without a base the record was new; the entry becomes dead and its id is retired.
    /// The caller must retire the version, because eviction, compaction and readers may have found
    /// it by its id.
    ///
    /// # Safety
    /// The caller's transaction, which will not commit `version`, installed it on `base`, and
    /// undoes it once. If `base` is none, the index does not reference the id (any more).
    pub(crate) unsafe fn roll_back(&self, rid: Rid, version: VersionRef, base: Option<Link>) {
        let before = base.map_or(IndirectionEntry::Dead, IndirectionEntry::from);
        let replaced = self.array().replace(rid, IndirectionEntry::Version(version), before);
        assert!(replaced, "only its transaction replaces a version in flight");
        // SAFETY: unlinked just now, and retired by the caller only.
        unsafe { version.get() }.set_stamp(Stamp::ABORTED);
        if base.is_none() {
            self.retire_rid(rid);
        }
    }

    /// Restores a version in flight that a later write had replaced. The caller must retire the
    /// later version.
    ///
    /// # Safety
    /// The caller's transaction, which will not commit `undone`, installed it to replace its
    /// earlier `version`.
    pub(crate) unsafe fn restore_previous(
        &self,
        rid: Rid,
        undone: VersionRef,
        version: VersionRef,
    ) {
        let replaced = self.array().replace(
            rid,
            IndirectionEntry::Version(undone),
            IndirectionEntry::Version(version),
        );
        assert!(replaced, "only its transaction replaces a version in flight");
        // SAFETY: unlinked just now, and retired by the caller only.
        unsafe { undone.get() }.set_stamp(Stamp::ABORTED);
    }
}
