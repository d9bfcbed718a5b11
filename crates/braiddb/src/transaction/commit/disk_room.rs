//! Disk space for checkpoints and for deletions.
//!
//! A checkpoint writes an image of each page that is dirty or has versions. The *demand* is the
//! number of these pages ([`PageSpace::images_needed`](crate::page::PageSpace::images_needed)).
//!
//! Invariant: the next checkpoint always fits. Its file, and the images in demand, take no more than
//! the free disk space, the reserve, and the free places of zones that have disk blocks.
//!
//! The reserve holds two *steps* of images more than the demand. It is adjusted after each
//! checkpoint, when the log is extended, and each time that the demand has grown by a step. Each of
//! these keeps the invariant:
//!
//! - A write asks for an adjustment before it makes pages dirty, if the demand has grown by a step.
//!   If the disk is full then, changes are refused and a checkpoint is requested. Deletions continue
//!   while the demand and one more step fit. The second step covers writes that had passed this
//!   check before, one or a few pages each. The engine's own work, which removes the pieces of
//!   deleted values and merges leaves, waits like deletions.
//! - A page write takes a place and reduces the demand by one. If the page has versions, the demand
//!   stays, so such pages stay in memory while the reserve is not complete.
//! - A checkpoint frees the places that only the previous one listed. For a page with versions these
//!   are as many as it takes, because a dirty page has no other place.
//! - A kill keeps the sum: images that were not listed become free places with disk blocks, the
//!   unfinished file is removed, and replay makes at most the same pages dirty.
//!
//! Not covered: a page that a long transaction has created needs a second place after the first
//! checkpoint, and pages with marks of an undecided bulk operation that are not resident.

use crate::log::{self, BlockPurpose, LogError};
use crate::page::PageError;
use crate::planted::{Bug, is_planted};
use crate::sync::statistic::Ordering;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::durability_level::Durability;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::error::OperationError;
use crate::transaction::context::transaction_state::Conflict;
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::context::write_intent::WriteIntent;

/// Number of times that space is freed for one deletion.
pub(crate) const MAX_FREEING_ATTEMPTS: u32 = 4;
/// Number of waits for a compaction that itself waits for transactions, and the length of the first,
/// as the number of an attempt.
const MAX_WAITS: u32 = 10;
const FIRST_WAIT: u32 = 10;

impl Engine {
    /// Returns the growth of the zones in bytes for the images of the next checkpoint, if `more`
    /// images are demanded before.
    pub(crate) fn missing_images(&self, more: u64) -> u64 {
        self.pages().map_or(0, |pages| pages.missing_images(more))
    }

    /// Reports the size of the next checkpoints to the log, so that it reserves disk space.
    pub(crate) fn expect_checkpoint(&self) {
        let _adjusting = self.disk_room.adjusting.lock();
        let file = self.housekeeping.estimate_checkpoint_file(self);
        let step = self.pages().map_or(0, |pages| pages.image_step());
        if let Some(pages) = self.pages().filter(|_| self.durability != Durability::Volatile) {
            // Relaxed: changed under the lock, and read as a hint. Before the demand is read.
            self.disk_room.adjust_at.store(pages.images_demanded() + step, Ordering::Relaxed);
        }
        // The newest file is removed before the checkpoint after the next is written.
        let after = file.saturating_sub(self.checkpoints.newest_bytes());
        let next = file + self.missing_images(2 * step);
        self.log.expect_checkpoints(next, after, file + self.missing_images(step));
    }

    /// Returns whether the reserve need not be adjusted before a page becomes dirty, and changes
    /// are admitted.
    #[inline(always)]
    fn has_room_for_pages(&self) -> bool {
        // Relaxed: a hint.
        let until = self.disk_room.room_until.load(Ordering::Relaxed);
        self.pages().is_none_or(|pages| pages.images_demanded() < until)
            || is_planted(Bug::DirtyPagesNotFollowed)
    }

    /// Lets pages become dirty until the next adjustment, unless changes are refused.
    fn update_room(&self) {
        let _adjusting = self.disk_room.adjusting.lock();
        // Relaxed: `adjust_at` is changed under the lock. A worker that withdraws changes calls this
        // afterwards, so that the last call of several closes the room.
        let adjust_at = self.disk_room.adjust_at.load(Ordering::Relaxed);
        let until = if self.log.refuses_changes() { 0 } else { adjust_at.saturating_add(1) };
        self.disk_room.room_until.store(until, Ordering::Relaxed);
    }

    /// Adjusts the disk reserve if the demand of images has grown by a step since the last
    /// adjustment. On a full disk, refuses changes and requests a checkpoint. Also requests one after
    /// a page could not be written.
    pub(in crate::transaction) fn follow_dirty_pages(&self) {
        let Some(pages) = self.pages() else { return };
        if pages.take_disk_full() && self.log.files().is_some() {
            self.checkpoints.request();
        }
        // Relaxed: a hint.
        if pages.images_demanded() <= self.disk_room.adjust_at.load(Ordering::Relaxed)
            || !self.checkpoints.may_begin()
            || is_planted(Bug::DirtyPagesNotFollowed)
        {
            return;
        }
        self.expect_checkpoint();
        if !self.log.follow_checkpoint() {
            self.update_room();
            self.checkpoints.request();
        }
    }
}

impl ActiveTransaction {
    /// Waits until a write may make pages dirty. Called before the write changes anything.
    ///
    /// # Errors
    /// `Refused` on a full disk; for a transaction that only deletes, `NoRoomToDelete`, and it
    /// cannot commit.
    #[inline(always)]
    pub(in crate::transaction) async fn admit_page_change(
        &self,
        intent: WriteIntent<'_>,
    ) -> Result<(), OperationError> {
        if self.engine().has_room_for_pages() {
            return Ok(());
        }
        let deletes = matches!(intent, WriteIntent::Delete | WriteIntent::Expire);
        Box::pin(self.wait_for_page_room(deletes)).await
    }

    #[cold]
    async fn wait_for_page_room(&self, deletes: bool) -> Result<(), OperationError> {
        let engine = self.engine();
        engine.follow_dirty_pages();
        engine.update_room();
        if engine.has_room_for_pages() {
            return Ok(());
        }
        let purpose = if deletes {
            self.block_purpose(&self.writes().borrow())
        } else {
            BlockPurpose::Change
        };
        let admitted = self.worker().wait_for_space(log::block_bytes(0), purpose).await;
        admitted.map_err(|error| self.refused_deletion(error))
    }

    /// Returns the error for a deletion that failed with `error`. If the disk is full and the
    /// transaction only deletes, it may be retried after upkeep has freed space.
    #[cold]
    pub(in crate::transaction) fn refused_deletion(&self, error: OperationError) -> OperationError {
        match error {
            OperationError::NoRoomToDelete(error) => {
                self.set_conflict(Conflict::FullDisk);
                self.fail_halfway(OperationError::NoRoomToDelete(error))
            }
            OperationError::Storage(error)
                if error.is_full() && self.writes().borrow().only_deletes() =>
            {
                self.set_conflict(Conflict::FullDisk);
                self.fail_halfway(OperationError::NoRoomToDelete(error))
            }
            error => error,
        }
    }
}

impl WorkerTransactions {
    /// Waits until the engine's own work may make a few pages dirty, under the same condition as
    /// deletions. If it may not, and `may_request`, waits for a checkpoint first, unless that had no
    /// effect and none has begun since. The caller holds no pages. Also returns when the database is
    /// closing.
    ///
    /// # Errors
    /// The disk is full; `action` is in the message.
    #[inline]
    pub(in crate::transaction) async fn admit_own_page_changes(
        &self,
        may_request: bool,
        action: &'static str,
    ) -> Result<(), PageError> {
        if self.engine().has_room_for_pages() || self.may_make_pages_dirty() {
            return Ok(());
        }
        let engine = self.engine();
        let begun = engine.checkpoints.begun();
        if !may_request || !self.wait_for_useful_checkpoint().await {
            // Less may be demanded by now.
            engine.expect_checkpoint();
        }
        if engine.checkpoints.stopping() || self.may_make_pages_dirty() {
            return Ok(());
        }
        self.note_checkpoint_without_effect(begun);
        let files = engine.log.files().expect("only a log on disk refuses changes");
        let full = std::io::ErrorKind::StorageFull.into();
        Err(LogError::io(action, files.directory().path(), 0, full).into())
    }

    fn may_make_pages_dirty(&self) -> bool {
        let engine = self.engine();
        engine.follow_dirty_pages();
        engine.update_room();
        engine.has_room_for_pages() || engine.log.has_room_beside_upkeep()
    }

    /// Frees disk space with a checkpoint that begins after this call, and the compaction that
    /// follows. Waiting tasks share it. A compaction that waits for transactions is awaited for a
    /// bounded time, because one of them may be waiting for the caller.
    pub(crate) async fn free_disk_space(&self) {
        self.free_disk_space_within(MAX_WAITS).await;
    }

    /// Frees disk space with a checkpoint that begins after this call. Does not wait for a compaction
    /// that waits for transactions, so the caller may have an active one. Returns immediately while
    /// another task has blocked checkpoints, because the caller may be its task.
    pub(in crate::transaction) async fn wait_for_checkpoint(&self) {
        self.free_disk_space_within(0).await;
    }

    /// Waits as `wait_for_checkpoint`, unless the newest checkpoint had no effect. Returns whether it
    /// did.
    pub(in crate::transaction) async fn wait_for_useful_checkpoint(&self) -> bool {
        let engine = self.engine();
        // Relaxed: a hint.
        let without_effect = engine.disk_room.without_effect.load(Ordering::Relaxed);
        let waits = without_effect != engine.checkpoints.begun();
        if waits {
            self.wait_for_checkpoint().await;
        }
        waits
    }

    /// Notes that the disk is still full, though a checkpoint after the number `begun` has begun.
    pub(in crate::transaction) fn note_checkpoint_without_effect(&self, begun: u64) {
        let now = self.engine().checkpoints.begun();
        if now > begun {
            // Relaxed: a hint.
            self.engine().disk_room.without_effect.store(now, Ordering::Relaxed);
        }
    }

    async fn free_disk_space_within(&self, max_waits: u32) {
        let engine = self.engine().clone();
        if engine.log.files().is_none() {
            // It has no checkpoints.
            return;
        }
        let checkpoints = &engine.checkpoints;
        let begun = checkpoints.begun();
        checkpoints.request();
        let (mut last, mut waits) = (None, 0);
        while !checkpoints.are_over_since(begun) {
            let Some(grace_period) = checkpoints.grace_period() else {
                if checkpoints.begun() == begun {
                    // A task that blocks checkpoints for a time may have prevented it.
                    checkpoints.request();
                }
                if max_waits == 0 && checkpoints.are_blocked() {
                    return;
                }
                checkpoints.wait_for_event(begun, max_waits > 0).await;
                continue;
            };
            waits = if last == Some(grace_period) { waits + 1 } else { 0 };
            if waits == max_waits {
                return;
            }
            last = Some(grace_period);
            self.back_off(FIRST_WAIT + waits).await;
        }
    }
}
