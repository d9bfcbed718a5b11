//! A transaction as a span of the program's tracing, for those who want OpenTelemetry or the like: how it ended, after how
//! many attempts, and what it waited for.
//!
//! Where nobody listens, there is none: a look at `tracing`'s highest level when a transaction begins. A subscriber is the
//! program's code: what it is called for on a worker is contained.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tracing::field::Empty;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span};

use super::error::Error;
use super::options::{Outcome, RunOptions};
use super::run::Failed;
use crate::sched::{Cause, contain, drop_contained, failed_attempts, suspended_for};
use crate::sync::clock;

/// The span of one transaction, if somebody listens.
///
/// Ended at most once; one that is dropped before tells that its transaction was.
#[derive(Debug)]
pub(super) struct TransactionSpan(Option<Box<Listened>>);

#[derive(Debug)]
pub(super) struct Listened {
    span: Span,
    /// Attempts that were made again.
    failed_attempts: u64,
    /// Since when it waits, and for what.
    waiting: Option<(Instant, Cause)>,
    /// How often it waited for each cause, and how long in all.
    waits: [(u64, Duration); Cause::COUNT],
    is_over: bool,
}

impl TransactionSpan {
    /// None, for the engine's own transactions.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Begins in the caller's span, if there is one.
    #[inline]
    pub(super) fn begin(options: &RunOptions) -> Self {
        if LevelFilter::current() < LevelFilter::DEBUG {
            return Self(None);
        }
        Self(Listened::begin(options))
    }

    /// What is told, if somebody listens.
    pub(super) fn listened(self) -> Option<Box<Listened>> {
        self.0
    }
}

impl Listened {
    /// Runs the attempts of the transaction within its span.
    #[cold]
    pub(super) async fn around<T, E>(
        mut self: Box<Self>,
        mut attempts: Pin<Box<impl Future<Output = Result<Outcome<T>, Failed<E>>>>>,
    ) -> Result<Outcome<T>, Failed<E>> {
        let result = poll_fn(|context| self.poll(attempts.as_mut(), context)).await;
        match &result {
            Ok(outcome) => self.end("committed", Some(outcome.commit_lsn)),
            Err(Failed::Closure(_)) => self.end("rolled back", None),
            Err(Failed::Engine(error)) => self.end(outcome_of(error), None),
        }
        result
    }

    #[cold]
    fn begin(options: &RunOptions) -> Option<Box<Self>> {
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
        let waits = [(0, Duration::ZERO); Cause::COUNT];
        Some(Box::new(Self { span, failed_attempts: 0, waiting: None, waits, is_over: false }))
    }

    /// Polls within the span, so that what the closure tells is told of this transaction.
    #[cold]
    fn poll<F: Future>(
        &mut self,
        future: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        if let Some((since, cause)) = self.waiting.take() {
            let (count, time) = &mut self.waits[cause as usize];
            *count += 1;
            *time += clock::now().saturating_duration_since(since);
        }
        let before = failed_attempts();
        // A panic of the subscriber's concerns nobody else.
        _ = contain(|| self.span.with_subscriber(|(id, subscriber)| subscriber.enter(id)));
        let polled = future.poll(context);
        _ = contain(|| self.span.with_subscriber(|(id, subscriber)| subscriber.exit(id)));
        self.failed_attempts += failed_attempts().saturating_sub(before);
        if polled.is_pending() {
            self.waiting = Some((clock::now(), suspended_for()));
        }
        polled
    }

    fn end(&mut self, outcome: &'static str, commit_lsn: Option<u64>) {
        self.is_over = true;
        let nanos = |causes: &[Cause]| {
            let time: Duration = causes.iter().map(|cause| self.waits[*cause as usize].1).sum();
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        };
        let span = &self.span;
        _ = contain(|| {
            span.record("outcome", outcome);
            span.record("attempts", self.failed_attempts + 1);
            if let Some(lsn) = commit_lsn {
                span.record("commit_lsn", lsn);
            }
            span.record("waits_for_cache_lines", self.waits[Cause::Memory as usize].0);
            let others = [Cause::Undecided, Cause::BackOff, Cause::GracePeriod];
            span.record("waited_for_others_ns", nanos(&others));
            span.record("waited_for_storage_ns", nanos(&[Cause::Storage]));
            span.record("waited_for_commit_ns", nanos(&[Cause::Commit]));
            span.record("waited_for_log_space_ns", nanos(&[Cause::LogSpace]));
            span.record("waited_outside_ns", nanos(&[Cause::Foreign]));
        });
    }
}

impl Drop for Listened {
    fn drop(&mut self) {
        if !self.is_over {
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
