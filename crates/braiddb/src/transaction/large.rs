//! Values that are too long for a page, as transactions read and write them; what they are is `page/large.rs`'s.
//!
//! A value's pieces are written before its record is, and waiting for pages: a [`Draft`], which is discarded unless a write of
//! the transaction leads to it in the end. Whoever reads finds where the value is as it finds any value, then brings its
//! pieces together, many pages at once, admitted by its bytes. What is seen does not change meanwhile, but by what the
//! transaction itself does: then it looks again ([`SeenAt`]).
//!
//! Values that nobody can come to see any more are discarded: a task of the worker removes their pieces, which may have to
//! be loaded for that. Invariant: a value is discarded once, by whoever `page/large.rs` says.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::abort::Moment;
use super::context::Transaction;
use super::error::OperationError;
use super::paged::RequiredPages;
use super::paged_scan::MAX_READ_AHEAD;
use super::reading::ReadPermit;
use super::worker::WorkerTransactions;
use crate::log::{LogError, Lsn};
use crate::page::{
    Admitted, HeldPages, Interrupted, LargeRef, LargeValues, NotNow, PageError, PagedTable,
    Progress, SlotValue,
};
use crate::sched::{self, Cause, Job};
use crate::sync::clock;

/// Pieces that are as much work as a task does without giving way to others.
const PIECES_PER_STEP: u32 = 16;
/// As many times as many are removed without giving way, at most.
const MAX_STEPS: usize = 16;
/// After what time it is tried again, if a page could not be loaded.
const AGAIN: Duration = Duration::from_secs(1);

/// Values that are to be removed.
pub(super) type Discarded = (Arc<LargeValues>, LargeRef);

/// What a transaction was when it saw something: as long as it is that, it sees the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeenAt {
    begin: Lsn,
    moment: Moment,
}

/// A value that was read.
#[derive(Debug)]
pub(super) struct LargeRead {
    pub(super) value: Vec<u8>,
    /// Present if pages were read for it; its bytes count until this is dropped.
    pub(super) permit: Option<Rc<ReadPermit>>,
}

/// A value whose pieces are written, for a record that is not yet. Discarded when dropped, unless a write of the
/// transaction leads to it.
#[derive(Debug)]
pub(super) struct Draft<'tx> {
    transaction: &'tx Transaction,
    values: Arc<LargeValues>,
    large: LargeRef,
    is_written: Cell<bool>,
}

impl Draft<'_> {
    /// Says whether a write of the transaction's leads to it: then it is discarded with that.
    pub(super) fn set_written(&self, is_written: bool) {
        self.is_written.set(is_written);
    }

    /// Where it is.
    pub(super) fn large(&self) -> LargeRef {
        self.large
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.is_written.get() {
            self.values.note_settled(self.large);
        } else {
            self.transaction.worker().discard(self.values.clone(), self.large);
        }
    }
}

/// What is to be on the page of a value.
pub(super) fn slot_value<'v>(value: &'v [u8], draft: Option<&Draft<'_>>) -> SlotValue<'v> {
    draft.map_or(SlotValue::Here(value), |draft| SlotValue::Elsewhere(draft.large))
}

impl Transaction {
    /// What the transaction is now.
    pub(super) fn seen_at(&self) -> SeenAt {
        SeenAt { begin: self.begin(), moment: self.moment() }
    }

    /// Whether it sees what it saw then.
    pub(super) fn is_still(&self, then: SeenAt) -> bool {
        self.seen_at() == then
    }

    /// Writes the pieces of a value, if it is too long for a page of its table.
    ///
    /// # Errors
    /// When pages cannot be had; `Overloaded`.
    pub(super) async fn draft<'a>(
        &'a self,
        paged: &PagedTable,
        value: Option<&[u8]>,
    ) -> Result<Option<Draft<'a>>, OperationError> {
        match value {
            Some(value) if value.len() > paged.max_inline_value_bytes() => {
                Ok(Some(self.write_draft(paged, value).await?))
            }
            _ => Ok(None),
        }
    }

    /// As above. Boxed, so that other writes do not carry its state.
    #[cold]
    pub(super) fn write_draft<'a, 'v>(
        &'a self,
        paged: &'v PagedTable,
        value: &'v [u8],
    ) -> Pin<Box<dyn Future<Output = Result<Draft<'a>, OperationError>> + 'v>>
    where
        'a: 'v,
    {
        Box::pin(async move {
            let values = paged.make_large().await?.clone();
            let large = values.name(value.len());
            let draft = Draft { transaction: self, values, large, is_written: Cell::new(false) };
            for piece in 0..draft.values.pieces(large) {
                if piece % PIECES_PER_STEP == 0 {
                    sched::count_steps(PIECES_PER_STEP).await;
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

    /// Reads a value that the transaction saw: `most` bytes of it at least, if it has so many. `None` if it does not see
    /// it any more, by what it did itself since; who uses what was read asks that too, before it does.
    ///
    /// # Errors
    /// When a page cannot be had; `Overloaded`.
    #[cold]
    pub(super) fn read_large<'a>(
        &'a self,
        paged: &'a PagedTable,
        large: LargeRef,
        most: usize,
        then: SeenAt,
    ) -> Pin<Box<dyn Future<Output = Result<Option<LargeRead>, OperationError>> + 'a>> {
        Box::pin(async move {
            let values = paged.large().expect("made before anything leads to a value");
            let (mut permit, mut ahead) = (None::<Rc<ReadPermit>>, 0);
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
                    Ok(Progress::More) => continue,
                    Ok(Progress::All) => {
                        return Ok(Some(LargeRead { value: reader.into_bytes(), permit }));
                    }
                    Ok(Progress::Gone) if !self.is_still(then) => return Ok(None),
                    Ok(Progress::Gone) => {
                        let bytes = large.bytes();
                        return Err(OperationError::storage(LogError::ValueNotWhole { bytes }));
                    }
                    Err(NotNow::Failed(error)) => return Err(error.into()),
                    Err(NotNow::Interrupted(why)) => why,
                };
                let Some(admitted) = &permit else {
                    // From the start: nobody waits to be admitted with some of a value in memory.
                    drop(reader);
                    let images = (1 + MAX_READ_AHEAD) * values.page_bytes();
                    let bytes = most.min(large.bytes()) + images;
                    permit = Some(Rc::new(self.admit_bytes(bytes as u64).await?));
                    reader = values.reader(large, most);
                    continue;
                };
                // The last is kept if there are frames for one only.
                let mut all: SmallVec<[Interrupted; 8]> =
                    reader.absent_ahead(ahead).into_iter().rev().collect();
                let is_alone = all.is_empty();
                all.push(why);
                let admitted = || Some(admitted.clone() as Admitted);
                // Leaves that have been read are of no use any more; while none is, what was met stays needed.
                if reader.bytes_read() > read_before {
                    (needs, read_before) = (values.needs(), reader.bytes_read());
                }
                let mut with_ahead = needs.and(all.len() - 1);
                held = match paged.gather(&mut with_ahead, &all, admitted()).await {
                    Ok(held) => {
                        needs.add(&[why]);
                        ahead = (2 * ahead).clamp(1, MAX_READ_AHEAD);
                        Some(held)
                    }
                    Err(error) if is_alone => return Err(error.into()),
                    // What is wrong with those ahead is told to who needs them.
                    Err(_) => {
                        ahead = 0;
                        Some(paged.gather(&mut needs, &[why], admitted()).await?)
                    }
                };
            }
        })
    }
}

impl WorkerTransactions {
    /// Has the pieces of a value removed, which nobody can come to see any more.
    pub(super) fn discard(&self, values: Arc<LargeValues>, large: LargeRef) {
        values.note_unowned(large);
        self.discarded.borrow_mut().push_back((values, large));
    }

    /// The task that removes the pieces of values, if there are some, and it is not there; and when it is to be asked
    /// for again, if that is not now.
    pub(super) fn discard_job(&self) -> (Option<Job>, Option<Instant>) {
        // When the database closes, what is on pages goes with it.
        let stopping = self.engine().checkpoints.stopping();
        if stopping || self.discarded.borrow().is_empty() || self.discarding.get() {
            return (None, None);
        }
        let at = self.discard_at.get();
        if at.is_some_and(|at| clock::now() < at) {
            return (None, at);
        }
        self.discarding.set(true);
        (Some(Box::new(|| Box::pin(discard_all()))), None)
    }
}

async fn discard_all() {
    let worker = WorkerTransactions::current();
    while !worker.engine().checkpoints.stopping() {
        let Some((values, large)) = worker.discarded.borrow_mut().pop_front() else { break };
        if let Err(error) = remove(&worker, &values, large).await {
            // Others go first the next time: their pages may be there to be had.
            worker.discarded.borrow_mut().push_back((values, large));
            tracing::warn!("large values that nobody sees any more are not removed yet: {error}");
            worker.discard_at.set(Some(clock::now() + AGAIN));
            break;
        }
    }
    worker.discarding.set(false);
}

/// Removes the pieces of a value, the last one first, as far as they are there. The more values wait for it the less often it
/// gives way to others, so that they do not become ever more.
async fn remove(
    worker: &WorkerTransactions,
    values: &LargeValues,
    large: LargeRef,
) -> Result<(), PageError> {
    for piece in (0..values.pieces(large)).rev() {
        let waiting = worker.discarded.borrow().len().min(MAX_STEPS) as u32;
        if piece % (PIECES_PER_STEP * (1 + waiting)) == 0 {
            sched::yield_now(Cause::Memory).await;
            if worker.engine().checkpoints.stopping() {
                return Ok(());
            }
        }
        values.remove_piece(large, piece).await?;
    }
    values.note_settled(large);
    Ok(())
}
