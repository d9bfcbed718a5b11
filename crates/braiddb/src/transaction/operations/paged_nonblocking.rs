//! Non-blocking reads and writes of paged tables: they never suspend, and are undone if one of
//! several cannot proceed.

use smallvec::smallvec;

use super::write_attempt::{FetchedValues, VisibleRecord, WriteAttempt, WriteWait, would_suspend};
use crate::page::{
    ChainBase, CopiedValue, PagedTable, RecordBeforeWrite, WouldSuspend, WriteDecision,
    WriteRefusal, WriteResult,
};
use crate::reclaim::OperationGuard;
use crate::record::Records;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::version::Undecided;

impl ActiveTransaction {
    /// Reads the transaction's view of a record of a paged table.
    pub(super) fn see_on_page<'t, 'o>(
        &self,
        paged: &'t PagedTable,
        key: &[u8],
        fetched: &'o FetchedValues,
        operation: &'o OperationGuard,
    ) -> Result<VisibleRecord<'o>, WriteWait<'t>> {
        match paged.read_now(key, self.view(), operation) {
            Ok(Ok(record)) => {
                if let Some(lsn) = record.provenance.committed {
                    self.note_lsn(lsn);
                }
                match record.value {
                    None => Ok(VisibleRecord::copied(None)),
                    Some(CopiedValue::Here(value)) => Ok(VisibleRecord::copied(Some(value))),
                    Some(CopiedValue::Elsewhere(large)) => match fetched.large(large) {
                        Some(value) => Ok(VisibleRecord::large(value, large)),
                        None => Err(WriteWait::Large(paged, large, self.seen_at())),
                    },
                }
            }
            Ok(Err(Undecided)) => Err(WriteWait::Undecided),
            Err(WouldSuspend::Interrupted(why)) => Err(WriteWait::Interrupted(smallvec![why])),
            Err(WouldSuspend::Failed(error)) => unreachable!("a read allocates no page: {error}"),
        }
    }

    /// Returns whether a record of a paged table exists for a writer; if it does, adds it to the
    /// read set.
    pub(super) fn is_there_now<'t>(
        &self,
        table: &Records,
        paged: &PagedTable,
        key: &[u8],
        operation: &OperationGuard,
    ) -> WriteAttempt<'t, bool> {
        let look = |before: RecordBeforeWrite<'_>| {
            if let ChainBase::Committed(lsn) = before.base {
                self.note_lsn(lsn);
            }
            self.note_made(table, before.made);
            WriteDecision::Refuse(before.exists)
        };
        let leaf = match paged.latch_now(key, None) {
            Ok(leaf) => leaf,
            Err(why) => return would_suspend(why),
        };
        Ok(match paged.write(leaf, key, None, self.view(), operation, look) {
            Err(WriteRefusal::Conflict) => Err(self.conflict_at(table, key)),
            Err(WriteRefusal::Newer) => Err(self.conflict_with_newer(table, key)),
            Ok(WriteResult::Refused(true)) => {
                self.note_key(table, key);
                Ok(true)
            }
            Ok(WriteResult::Refused(false)) => Ok(false),
            Ok(WriteResult::Overwritten | WriteResult::Pushed(_)) => unreachable!("a read only"),
        })
    }

    /// Number of writes to paged tables so far, for `undo_paged_writes` to keep.
    pub(super) fn writes_to_keep(&self) -> u32 {
        self.writes().borrow().next_paged_position()
    }

    /// Undoes writes to paged tables after the first `keep`, and their values after `value_bytes`.
    /// Their results were not returned yet, and they overwrote none of the first `keep`. Large
    /// values that they referenced still belong to drafts.
    pub(super) fn undo_paged_writes(&self, keep: u32, value_bytes: usize) {
        let undone = self.writes().borrow_mut().split_off_paged(keep as usize, value_bytes);
        self.roll_back_on_pages(&undone);
    }
}
