//! Sweeps: workers delete expired records in small transactions.
//!
//! A sweep passes over a table from one end to the other, a few hundred records at a time, and
//! pauses in between for longer than the work took. It needs no index by expiry, for which every
//! write would pay. A table is swept once per eighth of its records' lifetime. So each record is
//! examined about eight times in its life, independent of the table's size and of other tables'
//! lifetimes. A table is not swept while nothing in it can have expired, which is known from the
//! last sweep and later writes. Expired records occupy space for another eighth of their lifetime,
//! and at most one hour. Tables that are due are interleaved, so a large one does not delay the
//! others.
//!
//! A sweep yields: on a conflict with another transaction, it skips those few records and
//! continues. No result depends on it (`transaction/operations/expiry.rs`). It skips records whose
//! index keys cannot be computed, for example because the program's key function panics.
//!
//! Start of a sweep: a worker that schedules the next sweep checks the due time before it sleeps,
//! and wakes for it. So at least one worker does, and the first that finds it due runs it.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::record::{Records, split_expiry};
use crate::sched::{self, Job, WaitCause};
use crate::sync::clock;
use crate::transaction::commit::disk_room::MAX_FREEING_ATTEMPTS;
use crate::transaction::context::active_transaction::ActiveTransaction;
use crate::transaction::context::engine::Engine;
use crate::transaction::context::error::{IndexError, OperationError};
use crate::transaction::context::worker::WorkerTransactions;
use crate::transaction::context::write_intent::WriteIntent;
use crate::transaction::operations::scan_bounds::ScanBounds;
use crate::types::KeyBuffer;

/// Number of records examined per transaction.
const MAX_RECORDS_PER_BATCH: u64 = 256;
/// Pause of a sweep as a multiple of the time its last batch took, and the maximum pause.
const REST_FACTOR: u32 = 4;
const MAX_PAUSE: Duration = Duration::from_millis(10);
/// Number of attempts at a batch with conflicts, if a caller waits for the sweep.
const MAX_ATTEMPTS: u32 = 16;

/// The task that sweeps the tables that are due.
pub(super) fn job() -> Job {
    Box::new(|| Box::pin(sweep_due()))
}

async fn sweep_due() {
    let worker = WorkerTransactions::current();
    let engine = worker.engine().clone();
    let sweeps = &engine.sweeps;
    // The running sweep handles tables that become due in the meantime.
    let Some(_under_way) = sweeps.begin() else { return };
    let mut in_progress: Vec<TableSweep> = Vec::new();
    loop {
        // A search of the list for each table would take time quadratic in the number of tables.
        let swept: BTreeSet<_> = in_progress.iter().map(|sweep| sweep.table.id).collect();
        for table in engine.tables() {
            sched::count_steps(1).await;
            if !table.expires() || table.next_sweep() > sweeps.now() {
                continue;
            }
            // Not due while it is being swept.
            if swept.contains(&table.id) {
                continue;
            }
            if table.may_have_expired(engine.steady_clock.now()) {
                in_progress.push(TableSweep::begin(table, &engine));
            } else {
                sweeps.end_of(&table);
            }
        }
        if in_progress.is_empty() {
            break;
        }
        for mut sweep in std::mem::take(&mut in_progress) {
            let begun = clock::now();
            let is_over = sweep.continue_sweep(&worker, 1).await.unwrap_or_else(|error| {
                let name = sweep.table.name();
                tracing::warn!("cannot sweep expired records of table {:?}: {error}", &*name);
                true
            });
            match is_over {
                true => sweeps.end_of(&sweep.table),
                false => in_progress.push(sweep),
            }
            sched::yield_now(WaitCause::Memory).await;
            rest(&worker, (clock::now() - begun) * REST_FACTOR).await;
        }
    }
    for table in engine.tables() {
        sched::count_steps(1).await;
        if table.expires() && !table.is_gone() {
            sweeps.expect_next(&table);
        }
    }
}

/// Sweeps all tables immediately; returns the number of deleted records. Records in conflict with
/// other transactions may be left.
///
/// # Errors
/// Those of the device and the log; `Overloaded`.
pub(crate) async fn sweep_now() -> Result<u64, OperationError> {
    let worker = WorkerTransactions::current();
    let engine = worker.engine();
    let mut swept = 0;
    for table in engine.tables() {
        sched::count_steps(1).await;
        if !table.expires() {
            continue;
        }
        let mut sweep = TableSweep::begin(table, engine);
        while !sweep.continue_sweep(&worker, MAX_ATTEMPTS).await? {
            sched::yield_now(WaitCause::Memory).await;
        }
        swept += sweep.swept;
    }
    Ok(swept)
}

/// A sweep of one table.
struct TableSweep {
    table: Arc<Records>,
    /// The time at which it began.
    now: u64,
    /// The last record that it passed.
    after: Option<KeyBuffer>,
    /// Number of deleted records.
    swept: u64,
}

impl TableSweep {
    fn begin(table: Arc<Records>, engine: &Engine) -> Self {
        table.begin_sweep();
        Self { table, now: engine.steady_clock.now(), after: None, swept: 0 }
    }

    /// Sweeps the next records, with up to `attempts` attempts on conflicts; returns whether those
    /// were the last.
    async fn continue_sweep(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        attempts: u32,
    ) -> Result<bool, OperationError> {
        if worker.engine().checkpoints.stopping() || self.table.is_gone() {
            return Ok(true);
        }
        let (mut attempt, mut refused) = (1, 0);
        let batch = loop {
            let batch = sweep_batch(worker, &self.table, self.after.clone()).await;
            if matches!(batch, Err(OperationError::NoRoomToDelete(_)))
                && refused < MAX_FREEING_ATTEMPTS
            {
                refused += 1;
                worker.free_disk_space().await;
                continue;
            }
            // Records left after an error are due the next time.
            let batch = batch.inspect_err(|_| self.table.note_expiry(self.now))?;
            if !batch.has_conflict || attempt >= attempts {
                break batch;
            }
            attempt += 1;
            sched::yield_now(WaitCause::Undecided).await;
        };
        self.swept += batch.swept;
        worker.counters().expired_swept.add(batch.swept);
        self.after = batch.last;
        Ok(self.after.is_none())
    }
}

/// The outcome of sweeping one batch of records.
#[derive(Debug, Default)]
struct SweepBatch {
    swept: u64,
    /// Set if it conflicted with other transactions; then nothing was deleted.
    has_conflict: bool,
    /// The last key; `None` if no records are left.
    last: Option<KeyBuffer>,
}

/// Examines the next records of a table in one transaction, and deletes those that have expired.
async fn sweep_batch(
    worker: &Rc<WorkerTransactions>,
    table: &Records,
    after: Option<KeyBuffer>,
) -> Result<SweepBatch, OperationError> {
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    if !transaction.may_use(table) {
        // Its creator has not committed, or has just committed.
        table.note_expiry(transaction.time());
        return Ok(SweepBatch::default());
    }
    let (expired, last) = transaction.find_expired(table, after).await?;
    if expired.is_empty() {
        transaction.end_uncounted();
        return Ok(SweepBatch { last, ..SweepBatch::default() });
    }
    let now = transaction.time();
    let conflict = || {
        // They are found again the next time.
        table.note_expiry(now);
        SweepBatch { has_conflict: true, last: last.clone(), swept: 0 }
    };
    let mut swept = 0;
    for key in &expired {
        match transaction.write_indexed(table, key, WriteIntent::Expire, None).await {
            Ok(gone) => swept += u64::from(gone),
            Err(
                OperationError::Conflict(_)
                | OperationError::YieldedToPriority
                | OperationError::BulkUnderWay(..),
            ) => return Ok(conflict()),
            Err(OperationError::Index(error)) if matches!(*error, IndexError::Detached { .. }) => {
                // Its index entries cannot be computed until the program attaches the index; then
                // another sweep follows.
                table.note_expiry(now);
                return Ok(SweepBatch::default());
            }
            // Refused without effect, as it would be each time.
            Err(
                error @ (OperationError::Panicked(_)
                | OperationError::Decode(_)
                | OperationError::Index(_)),
            ) => {
                if table.is_first_unswept() {
                    tracing::warn!(
                        "cannot sweep an expired record of table {:?}, and perhaps others: {error}",
                        &*table.name()
                    );
                }
            }
            Err(error) => return Err(error),
        }
    }
    match transaction.commit().await {
        Ok(_) => Ok(SweepBatch { swept, has_conflict: false, last }),
        Err(OperationError::Conflict(_) | OperationError::YieldedToPriority) => Ok(conflict()),
        Err(error) => Err(error),
    }
}

impl ActiveTransaction {
    /// Examines the next records after a key. Returns the keys of expired ones, and the last key if
    /// more may follow. Notes when the others expire.
    async fn find_expired(
        &self,
        table: &Records,
        after: Option<KeyBuffer>,
    ) -> Result<(Vec<KeyBuffer>, Option<KeyBuffer>), OperationError> {
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = self.scan(table, ScanBounds { low, high: Bound::Unbounded });
        scan.expect_records(MAX_RECORDS_PER_BATCH);
        scan.set_leaves_cold();
        let (mut expired, mut last, mut looked_at) = (Vec::new(), None, 0);
        let mut earliest = u64::MAX;
        while looked_at < MAX_RECORDS_PER_BATCH && scan.load().await? {
            let (key, stored) = scan.current().expect("loaded");
            let (expiry, _) = split_expiry(stored);
            if expiry <= self.time() {
                expired.push(KeyBuffer::from_slice(key));
            } else {
                earliest = earliest.min(expiry);
            }
            (last, looked_at) = (Some(KeyBuffer::from_slice(key)), looked_at + 1);
            scan.pass();
        }
        table.note_expiry(earliest);
        Ok((expired, last.filter(|_| looked_at == MAX_RECORDS_PER_BATCH)))
    }
}

/// Lets other tasks of the worker run for a while.
async fn rest(worker: &WorkerTransactions, time: Duration) {
    // A simulation must not depend on time.
    if cfg!(braid_simulation) {
        return;
    }
    let until = clock::now() + time.min(MAX_PAUSE);
    let timer = worker.timers.set(until, sched::current_waiter().await);
    while !timer.is_over() {
        sched::park(WaitCause::BackOff).await;
    }
}
