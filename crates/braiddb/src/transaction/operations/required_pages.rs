//! Pages that an operation needs resident: they are loaded and held until its next attempt.

use std::pin::Pin;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::page::{
    Admitted, HeldPages, Interrupted, LargeValues, PageNeeds, PagedTable, WouldSuspend,
};
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::error::OperationError;

type PagesFuture<'a> = Pin<Box<dyn Future<Output = Result<HeldPages, OperationError>> + 'a>>;

/// Maximum number of leaves that a scan reads ahead; enough to reach nearly full disk throughput.
pub(super) const MAX_READ_AHEAD: usize = 32;

/// Pages that an operation on one leaf needs, once it found one of them not resident.
#[derive(Debug)]
pub(super) struct RequiredPages {
    /// `None` while no page was missing.
    needs: Option<PageNeeds>,
    /// Pages that are held resident until the next attempt, which does not suspend.
    held: Option<HeldPages>,
}

impl RequiredPages {
    /// Creates an empty set.
    pub(in crate::transaction) fn new() -> Self {
        Self { needs: None, held: None }
    }

    /// Creates a set for an operation on the pieces of large values.
    pub(super) fn of_pieces(values: &LargeValues) -> Self {
        Self { needs: Some(values.needs()), held: None }
    }

    fn needs(&mut self, paged: &PagedTable) -> &mut PageNeeds {
        self.needs.get_or_insert_with(|| paged.needs())
    }

    /// Returns whether all pages are resident; the next attempt must then not suspend.
    pub(super) fn are_held(&self) -> bool {
        self.held.is_some()
    }

    /// Unpins the pages after an attempt.
    pub(in crate::transaction) fn release(&mut self) {
        self.held = None;
    }

    /// Loads the pages that an attempt did not find; the caller holds no operation guard.
    ///
    /// # Errors
    /// Fails if a page cannot be loaded.
    pub(in crate::transaction) async fn load(
        &mut self,
        transaction: &ActiveTransaction,
        paged: &PagedTable,
        why: WouldSuspend,
    ) -> Result<(), OperationError> {
        match why {
            WouldSuspend::Failed(error) => Err(error.into()),
            WouldSuspend::Interrupted(why) => {
                self.held = Some(transaction.hold_pages(paged, self.needs(paged), &[why]).await?);
                Ok(())
            }
        }
    }

    /// Does what `load` does, and reads pages that will be needed soon at the same time. Returns
    /// whether those are resident too. Their errors are reported later, to the operation that needs
    /// them.
    ///
    /// # Errors
    /// Those of `load`.
    pub(super) async fn load_ahead(
        &mut self,
        transaction: &ActiveTransaction,
        paged: &PagedTable,
        why: WouldSuspend,
        ahead: &[Interrupted],
    ) -> Result<bool, OperationError> {
        if let (WouldSuspend::Interrupted(absent @ Interrupted::Absent(_)), [_, ..]) = (&why, ahead)
        {
            let mut needs = self.needs(paged).and(ahead.len());
            // Keeps the last one if only one frame is free.
            let mut all: SmallVec<[Interrupted; 8]> = ahead.iter().rev().copied().collect();
            all.push(*absent);
            let hold = async {
                let admitted = transaction.admit_images(paged, &mut needs, &all).await?;
                Ok::<_, OperationError>(paged.hold_pages(&mut needs, &all, admitted).await?)
            };
            if let Ok(held) = Box::pin(hold).await {
                self.held = Some(held);
                self.needs(paged).add(&[*absent]);
                return Ok(true);
            }
        }
        self.load(transaction, paged, why).await?;
        Ok(false)
    }
}

impl ActiveTransaction {
    /// Waits until the pages that interrupted an operation, and those it needed before, are
    /// resident: see [`PagedTable::hold_pages`]. The caller holds no operation guard. Boxed, so that
    /// reads of resident pages do not carry the state of loading.
    ///
    /// # Errors
    /// Fails if a page cannot be loaded; `Overloaded`.
    #[cold]
    pub(super) fn hold_pages<'a>(
        &'a self,
        paged: &'a PagedTable,
        needs: &'a mut PageNeeds,
        why: &'a [Interrupted],
    ) -> PagesFuture<'a> {
        Box::pin(async move {
            let admit = async |needs: &mut PageNeeds| self.admit_images(paged, needs, why).await;
            self.hold_admitted(paged, needs, why, admit).await
        })
    }

    /// Does what `hold_pages` does with memory from `admit`. On a full disk, waits once for a
    /// checkpoint, unless the newest had no effect: after it, clean pages can be evicted and free
    /// places have disk blocks.
    ///
    /// # Errors
    /// Fails if a page cannot be loaded; errors of `admit`.
    pub(super) async fn hold_admitted(
        &self,
        paged: &PagedTable,
        needs: &mut PageNeeds,
        why: &[Interrupted],
        admit: impl AsyncFn(&mut PageNeeds) -> Result<Option<Admitted>, OperationError>,
    ) -> Result<HeldPages, OperationError> {
        let begun = self.engine().checkpoints.begun();
        let mut has_waited = false;
        loop {
            let admitted = admit(needs).await?;
            match paged.hold_pages(needs, why, admitted).await {
                Err(error) if error.is_disk_full() => {
                    if has_waited {
                        self.worker().note_checkpoint_without_effect(begun);
                        return Err(error.into());
                    }
                    if !self.worker().wait_for_useful_checkpoint().await {
                        return Err(error.into());
                    }
                    has_waited = true;
                }
                held => return Ok(held?),
            }
        }
    }

    /// Admits the images that must be read.
    async fn admit_images(
        &self,
        paged: &PagedTable,
        needs: &mut PageNeeds,
        why: &[Interrupted],
    ) -> Result<Option<Admitted>, OperationError> {
        Ok(match paged.image_bytes(needs, why) {
            0 => None,
            bytes => Some(Rc::new(self.admit_bytes(bytes).await?) as Admitted),
        })
    }
}
