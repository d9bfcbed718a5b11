//! Typed sources in transit to a worker.

use super::super::panics::{UntilRecorded, drop_contained};
use super::super::source::TaskSource;
use super::{RunExit, Worker};
use crate::sync::{SegQueue, oneshot};

/// A type-erased typed source in transit to a worker.
pub(in super::super) trait ErasedSource: Send {
    fn run(self: Box<Self>, worker: &mut Worker<'_>);
}

/// The sources sent to a worker that it has not begun.
pub(in super::super) type SourceQueue = SegQueue<Box<dyn ErasedSource>>;

/// Drops the sources, which notifies those that wait for them.
pub(in super::super) fn drop_sources(sources: &SourceQueue) {
    while let Some(source) = sources.pop() {
        drop_contained(source);
    }
}

/// Creates a source on its worker, and reports its end.
pub(in super::super) struct Sending<M> {
    pub(in super::super) make: M,
    pub(in super::super) done: UntilRecorded<oneshot::Sender<()>>,
}

impl<S: TaskSource, M: FnOnce() -> S + Send> ErasedSource for Sending<M> {
    fn run(self: Box<Self>, worker: &mut Worker<'_>) {
        let Self { make, done } = *self;
        if worker.run(make()) == RunExit::SourceDone {
            // The receiver may be dropped already.
            drop_contained(done.into_inner().send(()));
        }
    }
}
