//! Trace of the workers' recent activity, with export for trace viewers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use super::handle::Database;
use crate::sched::{PollEnd, SliceActivity, TimeSlice, WaitCause};

/// The recent activity of a database's workers ([`Database::trace`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    slices: Vec<TraceSlice>,
}

/// One activity or wait of a worker, or of the transaction in one of its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSlice {
    /// The number of the worker.
    pub worker: usize,
    /// The slot, if the activity belongs to one. A slot holds one transaction at a time, or one
    /// long job of the engine.
    pub slot: Option<usize>,
    /// The start, relative to the opening of the database.
    pub begin: Duration,
    /// The duration.
    pub length: Duration,
    /// The kind of activity.
    pub activity: Activity,
}

/// The activity during a [`TraceSlice`].
///
/// ```
/// use braiddb::trace::{Activity, WaitCause};
///
/// assert_eq!(Activity::Runs.name(), "runs");
/// assert_eq!(Activity::Waits(WaitCause::Commit).name(), "commit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// The transaction ran until it had to wait.
    Runs,
    /// The transaction ran until its end.
    Ends,
    /// The transaction waited for this cause, and then for its turn.
    Waits(WaitCause),
    /// The transaction was dropped while it waited, because the database was closed or failed.
    Dropped,
    /// The worker issued transfers, flushed the log, collected garbage, or looked for work.
    Housekeeping,
    /// The worker slept because none of its transactions could run.
    Sleeps,
}

impl Activity {
    /// Returns a short name of the activity.
    ///
    /// ```
    /// use braiddb::trace::{Activity, WaitCause};
    ///
    /// assert_eq!(Activity::Sleeps.name(), "sleeps");
    /// assert_eq!(Activity::Waits(WaitCause::Storage).name(), "storage");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Ends => "ends",
            Self::Dropped => "dropped",
            Self::Waits(WaitCause::Memory) => "cache line",
            Self::Waits(WaitCause::Undecided) => "another's decision",
            Self::Waits(WaitCause::Storage) => "storage",
            Self::Waits(WaitCause::Commit) => "commit",
            Self::Waits(WaitCause::LogSpace) => "log space",
            Self::Waits(WaitCause::GracePeriod) => "others' end",
            Self::Waits(WaitCause::BackOff) => "back-off",
            Self::Waits(WaitCause::Foreign) => "outside",
            Self::Housekeeping => "housekeeping",
            Self::Sleeps => "sleeps",
        }
    }

    fn category(self) -> &'static str {
        match self {
            Self::Runs | Self::Ends | Self::Dropped => "run",
            Self::Waits(_) => "wait",
            Self::Housekeeping | Self::Sleeps => "worker",
        }
    }
}

impl Database {
    /// Returns the recent activity of each worker, as far as
    /// [`Tuning::trace`](crate::Tuning::trace) keeps it, up to the worker's last housekeeping.
    /// The trace shows which slots were polled, and what their transactions waited for. It can be
    /// called at any time and from any thread, also after [`Database::close`].
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table, Tuning};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let tuning = Tuning::default().trace(10_000);
    ///     let db = Database::in_memory(Options::default().workers(1).tuning(tuning))?;
    ///     let names: Table<str, u64> = db.run_blocking(async |tx| tx.create_table("names").await)?;
    ///     db.run_blocking(async move |tx| tx.put(&names, "ada", &1815).await)?;
    ///     db.close()?;
    ///     // Open it at https://ui.perfetto.dev, or in Chrome at chrome://tracing.
    ///     let mut file = Vec::new();
    ///     db.trace().write_chrome(&mut file).expect("a vector takes all");
    ///     assert!(file.len() > 100);
    ///     Ok(())
    /// }
    /// ```
    pub fn trace(&self) -> Trace {
        let mut trace = Trace::default();
        for (worker, kept) in self.shared.executor.traces().iter().enumerate() {
            trace.add_worker(worker, &kept.latest());
        }
        trace
    }
}

impl Trace {
    /// Returns all slices, by worker; the slices of a worker are sorted by their end.
    ///
    /// ```
    /// use braiddb::trace::Activity;
    /// use braiddb::{Database, Error, Options, Tuning};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let tuning = Tuning::default().trace(1000);
    ///     let db = Database::in_memory(Options::default().workers(1).tuning(tuning))?;
    ///     db.run_blocking(async |tx| tx.tables().await)?;
    ///     db.close()?;
    ///     let trace = db.trace();
    ///     let ended = trace.slices().iter().filter(|slice| slice.activity == Activity::Ends);
    ///     assert_eq!(ended.count(), 1);
    ///     Ok(())
    /// }
    /// ```
    pub fn slices(&self) -> &[TraceSlice] {
        &self.slices
    }

    /// Writes the trace in the Chrome trace format, which Perfetto also reads. Each worker is a
    /// process with one thread for the worker itself and one for each slot.
    ///
    /// # Errors
    /// The errors of `out`.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Tuning};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let directory = tempfile::tempdir().unwrap();
    ///     let path = directory.path().join("trace.json");
    ///     let tuning = Tuning::default().trace(1000);
    ///     let db = Database::in_memory(Options::default().workers(1).tuning(tuning))?;
    ///     db.trace()
    ///         .write_chrome(std::io::BufWriter::new(std::fs::File::create(path).unwrap()))
    ///         .unwrap();
    ///     Ok(())
    /// }
    /// ```
    pub fn write_chrome(&self, mut out: impl Write) -> io::Result<()> {
        write!(out, r#"{{"displayTimeUnit":"ns","traceEvents":["#)?;
        let mut separator = "";
        let mut event = |text: std::fmt::Arguments<'_>| {
            write!(out, "{}\n{{{text}}}", std::mem::replace(&mut separator, ","))
        };
        let lanes: BTreeSet<_> =
            self.slices.iter().map(|slice| (slice.worker, slice.slot)).collect();
        let mut named = None;
        // All names are defined in this file and need no escaping.
        for (worker, slot) in lanes {
            let thread = thread_number(slot);
            let name = slot.map_or("worker".to_owned(), |slot| format!("slot {slot}"));
            if named.replace(worker) != Some(worker) {
                event(format_args!(
                    r#""ph":"M","name":"process_name","pid":{worker},"args":{{"name":"worker {worker}"}}"#
                ))?;
            }
            event(format_args!(
                r#""ph":"M","name":"thread_name","pid":{worker},"tid":{thread},"args":{{"name":"{name}"}}"#
            ))?;
        }
        for slice in &self.slices {
            let (worker, thread) = (slice.worker, thread_number(slice.slot));
            let (name, category) = (slice.activity.name(), slice.activity.category());
            let (begin, length) = (micros(slice.begin), micros(slice.length));
            event(format_args!(
                r#""ph":"X","name":"{name}","cat":"{category}","pid":{worker},"tid":{thread},"ts":{begin},"dur":{length}"#
            ))?;
        }
        writeln!(out, "\n]}}")?;
        out.flush()
    }

    /// Adds the recorded slices of one worker, and the waits between the polls of each slot.
    fn add_worker(&mut self, worker: usize, noted: &[TimeSlice]) {
        // For each slot whose transaction waits: start and cause.
        let mut waiting = BTreeMap::new();
        let mut add = |slot: Option<u32>, begin: u64, end: u64, activity| {
            let length = end.saturating_sub(begin);
            self.slices.push(TraceSlice {
                worker,
                slot: slot.map(|slot| slot as usize),
                begin: Duration::from_nanos(begin),
                length: Duration::from_nanos(length),
                activity,
            });
        };
        for &TimeSlice { begin, end, doing } in noted {
            match doing {
                SliceActivity::Turn => add(None, begin, end, Activity::Housekeeping),
                SliceActivity::Sleep => add(None, begin, end, Activity::Sleeps),
                SliceActivity::Drop { slot } => {
                    if let Some((since, cause)) = waiting.remove(&slot) {
                        add(Some(slot), since, begin, Activity::Waits(cause));
                    }
                    add(Some(slot), begin, end, Activity::Dropped);
                }
                SliceActivity::Poll { slot, end: poll_end } => {
                    if let Some((since, cause)) = waiting.remove(&slot) {
                        add(Some(slot), since, begin, Activity::Waits(cause));
                    }
                    let activity = match poll_end {
                        PollEnd::Over => Activity::Ends,
                        PollEnd::Suspended(cause) => {
                            waiting.insert(slot, (end, cause));
                            Activity::Runs
                        }
                    };
                    add(Some(slot), begin, end, activity);
                }
            }
        }
        // These transactions were still waiting when the worker last published its records.
        let until = noted.last().map_or(0, |last| last.end);
        for (slot, (since, cause)) in waiting {
            add(Some(slot), since, until, Activity::Waits(cause));
        }
    }
}

/// Returns the thread number in the trace; 0 is the worker itself.
fn thread_number(slot: Option<usize>) -> usize {
    slot.map_or(0, |slot| slot + 1)
}

/// Formats a time exactly, in microseconds, which is the unit of the trace format.
fn micros(time: Duration) -> String {
    let nanos = time.as_nanos();
    format!("{}.{:03}", nanos / 1000, nanos % 1000)
}
