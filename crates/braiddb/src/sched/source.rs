//! Typed sources: streams of tasks of one type, whose futures live unboxed in their slots.

use super::panics::{UntilRecorded, drop_contained};
use super::slot::NoTask;
use super::worker::{RunExit, Worker};
use crate::sync::oneshot;

/// Where tasks come from, one after another, without a box each.
pub(crate) trait TaskSource: 'static {
    /// What one task is made of.
    type Input;
    /// The future of one task; it lives in a slot, unboxed.
    type Task: Future<Output = ()>;

    /// What the next task is made of, or `None` when there are no more. Called on the worker's thread.
    fn next(&mut self) -> Option<Self::Input>;

    /// Makes a task, in the place where it is to stay: its future is large, what it is made of small. It
    /// does nothing else, and does not panic.
    fn make(&self, input: Self::Input) -> Self::Task;
}

/// A source of two closures: one draws what tasks are made of, the other makes them.
pub(crate) struct FromFn<N, M>(pub(crate) N, pub(crate) M);

impl<N, M, I, T> TaskSource for FromFn<N, M>
where
    N: FnMut() -> Option<I> + 'static,
    M: Fn(I) -> T + 'static,
    T: Future<Output = ()> + 'static,
{
    type Input = I;
    type Task = T;

    fn next(&mut self) -> Option<I> {
        (self.0)()
    }

    #[inline(always)]
    fn make(&self, input: I) -> T {
        (self.1)(input)
    }
}

/// The source that has nothing.
pub(super) struct NoSource;

impl TaskSource for NoSource {
    type Input = std::convert::Infallible;
    type Task = NoTask;

    fn next(&mut self) -> Option<Self::Input> {
        None
    }

    fn make(&self, input: Self::Input) -> NoTask {
        match input {}
    }
}

/// A typed source on its way to a worker, its type erased.
pub(super) trait ErasedSource: Send {
    fn run(self: Box<Self>, worker: &mut Worker<'_>);
}

/// What makes a source on its worker, and where its end is reported.
pub(super) struct Sending<M> {
    pub(super) make: M,
    pub(super) done: UntilRecorded<oneshot::Sender<()>>,
}

impl<S: TaskSource, M: FnOnce() -> S + Send> ErasedSource for Sending<M> {
    fn run(self: Box<Self>, worker: &mut Worker<'_>) {
        let Self { make, done } = *self;
        if worker.run(make()) == RunExit::SourceDone {
            // Nobody may be waiting for it.
            drop_contained(done.into_inner().send(()));
        }
    }
}
