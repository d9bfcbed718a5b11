//! Log records of a transaction's writes: those of unpaged tables first, then those of paged ones,
//! each in write order.

use std::ops::Range;

use crate::log::{self, RecordKind, Reservation};
use crate::rid::Rid;
use crate::transaction::sets::write_set::{PagedWrite, Write, WriteKind, WriteSet};
use crate::types::checksum::SumInstructions;

impl WriteSet {
    /// Bytes that the writes take in the log. Stops counting once they exceed `most`.
    pub(super) fn log_bytes_up_to(&self, most: usize) -> usize {
        let mut total = 0;
        for write in self.writes() {
            total += self.log_bytes(write);
            if total > most {
                return total;
            }
        }
        for write in &self.paged {
            total += self.paged_log_bytes(write);
            if total > most {
                return total;
            }
        }
        total
    }

    /// Adds records of all writes to a block.
    pub(super) fn append_all(&self, block: &mut Reservation<'_>) {
        #[cfg(target_arch = "x86_64")]
        if let Some(instructions) = SumInstructions::detect() {
            // SAFETY: the processor has the feature.
            unsafe { self.append_with_hardware(block, instructions) };
            return self.append_all_paged(block);
        }
        self.append_unpaged(block, None);
        self.append_all_paged(block);
    }

    #[inline(always)]
    fn append_unpaged(&self, block: &mut Reservation<'_>, instructions: Option<SumInstructions>) {
        for write in self.writes() {
            append(block, self, write, instructions);
        }
    }

    /// Does what `append_unpaged` does. It is compiled for the instructions that compute checksums,
    /// so that these are not behind a call for each record.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "sse4.2")]
    fn append_with_hardware(&self, block: &mut Reservation<'_>, instructions: SumInstructions) {
        self.append_unpaged(block, Some(instructions));
    }

    fn append_all_paged(&self, block: &mut Reservation<'_>) {
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
    pub(in crate::transaction) fn part(
        &self,
        start: usize,
        common_bytes: usize,
    ) -> (Range<usize>, usize) {
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
    pub(in crate::transaction) fn append(&self, block: &mut Reservation<'_>, writes: Range<usize>) {
        for number in writes {
            match number.checked_sub(self.writes().len()) {
                None => {
                    append(block, self, &self.writes()[number], SumInstructions::detect());
                }
                Some(paged) => append_paged(block, self, &self.paged[paged]),
            }
        }
    }
}

#[inline(always)]
fn append(
    block: &mut Reservation<'_>,
    writes: &WriteSet,
    write: &Write,
    instructions: Option<SumInstructions>,
) {
    let kind = match write.kind {
        WriteKind::Insert => RecordKind::Insert,
        WriteKind::Update => RecordKind::Update,
        WriteKind::Delete => RecordKind::Delete,
        WriteKind::Void => return,
    };
    // SAFETY: tables that an active transaction has used exist.
    let table = unsafe { write.table.get() }.id;
    let (key, value) = (writes.key(write), writes.value(write));
    let lsn = block.append_inline((table, kind), write.rid, key, value, instructions);
    write.set_logged(lsn);
}

fn append_paged(block: &mut Reservation<'_>, writes: &WriteSet, write: &PagedWrite) {
    if write.replaced {
        return;
    }
    let kind = if write.deleted { RecordKind::DeleteByKey } else { RecordKind::PutByKey };
    // SAFETY: tables that an active transaction has used exist.
    let table = unsafe { write.table.get() }.id;
    block.append(table, kind, Rid::new(0), writes.paged_key(write), writes.paged_value(write));
}
