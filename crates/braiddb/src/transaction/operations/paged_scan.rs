//! Scans of paged tables, one leaf at a time.

use std::ptr::NonNull;

use super::large::ReadMoment;
use super::required_pages::{MAX_READ_AHEAD, RequiredPages};
use super::scan::{BATCH_BYTES, RecordScan};
use super::scan_bounds::{Direction, ScanBounds, as_bytes};
use crate::memory::Buffer;
use crate::page::{
    CopiedValue, Interrupted, PagedCursor, PagedRecord, PagedTable, PeekedRecords, PlainRecords,
    WouldSuspend,
};
use crate::reclaim;
use crate::record::{EXPIRY_BYTES, PagedRecords, Records};
use crate::sched::{self, WaitCause};
use crate::transaction::context::error::OperationError;
use crate::types::KeyBuffer;

impl<'tx> RecordScan<'tx> {
    /// Does what `read_batch` does, for a paged table.
    pub(super) async fn read_paged_batch(
        &mut self,
        table: &'tx PagedRecords,
    ) -> Result<bool, OperationError> {
        let (transaction, paged) = (self.transaction, table.pages());
        let mut required = RequiredPages::new();
        let (records, large, whole) = loop {
            let operation = reclaim::enter();
            let now = required.are_held();
            if !now {
                sched::count_steps(self.paged_steps()).await;
            }
            // The expiry of a record is in its value.
            let keys_only = self.keys_only && !self.unexpired_only;
            let (most, how, leaves_ahead) = (self.batch, (keys_only, now), self.leaves_ahead);
            let cursor = self.page_cursor(paged);
            let met = cursor.peek(most, how, || transaction.view(), &operation).await;
            required.release();
            match met {
                Ok(None) => return Ok(false),
                Ok(Some(PeekedRecords::Plain(records))) => {
                    drop(operation);
                    self.give_plain(table, records);
                    return Ok(true);
                }
                Ok(Some(PeekedRecords::Seen { mut records, whole })) if !records.is_empty() => {
                    let then = transaction.seen_at();
                    drop(operation);
                    let count = records.len();
                    let large = self.read_large(paged, &mut records, then).await?;
                    if let Some(large) = large.filter(|_| transaction.is_still(then)) {
                        let whole = whole && records.len() == count;
                        break (records, large, whole);
                    }
                }
                // The first record's commit is being decided.
                Ok(Some(_)) => {
                    drop(operation);
                    sched::yield_now(WaitCause::Undecided).await;
                }
                // The cursor stands behind a leaf without matching records.
                Err(WouldSuspend::Interrupted(Interrupted::Restart)) => {}
                Err(why) => {
                    let ahead = cursor.absent_ahead(leaves_ahead);
                    drop(operation);
                    let brought = required.load_ahead(transaction, paged, why, &ahead).await?;
                    // Doubles the read-ahead at each wait, unless the pages ahead cannot be loaded.
                    self.leaves_ahead = match brought || ahead.is_empty() {
                        true => (2 * self.leaves_ahead).clamp(1, MAX_READ_AHEAD),
                        false => 0,
                    };
                }
            }
        };
        self.give_batch(table, records, large, whole);
        Ok(true)
    }

    /// Does what `read_paged_batch` does, if nothing must be waited for and every transaction sees the
    /// next records; `false` if it must be called.
    pub(super) fn read_paged_batch_now(&mut self, table: &'tx PagedRecords) -> bool {
        let _operation = reclaim::enter();
        let (most, keys_only) = (self.batch, self.keys_only && !self.unexpired_only);
        let mut records = self.ready.take_lists();
        let found = self.page_cursor(table.pages()).peek_plain(most, keys_only, &mut records);
        if found == Some(true) {
            self.give_plain(table, records);
        } else {
            self.ready.return_lists(records);
            // The next batch of `read_paged_batch` decides whether to try again.
            self.may_read_now = false;
        }
        self.may_read_now
    }

    /// The cursor, which the first batch makes.
    fn page_cursor(&mut self, paged: &'tx PagedTable) -> &mut PagedCursor<'tx> {
        self.page_cursor.get_or_insert_with(|| {
            let ScanBounds { low, high } = &self.bounds;
            let reverse = self.direction == Direction::Reverse;
            paged.cursor(as_bytes(low), as_bytes(high), reverse)
        })
    }

    /// Moves past all records of the last look at a leaf, and adds them to the ready list. No
    /// result depends on a commit: they were stored before every active transaction began.
    fn give_plain(&mut self, table: &'tx Records, mut records: PlainRecords) {
        self.page_cursor.as_mut().expect("records were read by it").pass_all();
        let values = std::mem::take(&mut records.values);
        self.copies.keep_buffer(table.memory(), values);
        self.ready.take_plain(records);
        self.may_read_now = true;
        if self.unexpired_only {
            let keys_only = self.keys_only;
            self.ready.replace_values(|value| {
                // SAFETY: in a buffer that is kept until the next batch is read.
                let value = self.transaction.unexpired(table, unsafe { value.as_ref() })?;
                Some(NonNull::from(if keys_only { &[] } else { value }))
            });
        }
        self.choose_batch();
    }

    /// Moves past records that were read and adds the visible ones to the ready list. `large` holds
    /// the loaded large values; `whole` means that these are all records of the leaf.
    fn give_batch(
        &mut self,
        table: &'tx Records,
        records: Vec<(KeyBuffer, PagedRecord)>,
        large: Vec<Buffer>,
        whole: bool,
    ) {
        let transaction = self.transaction;
        self.may_read_now = false;
        let cursor = self.page_cursor.as_mut().expect("records were read by it");
        match records.last() {
            Some((last, _)) if !whole => cursor.pass_to(last),
            _ => cursor.pass_all(),
        }
        for (key, record) in &records {
            if let Some(lsn) = record.provenance.committed {
                transaction.note_lsn(lsn);
            }
            let doomed = record.provenance.below_newer && transaction.can_become_doomed();
            if doomed && self.doomed.is_none() {
                self.doomed = Some(key.clone());
            }
        }
        let mut large = large.into_iter();
        self.ready.reserve(records.len());
        for (key, record) in records {
            let value = match record.value {
                None => continue,
                Some(CopiedValue::Here(value)) => {
                    let Some(value) = self.given(table, &value) else { continue };
                    let kept: &[u8] = if self.keys_only { &[] } else { value };
                    NonNull::from(self.copies.keep(table.memory(), kept))
                }
                Some(CopiedValue::Elsewhere(_)) => {
                    let value = large.next().expect("each was read");
                    if self.keys_only {
                        let Some(_) = self.given(table, &value) else { continue };
                        NonNull::from(&[][..])
                    } else {
                        let value = self.copies.keep_buffer(table.memory(), value);
                        let Some(value) = self.given(table, value) else { continue };
                        NonNull::from(value)
                    }
                }
            };
            self.ready.push(&key, value);
        }
        self.choose_batch();
    }

    /// Reads the large values of records in order, up to the bytes of a batch and as far as
    /// possible; later records are cut off. `None` if the records must be read again. If values are
    /// not needed, reads only enough to decide expiry.
    async fn read_large(
        &self,
        paged: &PagedTable,
        records: &mut Vec<(KeyBuffer, PagedRecord)>,
        then: ReadMoment,
    ) -> Result<Option<Vec<Buffer>>, OperationError> {
        let most = match (self.keys_only, self.unexpired_only) {
            (false, _) => usize::MAX,
            (true, true) => EXPIRY_BYTES,
            (true, false) => 0,
        };
        let (mut values, mut bytes) = (Vec::new(), 0);
        for number in 0..records.len() {
            let Some(CopiedValue::Elsewhere(large)) = records[number].1.value else { continue };
            bytes += large.bytes().min(most);
            if number > 0 && bytes > BATCH_BYTES {
                records.truncate(number);
                break;
            }
            if most == 0 {
                values.push(Buffer::default());
                continue;
            }
            match self.transaction.read_large(paged, large, most, then).await {
                Ok(Some(read)) => values.push(read.value),
                Ok(None) => return Ok(None),
                Err(error) if number == 0 => return Err(error),
                Err(_) => {
                    records.truncate(number);
                    break;
                }
            }
        }
        Ok(Some(values))
    }
}
