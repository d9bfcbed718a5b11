//! What a transaction wrote: enough to log it, to stamp it and to take it back.

use std::cell::Cell;

use crate::log::{self, Lsn};
use crate::record::RecordsRef;
use crate::rid::Rid;
use crate::version::{Link, VersionRef};

/// What a write did to its record, as the log tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// The record did not exist for this transaction.
    Insert,
    /// It did, and has a new value.
    Update,
    /// It is gone.
    Delete,
    /// Nothing: the write found its key taken and was undone on the spot.
    Void,
}

/// One record that the transaction wrote.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) table: RecordsRef,
    pub(crate) rid: Rid,
    /// The version in flight, at the head of the record's chain.
    pub(crate) version: VersionRef,
    /// The committed version it was installed on; none if the record is new.
    pub(crate) base: Option<Link>,
    pub(crate) kind: WriteKind,
    /// Where it was logged, once it was.
    pub(crate) logged: Cell<Option<Lsn>>,
    key_start: usize,
    key_bytes: usize,
}

/// The writes of one transaction, in the order of the first write to each record.
///
/// Invariant: the place of a version in flight is its write's position here.
#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    writes: Vec<Write>,
    keys: Vec<u8>,
    /// Own versions that later writes of the same transaction replaced.
    pub(crate) replaced: Vec<(RecordsRef, VersionRef)>,
}

impl WriteSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The key of a write.
    pub(crate) fn key(&self, write: &Write) -> &[u8] {
        &self.keys[write.key_start..write.key_start + write.key_bytes]
    }

    /// Whether nothing is written but deletions.
    pub(crate) fn only_deletes(&self) -> bool {
        self.writes.iter().all(|write| matches!(write.kind, WriteKind::Delete | WriteKind::Void))
    }

    /// The place of the next write.
    pub(crate) fn next_position(&self) -> u32 {
        u32::try_from(self.writes.len()).expect("a transaction writes fewer than 2^32 records")
    }

    /// Adds the first write to a record.
    pub(crate) fn push(
        &mut self,
        table: RecordsRef,
        rid: Rid,
        version: VersionRef,
        base: Option<Link>,
        kind: WriteKind,
        key: &[u8],
    ) {
        let (key_start, key_bytes) = (self.keys.len(), key.len());
        self.keys.extend_from_slice(key);
        let logged = Cell::new(None);
        self.writes.push(Write { table, rid, version, base, kind, logged, key_start, key_bytes });
    }

    /// A later write to the record at `place` replaced its version.
    pub(crate) fn replace(&mut self, place: u32, version: VersionRef, deleted: bool) {
        let write = &mut self.writes[place as usize];
        assert_ne!(write.kind, WriteKind::Void);
        let existed = match write.base {
            // SAFETY: the base is superseded only by this transaction's version, so it lives at
            // least until this transaction is over.
            Some(Link::Version(base)) => !unsafe { base.get() }.is_tombstone(),
            Some(Link::Address(_)) => true,
            None => false,
        };
        write.kind = match (existed, deleted) {
            (_, true) => WriteKind::Delete,
            (true, false) => WriteKind::Update,
            (false, false) => WriteKind::Insert,
        };
        self.replaced.push((write.table, write.version));
        write.version = version;
    }

    /// Forgets the write at `place`, which was undone.
    pub(crate) fn void(&mut self, place: u32) {
        self.writes[place as usize].kind = WriteKind::Void;
    }

    /// Bytes the write takes in a log block.
    pub(crate) fn log_bytes(&self, write: &Write) -> usize {
        if write.kind == WriteKind::Void {
            return 0;
        }
        log::record_bytes(write.key_bytes, self.value(write).len())
    }

    /// The value a write left; empty for a delete.
    pub(crate) fn value(&self, write: &Write) -> &[u8] {
        if matches!(write.kind, WriteKind::Delete | WriteKind::Void) {
            return &[];
        }
        // SAFETY: in flight at the head of its chain, where only this transaction replaces it.
        unsafe { write.version.get() }.payload()
    }

    /// Empties the set and keeps its memory, unless one transaction made it very large.
    pub(crate) fn clear(&mut self) {
        const KEPT_WRITES: usize = 4096;
        assert!(self.replaced.is_empty(), "replaced versions were handed to reclamation");
        self.writes.clear();
        self.writes.shrink_to(KEPT_WRITES);
        self.keys.clear();
        self.keys.shrink_to(KEPT_WRITES * 16);
    }
}
