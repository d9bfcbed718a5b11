//! Reading: the newest version of a record that a snapshot may see.

use std::sync::Arc;

use super::cold::Copies;
use super::indirection::Entry;
use super::table::Table;
use crate::log::{LogError, Lsn};
use crate::rid::Rid;
use crate::sched::{self, Cause};
use crate::version::{Address, Link, StatusTable, TransactionName, Version, Visible};

/// What a transaction looks through: its begin stamp, its own name, and everyone's states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) begin: Lsn,
    pub(crate) me: TransactionName,
    pub(crate) status: &'a StatusTable,
}

/// The version of a record that a transaction sees, and why. It may say that the record is deleted,
/// which stands on that deletion as a value stands on its write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub(super) version: Version<'a>,
    /// When it was committed; `None` for the transaction's own write.
    pub(crate) committed: Option<Lsn>,
}

/// What is seen takes waiting: another worker is about to decide it, or it is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Far;

/// Where a version's record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Located {
    At(Address),
    /// The log does not have it.
    Unlogged,
}

impl<'a> Seen<'a> {
    /// The record's value; `None` if it is deleted.
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        (!self.version.is_tombstone()).then(|| self.version.payload())
    }
}

impl View<'_> {
    /// Whether the transaction sees a version; `None` while another worker decides.
    #[inline(always)]
    pub(crate) fn sees(&self, version: Version<'_>) -> Option<Visible> {
        self.status.visible(version.stamp(), self.begin, Some(self.me), || version.stamp())
    }
}

impl Table {
    /// The version of `rid` that `view` sees: `None` if there is none, `Err` with its address if it
    /// is in the log, to be fetched from there.
    ///
    /// # Safety
    /// The caller holds an operation guard for the length of the call and an active transaction
    /// with `view`'s begin stamp for the length of `'a`.
    pub(crate) async unsafe fn find<'a>(
        &self,
        rid: Rid,
        view: View<'_>,
    ) -> Result<Option<Seen<'a>>, Address> {
        if self.array_is_cold() {
            sched::touch(self.array().pointer(rid)).await;
        }
        let Some(mut link) = self.array().load(rid).link() else { return Ok(None) };
        let cold = self.versions_are_cold();
        loop {
            let reference = match link {
                Link::Version(reference) => reference,
                Link::Address(address) => return Err(address),
            };
            if cold {
                sched::touch(reference.pointer()).await;
            }
            // SAFETY: linked when it was loaded, under the caller's guard and begin stamp: it is
            // freed only once no active transaction is as old as the caller's.
            let version = unsafe { reference.get::<'a>() };
            let next = match view.sees(version) {
                Some(Visible::No) => version.next(),
                Some(Visible::Own) => return Ok(Some(Seen { version, committed: None })),
                Some(Visible::Committed(lsn)) => {
                    self.refer(version);
                    return Ok(Some(Seen { version, committed: Some(lsn) }));
                }
                None => {
                    sched::yield_now(Cause::Undecided).await;
                    Some(link)
                }
            };
            let Some(next) = next else { return Ok(None) };
            link = next;
        }
    }

    /// Like `find`, and fetches the record if it is in the log.
    ///
    /// # Errors
    /// The log's, if the version is there and cannot be read.
    ///
    /// # Safety
    /// As for `find`; the transaction keeps `copies`.
    pub(crate) async unsafe fn read<'a>(
        &self,
        rid: Rid,
        view: View<'_>,
        copies: &Copies,
    ) -> Result<Option<Seen<'a>>, Arc<LogError>> {
        // SAFETY: the caller's contract.
        match unsafe { self.find(rid, view).await } {
            Ok(seen) => Ok(seen),
            // SAFETY: the caller's contract.
            Err(address) => unsafe { self.fetch(rid, address, copies).await }.map(Some),
        }
    }

    /// Like `find`, for a record whose cache lines are near: does not suspend.
    ///
    /// # Safety
    /// As for `find`.
    pub(crate) unsafe fn read_near<'a>(
        &self,
        rid: Rid,
        view: View<'_>,
    ) -> Result<Option<Seen<'a>>, Far> {
        let mut next = self.array().load(rid).link();
        while let Some(link) = next {
            let Link::Version(reference) = link else { return Err(Far) };
            // SAFETY: as in `read`.
            let version = unsafe { reference.get::<'a>() };
            match view.sees(version).ok_or(Far)? {
                Visible::No => next = version.next(),
                Visible::Own => return Ok(Some(Seen { version, committed: None })),
                Visible::Committed(lsn) => {
                    self.refer(version);
                    return Ok(Some(Seen { version, committed: Some(lsn) }));
                }
            }
        }
        Ok(None)
    }

    /// Where in the log the version of `rid` is that `view` sees; `None` if it sees none.
    ///
    /// # Safety
    /// As for `find`.
    pub(crate) unsafe fn locate(&self, rid: Rid, view: View<'_>) -> Result<Option<Located>, Far> {
        let mut next = self.array().load(rid).link();
        while let Some(link) = next {
            let reference = match link {
                Link::Version(reference) => reference,
                Link::Address(address) => return Ok(Some(Located::At(address))),
            };
            // SAFETY: as in `read`.
            let version = unsafe { reference.get() };
            match view.sees(version).ok_or(Far)? {
                Visible::No => next = version.next(),
                Visible::Own | Visible::Committed(_) if version.is_tombstone() => return Ok(None),
                // Committed a moment ago: its worker is about to stamp it.
                _ if version.stamp().name().is_some() => return Err(Far),
                Visible::Own | Visible::Committed(_) => {
                    let at = |lsn| Located::At(Address::new(lsn, version.payload_bytes()));
                    return Ok(Some(version.record().map_or(Located::Unlogged, at)));
                }
            }
        }
        Ok(None)
    }

    /// Brings the entries and the newest versions of many records near, all at once.
    pub(crate) async fn bring_near(&self, rids: impl Iterator<Item = Rid> + Clone) {
        if self.array_is_cold() {
            rids.clone().for_each(|rid| sched::prefetch(self.array().pointer(rid)));
            sched::suspend_memory().await;
        }
        if self.versions_are_cold() {
            for rid in rids {
                if let Entry::Version(version) = self.array().load(rid) {
                    sched::prefetch(version.pointer());
                }
            }
            sched::suspend_memory().await;
        }
    }
}
