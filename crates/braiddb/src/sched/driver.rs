//! Interface for the upper layers' work on a worker between its tasks.

use std::time::Instant;

use crate::io::{Completion, Device};

/// The result of a housekeeping turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// More work is available: the worker must not sleep.
    pub(crate) busy: bool,
    /// Tasks wait for a result that only another turn will find.
    pub(crate) waits: bool,
    /// The latest time of the worker's next turn.
    pub(crate) deadline: Option<Instant>,
}

/// The upper layers' housekeeping on a worker: flushing the log, collecting garbage.
pub(crate) trait Driver {
    /// Does the work that is due, and may submit operations to the device. `idle` is true if no
    /// task is ready.
    fn turn(&mut self, device: &mut dyn Device, idle: bool) -> Turn;

    /// Handles the completion of an operation that `turn` or `drain` submitted.
    fn complete(&mut self, completion: Completion);

    /// Called before the worker sleeps in the kernel.
    fn before_sleep(&mut self);

    /// Called when the worker woke up and will run tasks next.
    fn after_sleep(&mut self);

    /// Does the remaining work when no task is left and none will come. Returns `true` once it is
    /// complete.
    fn drain(&mut self, device: &mut dyn Device) -> bool;
}
