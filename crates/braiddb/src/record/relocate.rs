//! Relocation of records: reports where a record's bytes are in the log, and redirects its entry to
//! a copy of them.

use super::indirection::IndirectionEntry;
use super::records::MemoryRecords;
use crate::index::MAX_KEY_BYTES;
use crate::log::Lsn;
use crate::reclaim::OperationGuard;
use crate::rid::Rid;
use crate::version::{Acting, Address, Link, Stamp, TransactionStatus, Version, VersionRef, View};

/// The part of the log that holds a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeldLogRange {
    /// Its start.
    pub(crate) lsn: Lsn,
    /// Bytes that it takes with a key of the usual length, or a shorter one.
    pub(crate) expected_bytes: usize,
}

/// State of a record's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewestVersion {
    /// No record, or a deletion.
    Gone,
    /// An uncommitted write, and the location of the version it was installed on.
    InFlight(Option<HeldLogRange>),
    /// A write whose transaction is ending at this moment; the caller must retry.
    Deciding,
    /// A committed version or an address, and its location.
    Committed(Link, HeldLogRange),
    /// A committed version whose log position is unknown.
    Unlogged,
}

impl HeldLogRange {
    fn of_address(address: Address) -> Self {
        Self { lsn: address.lsn(), expected_bytes: address.read_bytes() }
    }

    /// The last position that it can take.
    pub(crate) fn last(self) -> Lsn {
        Lsn(self.lsn.0 + (self.expected_bytes + MAX_KEY_BYTES) as u64 - 1)
    }

    fn of_version(version: Version<'_>) -> Option<Self> {
        let lsn = version.record()?;
        Some(Self::of_address(Address::new(lsn, version.payload_bytes())))
    }
}

impl MemoryRecords {
    /// Returns the state of a record's entry.
    pub(crate) fn newest(
        &self,
        rid: Rid,
        view: View<'_>,
        _operation: &OperationGuard,
    ) -> NewestVersion {
        let head = match self.array().load(rid) {
            IndirectionEntry::Empty | IndirectionEntry::Dead => return NewestVersion::Gone,
            IndirectionEntry::Address(address) => {
                return NewestVersion::Committed(
                    Link::Address(address),
                    HeldLogRange::of_address(address),
                );
            }
            IndirectionEntry::Version(head) => head,
        };
        // SAFETY: the head just loaded, under the operation's guard; the view's transaction is active.
        let version = unsafe { head.get() };
        let stamp = version.stamp();
        if let Some(name) = stamp.name() {
            return match view.status.outcome(name) {
                // SAFETY: the transaction was active after `view` began. So if it commits, then not
                // before that begin stamp; nor does a transaction that writes after it, if it
                // aborts. So no worker has acted on a horizon that would let the version below be
                // freed. If that version is evicted once it is the head again, the operation is
                // older.
                TransactionStatus::Active => unsafe { below(version) },
                _ => NewestVersion::Deciding,
            };
        }
        if stamp == Stamp::ABORTED {
            // Unlinked since the entry was loaded. The entry now references the version it was
            // installed on, or nothing. An aborted version's record is not in the log.
            return NewestVersion::Deciding;
        }
        if version.is_tombstone() {
            return NewestVersion::Gone;
        }
        HeldLogRange::of_version(version).map_or(NewestVersion::Unlogged, |kept| {
            NewestVersion::Committed(Link::Version(head), kept)
        })
    }

    /// Returns whether the entry of a record still references `link`.
    pub(crate) fn points_to(&self, rid: Rid, link: Link) -> bool {
        self.array().load(rid).link() == Some(link)
    }

    /// Redirects a record's entry from `link` to its copy at `to`. The copy is durable and before
    /// every begin stamp in use, so every transaction that meets it may see it. A version that
    /// cannot store the new location is replaced by the address and returned; the caller frees it
    /// like an evicted one.
    ///
    /// # Safety
    /// `link` was found in the entry under `_operation`.
    pub(crate) unsafe fn move_to_copy(
        &self,
        rid: Rid,
        link: Link,
        to: Lsn,
        acting: &Acting<'_>,
        _operation: &OperationGuard,
    ) -> Option<VersionRef> {
        assert!(to < acting.oldest(), "every transaction may see the copy");
        match link {
            Link::Address(old) => {
                // On failure another task was faster: it wrote the record, or made it resident. The
                // caller checks the record again.
                let new = old.moved(to);
                self.array().replace(
                    rid,
                    IndirectionEntry::Address(old),
                    IndirectionEntry::Address(new),
                );
                None
            }
            Link::Version(head) => {
                // SAFETY: found under the operation's guard, which lasts.
                let version = unsafe { head.get() };
                if version.move_record(to) {
                    return None;
                }
                let address = Address::new(to, version.payload_bytes());
                let replaced = self.array().replace(
                    rid,
                    IndirectionEntry::Version(head),
                    IndirectionEntry::Address(address),
                );
                replaced.then_some(head)
            }
        }
    }
}

/// The state of a record whose head is in flight.
///
/// # Safety
/// The version below the head is not freed during the call.
unsafe fn below(head: Version<'_>) -> NewestVersion {
    match head.next() {
        None => NewestVersion::InFlight(None),
        Some(Link::Address(address)) => {
            NewestVersion::InFlight(Some(HeldLogRange::of_address(address)))
        }
        Some(Link::Version(base)) => {
            // SAFETY: the caller's contract.
            let base = unsafe { base.get() };
            // It may be committed and not stamped yet.
            if base.stamp().name().is_some() {
                return NewestVersion::Deciding;
            }
            NewestVersion::InFlight(HeldLogRange::of_version(base))
        }
    }
}
