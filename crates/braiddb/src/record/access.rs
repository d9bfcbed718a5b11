//! Access stamps: the last reader of each record, for the serial safety net
//! (`transaction/context/safety_net.rs`). Only databases that certify by it have them; for others
//! this costs one word per table.
//!
//! A stamp belongs to a record, not to one of its versions. So nothing is lost when a version is
//! evicted, moved or read again. A reader of an older version counts as a reader of the newest.
//! This may abort a writer unnecessarily, but never lets one commit that must not.
//!
//! Stamps are not persisted: a writer begins after the database was opened, and so does every
//! transaction that the writer may precede.

use super::access_stamps::AccessStamps;
use super::records::MemoryRecords;
use crate::log::Lsn;
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::sync;
use crate::sync::atomic::Ordering;
use crate::version::{Link, Stamp, TransactionStatus, Version, View};

/// Number of polls for another worker's decision before this thread yields.
const MAX_POLLS: u32 = 100;

impl MemoryRecords {
    fn access(&self) -> &AccessStamps {
        self.access_stamps().expect("a database that certifies by the serial safety net")
    }

    /// Notes that a transaction which commits at `lsn` read a record.
    pub(crate) fn note_reader(&self, rid: Rid, lsn: Lsn) {
        // AcqRel: a writer that waited for this reader, through the word that the reader stores
        // afterwards, sees it.
        self.access().records.word(rid.number()).fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// Notes that a transaction which commits at `lsn` read a range of keys, or the absence of a
    /// key.
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

    /// Notes a deletion whose record is about to be reclaimed; called before its index entry is
    /// removed.
    pub(crate) fn note_reclaimed(&self, deleted: Lsn) {
        if let Some(access) = self.access_stamps() {
            // Release pairs with the Acquire in `latest_reclaimed`, through the index: a thread
            // that does not find the entry sees this.
            access.reclaimed.fetch_max(deleted.0, Ordering::Release);
        }
    }

    /// The latest deletion whose record was reclaimed.
    pub(crate) fn latest_reclaimed(&self) -> Lsn {
        // Acquire: see `note_reclaimed`.
        Lsn(self.access().reclaimed.load(Ordering::Acquire))
    }

    /// Returns the commit LSN of the version that superseded the one visible to `view`, if that LSN
    /// is before `until`, the caller's own commit LSN. Waits for other transactions that commit
    /// before. Their threads are about to decide, and wait for none that commits later.
    ///
    /// The chain is complete: such a database does not prune, and versions superseded at or after
    /// the begin stamp are not freed.
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
            // SAFETY: linked when it was loaded, under the guard, which is older than its eviction;
            // and superseded, if at all, after `view` began, or else its successor ended the
            // search.
            let version = unsafe { reference.get() };
            match decided(version, view, until) {
                Some(lsn) if lsn < view.begin => break,
                Some(lsn) if lsn < until => overwritten = Some(lsn),
                // The caller's own version, one that commits later, or one that does not commit.
                _ => {}
            }
            link = version.next();
        }
        overwritten
    }
}

/// The commit LSN of another transaction's version; `None` if not before `until`.
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
            TransactionStatus::Active | TransactionStatus::Aborted => return None,
            TransactionStatus::Committing(Some(lsn)) if lsn >= until => return None,
            TransactionStatus::Committing(_) => wait(&mut looks),
            TransactionStatus::Committed(lsn) => return Some(lsn),
            TransactionStatus::Stale => stamp = version.stamp(),
        }
    }
}

/// Waits a moment for another thread, which is about to do what the caller polls for.
pub(crate) fn wait(looks: &mut u32) {
    *looks += 1;
    if *looks < MAX_POLLS {
        sync::spin_loop();
    } else {
        sync::yield_thread();
    }
}
