//! Tracing span of a transaction, for OpenTelemetry and similar systems: its result, the number of
//! attempts, and its waits.
//!
//! Without a subscriber, no span is created; the only cost is a check of `tracing`'s maximum level
//! at the start of a transaction. A subscriber is code of the program, so its panics on a worker
//! are contained.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use super::error::Error;
use super::transaction_builder::{Ending, Outcome, TransactionFailure, TransactionOptions};
use crate::sched::{
    Observed, Observer, WaitCause, contain, drop_contained, failed_attempts, observe, suspended_for,
};
use crate::sync::clock;

/// The span of one transaction; `None` without a subscriber.
#[derive(Debug)]
pub(super) struct TransactionSpan(Option<Box<ActiveSpan>>);

/// The span of a transaction whose task is running; the task owns it. If it is dropped before the
/// span was ended, it records the transaction as dropped.
#[derive(Debug)]
pub(super) struct EnteredSpan(Option<ObservedSpan>);

#[derive(Debug)]
struct ObservedSpan {
    /// Declared before the span: the observer's entry must be dropped first.
    _observed: Observed,
    active: Rc<ActiveSpan>,
}

/// Ended at most once.
#[derive(Debug)]
struct ActiveSpan {
    span: Span,
    /// True if the transaction is not committed although it succeeds.
    is_executed_only: bool,
    /// True while the worker is inside the span.
    is_entered: Cell<bool>,
    /// Number of retries, and the worker's own count of them before the current poll.
    failed_attempts: Cell<u64>,
    failed_before: Cell<u64>,
    /// The start and the cause of the current wait.
    waiting: Cell<Option<(Instant, WaitCause)>>,
    /// The number of waits and their total duration, by cause.
    waits: Cell<[(u64, Duration); WaitCause::COUNT]>,
    is_over: Cell<bool>,
}

impl TransactionSpan {
    /// Returns whether a subscriber may want spans of transactions.
    #[inline]
    pub(super) fn may_be_wanted() -> bool {
        LevelFilter::current() >= LevelFilter::DEBUG
    }

    /// Starts a span as a child of the caller's span, if any.
    #[inline]
    pub(super) fn begin(options: TransactionOptions) -> Self {
        if !Self::may_be_wanted() {
            return Self(None);
        }
        Self(ActiveSpan::begin(options))
    }

    /// Makes the task that is being polled run inside the span from now on.
    #[inline]
    pub(super) fn enter(self) -> EnteredSpan {
        EnteredSpan(self.0.map(|active| {
            let active = Rc::<ActiveSpan>::from(active);
            ObservedSpan { _observed: observe(active.clone()), active }
        }))
    }
}

impl EnteredSpan {
    /// Records the result of the transaction and leaves the span, before the caller receives the
    /// result.
    #[inline]
    pub(super) fn end<T, E>(self, result: &Result<Outcome<T>, Box<TransactionFailure<E>>>) {
        if let Some(observed) = self.0 {
            let result = result.as_ref().map(|outcome| outcome.commit_lsn);
            observed.end(result.map_err(|failure| &**failure));
        }
    }
}

impl ObservedSpan {
    #[cold]
    #[inline(never)]
    fn end<E>(self, result: Result<u64, &TransactionFailure<E>>) {
        let (outcome, commit_lsn) = match result {
            Ok(_) if self.active.is_executed_only => ("executed", None),
            Ok(commit_lsn) => ("committed", Some(commit_lsn)),
            Err(TransactionFailure::Closure(_)) => ("rolled back", None),
            Err(TransactionFailure::Engine(error)) => (outcome_of(error), None),
        };
        self.active.end(outcome, commit_lsn);
    }
}

impl ActiveSpan {
    #[cold]
    fn begin(options: TransactionOptions) -> Option<Box<Self>> {
        let span = contain(|| {
            tracing::span!(
                target: "braiddb::transaction",
                Level::DEBUG,
                "transaction",
                read_only = options.read_only,
                outcome = Empty,
                attempts = Empty,
                commit_lsn = Empty,
                waits_for_cache_lines = Empty,
                waited_for_others_ns = Empty,
                waited_for_storage_ns = Empty,
                waited_for_commit_ns = Empty,
                waited_for_log_space_ns = Empty,
                waited_outside_ns = Empty,
            )
        });
        let span = span.ok().filter(|span| !span.is_disabled())?;
        Some(Box::new(Self {
            span,
            is_executed_only: options.ending == Ending::Abort,
            is_entered: Cell::new(false),
            failed_attempts: Cell::new(0),
            failed_before: Cell::new(0),
            waiting: Cell::new(None),
            waits: Cell::new([(0, Duration::ZERO); WaitCause::COUNT]),
            is_over: Cell::new(false),
        }))
    }

    fn leave(&self) {
        if self.is_entered.replace(false) {
            // A panic of the subscriber must not affect others.
            _ = contain(|| self.span.with_subscriber(|(id, subscriber)| subscriber.exit(id)));
            let failed = failed_attempts().saturating_sub(self.failed_before.get());
            self.failed_attempts.set(self.failed_attempts.get() + failed);
        }
    }

    #[cold]
    fn end(&self, outcome: &'static str, commit_lsn: Option<u64>) {
        self.leave();
        self.is_over.set(true);
        let waits = self.waits.get();
        let nanos = |causes: &[WaitCause]| {
            let time: Duration = causes.iter().map(|cause| waits[*cause as usize].1).sum();
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        };
        let span = &self.span;
        _ = contain(|| {
            span.record("outcome", outcome);
            span.record("attempts", self.failed_attempts.get() + 1);
            if let Some(lsn) = commit_lsn {
                span.record("commit_lsn", lsn);
            }
            span.record("waits_for_cache_lines", waits[WaitCause::Memory as usize].0);
            let others = [WaitCause::Undecided, WaitCause::BackOff, WaitCause::GracePeriod];
            span.record("waited_for_others_ns", nanos(&others));
            span.record("waited_for_storage_ns", nanos(&[WaitCause::Storage]));
            span.record("waited_for_commit_ns", nanos(&[WaitCause::Commit]));
            span.record("waited_for_log_space_ns", nanos(&[WaitCause::LogSpace]));
            span.record("waited_outside_ns", nanos(&[WaitCause::Foreign]));
        });
    }
}

impl Observer for ActiveSpan {
    fn before_poll(&self) {
        if let Some((since, cause)) = self.waiting.take() {
            let mut waits = self.waits.get();
            let (count, time) = &mut waits[cause as usize];
            *count += 1;
            *time += clock::now().saturating_duration_since(since);
            self.waits.set(waits);
        }
        self.failed_before.set(failed_attempts());
        self.is_entered.set(true);
        // Contained as in `leave`.
        _ = contain(|| self.span.with_subscriber(|(id, subscriber)| subscriber.enter(id)));
    }

    fn after_poll(&self) {
        self.leave();
        self.waiting.set(Some((clock::now(), suspended_for())));
    }
}

impl Drop for ActiveSpan {
    fn drop(&mut self) {
        if !self.is_over.get() {
            self.end("dropped", None);
        }
        drop_contained(std::mem::replace(&mut self.span, Span::none()));
    }
}

/// Returns the outcome name for a transaction that ended with an engine error.
fn outcome_of(error: &Error) -> &'static str {
    match error {
        Error::Conflict { .. } => "conflict",
        Error::NotSerializable { .. } => "not serializable",
        Error::Panicked(_) => "panicked",
        Error::Overloaded => "overloaded",
        Error::CommitUnknown { .. } => "commit unknown",
        _ => "failed",
    }
}
