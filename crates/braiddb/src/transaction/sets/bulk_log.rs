//! Log of a bulk operation: records that are written but not logged yet, and the parts logged so
//! far.
//!
//! Invariant: records are logged in write order. Each is added together with its write, without
//! suspension, and each part takes the first records in the queue.

use std::collections::VecDeque;

use crate::log::{self, Lsn};
use crate::rid::TableId;
use crate::transaction::schedule::checkpoints::PartsRegistration;

/// A record to log.
#[derive(Clone, Copy, Debug)]
pub(in crate::transaction) struct BulkRecord {
    pub(in crate::transaction) table: TableId,
    /// Bytes of its key and of its value; `None` for a deletion.
    pub(in crate::transaction) key: usize,
    pub(in crate::transaction) value: Option<usize>,
}

impl BulkRecord {
    pub(in crate::transaction) fn log_bytes(&self) -> usize {
        log::record_bytes(self.key, self.value.unwrap_or(0))
    }
}

/// The log of a bulk operation.
#[derive(Debug, Default)]
pub(in crate::transaction) struct BulkLog {
    pub(in crate::transaction) records: VecDeque<BulkRecord>,
    /// Keys and values, from `start` on.
    pub(in crate::transaction) bytes: Vec<u8>,
    pub(in crate::transaction) start: usize,
    /// Bytes that the records will take in the log.
    pub(in crate::transaction) log_bytes: usize,
    /// The LSN of the first part, and the registration that keeps the parts for recovery.
    pub(in crate::transaction) first_part: Option<Lsn>,
    pub(in crate::transaction) noted: Option<PartsRegistration>,
}

impl BulkLog {
    /// Adds a record.
    pub(in crate::transaction) fn add(&mut self, table: TableId, key: &[u8], value: Option<&[u8]>) {
        let record = BulkRecord { table, key: key.len(), value: value.map(<[u8]>::len) };
        self.records.push_back(record);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or(&[]));
        self.log_bytes += record.log_bytes();
    }

    /// Number of records in the next part, and its bytes: at most `most`, unless one record takes
    /// more.
    pub(in crate::transaction) fn part(&self, most: usize) -> (usize, usize) {
        let (mut count, mut total) = (0, 0);
        for record in &self.records {
            let next = total + record.log_bytes();
            if count > 0 && log::block_bytes(next) > most {
                break;
            }
            (count, total) = (count + 1, next);
        }
        (count, log::block_bytes(total))
    }

    /// Removes the first records, which were logged.
    pub(in crate::transaction) fn pass(&mut self, count: usize) {
        for record in self.records.drain(..count) {
            self.start += record.key + record.value.unwrap_or(0);
            self.log_bytes -= record.log_bytes();
        }
        // Logged bytes are removed once they are half of the buffer, so each byte is moved at most
        // once.
        if self.start * 2 >= self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_parts_are_not_kept() {
        let mut log = BulkLog::default();
        for number in 0..100_000_u64 {
            log.add(TableId(1), &number.to_be_bytes(), Some(&[7; 92]));
            if log.records.len() == 101 {
                log.pass(100);
                assert_eq!(log.bytes[log.start..][..8], number.to_be_bytes());
                assert!(log.bytes.len() <= 2 * 101 * 100, "{} bytes", log.bytes.len());
            }
        }
    }
}
