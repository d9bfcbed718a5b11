//! Checkpoint scheduling: when one is due, mutual exclusion, and the LSN where replay starts.
//!
//! A transaction that is logged in parts commits long after its first part, and recovery must read
//! all parts. So a checkpoint's LSN is not later than the first part of any such transaction that
//! may commit after the checkpoint's snapshot.
//!
//! A checkpoint lists all leaves of paged tables, and writes images of those that have changed. The
//! next checkpoint is due when half as much was logged as the database holds, or as much as the
//! checkpoint's file takes, up to the configured interval; but not before half as much as those
//! images took. So log and opening time are bounded by a multiple of the data, and what checkpoints
//! write by a multiple of the log.

use std::sync::Arc;
use std::time::Duration;

use super::dead_segments::DeadSegments;
use crate::log::Lsn;
use crate::planted::{Bug, is_planted};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, oneshot};

/// Interval of small databases in bytes of log, unless less is configured.
const MIN_INTERVAL_BYTES: u64 = 64 << 20;

/// Maximum number of image writes that a checkpoint has in flight, when at least half an interval was
/// logged after it was due.
const MAX_WRITES: u64 = 8;

/// Pause after 16 MiB of log for each interval that was logged beyond two, and its maximum. At 16 MiB
/// a second, writers leave a disk most of its speed. A longer pause would not be safe: a commit that
/// waits keeps other writers from its records, and these try again for a few seconds only.
const PAUSE_PER_INTERVAL: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The mark from which writers are measured is not set.
const NO_MARK: u64 = u64::MAX;

/// The state of a database's checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    /// Configured maximum of the interval, in bytes of log.
    max_interval: u64,
    /// Current checkpoint interval in bytes of log.
    interval: AtomicU64,
    /// The LSN at which the next checkpoint is due.
    due_at: AtomicU64,
    /// The LSN at which the last checkpoint began.
    begun_at: AtomicU64,
    in_progress: AtomicBool,
    /// Set while a task keeps checkpoints from running, see [`Checkpoints::block`].
    blocked: AtomicBool,
    /// Set if a checkpoint must begin as soon as none is running.
    wanted: AtomicBool,
    /// Number of checkpoints whose writing has begun, and the number of the newest one whose writing
    /// has ended.
    begun: AtomicU64,
    written: AtomicU64,
    /// Number of checkpoints that have ended. Includes intervals in which they were blocked.
    ended: AtomicU64,
    /// Odd while a compaction waits for active transactions; counts the begins and ends of such waits.
    grace_periods: AtomicU64,
    /// Tasks that wait until no checkpoint is running, or until one is written.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
    newest: AtomicU64,
    newest_bytes: AtomicU64,
    /// Bytes of copies that compaction has logged since the newest checkpoint.
    copied: AtomicU64,
    /// The log's tail when the running checkpoint or compaction could first make progress.
    running_from: AtomicU64,
    /// Set once all tables are listed.
    listed: AtomicBool,
    /// Set when the database is closing; no long work may begin then.
    stopping: AtomicBool,
    /// For each transaction that is being logged in parts, a lower bound of its first part's LSN.
    parts: Mutex<Vec<Lsn>>,
    pub(crate) dead_segments: DeadSegments,
}

/// Registration of a transaction that is logged in parts.
#[derive(Debug)]
pub(in crate::transaction) struct PartsRegistration {
    checkpoints: Arc<Checkpoints>,
    bound: Lsn,
}

/// A running checkpoint; dropping it ends it.
#[derive(Debug)]
pub(crate) struct RunningCheckpoint<'c>(&'c Checkpoints);

/// A checkpoint that is being written, with its number; dropping it ends the writing.
#[derive(Debug)]
pub(crate) struct CheckpointWriting<'c>(&'c Checkpoints, u64);

impl Checkpoints {
    pub(in crate::transaction) fn new(max_interval: u64) -> Self {
        let interval = max_interval.min(MIN_INTERVAL_BYTES);
        Self {
            max_interval,
            interval: AtomicU64::new(interval),
            due_at: AtomicU64::new(interval),
            begun_at: AtomicU64::new(0),
            in_progress: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            written: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            grace_periods: AtomicU64::new(0),
            waiting: Mutex::default(),
            newest: AtomicU64::new(0),
            newest_bytes: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            running_from: AtomicU64::new(NO_MARK),
            listed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            parts: Mutex::default(),
            dead_segments: DeadSegments::default(),
        }
    }

    /// Current checkpoint interval in bytes of log.
    pub(crate) fn interval(&self) -> u64 {
        // Relaxed: a hint.
        self.interval.load(Ordering::Relaxed)
    }

    /// Returns the number of image writes that the running checkpoint may have in flight. The more was
    /// logged after it was due, the more writes, so that writers cannot outrun it.
    pub(crate) fn max_writes(&self, tail: Lsn) -> usize {
        let interval = self.interval();
        let excess = tail.0.saturating_sub(self.newest().0).saturating_sub(interval);
        let more = excess.saturating_mul(2 * MAX_WRITES) / interval.max(1);
        (1 + more).min(MAX_WRITES) as usize
    }

    /// Returns the pause of writers after 16 MiB of log: zero, unless they outrun the running
    /// checkpoint or compaction. A pause would not help while that waits for active transactions.
    /// Writers do not count as faster because no checkpoint could run for a time.
    pub(crate) fn pause_of_writers(&self, tail: Lsn) -> Duration {
        let runs = self.is_in_progress()
            && !self.are_blocked()
            && !self.stopping()
            && self.grace_period().is_none();
        // Relaxed, both: hints.
        let mut from = self.running_from.load(Ordering::Relaxed);
        if runs != (from != NO_MARK) {
            from = if runs { tail.0 } else { NO_MARK };
            self.running_from.store(from, Ordering::Relaxed);
        }
        if !runs {
            return Duration::ZERO;
        }
        // Much less than the minimum is one extension of the log.
        let interval = self.interval().max(MIN_INTERVAL_BYTES);
        let begin = self.newest().0.max(from.saturating_sub(interval));
        // Relaxed: a hint.
        let by_engine = begin + self.copied.load(Ordering::Relaxed);
        let excess = tail.0.saturating_sub(by_engine).saturating_sub(2 * interval);
        PAUSE_PER_INTERVAL.mul_f64(excess as f64 / interval as f64).min(MAX_PAUSE)
    }

    /// Notes that a compaction has logged `bytes` of copies.
    pub(crate) fn note_copied(&self, bytes: u64) {
        // Relaxed: a hint.
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Registers, until the result is dropped, a transaction that is logged in parts. Must be
    /// called before its first part is reserved. `tail` reads the log's tail.
    pub(in crate::transaction) fn log_in_parts(
        self: &Arc<Self>,
        tail: impl FnOnce() -> Lsn,
    ) -> PartsRegistration {
        let mut parts = self.parts.lock();
        let bound = tail();
        parts.push(bound);
        PartsRegistration { checkpoints: self.clone(), bound }
    }

    /// The LSN from which to replay the log on top of a snapshot that begins afterwards.
    pub(crate) fn replay_from(&self, tail: impl FnOnce() -> Lsn) -> Lsn {
        let parts = self.parts.lock();
        parts.iter().copied().fold(tail(), Lsn::min)
    }

    /// Returns whether the caller should begin a checkpoint, once per due checkpoint. Never while
    /// the database is closing, nor before its paged tables are listed, because the checkpoint
    /// would omit them. If the log is nearly out of space, `step` bytes are enough: the compaction
    /// that follows may free some.
    pub(in crate::transaction) fn take_due(&self, tail: Lsn, step: Option<u64>) -> bool {
        // Acquire pairs with the Release in `note_listed`.
        let listed =
            self.listed.load(Ordering::Acquire) || is_planted(Bug::CheckpointBeforeTablesListed);
        if self.stopping() || !listed {
            return false;
        }
        // Relaxed, all: only one exchange succeeds, and nothing else depends on it.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if let Some(step) = step {
            let begun_at = self.begun_at.load(failure);
            return tail.0 >= begun_at.saturating_add(step)
                && self.begun_at.compare_exchange(begun_at, tail.0, success, failure).is_ok();
        }
        let due_at = self.due_at.load(failure);
        if tail.0 < due_at || self.would_free_nothing() {
            return false;
        }
        let next = tail.0.saturating_add(self.interval());
        tail.0 >= due_at && self.due_at.compare_exchange(due_at, next, success, failure).is_ok()
    }

    /// Returns whether another checkpoint would not shorten replay: a transaction is being logged
    /// in parts since before the newest one.
    fn would_free_nothing(&self) -> bool {
        let newest = self.newest();
        self.parts.lock().iter().any(|bound| *bound <= newest)
    }

    /// Notes that all tables that existed when the database was opened are listed.
    pub(crate) fn note_listed(&self) {
        // Release pairs with the Acquire in `take_due`: a worker that takes a checkpoint finds the
        // tables.
        self.listed.store(true, Ordering::Release);
    }

    /// Returns whether a checkpoint may begin: the database is not closing, and its tables are
    /// listed.
    pub(in crate::transaction) fn may_begin(&self) -> bool {
        // Acquire pairs with the Release in `note_listed`.
        !self.stopping() && self.listed.load(Ordering::Acquire)
    }

    /// Returns whether a checkpoint is running.
    pub(super) fn is_in_progress(&self) -> bool {
        // Relaxed: a hint.
        self.in_progress.load(Ordering::Relaxed)
    }

    /// Requests a checkpoint that begins as soon as none is running.
    pub(in crate::transaction) fn request(&self) {
        // Relaxed: this worker's next turn sees it, and so does the turn after the end of a running
        // checkpoint, see `take_requested`.
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Returns whether the caller should begin a checkpoint that was requested. One that is running
    /// may have begun too early, so the request waits for its end.
    pub(in crate::transaction) fn take_requested(&self) -> bool {
        // Relaxed, all: only one exchange succeeds. A checkpoint that begins after this satisfies
        // the request too.
        self.wanted.load(Ordering::Relaxed)
            && !self.is_in_progress()
            && self.may_begin()
            && self.wanted.swap(false, Ordering::Relaxed)
    }

    /// Notes that a checkpoint is being written until the result is dropped. The caller has begun
    /// it.
    pub(crate) fn begin_writing(&self) -> CheckpointWriting<'_> {
        // Relaxed: only the running checkpoint changes it.
        CheckpointWriting(self, self.begun.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Returns the number of checkpoints whose writing has begun.
    pub(crate) fn begun(&self) -> u64 {
        // Relaxed: a checkpoint whose writing begins later includes what this thread did before.
        self.begun.load(Ordering::Relaxed)
    }

    /// Returns the number of checkpoints that have ended, with their compactions.
    pub(in crate::transaction) fn ended(&self) -> u64 {
        // Relaxed: a hint to retry.
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns whether a checkpoint after the number `begun` was written, or has failed, and none is
    /// running, or none can begin any more.
    pub(in crate::transaction) fn are_over_since(&self, begun: u64) -> bool {
        // Relaxed, both: a waiter checks under the lock.
        let is_written = self.written.load(Ordering::Relaxed) > begun;
        (is_written && !self.is_in_progress()) || !self.may_begin()
    }

    /// Notes that a compaction begins or ends to wait for active transactions.
    pub(crate) fn note_grace_period(&self) {
        // Relaxed: a waiter checks under the lock.
        self.wake_waiters(|| _ = self.grace_periods.fetch_add(1, Ordering::Relaxed));
    }

    /// Returns an identification of the grace period for which a compaction waits, if any.
    pub(in crate::transaction) fn grace_period(&self) -> Option<u64> {
        // Relaxed: as above.
        Some(self.grace_periods.load(Ordering::Relaxed)).filter(|number| number % 2 == 1)
    }

    /// Waits for the next event, unless checkpoints after the number `begun` are over, or a
    /// compaction waits for active transactions, or, if not `while_blocked`, checkpoints are blocked.
    pub(in crate::transaction) async fn wait_for_event(&self, begun: u64, while_blocked: bool) {
        let event = {
            let mut waiting = self.waiting.lock();
            let must_return = self.are_blocked() && !while_blocked;
            if must_return || self.are_over_since(begun) || self.grace_period().is_some() {
                return;
            }
            let (end, event) = oneshot::channel();
            waiting.push(end);
            event
        };
        _ = event.await;
    }

    fn wake_waiters(&self, note: impl FnOnce()) {
        let mut waiting = self.waiting.lock();
        note();
        for end in waiting.drain(..) {
            // A waiter that was dropped needs no wake-up.
            _ = end.send(());
        }
    }

    /// Begins a checkpoint; `None` if one is running.
    pub(crate) fn begin(&self) -> Option<RunningCheckpoint<'_>> {
        // Acquire pairs with the Release at the end of the previous one: its files are in place.
        let taken = self.in_progress.swap(true, Ordering::Acquire);
        // Created only if taken here, because its drop releases the flag.
        (!taken).then(|| RunningCheckpoint(self))
    }

    /// Keeps checkpoints from running until the result is dropped; `None` if one is running.
    pub(crate) fn block(&self) -> Option<RunningCheckpoint<'_>> {
        let blocking = self.begin()?;
        // Relaxed: read by the task that blocks them, and by others under the lock of waiters.
        self.wake_waiters(|| self.blocked.store(true, Ordering::Relaxed));
        Some(blocking)
    }

    /// Returns whether checkpoints are blocked.
    pub(in crate::transaction) fn are_blocked(&self) -> bool {
        // Relaxed: see `block`.
        self.blocked.load(Ordering::Relaxed)
    }

    /// Waits until the running checkpoint ends; then another may begin.
    pub(crate) async fn wait_until_finished(&self) {
        loop {
            let over = {
                let mut waiting = self.waiting.lock();
                // Relaxed: the end is set under the lock. So it is seen here, or it resumes the
                // waiters on the list.
                if !self.in_progress.load(Ordering::Relaxed) {
                    return;
                }
                let (end, over) = oneshot::channel();
                waiting.push(end);
                over
            };
            _ = over.await;
        }
    }

    /// Notes that the database is closing.
    pub(crate) fn stop(&self) {
        // Relaxed: a worker that continues checks again soon, and waiters check under the lock.
        self.wake_waiters(|| self.stopping.store(true, Ordering::Relaxed));
    }

    /// Returns whether the database is closing.
    pub(crate) fn stopping(&self) -> bool {
        // Relaxed: see `stop`.
        self.stopping.load(Ordering::Relaxed)
    }

    /// The LSN of the newest checkpoint: earlier log need not be replayed.
    pub(crate) fn newest(&self) -> Lsn {
        // Relaxed: a statistic.
        Lsn(self.newest.load(Ordering::Relaxed))
    }

    /// Bytes of the newest checkpoint's file; 0 if none exists.
    pub(crate) fn newest_bytes(&self) -> u64 {
        // Relaxed: a statistic.
        self.newest_bytes.load(Ordering::Relaxed)
    }

    /// Notes a checkpoint at `lsn`, in a file of `bytes`. `paged_bytes` is what paged tables took,
    /// images included; `data_bytes` is the size of all records.
    pub(crate) fn note(&self, lsn: Lsn, bytes: u64, paged_bytes: u64, data_bytes: u64) {
        // Relaxed: a statistic, and a hint to `take_due`.
        self.newest.store(lsn.0, Ordering::Relaxed);
        self.newest_bytes.store(bytes, Ordering::Relaxed);
        self.copied.store(0, Ordering::Relaxed);
        self.begun_at.store(lsn.0, Ordering::Relaxed);
        let least = (data_bytes / 2).max(bytes).max(MIN_INTERVAL_BYTES);
        let interval = least.min(self.max_interval).max(paged_bytes / 2);
        self.interval.store(interval, Ordering::Relaxed);
        self.due_at.store(lsn.0.saturating_add(interval), Ordering::Relaxed);
    }
}

impl Drop for PartsRegistration {
    fn drop(&mut self) {
        let parts = &mut *self.checkpoints.parts.lock();
        let position = parts.iter().position(|bound| *bound == self.bound);
        parts.swap_remove(position.expect("noted when this was made"));
    }
}

impl Drop for RunningCheckpoint<'_> {
    fn drop(&mut self) {
        // Relaxed, both: see `block`; a hint to retry.
        self.0.blocked.store(false, Ordering::Relaxed);
        self.0.ended.fetch_add(1, Ordering::Relaxed);
        // Release pairs with the Acquire in `begin`.
        self.0.wake_waiters(|| self.0.in_progress.store(false, Ordering::Release));
    }
}

impl Drop for CheckpointWriting<'_> {
    fn drop(&mut self) {
        // Relaxed: a waiter checks under the lock.
        self.0.wake_waiters(|| self.0.written.store(self.1, Ordering::Relaxed));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_due_after_half_as_much_log_as_there_is_data() {
        let checkpoints = Checkpoints::new(1 << 30);
        let interval = |bytes: u64, paged_bytes: u64, data_bytes: u64| {
            checkpoints.note(Lsn(4096), bytes, paged_bytes, data_bytes);
            checkpoints.interval()
        };
        assert_eq!(interval(100, 0, 0), 64 << 20);
        assert_eq!(interval(100, 0, 200 << 20), 100 << 20);
        assert_eq!(interval(150 << 20, 0, 200 << 20), 150 << 20, "the file");
        assert_eq!(interval(100, 200 << 20, 200 << 20), 100 << 20);
        assert_eq!(interval(100, 400 << 20, 200 << 20), 200 << 20, "half of the images");
        assert_eq!(interval(2 << 30, 0, 4 << 30), 1 << 30);
        checkpoints.note_listed();
        assert!(!checkpoints.take_due(Lsn(1 << 30), None));
        assert!(checkpoints.take_due(Lsn(4096 + (1 << 30)), None));
        let checkpoints = Checkpoints::new(1 << 20);
        checkpoints.note(Lsn(4096), 100, 0, 4 << 30);
        assert_eq!(checkpoints.interval(), 1 << 20);
    }

    #[test]
    fn a_checkpoint_writes_more_images_at_a_time_while_much_is_logged() {
        let checkpoints = Checkpoints::new(1 << 30);
        let interval = MIN_INTERVAL_BYTES;
        let writes = |logged: u64| checkpoints.max_writes(Lsn(4096 + logged));
        checkpoints.note(Lsn(4096), 100, 0, 0);
        assert_eq!([0, interval, interval + interval / 16].map(writes), [1, 1, 2]);
        assert_eq!([interval * 3 / 2, interval * 9].map(writes), [8, 8]);
    }

    #[test]
    fn writers_pause_while_they_outrun_a_checkpoint() {
        let checkpoints = Checkpoints::new(1 << 30);
        let interval = MIN_INTERVAL_BYTES;
        let pause = |halves: u64| {
            checkpoints.pause_of_writers(Lsn(4096 + halves * interval / 2)).as_secs_f64()
        };
        checkpoints.note(Lsn(4096), 100, 0, 0);
        assert_eq!(pause(100), 0.0, "no checkpoint is running");
        let running = checkpoints.begin().unwrap();
        assert_eq!([2, 4, 5, 100].map(pause), [0.0, 0.0, 0.5, 1.0]);
        checkpoints.note_copied(3 * interval);
        assert_eq!(pause(11), 0.5, "the compaction has logged much of that");
        checkpoints.note_grace_period();
        assert_eq!(pause(100), 0.0, "the compaction waits for transactions");
        checkpoints.note_grace_period();
        assert_eq!(pause(100), 0.0, "it could not run before");
        checkpoints.note(Lsn(4096), 100, 0, 0);
        drop(running);
        assert_eq!(pause(100), 0.0);
        let blocked = checkpoints.block().unwrap();
        assert_eq!([0, 100].map(pause), [0.0; 2], "no checkpoint may run");
        drop(blocked);
        let _running = checkpoints.begin().unwrap();
        assert_eq!([100, 102, 103].map(pause), [0.0, 0.0, 0.5]);
        checkpoints.stop();
        assert_eq!(pause(200), 0.0, "the database is closing");
    }

    #[test]
    fn a_requested_checkpoint_begins_once_after_the_running_one() {
        let checkpoints = Checkpoints::new(1 << 20);
        checkpoints.request();
        assert!(!checkpoints.take_requested(), "the tables are not listed");
        checkpoints.note_listed();
        let running = checkpoints.begin().unwrap();
        assert!(!checkpoints.take_requested());
        drop(running);
        assert!(checkpoints.take_requested());
        assert!(!checkpoints.take_requested());
        checkpoints.request();
        checkpoints.stop();
        assert!(!checkpoints.take_requested(), "the database is closing");
    }
}
