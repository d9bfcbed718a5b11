//! Reads: find the newest version of a record that is visible to a snapshot.
//!
//! Two conditions keep a found version allocated. The operation guard under which it was found,
//! since a head may be evicted at any moment. And the transaction that sees it, since a superseded
//! version is freed once no begin stamp needs it. [`SeenVersion`] borrows both.

use super::cold::ColdVersion;
use super::indirection::{EntryReader, IndirectionEntry};
use super::records::MemoryRecords;
use crate::log::Lsn;
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sched::{self, WaitCause};
use crate::version::{Address, Link, Undecided, Version, View, Visibility};

/// The visible version of a record and its origin. It may be a tombstone: absence depends on that
/// deletion like a value depends on its write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenVersion<'o> {
    version: Version<'o>,
    /// Set if a newer version, committed or not, was stepped over.
    pub(crate) below_newer: bool,
    /// Its commit LSN; `None` for the transaction's own write.
    pub(crate) committed: Option<Lsn>,
}

/// Reasons why a visible version is not available immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReady {
    /// Another worker is about to decide its commit.
    Undecided,
    /// It must be read from the log.
    InLog(ColdVersion),
}

/// Location of a version's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordLocation {
    At(Address),
    /// The version is not in the log.
    Unlogged,
}

impl<'o> SeenVersion<'o> {
    /// The record's value; `None` if it is deleted.
    pub(crate) fn value(self) -> Option<&'o [u8]> {
        (!self.version.is_tombstone()).then(|| self.version.payload())
    }

    /// Returns whether it is the transaction's own write.
    pub(crate) fn is_own(self) -> bool {
        self.committed.is_none()
    }
}

/// Reader of the newest values of several records, under one guard and for one view.
#[derive(Clone, Debug)]
pub(crate) struct NewestValues<'o> {
    entries: EntryReader<'o>,
    view: View<'o>,
    evicts: bool,
}

impl<'o> NewestValues<'o> {
    /// Does what [`MemoryRecords::newest_value`] does.
    #[inline(always)]
    pub(crate) fn get(&mut self, rid: Rid) -> Option<(&'o [u8], Lsn)> {
        // SAFETY: loaded under the guard that the reader was made with, for an active
        // transaction's view.
        unsafe { newest_value(self.entries.load(rid), self.view.begin, self.evicts) }
    }
}

/// Returns the value of the version in an entry and its commit LSN, if it was committed before
/// `begin` and is in memory.
///
/// # Safety
/// The entry was loaded under an operation guard that lasts for `'o`. No successor of the version in
/// it commits before the horizon while `'o` lasts, for example because `begin` is the begin stamp of
/// a transaction that is active for `'o`.
#[inline(always)]
unsafe fn newest_value<'o>(
    entry: IndirectionEntry,
    begin: Lsn,
    evicts: bool,
) -> Option<(&'o [u8], Lsn)> {
    let IndirectionEntry::Version(reference) = entry else { return None };
    // SAFETY: the head when it was loaded, under the guard, which is older than its eviction. Its
    // successors commit after the begin stamp, so it stays allocated for `'o`.
    let version = unsafe { reference.get::<'o>() };
    let lsn = version.stamp().lsn_before(begin)?;
    let value = version.value_in_memory()?;
    if evicts {
        version.mark_referenced();
    }
    Some((value, lsn))
}

impl MemoryRecords {
    /// Finds the version of `rid` that is visible to `view`, after a lookup has prefetched the newest
    /// one. `None` if no version is visible, `Err` if it must be read from the log.
    pub(crate) async fn find<'o>(
        &self,
        rid: Rid,
        view: View<'o>,
        operation: &'o OperationGuard,
    ) -> Result<Option<SeenVersion<'o>>, ColdVersion> {
        let (mut link, mut below_newer) = (self.array().load(rid).link(), false);
        let cold = self.versions_are_cold();
        while let Some(leads_to) = link {
            if cold
                && below_newer
                && let Link::Version(reference) = leads_to
            {
                sched::touch(reference.pointer()).await;
            }
            match self.look(leads_to, view, operation) {
                Ok(LinkVisibility::Older(older)) => (link, below_newer) = (older, true),
                Ok(LinkVisibility::Seen(seen)) => {
                    self.mark_referenced(seen);
                    return Ok(Some(SeenVersion { below_newer, ..seen }));
                }
                Err(NotReady::InLog(version)) => return Err(version),
                Err(NotReady::Undecided) => sched::yield_now(WaitCause::Undecided).await,
            }
        }
        Ok(None)
    }

    /// Returns the value of the newest version and its commit LSN, if it was committed before the
    /// view's begin stamp and is in memory. In all other cases `find_now` decides.
    #[inline(always)]
    pub(crate) fn newest_value<'o>(
        &self,
        rid: Rid,
        view: View<'o>,
        _operation: &'o OperationGuard,
    ) -> Option<(&'o [u8], Lsn)> {
        // SAFETY: loaded under the guard, for an active transaction's view.
        unsafe { newest_value(self.array().load(rid), view.begin, self.evicts()) }
    }

    /// Returns the value of the newest version and its commit LSN, if it was committed before `begin`
    /// and is in memory.
    ///
    /// # Safety
    /// For `'o`, a bound of the horizon is published that was read from the log before the call
    /// ([`Horizon::admit_guest`](crate::version::Horizon::admit_guest)).
    #[inline(always)]
    pub(crate) unsafe fn newest_committed<'o>(
        &self,
        rid: Rid,
        begin: Lsn,
        _operation: &'o OperationGuard,
    ) -> Option<(&'o [u8], Lsn)> {
        // SAFETY: loaded under the guard. The caller's bound is not later than the commit of any
        // successor, as the begin stamp of an active transaction would not be.
        unsafe { newest_value(self.array().load(rid), begin, self.evicts()) }
    }

    /// Returns a reader that does what `newest_value` does, for several records.
    #[inline(always)]
    pub(crate) fn newest_values<'o>(
        &'o self,
        view: View<'o>,
        _operation: &'o OperationGuard,
    ) -> NewestValues<'o> {
        NewestValues { entries: self.array().reader(), view, evicts: self.evicts() }
    }

    /// Does what `find` does, for a record whose cache lines were prefetched; never suspends.
    #[inline(always)]
    pub(crate) fn find_now<'o>(
        &self,
        rid: Rid,
        view: View<'o>,
        operation: &'o OperationGuard,
    ) -> Result<Option<SeenVersion<'o>>, NotReady> {
        let seen = self.search(rid, view, operation)?;
        seen.into_iter().for_each(|seen| self.mark_referenced(seen));
        Ok(seen)
    }

    /// Follows the chain of a record to the visible version.
    #[inline(always)]
    pub(super) fn search<'o>(
        &self,
        rid: Rid,
        view: View<'o>,
        operation: &'o OperationGuard,
    ) -> Result<Option<SeenVersion<'o>>, NotReady> {
        let (mut link, mut below_newer) = (self.array().load(rid).link(), false);
        while let Some(leads_to) = link {
            match self.look(leads_to, view, operation)? {
                LinkVisibility::Older(older) => (link, below_newer) = (older, true),
                LinkVisibility::Seen(seen) => return Ok(Some(SeenVersion { below_newer, ..seen })),
            }
        }
        Ok(None)
    }

    /// Examines the target of a link that was loaded under `operation`.
    #[inline(always)]
    fn look<'o>(
        &self,
        link: Link,
        view: View<'o>,
        _operation: &'o OperationGuard,
    ) -> Result<LinkVisibility<'o>, NotReady> {
        let reference = match link {
            Link::Version(reference) => reference,
            Link::Address(address) => {
                return Err(NotReady::InLog(ColdVersion::of_address(address)));
            }
        };
        // SAFETY: linked when it was loaded, under the guard, which is older than its eviction, if
        // it was the head. If not, it is superseded, and freed or cut out only once no active
        // transaction follows the link to it; `view` did.
        let version = unsafe { reference.get::<'o>() };
        let committed = match view.sees(|| version.stamp()) {
            Some(Visibility::No) => return Ok(LinkVisibility::Older(version.next())),
            Some(Visibility::Own) => None,
            Some(Visibility::Committed(lsn)) if version.is_evicted() => {
                return Err(NotReady::InLog(ColdVersion::of_evicted(version, lsn)));
            }
            Some(Visibility::Committed(lsn)) => Some(lsn),
            None => return Err(NotReady::Undecided),
        };
        Ok(LinkVisibility::Seen(SeenVersion { version, below_newer: false, committed }))
    }

    /// Marks a committed version as referenced, if the table evicts.
    #[inline(always)]
    fn mark_referenced(&self, seen: SeenVersion<'_>) {
        if self.evicts() && seen.committed.is_some() {
            seen.version.mark_referenced();
        }
    }

    /// The log position of the version of `rid` that is visible to `view`; `None` if no version is
    /// visible.
    ///
    /// # Errors
    /// Fails if the version's commit is being decided.
    pub(crate) fn locate(
        &self,
        rid: Rid,
        view: View<'_>,
        operation: &OperationGuard,
    ) -> Result<Option<RecordLocation>, Undecided> {
        let seen = match self.search(rid, view, operation) {
            Ok(Some(SeenVersion { version, .. })) if !version.is_tombstone() => version,
            Ok(_) => return Ok(None),
            Err(NotReady::InLog(version)) => return Ok(Some(RecordLocation::At(version.address))),
            Err(NotReady::Undecided) => return Err(Undecided),
        };
        if seen.stamp().name().is_some() {
            // Just committed: its worker is about to stamp it.
            return Err(Undecided);
        }
        let at = |lsn| RecordLocation::At(Address::new(lsn, seen.payload_bytes()));
        Ok(Some(seen.record().map_or(RecordLocation::Unlogged, at)))
    }

    /// Prefetches the entries and the newest versions of many records into the processor's caches
    /// together.
    pub(crate) async fn prefetch(&self, rids: impl Iterator<Item = Rid> + Clone) {
        if self.array_is_cold() {
            rids.clone().for_each(|rid| sched::prefetch(self.array().pointer(rid)));
            sched::suspend_memory().await;
        }
        if self.versions_are_cold() {
            for rid in rids {
                if let IndirectionEntry::Version(version) = self.array().load(rid) {
                    sched::prefetch(version.pointer());
                }
            }
            sched::suspend_memory().await;
        }
    }
}

/// Visibility of a link's target.
enum LinkVisibility<'o> {
    /// Not visible; the search continues at this link.
    Older(Option<Link>),
    /// The target is visible.
    Seen(SeenVersion<'o>),
}
