//! Compaction: segments of the log with little that is alive are freed, what is alive in them being
//! logged again first.
//!
//! Every record's entry is looked at, and those that lead to a segment to be freed, a *victim*, are
//! listed in the order of the log. A *pass* goes over that list. What is not copied yet is read from
//! the victims, in large stretches, and copied to the end of the log, in blocks as a transaction's; and
//! once a copy is durable and before every begin stamp in use, a later pass lets the record's entry
//! lead to it. So every transaction that meets the new address may see the record, as with any
//! address. After each pass all transactions that are active are waited for, since they, and
//! evictions under way, may have met old addresses. When a pass finds that nothing on the list
//! leads to a victim, then, once those transactions are over too, nobody ever will: what is not on
//! the list led to what was logged elsewhere or later, and a record never goes back. A checkpoint
//! is written, which no longer needs the victims, and they are freed.
//!
//! A segment in which the checkpoint found nothing alive needs no pass: what it found are the newest
//! committed versions, and those that are newer are kept in newer segments.
//!
//! Invariants: a copy is logged only if the record's entry still led to the original after the
//! copy's LSN was drawn, so a transaction that writes the record commits later than the copy, and
//! replay ends with the right one; a victim is freed only after a checkpoint, which is later than
//! all of it, is durable. A crash at any point leaves either the old checkpoint and all victims, or the new
//! one.

mod copy;
mod find;
mod pass;
mod plan;

use std::rc::Rc;

use find::Victims;
use pass::Moving;
pub(super) use plan::Live;

use super::checkpoint::{self, Written};
use crate::log::{LogFiles, Lsn};
use crate::planted::{Bug, is_planted};
use crate::sched::{self, Cause};
use crate::transaction::{Engine, OperationError, PanicPoint, WorkerTransactions};

/// Rounds that one compaction makes at most.
const MAX_ROUNDS: usize = 64;
/// Segments that a compaction on a full disk is to gain, however much it copies for that: one to be
/// held back again, and one for the log.
const ENOUGH_GAINED: u64 = 2;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// Segments freed.
    pub(crate) segments: u64,
    /// Records logged again.
    pub(crate) moved: u64,
    /// Bytes of disk freed, before what was logged again.
    pub(crate) bytes: u64,
    /// The same, less what was logged again.
    gained: u64,
    /// Bytes given back inside the files of pages.
    pub(crate) page_bytes: u64,
}

/// Frees segments until the log takes little more than what is alive; `written` is the checkpoint
/// that was written just now, by a caller who keeps others from being written.
///
/// # Errors
/// The device's, the log's.
pub(super) async fn compact(
    files: &LogFiles,
    mut written: Written,
    waits_for_snapshots: bool,
) -> Result<Compacted, OperationError> {
    let worker = WorkerTransactions::current();
    let engine = worker.engine().clone();
    let mut compacted = Compacted::default();
    engine.planted_panic.panic_if_planted(PanicPoint::Compaction);
    for _ in 0..MAX_ROUNDS {
        // What is held is not emptied either: it could not be freed.
        let candidates = files.unheld_before(written.checkpoint.lsn, engine.log.tail());
        let dead = plan::dead(&candidates, &written.live);
        if !dead.is_empty() {
            // Transactions may yet look at what has been superseded.
            if !grace_period(&worker, waits_for_snapshots).await? {
                break;
            }
            compacted.free(&engine, files, &written.live, &dead).await?;
        }
        let candidates = files.unheld_before(written.checkpoint.lsn, engine.log.tail());
        let scarce = scarce_room(&engine, files, &written.live).map(|room| plan::Scarce {
            room,
            nothing_gained: compacted.gained < ENOUGH_GAINED * files.segment_bytes(),
        });
        let victims = plan::victims(&candidates, files.segment_bytes(), &written.live, scarce);
        if victims.is_empty() || engine.checkpoints.stopping() {
            break;
        }
        if !is_planted(Bug::FreedLiveSegment) {
            let Some(moved) =
                empty(&worker, files, &victims, written.live.bytes(), waits_for_snapshots).await?
            else {
                break;
            };
            compacted.moved += moved;
        }
        let copied = plan::alive_in(&victims, &written.live);
        written = checkpoint::write(files).await?;
        compacted.free(&engine, files, &written.live, &victims).await?;
        compacted.gained = compacted.gained.saturating_sub(copied);
    }
    Ok(compacted)
}

/// Where the disk has no room for a log as large as it may be for what is alive, or hardly any for it
/// to grow at all: the bytes that can be copied.
fn scarce_room(engine: &Engine, files: &LogFiles, live: &Live) -> Option<u64> {
    let fits = plan::most_taken(files.segment_bytes(), live) <= files.possible_bytes();
    (!fits || engine.log.is_short() || engine.log.is_stalled())
        .then(|| engine.log.room_for_upkeep())
}

impl Compacted {
    /// Frees segments. Files are kept for the log to come: as many as make a checkpoint due, and a
    /// little more; or, where more than that is alive, two and a half times what is.
    async fn free(
        &mut self,
        engine: &Engine,
        files: &LogFiles,
        live: &Live,
        segments: &[u64],
    ) -> Result<(), OperationError> {
        let interval = engine.checkpoints.every() / files.segment_bytes();
        let alive = live.bytes() / files.segment_bytes();
        let most = (interval + interval / 4).max(alive * 5 / 2);
        for segment in segments {
            if !files
                .free_segment(*segment, engine.log.tail(), most)
                .map_err(OperationError::storage)?
            {
                // Held since it was chosen.
                continue;
            }
            self.segments += 1;
            self.bytes += files.segment_bytes();
            self.gained += files.segment_bytes();
            // A file system may take milliseconds to remove one.
            sched::yield_now(Cause::Memory).await;
        }
        Ok(())
    }
}

/// Waits until the transactions that are active now are over; `false` if the database is closing, or
/// snapshots are open that are not to be waited for.
async fn grace_period(
    worker: &Rc<WorkerTransactions>,
    waits_for_snapshots: bool,
) -> Result<bool, OperationError> {
    if !waits_for_snapshots && worker.engine().snapshots_open() {
        return Ok(false);
    }
    worker.wait_for_grace_period().await
}

/// Moves what is alive out of segments, until nobody can meet what is in them; returns how many records
/// were copied, or `None` if the database is closing instead.
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
    let mut moving = Moving { files, alive, victims, tables, items, copied, last };
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
