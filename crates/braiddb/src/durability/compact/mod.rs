//! Compaction: frees segments of the log with few live records, after their live records are logged
//! again.
//!
//! Compaction runs in these steps:
//!
//! 1. It examines the entry of every record, and lists those that point to a segment to be freed, a
//!    *victim*, in log order.
//! 2. A *pass* goes over that list. It reads records without a copy from the victims, in large
//!    spans, and copies them to the log tail, in blocks like those of a transaction. A later pass
//!    redirects the record's entry to the copy, once the copy is durable and older than every begin
//!    stamp in use. So every transaction that loads the new address may see the record, as with any
//!    address.
//! 3. After each pass it waits for all active transactions, because they and evictions in progress
//!    may have loaded old addresses.
//! 4. When a pass finds that no listed entry points to a victim, it waits for these transactions
//!    once more. After that no transaction can reach a victim: entries that were not listed pointed
//!    to other or later segments, and a record's address never moves backwards.
//! 5. It writes a checkpoint, which no longer needs the victims, and frees them.
//!
//! A segment in which the checkpoint found no live record needs no pass. The checkpoint lists the
//! newest committed versions, and newer ones are in newer segments. It is freed when the active
//! transactions have ended. While snapshots are open, which may take long, no records are moved.
//! Then a segment whose records were all superseded is freed if no transaction sees a version in
//! it: each began before the segment, or after its last record was superseded.
//!
//! Invariants:
//!
//! - A copy is logged only if the record's entry still pointed to the original after the copy's LSN
//!   was drawn. So a transaction that writes the record commits after the copy, and replay ends
//!   with the correct version.
//! - A victim is freed only after a later checkpoint is durable. A crash at any point leaves either
//!   the old checkpoint and all victims, or the new checkpoint.

mod copy;
mod find;
mod pass;
mod plan;
mod state;

use std::rc::Rc;

use find::Victims;
pub(super) use plan::LiveSegments;
use state::CompactionState;

use super::checkpoint::{self, WrittenCheckpoint};
use crate::log::{LogFiles, Lsn};
use crate::planted::{Bug, is_planted};
use crate::sched::{self, WaitCause};
use crate::transaction::{Engine, OperationError, PanicPoint, WorkerTransactions};

/// Maximum number of rounds of one compaction.
const MAX_ROUNDS: usize = 64;
/// Number of segments that a compaction on a full disk tries to gain, regardless of how much it
/// copies: one for the reserve, and one for the log.
const MAX_SEGMENTS_GAINED: u64 = 2;

/// Result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CompactionResult {
    /// Number of segments freed.
    pub(crate) segments: u64,
    /// Number of records logged again.
    pub(crate) moved: u64,
    /// Bytes of disk freed, including the space that the copies take.
    pub(crate) bytes: u64,
    /// Bytes of disk freed, less the bytes of the copies.
    gained: u64,
    /// Bytes freed inside the zone files.
    pub(crate) page_bytes: u64,
}

/// Frees segments until the log is little larger than its live records. `written` is a checkpoint
/// that was just written; the caller prevents further checkpoints.
///
/// # Errors
/// Errors of the device and of the log.
pub(super) async fn compact(
    files: &LogFiles,
    mut written: WrittenCheckpoint,
    waits_for_snapshots: bool,
) -> Result<CompactionResult, OperationError> {
    let worker = WorkerTransactions::current();
    let engine = worker.engine().clone();
    let mut compacted = CompactionResult::default();
    engine.planted_panic.panic_if_planted(PanicPoint::Compaction);
    for _ in 0..MAX_ROUNDS {
        // A segment that a change feed holds is not emptied, because it cannot be freed.
        let candidates = files.unheld_before(written.checkpoint.lsn, engine.log.tail());
        let dead = plan::dead(&candidates, &written.live);
        if !dead.is_empty() {
            // Active transactions may still read superseded versions.
            let superseded = engine.checkpoints.dead_segments.note(&dead, engine.log.tail());
            let freed = if grace_period(&worker, waits_for_snapshots).await? {
                dead
            } else if engine.checkpoints.stopping() {
                break;
            } else {
                worker.unseen_segments(superseded, files.segment_bytes()).await
            };
            compacted.free(&engine, files, &written.live, &freed).await?;
        }
        let candidates = files.unheld_before(written.checkpoint.lsn, engine.log.tail());
        let scarce = scarce_room(&engine, files, &written.live).map(|room| plan::FullDiskLimits {
            room,
            nothing_gained: compacted.gained < MAX_SEGMENTS_GAINED * files.segment_bytes(),
        });
        let victims = plan::victims(&candidates, files.segment_bytes(), &written.live, scarce);
        let gives_up = !waits_for_snapshots && engine.has_snapshots();
        if victims.is_empty() || engine.checkpoints.stopping() || gives_up {
            break;
        }
        engine.checkpoints.dead_segments.note_moving(&victims);
        if !is_planted(Bug::FreedLiveSegment) {
            let Some(moved) =
                empty(&worker, files, &victims, written.live.bytes(), waits_for_snapshots).await?
            else {
                break;
            };
            compacted.moved += moved;
        }
        let copied = plan::live_bytes_in(&victims, &written.live);
        written = checkpoint::write(files).await?;
        compacted.free(&engine, files, &written.live, &victims).await?;
        compacted.gained = compacted.gained.saturating_sub(copied);
    }
    Ok(compacted)
}

/// Frees the segments in which a checkpoint, which was just written, found no live record, and in
/// which no transaction sees a version. The caller prevents further checkpoints.
///
/// # Errors
/// Errors of the device.
pub(super) async fn free_unseen(
    files: &LogFiles,
    written: &WrittenCheckpoint,
) -> Result<(), OperationError> {
    let worker = WorkerTransactions::current();
    let engine = worker.engine().clone();
    let candidates = files.unheld_before(written.checkpoint.lsn, engine.log.tail());
    let dead = plan::dead(&candidates, &written.live);
    let superseded = engine.checkpoints.dead_segments.note(&dead, engine.log.tail());
    let unseen = worker.unseen_segments(superseded, files.segment_bytes()).await;
    CompactionResult::default().free(&engine, files, &written.live, &unseen).await
}

/// Returns the bytes that can be copied if the disk is nearly full, and `None` otherwise. The disk
/// is nearly full if it has no room for the largest log that the live records permit, or if the log
/// cannot grow.
fn scarce_room(engine: &Engine, files: &LogFiles, live: &LiveSegments) -> Option<u64> {
    let fits = plan::max_size(files.segment_bytes(), live) <= files.possible_bytes();
    (!fits || engine.log.is_short() || engine.log.is_stalled())
        .then(|| engine.log.room_for_upkeep())
}

impl CompactionResult {
    /// Frees segments. Keeps some of their files for the log: enough for one and a quarter
    /// checkpoint intervals, or for two and a half times the live bytes if that is more.
    async fn free(
        &mut self,
        engine: &Engine,
        files: &LogFiles,
        live: &LiveSegments,
        segments: &[u64],
    ) -> Result<(), OperationError> {
        let interval = engine.checkpoints.interval() / files.segment_bytes();
        let alive = live.bytes() / files.segment_bytes();
        let most = (interval + interval / 4).max(alive * 5 / 2);
        for segment in segments {
            if !files
                .free_segment(*segment, engine.log.tail(), most)
                .map_err(OperationError::storage)?
            {
                // Held by a change feed since it was chosen.
                continue;
            }
            engine.checkpoints.dead_segments.forget(*segment);
            self.segments += 1;
            self.bytes += files.segment_bytes();
            self.gained += files.segment_bytes();
            // A file system may take milliseconds to remove a file.
            sched::yield_now(WaitCause::Memory).await;
        }
        Ok(())
    }
}

/// Waits until the currently active transactions have ended. Returns `false` if the database is
/// closing, or if open snapshots exist and the caller does not wait for them.
async fn grace_period(
    worker: &Rc<WorkerTransactions>,
    waits_for_snapshots: bool,
) -> Result<bool, OperationError> {
    let checkpoints = &worker.engine().checkpoints;
    checkpoints.note_grace_period();
    let is_over = worker.wait_for_grace_period(waits_for_snapshots).await;
    checkpoints.note_grace_period();
    is_over
}

/// Moves live records out of segments until no transaction can reach the segments. Returns the
/// number of copied records, or `None` if [`grace_period`] ended early.
async fn empty(
    worker: &Rc<WorkerTransactions>,
    files: &LogFiles,
    segments: &[u64],
    alive: u64,
    waits_for_snapshots: bool,
) -> Result<Option<u64>, OperationError> {
    let victims = Victims::new(segments, files.segment_bytes());
    let tables = worker.engine().tables();
    let items = find::find(worker, &tables, &victims).await?;
    let (files, copied, last) = (files.clone(), 0, Lsn::ZERO);
    let mut moving = CompactionState { files, alive, victims, tables, items, copied, last };
    loop {
        let settled = pass::pass(worker, &mut moving).await?;
        worker.wait_durable(moving.last).await?;
        if !grace_period(worker, waits_for_snapshots).await? {
            return Ok(None);
        }
        if settled {
            return Ok(Some(moving.copied));
        }
    }
}
