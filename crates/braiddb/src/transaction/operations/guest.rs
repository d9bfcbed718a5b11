//! Reads by a guest: a thread that is no worker, such as the caller of `db.get`. A guest reads one
//! record, or the few records of a short range.
//!
//! A guest reads only what needs no wait: the newest versions of records in memory, if these are
//! committed, resident and durable, and the absence of keys. A worker does everything else.
//!
//! # Why this is a serializable transaction
//!
//! Let `tail` be the end of the log when the guest was admitted.
//!
//! - *The value of one record*, of a version committed at `c`. At the load of the record's entry
//!   the version was its newest one, so a successor commits at an LSN that is drawn later, after
//!   `tail`. The read is placed in the log directly after `c` or `tail`, whichever is later. This is
//!   before every successor, after all transactions that ended before the read began, and before
//!   all that begin after it ends.
//! - *The absence of one record.* Every record committed before `tail` had its entry in the index,
//!   and the index has none. So the record did not exist at `tail`, or its deletion was durable
//!   before its entry was removed. The read is placed at `tail`, or after that deletion.
//! - *A range*: a worker takes over if a newest version was not committed before `tail`, so no
//!   record of the range was inserted or updated later. A record that was deleted after `tail` may be
//!   absent, if a collector that missed the guest has removed its entry. Let `end` be the largest tail
//!   that such a collector used, or `tail`. The read is placed at `end`: each write that was drawn
//!   before `end` is visible to loads after the guest's fence, and each removed deletion is durable
//!   and earlier than `end`.
//!
//! A table that is dropped during the read is left to a worker, because its records disappear
//! before its handles do. A caller that was informed of a commit sees it: the version was stamped or
//! is still in flight, and a version in flight is left to a worker.
//!
//! # Why values stay allocated
//!
//! Index nodes, keys, evicted and undone versions are retired, so the epoch of the guest keeps them.
//! A superseded version is freed without that, once the horizon has passed the commit of its
//! successor. The guest publishes `tail` as a bound of the horizon, which is earlier than that
//! commit. Links to older versions are never followed, so the pruner need not know about guests.

use std::cell::Cell;

use super::expiry::unexpired_at;
use super::scan_bounds::{Direction, ScanBounds, as_bytes};
use crate::log::Lsn;
use crate::reclaim::{GuestOperation, MAX_GUESTS};
use crate::record::{MemoryRecords, Records};
use crate::transaction::context::counters::AbortCause;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::fault::PanicPoint;
use crate::types::KeyBuffer;
use crate::version::Stamp;

/// Maximum number of entries of the index that a scan of a guest visits. A longer scan would hold
/// back reclamation, and occupy the caller's thread, for too long.
pub(crate) const MAX_SCANNED_ENTRIES: usize = 64;

/// Result of a read that a guest attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestRead<'g> {
    Found(&'g [u8]),
    Absent,
    /// A worker must read the record.
    Later,
}

/// The right of a thread that is no worker to read, until it is dropped.
pub(crate) struct Guest<'e> {
    engine: &'e Engine,
    operation: GuestOperation<'e>,
    /// The end of the log at the admission, and the published bound of the horizon.
    tail: Lsn,
}

impl Engine {
    /// Admits this thread as a guest that reads. `None` if it is a worker, or if every place is
    /// taken.
    pub(crate) fn admit_guest(&self) -> Option<Guest<'_>> {
        self.admit_guest_in(MAX_GUESTS)
    }

    /// Admits this thread as a guest in one of the first `places`.
    pub(super) fn admit_guest_in(&self, places: usize) -> Option<Guest<'_>> {
        if self.certifies_by_safety_net() {
            // Reads must leave access stamps.
            return None;
        }
        let tail = Cell::new(Lsn::ZERO);
        let operation = self.domain.enter_as_guest(places, |place| {
            tail.set(self.log.tail());
            self.horizon.admit_guest(place, tail.get());
        })?;
        Some(Guest { engine: self, operation, tail: tail.get() })
    }
}

impl Guest<'_> {
    /// The number of the guest's place.
    pub(super) fn place(&self) -> usize {
        self.operation.place()
    }

    /// The guest's operation.
    pub(super) fn operation(&self) -> &GuestOperation<'_> {
        &self.operation
    }

    /// The table, if a guest can read it.
    fn readable<'t>(&self, table: &'t Records) -> Option<&'t MemoryRecords> {
        table.in_memory().filter(|table| self.engine.owns(table))
    }

    /// Returns whether the caller may receive what was read from a table until now, which depends
    /// on the commit at `depends_on`. Called after the read: the records of a dropped table are
    /// deleted after it is closed.
    fn may_answer(&self, table: &Records, depends_on: Lsn) -> bool {
        table.is_open_to_all() && !self.engine.has_to_wait(depends_on)
    }

    /// The time that decides which records of the table have expired, if they expire.
    fn time_for(&self, table: &Records) -> Option<u64> {
        table.expires().then(|| self.engine.steady_clock.now())
    }

    /// Reads the newest value of `key`, if that takes no wait.
    pub(crate) fn get(&self, table: &Records, key: &[u8]) -> GuestRead<'_> {
        let Some(records) = self.readable(table) else { return GuestRead::Later };
        self.engine.planted_panic.panic_if_planted(PanicPoint::Read);
        let (mut read, mut depends_on) = (GuestRead::Absent, Lsn::ZERO);
        if let Ok(rid) = records.look_up_now(key, &self.operation) {
            // SAFETY: published from the admission of the guest until it is dropped.
            let newest = unsafe { records.newest_committed(rid, Stamp::LATEST, &self.operation) };
            let Some((stored, lsn)) = newest else { return GuestRead::Later };
            depends_on = lsn;
            if let Some(value) = unexpired_at(self.time_for(table), stored) {
                read = GuestRead::Found(value);
            }
        }
        if self.may_answer(table, depends_on) { read } else { GuestRead::Later }
    }

    /// Returns at most `limit` records of a range in order, with keys and values. `None` if that
    /// takes a wait, or if the range is long.
    pub(crate) fn scan(
        &self,
        table: &Records,
        bounds: &ScanBounds,
        direction: Direction,
        limit: u64,
    ) -> Option<Vec<(KeyBuffer, &[u8])>> {
        let records = self.readable(table)?;
        self.engine.planted_panic.panic_if_planted(PanicPoint::Scan);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (low, high) = (as_bytes(&bounds.low), as_bytes(&bounds.high));
        let mut cursor = records.index().cursor(low, high, direction == Direction::Reverse);
        let (mut entries, mut found, mut visited) = (Vec::new(), Vec::new(), 0);
        let (time, mut depends_on) = (self.time_for(table), Lsn::ZERO);
        while found.len() < limit {
            // One more entry than the maximum shows that the range is too long.
            let most = (limit - found.len()).min(MAX_SCANNED_ENTRIES + 1 - visited);
            if !cursor.peek_now(&self.operation, &mut entries, most) {
                break;
            }
            visited += entries.len();
            if visited > MAX_SCANNED_ENTRIES {
                return None;
            }
            for entry in &entries {
                // SAFETY: published from the admission of the guest until it is dropped.
                let newest =
                    unsafe { records.newest_committed(entry.rid(), self.tail, &self.operation) };
                let (stored, lsn) = newest?;
                depends_on = depends_on.max(lsn);
                if let Some(value) = unexpired_at(time, stored) {
                    found.push((entry.key(), value));
                }
            }
            cursor.pass_all();
        }
        self.may_answer(table, depends_on).then_some(found)
    }

    /// Counts the read as a transaction that committed, or that ended because of `aborted`.
    pub(crate) fn count(&self, aborted: Option<AbortCause>) {
        // Only the guest in the place counts.
        let counters = &self.engine.counters[self.engine.workers() + self.place()];
        match aborted {
            Some(cause) => counters.aborted[cause as usize].add(1),
            None => {
                counters.committed.add(1);
                counters.committed_read_only.add(1);
            }
        }
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        // Before the operation frees the place.
        self.engine.horizon.release_guest(self.operation.place());
    }
}
