//! Eviction: versions that the log has give way to their addresses, or lose their payload.
//!
//! A clock over the indirection array, with a second chance for what was read since the hand last
//! came by. Invariants:
//!
//! - An entry becomes an address only if its version is durable and committed before every begin stamp
//!   in use: so whoever meets the address may see the record, and no older version of it is needed.
//!   That is acting on a horizon: the protocol is at the head of `version/horizon.rs`.
//! - A durable version that is newer than some begin stamp in use gives way to its header alone, which
//!   says when it was committed and leads on to older versions. So one old transaction does not keep
//!   payloads in memory, whatever is written while it is open. Once no begin stamp is older, the header
//!   gives way to the address.
//! - Whoever replaces a version by another that leads on as the first did excludes the pruner, who alone
//!   changes where a version leads.

use super::indirection::Entry;
use super::table::Table;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::rid::Rid;
use crate::version::{Acting, Address, Link, Version, VersionRef};

/// Shorter payloads stay: a header takes 24 bytes, and reading one back a transfer.
const LEAST_PAYLOAD_BYTES: usize = 64;

impl Table {
    /// Moves the hand over `count` entries. Every version evicted is handed to `evicted`: nothing leads
    /// to it any more, and it is to be retired. Returns the bytes that gives.
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
        for number in self.turn_hand(count.min(bound), bound) {
            let rid = Rid::new(number);
            let Entry::Version(head) = self.array().load(rid) else { continue };
            // SAFETY: the newest version, loaded under the guard above, which is older than its eviction
            // by others; and should it be superseded, then after `acting` began: its worker publishes
            // no later stamp before this call is over, so nobody frees it.
            let version = unsafe { head.get() };
            let Some(way) = way_out(version, acting.oldest(), durable) else { continue };
            if version.take_reference() {
                continue;
            }
            let (kept, to) = match way {
                WayOut::ToAddress(address) => (0, Entry::Address(address)),
                WayOut::ToHeader => {
                    let header = VersionRef::allocate_evicted(self.memory(), version);
                    // SAFETY: not shared yet.
                    (unsafe { header.get() }.memory_bytes(), Entry::Version(header))
                }
            };
            if self.array().replace(rid, Entry::Version(head), to) {
                bytes += version.memory_bytes() - kept;
                evicted(head);
            } else if let Entry::Version(header) = to {
                // SAFETY: never shared.
                unsafe { header.free(self.memory()) };
            }
        }
        bytes
    }
}

/// How the newest version of a record may be evicted.
#[derive(Clone, Copy, Debug)]
enum WayOut {
    ToAddress(Address),
    ToHeader,
}

/// How a head may be evicted, if it may.
fn way_out(version: Version<'_>, oldest: Lsn, durable: Lsn) -> Option<WayOut> {
    let stamp = version.stamp().lsn()?;
    if stamp >= oldest {
        return may_lose_payload(version, durable).then_some(WayOut::ToHeader);
    }
    let record = match version.next() {
        Some(older) if is_planted(Bug::StaleAddress) => older_record(older)?,
        _ => durable_record(version, durable)?,
    };
    Some(WayOut::ToAddress(Address::new(record, version.payload_bytes())))
}

/// Whether a version may give way to its header: its payload is on disk, and long enough to be worth
/// reading again. Everything before `durable` is on disk.
pub(crate) fn may_lose_payload(version: Version<'_>, durable: Lsn) -> bool {
    version.payload_bytes() >= LEAST_PAYLOAD_BYTES
        && !version.is_evicted()
        && durable_record(version, durable).is_some()
}

/// Where a committed version can be read again.
fn durable_record(version: Version<'_>, durable: Lsn) -> Option<Lsn> {
    let (stamp, record) = (version.stamp().lsn()?, version.record()?);
    // The log is durable up to the end of a flush, so a block whose start is, is.
    (!version.is_tombstone() && stamp.max(record) < durable).then_some(record)
}

/// Of the planted bug: the address of the version that was superseded.
fn older_record(older: Link) -> Option<Lsn> {
    match older {
        Link::Address(address) => Some(address.lsn()),
        Link::Version(_) => None,
    }
}
