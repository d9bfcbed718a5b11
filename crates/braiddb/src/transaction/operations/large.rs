//! Reads and writes of large values by transactions. The format is in `page/large.rs`.
//!
//! The pieces of a value are written before its record, and this may wait for pages. They form a
//! [`LargeDraft`], which is discarded unless a write of the transaction references it. A reader finds
//! the value's location like any value. Then it loads the pieces, many pages at a time, with
//! admission by bytes. Only the transaction's own actions can change what it sees in the meantime;
//! then it reads again ([`ReadMoment`]).
//!
//! Values that no snapshot can see any more are discarded. A task of the worker removes their
//! pieces, and may load pages for that. If more than [`MAX_WAITING_VALUES`] wait for it, writers of
//! large values remove some too, so writers cannot outrun it. Invariant: a value is discarded
//! exactly once, by the owner that `page/large.rs` defines.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::large_write::MIN_LARGE_BYTES;
use super::required_pages::{MAX_READ_AHEAD, RequiredPages};
use crate::log::{LogError, Lsn};
use crate::memory::Buffer;
use crate::page::{
    Admitted, HeldPages, Interrupted, LargeReadProgress, LargeRef, LargeValues, PageError,
    PageNeeds, PagedTable, SlotValue, WouldSuspend,
};
use crate::sched::{self, Job, WaitCause};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::context::write_intent::WriteIntent;
use crate::transaction::schedule::deferred_work::DiscardedValue;
use crate::transaction::schedule::ordered_admission::AdmissionPermit;
use crate::transaction::sets::savepoints::WriteMoment;

/// Number of pieces that a task processes before it yields.
const PIECES_PER_STEP: u32 = 16;
/// Maximum number of such steps without a yield.
const MAX_STEPS: usize = 8;
/// Number of discarded values above which each writer of a value removes some first.
const MAX_WAITING_VALUES: usize = 256;
/// Maximum number of values that a writer removes. Each value that it writes replaces at most one.
const REMOVED_PER_WRITE: usize = 2;

/// State of a transaction when it read something. While the state is unchanged, the transaction
/// sees the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadMoment {
    begin: Lsn,
    moment: WriteMoment,
}

/// A large value that was read.
#[derive(Debug)]
pub(in crate::transaction) struct LargeRead {
    pub(in crate::transaction) value: Buffer,
    /// Present if pages were read for it; its bytes stay admitted until this is dropped.
    pub(in crate::transaction) permit: Option<Rc<AdmissionPermit>>,
}

/// A value whose pieces are written, for a record that is not written yet. Discarded when dropped,
/// unless a write of the transaction references it.
#[derive(Debug)]
pub(super) struct LargeDraft<'tx> {
    transaction: &'tx ActiveTransaction,
    values: Arc<LargeValues>,
    large: LargeRef,
    is_written: Cell<bool>,
}

impl LargeDraft<'_> {
    /// Sets whether a write of the transaction references the value, and so owns it.
    pub(super) fn set_written(&self, is_written: bool) {
        self.is_written.set(is_written);
    }

    /// The value's location.
    pub(in crate::transaction) fn large(&self) -> LargeRef {
        self.large
    }
}

impl Drop for LargeDraft<'_> {
    fn drop(&mut self) {
        if self.is_written.get() {
            self.values.note_settled(self.large);
        } else {
            self.transaction.worker().discard(self.values.clone(), self.large);
        }
    }
}

/// The slot contents for a value on a page.
pub(super) fn slot_value<'v>(value: &'v [u8], draft: Option<&LargeDraft<'_>>) -> SlotValue<'v> {
    draft.map_or(SlotValue::Here(value), |draft| SlotValue::Elsewhere(draft.large))
}

impl ActiveTransaction {
    /// The transaction's current state.
    pub(super) fn seen_at(&self) -> ReadMoment {
        ReadMoment { begin: self.begin(), moment: self.moment() }
    }

    /// Returns whether the transaction still sees what it saw then.
    pub(super) fn is_still(&self, then: ReadMoment) -> bool {
        self.seen_at() == then
    }

    /// Writes the pieces of a value, if it is too long for a page of its table.
    ///
    /// # Errors
    /// Fails if pages cannot be allocated or loaded; `Overloaded`.
    pub(super) async fn draft<'a>(
        &'a self,
        paged: &PagedTable,
        value: Option<&[u8]>,
    ) -> Result<Option<LargeDraft<'a>>, OperationError> {
        match value {
            Some(value) if value.len() > paged.max_inline_value_bytes() => {
                Ok(Some(self.write_draft(paged, value).await?))
            }
            _ => Ok(None),
        }
    }

    /// Does what `draft` does. Boxed, so that other writes do not carry its state.
    #[cold]
    pub(super) fn write_draft<'a, 'v>(
        &'a self,
        paged: &'v PagedTable,
        value: &'v [u8],
    ) -> Pin<Box<dyn Future<Output = Result<LargeDraft<'a>, OperationError>> + 'v>>
    where
        'a: 'v,
    {
        Box::pin(async move {
            self.worker().remove_excess().await;
            let values = paged.make_large().await?.clone();
            let large = values.name(value.len());
            let draft =
                LargeDraft { transaction: self, values, large, is_written: Cell::new(false) };
            for piece in 0..draft.values.pieces(large) {
                if piece % PIECES_PER_STEP == 0 {
                    sched::count_steps(PIECES_PER_STEP).await;
                    self.admit_page_change(WriteIntent::Put(value)).await?;
                }
                let mut required = RequiredPages::of_pieces(&draft.values);
                loop {
                    let put =
                        draft.values.put_piece(large, value, piece, required.are_held()).await;
                    required.release();
                    match put {
                        Ok(()) => break,
                        Err(why) => required.load(self, paged, why).await?,
                    }
                }
            }
            Ok(draft)
        })
    }

    /// Reads at least the first `most` bytes of a visible value, or all of a shorter one. `None` if
    /// the transaction's own actions have since hidden it. The caller must check that again before
    /// it uses the result.
    ///
    /// # Errors
    /// Fails if a page cannot be loaded; `Overloaded`.
    #[cold]
    pub(super) fn read_large<'a>(
        &'a self,
        paged: &'a PagedTable,
        large: LargeRef,
        most: usize,
        then: ReadMoment,
    ) -> Pin<Box<dyn Future<Output = Result<Option<LargeRead>, OperationError>> + 'a>> {
        Box::pin(async move {
            let values = paged.large().expect("created before any large value");
            // A large value is admitted although all its pages may be resident, because it is copied.
            let bytes = most.min(large.bytes()) + (1 + MAX_READ_AHEAD) * values.page_bytes();
            let admit = async || Some(Rc::new(self.worker().reads.admit(bytes as u64).await));
            let mut permit = if bytes >= MIN_LARGE_BYTES { admit().await } else { None };
            let (mut ahead, mut may_load) = (0, false);
            let mut reader = values.reader(large, most);
            let (mut needs, mut held) = (values.needs(), None::<HeldPages>);
            let mut read_before = 0;
            loop {
                if held.is_none() {
                    sched::count_steps(PIECES_PER_STEP).await;
                }
                let read = reader.read_on(held.is_some()).await;
                drop(held.take());
                let why = match read {
                    Ok(LargeReadProgress::More) => continue,
                    Ok(LargeReadProgress::All) => {
                        return Ok(Some(LargeRead { value: reader.into_bytes(), permit }));
                    }
                    Ok(LargeReadProgress::Gone) if !self.is_still(then) => return Ok(None),
                    Ok(LargeReadProgress::Gone) => {
                        let bytes = large.bytes();
                        return Err(OperationError::storage(LogError::ValueNotWhole { bytes }));
                    }
                    Err(WouldSuspend::Failed(error)) => return Err(error.into()),
                    Err(WouldSuspend::Interrupted(why)) => why,
                };
                if !std::mem::replace(&mut may_load, true) {
                    self.check_may_load()?;
                }
                let Some(admitted) = &permit else {
                    // Restarts from the first piece, so that no task waits for admission while it
                    // holds part of a value.
                    drop(reader);
                    permit = admit().await;
                    reader = values.reader(large, most);
                    continue;
                };
                // Leaves that were read are no longer needed. While none is read, the pages met so
                // far stay needed.
                if reader.bytes_read() > read_before {
                    (needs, read_before) = (values.needs(), reader.bytes_read());
                }
                let admitted = || Some(admitted.clone() as Admitted);
                let held_ahead = match reader.absent_ahead(ahead) {
                    next if next.is_empty() => None,
                    next => {
                        // Keeps the last one if only one frame is free.
                        let mut all: SmallVec<[Interrupted; 8]> = next.into_iter().rev().collect();
                        all.push(why);
                        let mut with_ahead = needs.and(all.len() - 1);
                        Some(paged.hold_pages(&mut with_ahead, &all, admitted()).await)
                    }
                };
                // Errors of pages read ahead are reported to the task that needs them.
                let failed = matches!(held_ahead, Some(Err(_)));
                ahead = if failed { 0 } else { (2 * ahead).clamp(1, MAX_READ_AHEAD) };
                held = Some(match held_ahead {
                    Some(Ok(held)) => {
                        needs.add(&[why]);
                        held
                    }
                    _ => {
                        let admit = async |_: &mut PageNeeds| Ok(admitted());
                        self.hold_admitted(paged, &mut needs, &[why], admit).await?
                    }
                });
            }
        })
    }
}

impl WorkerTransactions {
    /// Removes some discarded values, if many wait.
    async fn remove_excess(&self) {
        let mut pieces = 0;
        for _ in 0..REMOVED_PER_WRITE {
            let is_excess = self.discarded.queue.borrow().len() > MAX_WAITING_VALUES;
            if !is_excess || self.engine().checkpoints.stopping() {
                break;
            }
            // The worker's task reports errors.
            if !matches!(self.remove_next(&mut pieces).await, Some(Ok(()))) {
                break;
            }
        }
    }

    /// Removes the first discarded value. Returns whether this succeeded; `None` if none waits.
    /// `pieces` counts the pieces that the caller removed since it yielded.
    async fn remove_next(&self, pieces: &mut u32) -> Option<Result<(), PageError>> {
        let value = self.discarded.queue.borrow_mut().pop_front()?;
        let mut taken = TakenValue { worker: self, value: Some(value) };
        let (values, large) = taken.value.as_ref().expect("set above");
        let removed = remove(self, values, *large, pieces).await;
        if removed.is_ok() {
            taken.value = None;
        }
        Some(removed)
    }

    /// The task that removes pieces of values, if it is needed and not running. Also returns when
    /// to ask again, if it is not due yet.
    pub(in crate::transaction) fn discard_job(&self) -> (Option<Job>, Option<Instant>) {
        // When the database closes, page contents are discarded.
        let stopping = self.engine().checkpoints.stopping();
        let is_needed = !stopping && !self.discarded.queue.borrow().is_empty();
        match self.discarded.start(is_needed, self.engine().checkpoints.ended()) {
            Ok(()) => (Some(Box::new(|| Box::pin(discard_all()))), None),
            Err(at) => (None, at),
        }
    }
}

/// A discarded value that is being removed. If that fails, or the caller is dropped, the value waits
/// again, behind the others: their pages may be loadable.
struct TakenValue<'w> {
    worker: &'w WorkerTransactions,
    value: Option<DiscardedValue>,
}

impl Drop for TakenValue<'_> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.worker.discarded.queue.borrow_mut().push_back(value);
        }
    }
}

async fn discard_all() {
    let worker = WorkerTransactions::current();
    let mut pieces = 0;
    while !worker.engine().checkpoints.stopping() {
        let Some(removed) = worker.remove_next(&mut pieces).await else { break };
        if let Err(error) = removed {
            tracing::warn!("cannot remove unused large values yet, will retry: {error}");
            worker.discarded.retry_later(worker.engine().checkpoints.ended());
            break;
        }
    }
    worker.discarded.end();
}

/// Removes the existing pieces of a value, last one first. The more values wait, the less often it
/// yields. `pieces` counts the pieces since it last yielded.
async fn remove(
    worker: &WorkerTransactions,
    values: &LargeValues,
    large: LargeRef,
    pieces: &mut u32,
) -> Result<(), PageError> {
    for piece in (0..values.pieces(large)).rev() {
        let waiting = worker.discarded.queue.borrow().len().min(MAX_STEPS) as u32;
        *pieces += 1;
        if *pieces >= PIECES_PER_STEP * (1 + waiting) {
            *pieces = 0;
            sched::yield_now(WaitCause::Memory).await;
        }
        let may_request = worker.discarded.may_request_checkpoint();
        worker.admit_own_page_changes(may_request, "remove unused values from").await?;
        if worker.engine().checkpoints.stopping() {
            return Ok(());
        }
        values.remove_piece(large, piece).await?;
    }
    values.note_settled(large);
    Ok(())
}
