//! Eviction: versions that are in the log are replaced by their addresses, or lose their payload.
//!
//! A clock over the indirection array, with a second chance for versions that were read since the
//! hand last passed. Invariants:
//!
//! - An entry becomes an address only if its version is durable and committed before every begin
//!   stamp in use. So every transaction that meets the address may see the record, and no older
//!   version of it is needed. This acts on a horizon: the protocol is documented at the head of
//!   `version/horizon.rs`.
//! - A durable version that is newer than some begin stamp in use is replaced by its header alone,
//!   which keeps its commit LSN and the link to older versions. So one old transaction does not
//!   keep payloads resident, whatever is written while it is open. Once no begin stamp is older,
//!   the address replaces the header.
//! - A worker that replaces a version by another with the same link excludes the pruner, the only
//!   task that changes a version's link.
//! - The replacement contains the location of the record, which compaction may change at that
//!   moment. A worker that replaces a version checks this afterwards ([`MemoryRecords::follow_move`]).

use super::indirection::IndirectionEntry;
use super::records::MemoryRecords;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::rid::Rid;
use crate::sync::atomic::{Ordering, fence};
use crate::version::{Acting, Address, Link, Version, VersionRef};

/// Shorter payloads stay resident: a header takes 24 bytes, and reading a payload again takes a
/// transfer.
const MIN_PAYLOAD_BYTES: usize = 64;

impl MemoryRecords {
    /// Moves the hand over `count` entries. Passes every evicted version to `evicted`: nothing
    /// references it any more, and the caller retires it. Returns the bytes that this will free.
    ///
    /// Everything before `durable` is on disk.
    pub(crate) fn evict(
        &self,
        count: u64,
        acting: &Acting<'_>,
        durable: Lsn,
        mut evicted: impl FnMut(VersionRef),
    ) -> u64 {
        let _operation = reclaim::enter();
        let bound = self.rids().bound();
        let mut bytes = 0;
        for number in self.advance_hand(count.min(bound), bound) {
            let rid = Rid::new(number);
            let IndirectionEntry::Version(head) = self.array().load(rid) else { continue };
            // SAFETY: the newest version, loaded under the guard above, which is older than its
            // eviction by others. If it is superseded, then after `acting` began: its worker
            // publishes no later stamp before this call ends, so it is not freed.
            let version = unsafe { head.get() };
            let Some(kind) = eviction_kind(version, acting.oldest(), durable) else { continue };
            if version.take_referenced() {
                continue;
            }
            let (kept, to) = match kind {
                EvictionKind::ToAddress(address) => (0, IndirectionEntry::Address(address)),
                EvictionKind::ToHeader => {
                    let header = VersionRef::allocate_evicted(self.memory(), version);
                    // SAFETY: not shared yet.
                    (unsafe { header.get() }.memory_bytes(), IndirectionEntry::Version(header))
                }
            };
            if self.array().replace(rid, IndirectionEntry::Version(head), to) {
                if !is_planted(Bug::StaleAddress) {
                    self.follow_move(rid, version, to);
                }
                bytes += version.memory_bytes() - kept;
                evicted(head);
            } else if let IndirectionEntry::Version(header) = to {
                // SAFETY: never shared.
                unsafe { header.free(self.memory()) };
            }
        }
        bytes
    }

    /// Updates the replacement of a version to the current location of the record, if compaction
    /// moved the record concurrently: its old segment may be freed soon. The caller acts on a
    /// horizon, or is in a transaction, so the segment is not freed before this call ends.
    pub(super) fn follow_move(&self, rid: Rid, replaced: Version<'_>, by: IndirectionEntry) {
        // Pairs with the fence in `Horizon::act`, which compaction passes after it moved a record
        // and before it reads the entry again. Either that read finds the replacement, and moves it
        // too, or the move is seen here.
        fence(Ordering::SeqCst);
        let Some(record) = replaced.record() else { return };
        match by {
            IndirectionEntry::Address(address) if address.lsn() != record => {
                // Otherwise a transaction wrote the record, or compaction moved it already.
                self.array().replace(rid, by, IndirectionEntry::Address(address.moved(record)));
            }
            IndirectionEntry::Version(version) => {
                // SAFETY: put into the entry just now, under the caller's guard, which is older
                // than its eviction by others; and if it is superseded, then after the caller's
                // horizon, or its transaction's begin.
                let version = unsafe { version.get() };
                if version.record() != Some(record) {
                    // As near to its stamp as for the replaced version, which has the same stamp.
                    version.move_record(record);
                }
            }
            IndirectionEntry::Address(_) | IndirectionEntry::Empty | IndirectionEntry::Dead => {}
        }
    }
}

/// The replacement of a record's newest version.
#[derive(Clone, Copy, Debug)]
enum EvictionKind {
    /// The address of its record in the log.
    ToAddress(Address),
    /// Its header, without the payload.
    ToHeader,
}

/// How a head may be evicted, if at all.
fn eviction_kind(version: Version<'_>, oldest: Lsn, durable: Lsn) -> Option<EvictionKind> {
    let stamp = version.stamp().lsn()?;
    if stamp >= oldest {
        return may_lose_payload(version, durable).then_some(EvictionKind::ToHeader);
    }
    let record = match version.next() {
        Some(older) if is_planted(Bug::StaleAddress) => older_record(older)?,
        _ => durable_record(version, durable)?,
    };
    Some(EvictionKind::ToAddress(Address::new(record, version.payload_bytes())))
}

/// Returns whether a version may be replaced by its header: its payload is on disk, and long enough
/// to be worth evicting. Everything before `durable` is on disk.
pub(crate) fn may_lose_payload(version: Version<'_>, durable: Lsn) -> bool {
    version.payload_bytes() >= MIN_PAYLOAD_BYTES
        && !version.is_evicted()
        && durable_record(version, durable).is_some()
}

/// The location where a committed version can be read again.
fn durable_record(version: Version<'_>, durable: Lsn) -> Option<Lsn> {
    let (stamp, record) = (version.stamp().lsn()?, version.record()?);
    // The log is durable up to the end of a flush, so a block is durable if its start is.
    (!version.is_tombstone() && stamp.max(record) < durable).then_some(record)
}

/// For a planted bug: the address of the superseded version.
fn older_record(older: Link) -> Option<Lsn> {
    match older {
        Link::Address(address) => Some(address.lsn()),
        Link::Version(_) => None,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::common::{PART_SECONDS, with_limit};
    use std::sync::Arc;

    use super::super::records::Records;
    use super::*;
    use crate::memory::MemoryCounters;
    use crate::reclaim::{self, Domain};
    use crate::rid::TableId;
    use crate::version::Stamp;

    /// Compaction moves a record after an evictor read its location and before the replacement.
    #[test]
    fn the_replacement_of_a_version_follows_its_record() {
        with_limit(PART_SECONDS, |_| {
            let memory = Arc::new(MemoryCounters::new());
            let domain = Arc::new(Domain::new(1, memory.clone()));
            let records = Records::new(TableId(1), memory.clone(), None, true);
            let table = records.in_memory().unwrap();
            let participation = domain.participate();
            let operation = reclaim::enter();
            for evicts_to_header in [false, true] {
                let rid = table.take_rid().unwrap();
                let stamp = Stamp::committed(Lsn(640));
                let whole = VersionRef::allocate(&memory, stamp, &[7; 100], false);
                // SAFETY: freed below, when nothing references it any more.
                let version = unsafe { whole.get() };
                version.set_record(Lsn(640), Some(Lsn(640)));
                table.array().publish(rid, whole);
                let to = if evicts_to_header {
                    IndirectionEntry::Version(VersionRef::allocate_evicted(&memory, version))
                } else {
                    IndirectionEntry::Address(Address::new(Lsn(640), 100))
                };
                assert!(version.move_record(Lsn(6400)));
                assert!(table.array().replace(rid, IndirectionEntry::Version(whole), to));
                table.follow_move(rid, version, to);
                let leads_to = match table.array().load(rid) {
                    IndirectionEntry::Address(address) => Some(address.lsn()),
                    // SAFETY: the header belongs to the table.
                    IndirectionEntry::Version(header) => unsafe { header.get() }.record(),
                    IndirectionEntry::Empty | IndirectionEntry::Dead => None,
                };
                assert_eq!(leads_to, Some(Lsn(6400)), "to a header: {evicts_to_header}");
                // SAFETY: replaced above, and known only to this test.
                unsafe { whole.free(&memory) };
            }
            drop(operation);
            drop((records, participation));
        });
    }
}
