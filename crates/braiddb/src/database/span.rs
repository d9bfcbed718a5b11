//! A transaction as a span of the program's tracing, for those who want OpenTelemetry or the like: how it ended, after how
//! many attempts, and what it waited for.
//!
//! Where nobody listens, there is none: a look at `tracing`'s highest level when a transaction begins. A subscriber is the
//! program's code: what it is called for on a worker is contained.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use super::error::Error;
use super::run::Failed;
use super::transaction_builder::{Outcome, TransactionOptions};
use crate::sched::{
    Observed, Observer, WaitCause, contain, drop_contained, failed_attempts, observe, suspended_for,
};
use crate::sync::clock;

/// The span of one transaction, if somebody listens.
#[derive(Debug)]
pub(super) struct TransactionSpan(Option<Box<Listened>>);

/// The span of a transaction whose task runs; the task owns it. Dropped before it was ended, it tells that the
/// transaction was.
#[derive(Debug)]
pub(super) struct EnteredSpan(Option<ObservedSpan>);

#[derive(Debug)]
struct ObservedSpan {
    /// Before the span: who lists it gives it up first.
    _observed: Observed,
    listened: Rc<Listened>,
}

/// Ended at most once.
#[derive(Debug)]
struct Listened {
    span: Span,
    /// Whether the worker is in it now.
    is_entered: Cell<bool>,
    /// Attempts that were made again, and what the worker had counted of them before this poll.
    failed_attempts: Cell<u64>,
    failed_before: Cell<u64>,
    /// Since when it waits, and for what.
    waiting: Cell<Option<(Instant, WaitCause)>>,
    /// How often it waited for each cause, and how long in all.
    waits: Cell<[(u64, Duration); WaitCause::COUNT]>,
    is_over: Cell<bool>,
}

impl TransactionSpan {
    /// Begins in the caller's span, if there is one.
    #[inline]
    pub(super) fn begin(options: TransactionOptions) -> Self {
        if LevelFilter::current() < LevelFilter::DEBUG {
            return Self(None);
        }
        Self(Listened::begin(options))
    }

    /// Has the task that is being polled run in the span, from here on.
    #[inline]
    pub(super) fn enter(self) -> EnteredSpan {
        EnteredSpan(self.0.map(|listened| {
            let listened = Rc::<Listened>::from(listened);
            ObservedSpan { _observed: observe(listened.clone()), listened }
        }))
    }
}

impl EnteredSpan {
    /// Ends it as the transaction did, and leaves it: before the caller is told.
    #[inline]
    pub(super) fn end<T, E>(self, result: &Result<Outcome<T>, Failed<E>>) {
        if let Some(ObservedSpan { listened, .. }) = &self.0 {
            let (outcome, commit_lsn) = match result {
                Ok(outcome) => ("committed", Some(outcome.commit_lsn)),
                Err(Failed::Closure(_)) => ("rolled back", None),
                Err(Failed::Engine(error)) => (outcome_of(error), None),
            };
            listened.end(outcome, commit_lsn);
        }
    }
}

impl Listened {
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
            // A panic of the subscriber's concerns nobody else.
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

impl Observer for Listened {
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
        // As in `leave`.
        _ = contain(|| self.span.with_subscriber(|(id, subscriber)| subscriber.enter(id)));
    }

    fn after_poll(&self) {
        self.leave();
        self.waiting.set(Some((clock::now(), suspended_for())));
    }
}

impl Drop for Listened {
    fn drop(&mut self) {
        if !self.is_over.get() {
            self.end("dropped", None);
        }
        drop_contained(std::mem::replace(&mut self.span, Span::none()));
    }
}

/// How a transaction ended of which the engine says so.
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
