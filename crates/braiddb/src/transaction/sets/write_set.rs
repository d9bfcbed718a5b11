//! Write set: a transaction's writes, sufficient to log, stamp or undo them.

use std::cell::Cell;
use std::ops::Range;

use super::bulk_writes::BulkWrites;
use crate::log::{self, Lsn};
use crate::memory::{Buffer, MemoryCounters, MemoryKind};
use crate::page::{ChangeRef, LargeRef};
use crate::record::{MemoryRecords, PagedRecords, RecordsRef};
use crate::rid::Rid;
use crate::version::{Link, VersionRef};

/// Kind of a write in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// The record did not exist for this transaction.
    Insert,
    /// The record existed, and has a new value.
    Update,
    /// The record is deleted.
    Delete,
    /// No effect: the write found its key taken and was undone immediately.
    Void,
}

/// One record that the transaction wrote.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) table: RecordsRef<MemoryRecords>,
    pub(crate) rid: Rid,
    /// The version in flight, at the head of the record's chain.
    pub(crate) version: VersionRef,
    /// The link word of [`Self::base`].
    base: u64,
    /// Its log position, once logged; else zero.
    logged: Cell<Lsn>,
    /// Number of savepoints created before the version was installed; 0 if a rollback restored it.
    savepoints: u64,
    /// The key, if it is short; else its position in the set's keys.
    key: [u8; SHORT_KEY_BYTES],
    key_bytes: u32,
    pub(crate) kind: WriteKind,
}

/// Keys of at most this size are stored in their writes.
const SHORT_KEY_BYTES: usize = size_of::<usize>();

// A write is as large as a cache line.
const _: () = assert!(cfg!(loom) || size_of::<Write>() == 64);

impl Write {
    /// The committed version it was installed on; `None` if the record is new.
    #[inline(always)]
    pub(crate) fn base(&self) -> Option<Link> {
        Link::from_word(self.base)
    }

    /// Its log position, once logged.
    #[inline(always)]
    pub(crate) fn logged(&self) -> Option<Lsn> {
        Some(self.logged.get()).filter(|logged| *logged != Lsn::ZERO)
    }

    /// Notes its log position. No record is at the start of the log.
    #[inline(always)]
    pub(crate) fn set_logged(&self, logged: Lsn) {
        self.logged.set(logged);
    }

    /// Returns whether the record existed before.
    pub(crate) fn existed(&self) -> bool {
        match self.base() {
            // SAFETY: only this transaction's version supersedes the base, so the base lives at
            // least until this transaction ends.
            Some(Link::Version(base)) => !unsafe { base.get() }.is_tombstone(),
            Some(Link::Address(_)) => true,
            None => false,
        }
    }
}

/// The writes of one transaction, in the order of the first write to each record.
///
/// Invariant: the position stored in a version in flight is the position of its write here.
#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    writes: Vec<Write>,
    /// Keys that are not short.
    keys: Vec<u8>,
    /// Own versions that later writes of the same transaction replaced, and that a savepoint may
    /// need, in order of replacement.
    pub(crate) replaced: Vec<ReplacedWrite>,
    /// Number of savepoints that were created.
    pub(in crate::transaction) savepoints: u64,
    /// Writes to paged tables, in the order of their changes.
    pub(in crate::transaction) paged: Vec<PagedWrite>,
    /// The new values of those writes, if they are logged.
    paged_values: Buffer,
    /// Number of bytes of them that are counted as memory in use.
    counted: usize,
    /// Number of overwrites of such writes, of writes of a bulk operation, and of own versions that
    /// no savepoint needs.
    pub(in crate::transaction) overwrites: usize,
    /// Bulk operation state, if the transaction is one.
    pub(in crate::transaction) bulk: Option<Box<BulkWrites>>,
    /// Bytes of the changes of paged tables, and of their values kept for the log.
    pub(in crate::transaction) version_bytes: u64,
    /// Tables with a lifetime, and the earliest expiry written to each.
    pub(in crate::transaction) expiring: Vec<(RecordsRef, u64)>,
    /// Set once memory for a large value was requested.
    pub(in crate::transaction) has_large: bool,
}

/// A write to a record of a paged table. A record has several if savepoints separate them, or if
/// the table has secondary indexes.
///
/// Invariant: the position stored in a change is the position of its write in the set.
#[derive(Clone, Debug)]
pub(in crate::transaction) struct PagedWrite {
    pub(in crate::transaction) table: RecordsRef<PagedRecords>,
    pub(in crate::transaction) change: ChangeRef,
    pub(in crate::transaction) deleted: bool,
    /// The earlier write of the same record that it replaces, and that no savepoint needs.
    replaces: Option<u32>,
    /// Set if a later write replaced it, so that it is not logged.
    pub(in crate::transaction) replaced: bool,
    /// Position of the value in the set's buffer.
    value: Range<usize>,
    /// The value, if it is large; removed if the write is undone.
    pub(in crate::transaction) large: Option<LargeRef>,
}

/// An own version that a later one replaced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplacedWrite {
    pub(crate) table: RecordsRef<MemoryRecords>,
    pub(crate) version: VersionRef,
    /// The write it belonged to, and that write's kind before.
    pub(crate) position: u32,
    pub(crate) kind: WriteKind,
}

impl WriteSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
            && self.paged.is_empty()
            && self.bulk.as_ref().is_none_or(|bulk| bulk.is_empty())
    }

    pub(crate) fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The key of a write.
    #[inline(always)]
    pub(crate) fn key<'s>(&'s self, write: &'s Write) -> &'s [u8] {
        let bytes = write.key_bytes as usize;
        match write.key.get(..bytes) {
            Some(short) => short,
            None => &self.keys[usize::from_ne_bytes(write.key)..][..bytes],
        }
    }

    /// Notes the expiry of a written record.
    pub(in crate::transaction) fn note_expiring(&mut self, table: RecordsRef, expiry: u64) {
        match self.expiring.iter_mut().find(|(noted, _)| *noted == table) {
            Some((_, earliest)) => *earliest = expiry.min(*earliest),
            None => self.expiring.push((table, expiry)),
        }
    }

    /// Returns whether all writes are deletions.
    pub(crate) fn only_deletes(&self) -> bool {
        let deletes = |write: &Write| matches!(write.kind, WriteKind::Delete | WriteKind::Void);
        self.writes.iter().all(deletes)
            && self.paged.iter().all(|write| write.deleted || write.replaced)
            && self.bulk.as_ref().is_none_or(|bulk| bulk.deletes_only())
    }

    /// Returns whether there are at most `most` writes, none of them of a bulk operation, and no
    /// unlinked versions.
    pub(in crate::transaction) fn is_small(&self, most: usize) -> bool {
        self.writes.len() + self.paged.len() <= most
            && self.bulk.is_none()
            && self.replaced.is_empty()
    }

    /// The position of the next write.
    pub(crate) fn next_position(&self) -> u32 {
        u32::try_from(self.writes.len()).expect("a transaction writes fewer than 2^32 records")
    }

    /// The position of the next write to a paged table.
    pub(in crate::transaction) fn next_paged_position(&self) -> u32 {
        u32::try_from(self.paged.len()).expect("a transaction writes fewer than 2^32 records")
    }

    /// Adds a write to a paged table, with the value to log, if any, and the write that it
    /// replaces.
    pub(in crate::transaction) fn push_paged(
        &mut self,
        table: RecordsRef<PagedRecords>,
        change: ChangeRef,
        deleted: bool,
        (value, large): (&[u8], Option<LargeRef>),
        replaces: Option<u32>,
        memory: &MemoryCounters,
    ) {
        if let Some(position) = replaces {
            self.paged[position as usize].replaced = true;
        }
        let value = self.keep_value(value, memory);
        let replaced = false;
        self.paged.push(PagedWrite { table, change, deleted, replaces, replaced, value, large });
    }

    /// Replaces the value of an earlier write to a paged table. Returns the large value that the
    /// earlier one had left.
    #[must_use]
    pub(in crate::transaction) fn overwrite_paged(
        &mut self,
        position: u32,
        deleted: bool,
        (value, large): (&[u8], Option<LargeRef>),
        memory: &MemoryCounters,
    ) -> Option<LargeRef> {
        let write = &mut self.paged[position as usize];
        write.deleted = deleted;
        let before = std::mem::replace(&mut write.large, large);
        if value.len() <= write.value.len() {
            write.value.end = write.value.start + value.len();
            self.paged_values[write.value.clone()].copy_from_slice(value);
        } else {
            let kept = self.keep_value(value, memory);
            self.paged[position as usize].value = kept;
        }
        self.overwrites += 1;
        before
    }

    /// Stores a value to log. Large buffers are counted as memory in use.
    fn keep_value(&mut self, value: &[u8], memory: &MemoryCounters) -> Range<usize> {
        const MIN_COUNTED_BYTES: usize = 1024;
        let start = self.paged_values.len();
        self.paged_values.extend_from_slice(value);
        let more = self.paged_values.len().saturating_sub(self.counted);
        if more >= MIN_COUNTED_BYTES {
            memory.count(MemoryKind::Change, more as i64);
            self.counted += more;
        }
        start..self.paged_values.len()
    }

    /// Bytes of values stored for writes to paged tables.
    pub(in crate::transaction) fn paged_value_bytes(&self) -> usize {
        self.paged_values.len()
    }

    /// Removes and returns all writes to paged tables after the first `keep`, and truncates the
    /// stored values.
    pub(in crate::transaction) fn split_off_paged(
        &mut self,
        keep: usize,
        value_bytes: usize,
    ) -> Vec<PagedWrite> {
        self.paged_values.truncate(value_bytes);
        let undone = self.paged.split_off(keep);
        for position in undone.iter().filter_map(|write| write.replaces) {
            if let Some(kept) = self.paged.get_mut(position as usize) {
                kept.replaced = false;
            }
        }
        undone
    }

    /// The key of a write to a paged table.
    pub(in crate::transaction) fn paged_key(&self, write: &PagedWrite) -> &[u8] {
        // SAFETY: the change is not retired before its transaction has ended, which empties the
        // set.
        unsafe { write.change.record() }.1
    }

    /// The new value of such a write; empty for a deletion.
    pub(in crate::transaction) fn paged_value(&self, write: &PagedWrite) -> &[u8] {
        &self.paged_values[write.value.clone()]
    }

    /// Adds the first write to a record.
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        table: RecordsRef<MemoryRecords>,
        rid: Rid,
        version: VersionRef,
        base: Option<Link>,
        kind: WriteKind,
        key: &[u8],
    ) {
        let key_bytes = key.len() as u32;
        let key = match <[u8; SHORT_KEY_BYTES]>::try_from(key) {
            Ok(short) => short,
            Err(_) => self.keep_key(key),
        };
        let (base, logged) = (base.map_or(0, Link::word), Cell::new(Lsn::ZERO));
        let savepoints = self.savepoints;
        let write = Write { table, rid, version, base, kind, logged, savepoints, key, key_bytes };
        self.writes.push(write);
    }

    /// Returns the field `key` of a write to this key, and stores the key if it is not short.
    #[inline(never)]
    fn keep_key(&mut self, key: &[u8]) -> [u8; SHORT_KEY_BYTES] {
        let mut short = [0; SHORT_KEY_BYTES];
        if let Some(place) = short.get_mut(..key.len()) {
            place.copy_from_slice(key);
            return short;
        }
        self.keys.extend_from_slice(key);
        (self.keys.len() - key.len()).to_ne_bytes()
    }

    /// Notes that a later write to the record at `position` replaced its version. Returns that
    /// version if no savepoint needs it; the caller must retire it.
    #[must_use]
    pub(crate) fn replace(
        &mut self,
        position: u32,
        version: VersionRef,
        deleted: bool,
    ) -> Option<VersionRef> {
        let write = &mut self.writes[position as usize];
        assert_ne!(write.kind, WriteKind::Void);
        let Write { table, version: before, kind, .. } = *write;
        let is_needed = write.savepoints != self.savepoints;
        if is_needed {
            self.replaced.push(ReplacedWrite { table, version: before, position, kind });
        } else {
            self.overwrites += 1;
        }
        write.kind = match (write.existed(), deleted) {
            (_, true) => WriteKind::Delete,
            (true, false) => WriteKind::Update,
            (false, false) => WriteKind::Insert,
        };
        (write.version, write.savepoints) = (version, self.savepoints);
        (!is_needed).then_some(before)
    }

    /// Undoes a `replace` of the write at `position`; returns its record and the removed version.
    pub(crate) fn restore(
        &mut self,
        position: u32,
        version: VersionRef,
        kind: WriteKind,
    ) -> (Rid, VersionRef) {
        let write = &mut self.writes[position as usize];
        (write.kind, write.savepoints) = (kind, 0);
        (write.rid, std::mem::replace(&mut write.version, version))
    }

    /// Removes all writes after the first `keep`.
    pub(crate) fn truncate(&mut self, keep: usize) {
        let is_long = |write: &Write| write.key_bytes as usize > SHORT_KEY_BYTES;
        if !self.keys.is_empty()
            && let Some(first) = self.writes.iter().skip(keep).find(|write| is_long(write))
        {
            self.keys.truncate(usize::from_ne_bytes(first.key));
        }
        self.writes.truncate(keep);
    }

    /// Voids the write at `position`, which was undone.
    pub(crate) fn void(&mut self, position: u32) {
        self.writes[position as usize].kind = WriteKind::Void;
    }

    /// Bytes the write takes in a log block.
    #[inline]
    pub(crate) fn log_bytes(&self, write: &Write) -> usize {
        if write.kind == WriteKind::Void {
            return 0;
        }
        log::record_bytes(write.key_bytes as usize, self.value(write).len())
    }

    /// The new value of a write; empty for a deletion.
    #[inline]
    pub(crate) fn value(&self, write: &Write) -> &[u8] {
        if matches!(write.kind, WriteKind::Delete | WriteKind::Void) {
            return &[];
        }
        // SAFETY: in flight at the head of its chain, where only this transaction replaces it.
        unsafe { write.version.get() }.payload()
    }

    /// Empties the set, and keeps little of its memory: thousands of sets exist.
    #[inline(always)]
    pub(crate) fn clear(&mut self, memory: &MemoryCounters) {
        const KEPT_WRITES: usize = 64;
        assert!(self.replaced.is_empty(), "unlinked versions were passed to reclamation");
        self.savepoints = 0;
        empty(&mut self.writes, KEPT_WRITES);
        empty(&mut self.keys, KEPT_WRITES * 16);
        empty(&mut self.paged, KEPT_WRITES);
        self.paged_values.clear_keeping(KEPT_WRITES * 16);
        if self.counted > 0 {
            memory.count(MemoryKind::Change, -(std::mem::take(&mut self.counted) as i64));
        }
        self.overwrites = 0;
        self.bulk = None;
        self.version_bytes = 0;
        self.expiring.clear();
        self.has_large = false;
    }
}

/// Empties a vector, and keeps memory for at most `kept` items.
#[inline(always)]
pub(in crate::transaction) fn empty<T>(items: &mut Vec<T>, kept: usize) {
    items.clear();
    if items.capacity() > kept {
        items.shrink_to(kept);
    }
}
