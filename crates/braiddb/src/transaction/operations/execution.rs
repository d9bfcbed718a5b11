//! Execution without commit: what a transaction read and wrote, by table and key. The caller aborts
//! the transaction afterwards.
//!
//! The read set lacks records that only a successful write revealed: the write protects them. So a
//! certifier elsewhere also treats the written keys as read.

use std::ops::{Bound, Range};

use crate::record::Records;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::sets::write_set::WriteKind;

/// A write to a record of a table or to an entry of an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExecutedWrite<'w> {
    pub(crate) table: &'w Records,
    pub(crate) key: &'w [u8],
    /// True if the record existed before this write.
    pub(crate) existed: bool,
    /// The value in its stored form; `None` for a deletion.
    pub(crate) stored: Option<&'w [u8]>,
}

impl ActiveTransaction {
    /// Makes the transaction keep what the functions below return; precedes its operations.
    pub(crate) fn prepare_execution(&self) {
        self.reads().name_points(true);
        self.set_keeps_values();
    }

    /// Checks that the transaction has not met a conflict, and that no operation failed halfway.
    ///
    /// # Errors
    /// The error with which its commit would fail.
    pub(crate) fn check_executed(&self) -> Result<(), OperationError> {
        match self.lost().or_else(|| self.unfinished().cloned()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Excludes the abort of an executed transaction from the statistics.
    pub(crate) fn end_execution(&self) {
        self.leave_uncounted();
    }

    /// Calls `each` with the reads that have these numbers: a single key as a range of one. Returns
    /// whether more follow.
    pub(crate) fn each_read(
        &self,
        numbers: Range<usize>,
        each: impl FnMut(&Records, Bound<&[u8]>, Bound<&[u8]>),
    ) -> bool {
        self.reads().visit(numbers, each)
    }

    /// Calls `each` with the writes that have these numbers. A later write of the same record
    /// replaces the earlier one. Returns whether more follow.
    pub(crate) fn each_write(
        &self,
        numbers: Range<usize>,
        mut each: impl FnMut(ExecutedWrite<'_>),
    ) -> bool {
        let writes = self.writes().borrow();
        let in_memory = writes.writes().len();
        let end = numbers.end.min(in_memory + writes.paged.len());
        for number in numbers.start..end {
            let Some(number) = number.checked_sub(in_memory) else {
                let write = &writes.writes()[number];
                if write.kind == WriteKind::Void {
                    continue;
                }
                let stored = (write.kind != WriteKind::Delete).then(|| writes.value(write));
                // SAFETY: tables that an active transaction has used exist.
                let table = unsafe { write.table.get() };
                let (key, existed) = (writes.key(write), write.existed());
                each(ExecutedWrite { table, key, existed, stored });
                continue;
            };
            let write = &writes.paged[number];
            // SAFETY: the change belongs to the transaction and is not retired before it ends.
            let existed = unsafe { write.change.get() }.before().is_some();
            let stored = (!write.deleted).then(|| writes.paged_value(write));
            // SAFETY: tables that an active transaction has used exist.
            let table = unsafe { write.table.get() };
            each(ExecutedWrite { table, key: writes.paged_key(write), existed, stored });
        }
        end < in_memory + writes.paged.len()
    }

    /// The transaction's time in milliseconds since 1970, if an expiry decision used it.
    pub(crate) fn used_time(&self) -> Option<u64> {
        self.time_used().get().then(|| self.time_taken().get())
    }
}
