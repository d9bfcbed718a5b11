//! Log of a bulk operation: records that are written but not logged yet, and the parts logged so
//! far.
//!
//! Invariant: records are logged in write order. Each is added together with its write, without
//! suspension, and each part takes the first records in the queue.

use std::collections::VecDeque;

use super::ActiveTransaction;
use crate::log::{self, Lsn, RecordKind};
use crate::rid::{Rid, TableId};
use crate::transaction::checkpoints::PartsRegistration;
use crate::transaction::engine::Durability;
use crate::transaction::error::OperationError;

/// A record to log.
#[derive(Clone, Copy, Debug)]
struct BulkRecord {
    table: TableId,
    /// Bytes of its key and of its value; `None` for a deletion.
    key: usize,
    value: Option<usize>,
}

impl BulkRecord {
    fn log_bytes(&self) -> usize {
        log::record_bytes(self.key, self.value.unwrap_or(0))
    }
}

/// The log of a bulk operation.
#[derive(Debug, Default)]
pub(in crate::transaction) struct BulkLog {
    records: VecDeque<BulkRecord>,
    /// Keys and values, from `start` on.
    bytes: Vec<u8>,
    start: usize,
    /// Bytes that the records will take in the log.
    log_bytes: usize,
    /// The LSN of the first part, and the registration that keeps the parts for recovery.
    first_part: Option<Lsn>,
    noted: Option<PartsRegistration>,
}

impl BulkLog {
    /// Adds a record.
    pub(super) fn add(&mut self, table: TableId, key: &[u8], value: Option<&[u8]>) {
        let record = BulkRecord { table, key: key.len(), value: value.map(<[u8]>::len) };
        self.records.push_back(record);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or(&[]));
        self.log_bytes += record.log_bytes();
    }

    /// Number of records in the next part, and its bytes: at most `most`, unless one record takes
    /// more.
    fn part(&self, most: usize) -> (usize, usize) {
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
    fn pass(&mut self, count: usize) {
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

impl ActiveTransaction {
    /// Logs what a bulk operation has written, if it fills a block.
    ///
    /// # Errors
    /// Those of the log; `Refused` if it cannot grow.
    pub(super) async fn log_blocks_of_bulk(&self) -> Result<(), OperationError> {
        let least = self.engine().log.common_block_bytes();
        self.log_bulk(least).await
    }

    /// Logs everything that is not logged yet; returns the LSN of the first part, if the operation
    /// has one.
    ///
    /// # Errors
    /// Those of the log; `Refused` if it cannot grow.
    pub(in crate::transaction) async fn log_rest_of_bulk(
        &self,
    ) -> Result<Option<Lsn>, OperationError> {
        self.log_bulk(1).await?;
        Ok(self.writes().borrow().bulk.as_ref().and_then(|bulk| bulk.log.first_part))
    }

    /// Logs pending records while they are at least `least` bytes.
    async fn log_bulk(&self, least: usize) -> Result<(), OperationError> {
        let engine = self.engine();
        if engine.durability == Durability::Volatile {
            return Ok(());
        }
        loop {
            let most = engine.log.common_block_bytes();
            let admitted = {
                let writes = self.writes().borrow();
                let Some(bulk) = &writes.bulk else { return Ok(()) };
                if bulk.log.log_bytes < least || bulk.log.records.is_empty() {
                    return Ok(());
                }
                bulk.log.part(most).1
            };
            self.admit(admitted).await?;
            // Another operation of the transaction may have logged some of them in the meantime.
            let writes = &mut *self.writes().borrow_mut();
            let log = &mut writes.bulk.as_mut().expect("looked at above").log;
            let (count, bytes) = log.part(admitted);
            if count == 0 || bytes > admitted {
                continue;
            }
            let noted = || engine.checkpoints.log_in_parts(|| engine.log.tail());
            log.noted.get_or_insert_with(noted);
            let mut block = engine.log.reserve(self.worker().number(), bytes);
            let mut at = log.start;
            for record in log.records.iter().take(count) {
                let value = at + record.key..at + record.key + record.value.unwrap_or(0);
                let kind = match record.value {
                    Some(_) => RecordKind::PutByKey,
                    None => RecordKind::DeleteByKey,
                };
                let key = &log.bytes[at..value.start];
                at = value.end;
                block.append(record.table, kind, Rid::new(0), key, &log.bytes[value]);
            }
            let first = *log.first_part.get_or_insert(block.lsn());
            block.finish_part(first);
            log.pass(count);
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
