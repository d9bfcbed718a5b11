//! Rates per second between two samples of the counters.

use std::time::Duration;

use braiddb::Stats;
use braiddb::stats::{AbortStats, SuspensionStats};

/// Events per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    pub committed: f64,
    pub read_only: f64,
    pub aborted: f64,
    pub retries: f64,
    /// Suspensions by cause, with the names on the screen.
    pub suspensions: Vec<(&'static str, f64)>,
    /// Finished tasks of each worker.
    pub finished: Vec<f64>,
    pub flushes: f64,
    pub written_bytes: f64,
    pub evicted: f64,
    pub page_faults: f64,
    pub pages_written: f64,
}

impl Rates {
    /// The rates between two samples. If a counter has decreased, another process has written the
    /// second sample, and the rates are unknown until the next one.
    pub fn between(before: &Stats, after: &Stats, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        if seconds == 0.0 || after.committed < before.committed || after.lsn.tail < before.lsn.tail
        {
            return Self::default();
        }
        let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
        let of = |figure: fn(&Stats) -> u64| rate(figure(before), figure(after));
        let suspensions = causes(&before.suspensions).into_iter().zip(causes(&after.suspensions));
        let workers = before.workers.iter().zip(&after.workers);
        Self {
            committed: of(|stats| stats.committed),
            read_only: of(|stats| stats.committed_read_only),
            aborted: of(|stats| stats.aborted.total()),
            retries: of(|stats| stats.retries),
            suspensions: suspensions
                .map(|((name, before), (_, after))| (name, rate(before, after)))
                .collect(),
            finished: workers
                .map(|(before, after)| rate(before.finished, after.finished))
                .collect(),
            flushes: of(|stats| stats.log.flushes),
            written_bytes: of(|stats| stats.log.bytes_written),
            evicted: of(|stats| stats.versions_evicted),
            page_faults: of(|stats| stats.pages.faults),
            pages_written: of(|stats| stats.pages.written),
        }
    }
}

/// Aborts by cause.
pub fn abort_causes(by_cause: &AbortStats) -> [(&'static str, u64); 8] {
    [
        ("conflict", by_cause.conflict),
        ("certification", by_cause.certification),
        ("stale read", by_cause.stale_read),
        ("requested", by_cause.requested),
        ("panic", by_cause.panic),
        ("dropped", by_cause.dropped),
        ("expired", by_cause.expired),
        ("log", by_cause.log),
    ]
}

/// Suspensions by cause.
pub fn causes(suspensions: &SuspensionStats) -> [(&'static str, u64); 8] {
    [
        ("memory", suspensions.memory),
        ("storage", suspensions.storage),
        ("commit", suspensions.commit),
        ("log space", suspensions.log_space),
        ("undecided", suspensions.undecided),
        ("back-off", suspensions.back_off),
        ("grace period", suspensions.grace_period),
        ("foreign", suspensions.foreign),
    ]
}
