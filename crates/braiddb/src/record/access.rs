//! Access stamps: who last read a record, for the serial safety net (`transaction/safety_net.rs`). Only
//! databases that certify by it have them; for others this is one word a table.
//!
//! A stamp belongs to a record, not to one of its versions: so nothing is lost when a version is evicted,
//! moved or read again. Who read an older version than the newest one counts as a reader of the newest, which
//! may abort a writer that need not be, and never lets one commit that must not.
//!
//! None is kept when the database is closed: a writer begins after it was opened, and so does every
//! transaction that the writer may come before.

use super::chunks::{Chunks, NoMemory};
use super::records::Records;
use crate::log::Lsn;
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sync;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::version::{Link, Outcome, Stamp, Version, View};

/// Looks at another worker's decision before its thread is let run.
const LOOKS: u32 = 100;

/// Commit LSNs of the latest readers of a table.
#[derive(Debug, Default)]
pub(super) struct AccessStamps {
    /// Of each record.
    records: Chunks,
    /// Of ranges: who inserts comes after all of those.
    ranges: AtomicU64,
    /// Of the latest deletion of which nothing is left.
    reclaimed: AtomicU64,
}

impl AccessStamps {
    pub(super) fn grow(&self, number: u64) -> Result<u64, NoMemory> {
        self.records.grow(number)
    }
}

impl Records {
    fn access(&self) -> &AccessStamps {
        self.access_stamps().expect("a database that certifies by the serial safety net")
    }

    /// Notes that a transaction read a record that commits at `lsn`.
    pub(crate) fn note_reader(&self, rid: Rid, lsn: Lsn) {
        // AcqRel: a writer that awaited this reader, by the word that the reader stores afterwards, sees it.
        self.access().records.word(rid.number()).fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// Notes that a transaction read a range of keys, or that one was not there, which commits at `lsn`.
    pub(crate) fn note_range_reader(&self, lsn: Lsn) {
        // AcqRel: see `note_reader`.
        self.access().ranges.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// The latest reader of a record.
    pub(crate) fn latest_reader(&self, rid: Rid) -> Lsn {
        // Acquire: see `note_reader`.
        Lsn(self.access().records.word(rid.number()).load(Ordering::Acquire))
    }

    /// The latest reader of any range.
    pub(crate) fn latest_range_reader(&self) -> Lsn {
        // Acquire: see `note_reader`.
        Lsn(self.access().ranges.load(Ordering::Acquire))
    }

    /// Notes that a deletion is about to leave no trace; before the record's index entry is removed.
    pub(crate) fn note_reclaimed(&self, deleted: Lsn) {
        if let Some(access) = self.access_stamps() {
            // Release pairs with the Acquire in `latest_reclaimed`, by way of the index: who does not find the
            // entry sees this.
            access.reclaimed.fetch_max(deleted.0, Ordering::Release);
        }
    }

    /// The latest deletion of which nothing is left.
    pub(crate) fn latest_reclaimed(&self) -> Lsn {
        // Acquire: see `note_reclaimed`.
        Lsn(self.access().reclaimed.load(Ordering::Acquire))
    }

    /// When the version was committed that took the place of the one that `view` sees, if that was before
    /// `until`, which the caller commits at. Waits for others that commit before: their threads are about to
    /// decide, and wait for none that commits later.
    ///
    /// The chain is whole: nobody prunes in a database of this kind, and what is superseded at or after the
    /// begin stamp is not freed.
    pub(crate) fn overwritten_at(
        &self,
        rid: Rid,
        view: View<'_>,
        until: Lsn,
        _operation: &OperationGuard,
    ) -> Option<Lsn> {
        let mut overwritten = None;
        let mut link = self.array().load(rid).link();
        while let Some(Link::Version(reference)) = link {
            // SAFETY: linked when it was loaded, under the guard, which is older than its eviction; and
            // superseded, if at all, after `view` began, or else its successor ended the search.
            let version = unsafe { reference.get() };
            match decided(version, view, until) {
                Some(lsn) if lsn < view.begin => break,
                Some(lsn) if lsn < until => overwritten = Some(lsn),
                // The caller's own, one that commits later, or one that does not.
                _ => {}
            }
            link = version.next();
        }
        overwritten
    }
}

/// When a version of somebody else was committed; `None` if not before `until`.
fn decided(version: Version<'_>, view: View<'_>, until: Lsn) -> Option<Lsn> {
    let (mut stamp, mut looks) = (version.stamp(), 0_u32);
    loop {
        let Some(name) = stamp.name() else {
            return stamp.lsn().filter(|_| stamp != Stamp::ABORTED);
        };
        if name == view.me {
            return None;
        }
        match view.status.outcome(name) {
            Outcome::Active | Outcome::Aborted => return None,
            Outcome::Committing(Some(lsn)) if lsn >= until => return None,
            Outcome::Committing(_) => wait(&mut looks),
            Outcome::Committed(lsn) => return Some(lsn),
            Outcome::Stale => stamp = version.stamp(),
        }
    }
}

/// Waits a moment for another thread, which is about to do what the caller looks for.
pub(crate) fn wait(looks: &mut u32) {
    *looks += 1;
    if *looks < LOOKS {
        sync::spin_loop();
    } else {
        sync::yield_thread();
    }
}
