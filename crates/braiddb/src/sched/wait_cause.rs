//! Causes of suspensions.

/// The reason why a transaction, or another task of a worker, suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum WaitCause {
    /// A cache line is being loaded.
    Memory,
    /// Another worker is about to make a decision, or the task waits for a few rounds after a
    /// conflict.
    Undecided,
    /// A block of storage is being transferred.
    Storage,
    /// The commit is not durable yet.
    Commit,
    /// The log has no space for the commit yet.
    LogSpace,
    /// Transactions that were active have not ended yet.
    GracePeriod,
    /// The task waits for a time after repeated conflicts.
    BackOff,
    /// The task awaits a future from outside the engine.
    Foreign,
}

impl WaitCause {
    pub(crate) const COUNT: usize = 8;

    /// Returns whether a task suspended for this cause is polled again soon without being resumed.
    pub(super) fn is_hot(self) -> bool {
        matches!(self, WaitCause::Memory | WaitCause::Undecided)
    }
}
