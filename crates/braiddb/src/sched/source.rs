//! Typed sources: streams of tasks of one type, whose futures are stored unboxed in their slots.

use super::slot::NoTask;

/// A source of tasks, one after another, without a box for each.
pub(crate) trait TaskSource: 'static {
    /// The input of one task.
    type Input;
    /// The future of one task, stored unboxed in a slot.
    type Task: Future<Output = ()>;

    /// Returns the input of the next task, or `None` after the last. Called on the worker's thread.
    fn next(&mut self) -> Option<Self::Input>;

    /// Creates a task in its final memory: its future is large, its input small. It has no other
    /// effects, and does not panic.
    fn make(&self, input: Self::Input) -> Self::Task;
}

/// A source of two closures: one returns the inputs of tasks, the other creates the tasks.
pub(crate) struct FromFn<N, M>(pub(crate) N, pub(crate) M);

impl<N, M, I, T> TaskSource for FromFn<N, M>
where
    N: FnMut() -> Option<I> + 'static,
    M: Fn(I) -> T + 'static,
    T: Future<Output = ()> + 'static,
{
    type Input = I;
    type Task = T;

    #[inline(always)]
    fn next(&mut self) -> Option<I> {
        (self.0)()
    }

    #[inline(always)]
    fn make(&self, input: I) -> T {
        (self.1)(input)
    }
}

/// A source without tasks.
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
