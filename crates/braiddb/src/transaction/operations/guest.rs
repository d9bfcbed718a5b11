//! Reads of one record by a guest: a thread that is no worker, such as the caller of `db.get`.
//!
//! A guest reads only what needs no wait: the newest version of a record in memory, if that version
//! is committed, resident and durable, or the absence of its key. A worker does everything else.
//!
//! # Why this is a serializable transaction
//!
//! Let `tail` be the end of the log when the guest was admitted.
//!
//! - *A value* of a version committed at `c`. At the load of the record's entry the version was its
//!   newest one, so a successor commits at an LSN that is drawn later, after `tail`. The read is
//!   placed in the log directly after `c` or `tail`, whichever is later. This is before every
//!   successor, after all transactions that ended before the read began, and before all that begin
//!   after it ends.
//! - *An absence.* Every record committed before `tail` had its entry in the index, and the index
//!   has none. So the record did not exist at `tail`, or its deletion was durable before its entry
//!   was removed. The read is placed at `tail`.
//!
//! A table that is dropped during the read is left to a worker, because its records disappear
//! before its handles do. A caller that was informed of a commit sees it: the version was stamped or
//! is still in flight, and a version in flight is left to a worker.
//!
//! # Why the value stays allocated
//!
//! Index nodes, keys, evicted and undone versions are retired, so the epoch of the guest keeps them.
//! A superseded version is freed without that, once the horizon has passed the commit of its
//! successor. The guest publishes `tail` as a bound of the horizon, which is earlier than that
//! commit. Links to older versions are never followed, so the pruner need not know about guests.

use super::expiry::unexpired_at;
use crate::log::Lsn;
use crate::reclaim::GuestOperation;
use crate::record::{MemoryRecords, Records};
use crate::transaction::context::counters::AbortCause;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::fault::PanicPoint;

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
}

impl Engine {
    /// Admits this thread as a guest. `None` if it is a worker, or if there are too many guests.
    pub(crate) fn admit_guest(&self) -> Option<Guest<'_>> {
        if self.certifies_by_safety_net() {
            // Reads must leave access stamps.
            return None;
        }
        let announce = |place| self.horizon.admit_guest(place, self.log.tail());
        let operation = self.domain.enter_as_guest(announce)?;
        Some(Guest { engine: self, operation })
    }
}

impl Guest<'_> {
    /// Reads the newest value of `key`, if that takes no wait.
    pub(crate) fn get(&self, table: &Records, key: &[u8]) -> GuestRead<'_> {
        let engine = self.engine;
        let Some(records) = table.in_memory().filter(|table| engine.owns(table)) else {
            return GuestRead::Later;
        };
        engine.planted_panic.panic_if_planted(PanicPoint::Read);
        let read = match self.newest(records, key) {
            Ok(Some((_, lsn))) if engine.has_to_wait(lsn) => GuestRead::Later,
            Ok(Some((stored, _))) => {
                let time = table.expires().then(|| engine.steady_clock.now());
                unexpired_at(time, stored).map_or(GuestRead::Absent, GuestRead::Found)
            }
            Ok(None) => GuestRead::Absent,
            Err(NeedsWorker) => GuestRead::Later,
        };
        // Checked last: the records of a dropped table are deleted after it is closed.
        if table.is_open_to_all() { read } else { GuestRead::Later }
    }

    /// The newest value of `key` and its commit LSN; `None` if the index does not contain the key.
    fn newest(
        &self,
        table: &MemoryRecords,
        key: &[u8],
    ) -> Result<Option<(&[u8], Lsn)>, NeedsWorker> {
        let Ok(rid) = table.look_up_now(key, &self.operation) else { return Ok(None) };
        // SAFETY: published when the guest was admitted, until it is dropped.
        let newest = unsafe { table.newest_committed(rid, &self.operation) };
        newest.map(Some).ok_or(NeedsWorker)
    }

    /// Counts the read as a transaction that committed, or that ended because of `aborted`.
    pub(crate) fn count(&self, aborted: Option<AbortCause>) {
        // Only the guest in the place counts.
        let counters = &self.engine.counters[self.engine.workers() + self.operation.place()];
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

/// The newest version is undecided, deleted or not resident.
struct NeedsWorker;
