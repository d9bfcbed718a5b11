//! Log records of a transaction's writes: those of unpaged tables first, then those of paged ones,
//! each in write order.

use std::ops::Range;

use super::write_set::{PagedWrite, Write, WriteKind, WriteSet};
use crate::log::{self, RecordKind, Reservation};
use crate::rid::Rid;

impl WriteSet {
    /// Bytes that the writes take in the log. Stops counting once they exceed `most`.
    pub(super) fn log_bytes_up_to(&self, most: usize) -> usize {
        let mut total = 0;
        let mut numbers = 0..self.count();
        while total <= most
            && let Some(number) = numbers.next()
        {
            total += self.bytes_of(number);
        }
        total
    }

    /// Adds records of all writes to a block.
    pub(super) fn append_all(&self, block: &mut Reservation<'_>) {
        self.writes().iter().for_each(|write| append(block, self, write));
        self.paged.iter().for_each(|write| append_paged(block, self, write));
    }

    /// Number of writes to log.
    fn count(&self) -> usize {
        self.writes().len() + self.paged.len()
    }

    /// Bytes that one write takes in the log.
    fn bytes_of(&self, number: usize) -> usize {
        match number.checked_sub(self.writes().len()) {
            None => self.log_bytes(&self.writes()[number]),
            Some(paged) => self.paged_log_bytes(&self.paged[paged]),
        }
    }

    fn paged_log_bytes(&self, write: &PagedWrite) -> usize {
        if write.replaced {
            return 0;
        }
        log::record_bytes(self.paged_key(write).len(), self.paged_value(write).len())
    }

    /// The writes from `start` on that form one part, and the part's bytes. A single large write
    /// may exceed the common block size.
    pub(super) fn part(&self, start: usize, common_bytes: usize) -> (Range<usize>, usize) {
        let (mut end, mut total) = (start, 0);
        while end < self.count() {
            let next = total + self.bytes_of(end);
            if end > start && log::block_bytes(next) > common_bytes {
                break;
            }
            (end, total) = (end + 1, next);
        }
        (start..end, log::block_bytes(total))
    }

    /// Adds records of some writes to a block.
    pub(super) fn append(&self, block: &mut Reservation<'_>, writes: Range<usize>) {
        for number in writes {
            match number.checked_sub(self.writes().len()) {
                None => append(block, self, &self.writes()[number]),
                Some(paged) => append_paged(block, self, &self.paged[paged]),
            }
        }
    }
}

#[inline]
fn append(block: &mut Reservation<'_>, writes: &WriteSet, write: &Write) {
    let kind = match write.kind {
        WriteKind::Insert => RecordKind::Insert,
        WriteKind::Update => RecordKind::Update,
        WriteKind::Delete => RecordKind::Delete,
        WriteKind::Void => return,
    };
    // SAFETY: tables live as long as the engine.
    let table = unsafe { write.table.get() }.id;
    let lsn = block.append(table, kind, write.rid, writes.key(write), writes.value(write));
    write.logged.set(Some(lsn));
}

fn append_paged(block: &mut Reservation<'_>, writes: &WriteSet, write: &PagedWrite) {
    if write.replaced {
        return;
    }
    let kind = if write.deleted { RecordKind::DeleteByKey } else { RecordKind::PutByKey };
    // SAFETY: tables live as long as the engine.
    let table = unsafe { write.table.get() }.id;
    block.append(table, kind, Rid::new(0), writes.paged_key(write), writes.paged_value(write));
}
