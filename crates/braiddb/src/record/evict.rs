//! Eviction: versions that the log has give way to their addresses.
//!
//! A clock over the indirection array, with a second chance for what was read since the hand last
//! came by. Invariant: an entry becomes an address only if its version is durable and committed
//! before every begin stamp in use: so whoever meets the address may see the record, and no older
//! version of it is needed. That is acting on a horizon: the protocol is at the head of
//! `version/horizon.rs`.

use super::indirection::Entry;
use super::table::Table;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::reclaim;
use crate::rid::Rid;
use crate::version::{Acting, Address, Link, VersionRef};

impl Table {
    /// Moves the hand over `count` entries. Every version evicted is handed to `evicted`: it is to
    /// be freed when the transactions that are active now are over. Returns the bytes that gives.
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
            // SAFETY: the newest version, loaded under the guard above and a begin stamp that holds
            // back whoever would free it.
            let version = unsafe { head.get() };
            let Some(address) = self.address_of(version, acting.oldest(), durable) else {
                continue;
            };
            if version.take_reference() {
                continue;
            }
            if self.array().replace(rid, Entry::Version(head), Entry::Address(address)) {
                bytes += VersionRef::bytes(version.payload_bytes());
                evicted(head);
            }
        }
        bytes
    }

    /// Where a version can be read again, if it may be evicted.
    fn address_of(
        &self,
        version: crate::version::Version<'_>,
        oldest: Lsn,
        durable: Lsn,
    ) -> Option<Address> {
        let stamp = version.stamp().lsn()?;
        let record = match version.next() {
            Some(older) if is_planted(Bug::StaleAddress) => older_record(older)?,
            _ => version.record()?,
        };
        // The log is durable up to the end of a flush, so a block whose start is, is.
        let evictable = !version.is_tombstone() && stamp < oldest && stamp.max(record) < durable;
        evictable.then(|| Address::new(record, version.payload_bytes()))
    }
}

/// Of the planted bug: the address of the version that was superseded.
fn older_record(older: Link) -> Option<Lsn> {
    match older {
        Link::Address(address) => Some(address.lsn()),
        Link::Version(_) => None,
    }
}
