//! What the layers above do on a worker between its tasks.

use std::time::Instant;

use crate::io::{Completion, Device};

/// What a turn of housekeeping found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    /// There is more to do: the worker must not sleep.
    pub(crate) busy: bool,
    /// Tasks wait for what only another turn will find.
    pub(crate) waits: bool,
    /// The worker should take its next turn at this time at the latest.
    pub(crate) deadline: Option<Instant>,
}

/// The upper layers' housekeeping on a worker: flushing the log, collecting garbage.
pub(crate) trait Driver {
    /// Does what is due; may submit operations to the device. `idle` says that no task is ready.
    fn turn(&mut self, device: &mut dyn Device, idle: bool) -> Turn;

    /// Takes the completion of an operation that `turn` or `drain` submitted.
    fn complete(&mut self, completion: Completion);

    /// The worker is about to sleep in the kernel.
    fn before_sleep(&mut self);

    /// The worker woke up, and will run tasks next.
    fn after_sleep(&mut self);

    /// No task is left and none will come: does a last turn's work; `true` once nothing is left.
    fn drain(&mut self, device: &mut dyn Device) -> bool;
}
