//! Sweeping: records that have expired are deleted by the workers, in small transactions among the others.
//!
//! A sweep goes over a table from one end to the other, a few hundred records at a time, and rests in between for longer
//! than that took. It needs no index by expiry, which every write would pay for: a table is swept once in an eighth of the
//! time that its records live, so each record is looked at some eight times in its life, whatever the size of the table,
//! and however short a time records of other tables live;
//! and not at all while nothing in it may have expired, which is known from the last sweep and what was written since.
//! What has expired takes room for an eighth of its life longer, and an hour at most. Tables that are due take turns, each
//! with some of its records, so a large one does not hold up the others.
//!
//! A sweep gives way: where another transaction writes one of the records, it lets go of those few and goes on. Nobody's
//! answers depend on it (`transaction/expiry.rs`). It passes over records whose keys in an index cannot be told, as the
//! program's code for that panics, say.
//!
//! Who begins it: a worker that says when the next is due looks at that moment once more before it sleeps, and gets up
//! for it. So one worker at least does, and the first to see that it is due takes it.

use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::Transaction;
use super::engine::Engine;
use super::error::{IndexError, OperationError};
use super::scan::Bounds;
use super::worker::WorkerTransactions;
use super::write::Intent;
use crate::record::{Records, split_expiry};
use crate::sched::{self, Cause, Job};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::statistic::AtomicU64;
use crate::sync::{self, clock};
use crate::types::KeyBuffer;

/// Records that are looked at in one transaction.
const LOOKED_AT: u64 = 256;
/// A sweep begins after this part of a record's life.
const PART_OF_LIFE: u64 = 8;
/// How soon after another one a sweep begins at most, and at least, in milliseconds.
const SOONEST: u64 = 1000;
const LATEST: u64 = 3_600_000;
/// How many times as long as it took to look at some records a sweep rests then, and how long at most.
const REST: u32 = 4;
const MAX_PAUSE: Duration = Duration::from_millis(10);
/// How often a sweep that somebody waits for tries the same records where others write them.
const ATTEMPTS: u32 = 16;

const NEVER: u64 = u64::MAX;

/// When expired records are swept.
#[derive(Debug)]
pub(crate) struct Sweeps {
    begin: Instant,
    /// Milliseconds after `begin` at which the next sweep is due; [`NEVER`] if no table has records that expire, or a
    /// sweep is under way.
    due: AtomicU64,
    under_way: AtomicBool,
}

impl Default for Sweeps {
    fn default() -> Self {
        let (due, under_way) = (AtomicU64::new(NEVER), AtomicBool::new(false));
        Self { begin: clock::now(), due, under_way }
    }
}

impl Sweeps {
    /// Says that a table has records that expire, and is to be swept after a part of their life. The caller, or whoever
    /// he gives a job to afterwards, is a worker, which looks before it sleeps.
    pub(crate) fn expect(&self, table: &Records) {
        self.end_of(table);
        self.expect_next(table);
    }

    /// The same of a table that knows when it is to be swept.
    fn expect_next(&self, table: &Records) {
        // What happens in a simulation must not depend on time, unless that is the schedule's.
        if cfg!(braid_simulation) && !sync::takes_part() {
            return;
        }
        // Relaxed: this worker sees it, and that is enough.
        self.due.fetch_min(table.next_sweep(), Ordering::Relaxed);
    }

    /// A sweep of a table is over, or was not needed: the next is due after a part of its records' life.
    fn end_of(&self, table: &Records) {
        table.set_next_sweep(self.now().saturating_add(interval(table.lifetime_ms())));
    }

    /// Milliseconds after `begin`.
    fn now(&self) -> u64 {
        clock::now().saturating_duration_since(self.begin).as_millis() as u64
    }

    /// When the next is due, if one is.
    #[inline(always)]
    pub(super) fn due_at(&self) -> Option<Instant> {
        // Relaxed: see `expect`.
        match self.due.load(Ordering::Relaxed) {
            NEVER => None,
            due => self.begin.checked_add(Duration::from_millis(due)),
        }
    }

    /// Takes the sweep that is due; `false` if another worker has.
    pub(super) fn take(&self) -> bool {
        // Relaxed: only one takes what is due, and that is all that matters.
        self.due.swap(NEVER, Ordering::Relaxed) != NEVER
    }

    fn begin(&self) -> Option<UnderWay<'_>> {
        // Acquire pairs with the Release at the end of the one before.
        let taken = self.under_way.swap(true, Ordering::Acquire);
        // Made only if taken here: its drop gives the turn back.
        (!taken).then(|| UnderWay(self))
    }
}

/// A sweep under way.
struct UnderWay<'s>(&'s Sweeps);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `begin`.
        self.0.under_way.store(false, Ordering::Release);
    }
}

/// How long after a sweep of a table the next one begins.
fn interval(lifetime_ms: u64) -> u64 {
    (lifetime_ms / PART_OF_LIFE).clamp(SOONEST, LATEST)
}

/// The task that sweeps the tables that are due.
pub(super) fn job() -> Job {
    Box::new(|| Box::pin(sweep_due()))
}

async fn sweep_due() {
    let worker = WorkerTransactions::current();
    let engine = worker.engine().clone();
    let sweeps = &engine.sweeps;
    // The one that is under way sweeps what is due meanwhile too.
    let Some(_under_way) = sweeps.begin() else { return };
    let mut under_way: Vec<TableSweep> = Vec::new();
    loop {
        for table in engine.tables() {
            if !table.expires() || table.next_sweep() > sweeps.now() {
                continue;
            }
            // Not due while it is swept.
            if under_way.iter().any(|sweep| Arc::ptr_eq(&sweep.table, &table)) {
                continue;
            }
            if table.may_have_expired(engine.steady_clock.now()) {
                under_way.push(TableSweep::begin(table, &engine));
            } else {
                sweeps.end_of(&table);
            }
        }
        if under_way.is_empty() {
            break;
        }
        for mut sweep in std::mem::take(&mut under_way) {
            let begun = clock::now();
            let is_over = sweep.go_on(&worker, 1).await.unwrap_or_else(|error| {
                let name = sweep.table.name();
                tracing::warn!("records of table {:?} were not swept: {error}", &*name);
                true
            });
            match is_over {
                true => sweeps.end_of(&sweep.table),
                false => under_way.push(sweep),
            }
            sched::yield_now(Cause::Memory).await;
            rest(&worker, (clock::now() - begun) * REST).await;
        }
    }
    for table in engine.tables() {
        if table.expires() && !table.is_gone() {
            sweeps.expect_next(&table);
        }
    }
}

/// Sweeps all tables at once; how many records were deleted. Some of those that others write meanwhile may be left.
///
/// # Errors
/// The device's, the log's; `Overloaded`.
pub(crate) async fn sweep_now() -> Result<u64, OperationError> {
    let worker = WorkerTransactions::current();
    let engine = worker.engine();
    let mut swept = 0;
    for table in engine.tables().into_iter().filter(|table| table.expires()) {
        let mut sweep = TableSweep::begin(table, engine);
        while !sweep.go_on(&worker, ATTEMPTS).await? {
            sched::yield_now(Cause::Memory).await;
        }
        swept += sweep.swept;
    }
    Ok(swept)
}

/// A sweep of one table.
struct TableSweep {
    table: Arc<Records>,
    /// When it began.
    now: u64,
    /// The last record that it has passed.
    after: Option<KeyBuffer>,
    /// How many it has deleted.
    swept: u64,
}

impl TableSweep {
    fn begin(table: Arc<Records>, engine: &Engine) -> Self {
        table.begin_sweep();
        Self { table, now: engine.steady_clock.now(), after: None, swept: 0 }
    }

    /// Goes over some records more, and tries up to `attempts` times what others are writing; whether those were the
    /// last.
    async fn go_on(
        &mut self,
        worker: &Rc<WorkerTransactions>,
        attempts: u32,
    ) -> Result<bool, OperationError> {
        if worker.engine().checkpoints.stopping() || self.table.is_gone() {
            return Ok(true);
        }
        let mut attempt = 1;
        let batch = loop {
            // What is left after an error is due the next time.
            let batch = sweep_batch(worker, &self.table, self.after.clone()).await;
            let batch = batch.inspect_err(|_| self.table.note_expiry(self.now))?;
            if !batch.has_conflict || attempt >= attempts {
                break batch;
            }
            attempt += 1;
            sched::yield_now(Cause::Undecided).await;
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
    /// Whether it conflicted with other transactions; then none of it was deleted.
    has_conflict: bool,
    /// The last one; `None` if there are no more.
    last: Option<KeyBuffer>,
}

/// Looks at the next records of a table, and deletes those that have expired, in one transaction.
async fn sweep_batch(
    worker: &Rc<WorkerTransactions>,
    table: &Records,
    after: Option<KeyBuffer>,
) -> Result<SweepBatch, OperationError> {
    let transaction = worker.begin().map_err(|_| OperationError::Overloaded)?;
    if !transaction.may_use(table) {
        // Its creator has not committed, or just has.
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
        match transaction.write_indexed(table, key, Intent::Expire).await {
            Ok(gone) => swept += u64::from(gone),
            Err(
                OperationError::Conflict(_)
                | OperationError::TurnedAway
                | OperationError::BulkUnderWay(..),
            ) => return Ok(conflict()),
            Err(OperationError::Index(error)) if matches!(*error, IndexError::Detached { .. }) => {
                // Its entries cannot be found until the program attaches it: then there is another sweep.
                table.note_expiry(now);
                return Ok(SweepBatch::default());
            }
            // Refused, and nothing of it has happened. It would be each time.
            Err(
                error @ (OperationError::Panicked(_)
                | OperationError::Decode(_)
                | OperationError::Index(_)),
            ) => {
                if table.is_first_unswept() {
                    tracing::warn!(
                        "a record of table {:?} that has expired is left, and perhaps others: {error}",
                        &*table.name()
                    );
                }
            }
            Err(error) => return Err(error),
        }
    }
    match transaction.commit().await {
        Ok(_) => Ok(SweepBatch { swept, has_conflict: false, last }),
        Err(OperationError::Conflict(_) | OperationError::TurnedAway) => Ok(conflict()),
        Err(error) => Err(error),
    }
}

impl Transaction {
    /// Looks at the next records after a key: the keys of those that have expired, and the last key if there may be
    /// more. When the others will is noted.
    async fn find_expired(
        &self,
        table: &Records,
        after: Option<KeyBuffer>,
    ) -> Result<(Vec<KeyBuffer>, Option<KeyBuffer>), OperationError> {
        let low = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut scan = self.scan(table, Bounds { low, high: Bound::Unbounded });
        scan.expect_records(LOOKED_AT);
        scan.set_leaves_cold();
        let (mut expired, mut last, mut looked_at) = (Vec::new(), None, 0);
        let mut earliest = u64::MAX;
        while looked_at < LOOKED_AT && scan.load().await? {
            let (key, stored) = scan.current().expect("loaded");
            let (expiry, _) = split_expiry(stored);
            if expiry <= self.time() {
                expired.push(key.clone());
            } else {
                earliest = earliest.min(expiry);
            }
            (last, looked_at) = (Some(key.clone()), looked_at + 1);
            scan.pass();
        }
        table.note_expiry(earliest);
        Ok((expired, last.filter(|_| looked_at == LOOKED_AT)))
    }
}

/// Lets others have the worker for a while.
async fn rest(worker: &WorkerTransactions, time: Duration) {
    // What happens in a simulation must not depend on time.
    if cfg!(braid_simulation) {
        return;
    }
    let until = clock::now() + time.min(MAX_PAUSE);
    let timer = worker.timers.set(until, sched::current_waiter().await);
    while !timer.is_over() {
        sched::park(Cause::BackOff).await;
    }
}
