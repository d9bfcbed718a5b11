//! Typed sources: streams of tasks of one type, whose futures live unboxed in their slots.

use super::panics::{UntilRecorded, drop_contained};
use super::slot::NoTask;
use super::worker::{Exit, Worker};

/// Where tasks come from, one after another, without a box each.
pub(crate) trait Source: 'static {
    /// The future of one task; it lives in a slot, unboxed.
    type Task: Future<Output = ()>;

    /// The next task, or `None` when there are no more. Called on the worker's thread.
    fn next(&mut self) -> Option<Self::Task>;
}

/// A source whose tasks a closure makes.
pub(crate) struct FromFn<N>(pub(crate) N);

impl<N, T> Source for FromFn<N>
where
    N: FnMut() -> Option<T> + 'static,
    T: Future<Output = ()> + 'static,
{
    type Task = T;

    fn next(&mut self) -> Option<T> {
        (self.0)()
    }
}

/// The source that has nothing.
pub(super) struct NoSource;

impl Source for NoSource {
    type Task = NoTask;

    fn next(&mut self) -> Option<NoTask> {
        None
    }
}

/// A typed source on its way to a worker, its type erased.
pub(super) trait ErasedSource: Send {
    fn run(self: Box<Self>, worker: &mut Worker<'_>);
}

/// What makes a source on its worker, and where its end is reported.
pub(super) struct Sending<M> {
    pub(super) make: M,
    pub(super) done: UntilRecorded<futures_channel::oneshot::Sender<()>>,
}

impl<S: Source, M: FnOnce() -> S + Send> ErasedSource for Sending<M> {
    fn run(self: Box<Self>, worker: &mut Worker<'_>) {
        let Self { make, done } = *self;
        if worker.run(make()) == Exit::SourceDone {
            // Nobody may be waiting for it.
            drop_contained(done.into_inner().send(()));
        }
    }
}
