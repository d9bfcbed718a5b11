//! Reports of a schedule: its switch points, its statistics, and the faults that it found.

use std::fmt;
use std::panic::Location;

/// Kind of a switch point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SwitchPoint {
    /// An atomic load.
    Load = 1,
    /// An atomic store.
    Store,
    /// An atomic read-modify-write.
    Update,
    /// Before a lock is acquired.
    Lock,
    /// After a lock was released.
    Unlock,
    /// Before a queue, a channel or a cell is used.
    Queue,
    /// The thread yields.
    Yield,
    /// The thread waits.
    Block,
    /// A thread was started.
    Spawn,
    /// The thread has ended.
    Finish,
    /// The device was used.
    Device,
    /// The clock was read.
    Clock,
}

/// Statistics of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleReport {
    /// Switch points passed.
    pub steps: u64,
    /// Number of times that the baton was passed on.
    pub switches: u64,
    /// Hash of the thread and the kind of every switch point: equal for equal schedules.
    pub hash: u64,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Every thread waits, and no deadline is pending.
    Deadlock,
    /// The schedule took more steps than allowed.
    NoProgress,
    /// The engine panicked.
    Panic,
    /// The database returned an impossible result.
    Wrong,
}

/// State of one thread when the fault was found.
#[derive(Clone, Debug)]
pub struct ThreadReport {
    /// Its name.
    pub name: String,
    /// Its activity.
    pub state: String,
    /// Source location of its last recorded switch point.
    pub place: String,
}

/// One switch point in a trace.
#[derive(Clone, Copy, Debug)]
pub struct TraceEntry {
    /// Its step number.
    pub step: u64,
    /// The thread's number.
    pub thread: usize,
    /// The kind of switch point.
    pub point: SwitchPoint,
    /// Its source location.
    pub place: &'static Location<'static>,
}

/// A fault that a schedule found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// Description of the fault.
    pub message: String,
    /// All threads.
    pub threads: Vec<ThreadReport>,
    /// Progress of the schedule.
    pub report: ScheduleReport,
    /// The database's own description of its state.
    pub database: String,
    /// The last switch points, if a trace was recorded.
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
