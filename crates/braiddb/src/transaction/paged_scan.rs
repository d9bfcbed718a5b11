//! Scans of paged tables: a leaf's records at a time.

use std::ptr::NonNull;

use super::error::OperationError;
use super::paged::Near;
use super::scan::{BATCH, Bounds, Direction, RECORDS_PER_STEP, Scan, as_bytes};
use crate::page::{Interrupted, NotNow, PagedTable};
use crate::reclaim;
use crate::record::Records;
use crate::sched::{self, Cause};

/// Leaves that a scan brings to memory at most beside the one that it needs: a disk is about as fast at it as it can be.
const MOST_AHEAD: usize = 32;

impl<'tx> Scan<'tx> {
    /// As `read_batch`, of a paged table.
    pub(super) async fn read_paged_batch(
        &mut self,
        table: &'tx Records,
        paged: &'tx PagedTable,
    ) -> Result<bool, OperationError> {
        let transaction = self.transaction;
        self.note_range();
        let reverse = self.direction == Direction::Reverse;
        let mut near = Near::new();
        let (records, whole) = loop {
            let operation = reclaim::enter();
            let now = near.is_held();
            if !now {
                sched::count_steps(1 + (self.batch / RECORDS_PER_STEP) as u32).await;
            }
            let Bounds { low, high } = &self.bounds;
            let cursor = self
                .page_cursor
                .get_or_insert_with(|| paged.cursor(as_bytes(low), as_bytes(high), reverse));
            let met = cursor.peek(self.batch, now, || transaction.view(), &operation).await;
            near.let_go();
            match met {
                Ok(None) => return Ok(false),
                Ok(Some((records, whole))) if !records.is_empty() => break (records, whole),
                // The first is being decided.
                Ok(Some(_)) => {
                    drop(operation);
                    sched::yield_now(Cause::Undecided).await;
                }
                // It stands behind a leaf in which there was nothing.
                Err(NotNow::Interrupted(Interrupted::Restart)) => {}
                Err(why) => {
                    let ahead = cursor.absent_ahead(self.leaves_ahead);
                    drop(operation);
                    let brought = near.bring_ahead(transaction, paged, why, &ahead).await?;
                    // Each time that it waits it reads more at once, unless what lies ahead cannot be had.
                    self.leaves_ahead = match brought || ahead.is_empty() {
                        true => (2 * self.leaves_ahead).clamp(1, MOST_AHEAD),
                        false => 0,
                    };
                }
            }
        };
        // From here on nothing suspends.
        let cursor = self.page_cursor.as_mut().expect("made above");
        match records.last() {
            Some((last, _)) if !whole => cursor.pass_to(last),
            _ => cursor.pass_all(),
        }
        for (key, record) in &records {
            if let Some(lsn) = record.told.committed {
                transaction.note_lsn(lsn);
            }
            let stale = record.told.below_newer && transaction.may_become_stale();
            if stale && self.stale.is_none() {
                self.stale = Some(key.clone());
            }
        }
        for (key, record) in records.into_iter().rev() {
            let Some(value) = record.value else { continue };
            let Some(value) = self.given(table, &value) else { continue };
            let kept: &[u8] = if self.keys_only { &[] } else { value };
            let value = NonNull::from(self.copies.keep(table.memory(), kept));
            self.ready.push((key, value));
        }
        if self.ready.is_empty() {
            self.batch = (2 * self.batch).min(BATCH);
        }
        Ok(true)
    }
}
