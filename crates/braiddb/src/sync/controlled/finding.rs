//! What a schedule found, in words that a stranger can follow.

use std::fmt;
use std::panic::Location;

use super::schedule::{Point, ScheduleReport};

/// What kind of fault a schedule found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Every thread waits, and no deadline is there to end it.
    Deadlock,
    /// More steps than any schedule takes.
    NoProgress,
    /// The engine panicked.
    Panic,
    /// What the database showed cannot be.
    Wrong,
}

/// One thread when the fault was found.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: String,
    /// Where in the source it passed the last switch point that was looked at.
    pub place: String,
}

/// One switch point.
#[derive(Clone, Copy, Debug)]
pub struct TraceEntry {
    /// Its number.
    pub step: u64,
    /// The thread's number.
    pub thread: usize,
    /// What happened.
    pub point: Point,
    /// Where in the source.
    pub place: &'static Location<'static>,
}

/// A fault that a schedule found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// What happened.
    pub message: String,
    /// All threads.
    pub threads: Vec<ThreadReport>,
    /// How far the schedule was.
    pub report: ScheduleReport,
    /// What the database said of itself.
    pub database: String,
    /// The last switch points, if they were remembered.
    pub trace: Vec<TraceEntry>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.trace {
            let name = self.threads.get(entry.thread).map_or("?", |thread| &*thread.name);
            let TraceEntry { step, point, place, .. } = entry;
            writeln!(f, "{step:>8} {name:<12} {point:?} {place}")?;
        }
        writeln!(f, "{:?} after {} steps: {}", self.kind, self.report.steps, self.message)?;
        for thread in &self.threads {
            writeln!(f, "  {:<12} {} at {}", thread.name, thread.state, thread.place)?;
        }
        f.write_str(&self.database)
    }
}

impl std::error::Error for Finding {}
