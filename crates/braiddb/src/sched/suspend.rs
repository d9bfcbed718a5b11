//! Suspension and resumption of tasks.
//!
//! Shared state may change at every suspension: values that were read before must be validated
//! after it.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::caller::Caller;
use super::local::{WorkerLocal, local};
use super::wait_cause::WaitCause;
use super::waiter::wake_polled;
use crate::sync::yield_thread;

/// Prefetches the cache line at `pointer`; the address need not be valid.
#[inline(always)]
pub(crate) fn prefetch<T>(pointer: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect visible to a program.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(pointer.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = pointer;
}

/// Prefetches the cache line at `pointer`, and lets other tasks run until it is loaded. If no other
/// task can run, it only counts a step, and regularly lets the worker check for new arrivals.
#[inline(always)]
pub(crate) fn touch<T>(pointer: *const T) -> Suspend {
    let suspend = suspend_memory();
    if !suspend.done {
        prefetch(pointer);
    }
    suspend
}

/// Lets other tasks run until the cache lines prefetched before are loaded. Works like [`touch`] if
/// no other task can run.
#[inline(always)]
pub(crate) fn suspend_memory() -> Suspend {
    let suspend = |local: &WorkerLocal| local.interleave.get() || local.take_steps(1);
    Suspend { cause: WaitCause::Memory, done: !local(|local| local.is_some_and(suspend)) }
}

/// Returns whether a task that accesses memory should suspend, because other tasks can run.
#[inline(always)]
pub(crate) fn interleaves() -> bool {
    local(|local| local.is_some_and(|local| local.interleave.get()))
}

/// Returns whether the task may take a step without a suspension, and counts it if so. `is_cold`
/// returns whether the step may access memory that is probably not cached. It is called only if
/// other tasks can run.
#[inline(always)]
pub(crate) fn may_go_on(is_cold: impl FnOnce() -> bool) -> bool {
    may_take_steps(1, is_cold)
}

/// Does what [`may_go_on`] does, for several steps.
#[inline(always)]
pub(crate) fn may_take_steps(steps: u32, is_cold: impl FnOnce() -> bool) -> bool {
    let stops = |local: &WorkerLocal| {
        (local.interleave.get() && is_cold()) || local.caller.is_gone() || local.take_steps(steps)
    };
    local(|local| local.is_some_and(|local| !stops(local)))
}

/// Counts steps that may not have accessed cold memory, and regularly lets other tasks run. No task
/// thus waits long for its worker, independent of what a transaction does.
#[inline(always)]
pub(crate) fn count_steps(steps: u32) -> Suspend {
    let suspend = |local: &WorkerLocal| local.take_steps(steps);
    Suspend { cause: WaitCause::Memory, done: !local(|local| local.is_some_and(suspend)) }
}

/// A future of the engine whose polls are not inlined, so that the code generated for each closure
/// contains only a call.
#[derive(Debug)]
pub(crate) struct Outlined<'f, F>(Pin<&'f mut F>);

pub(crate) fn outlined<F: Future>(future: Pin<&mut F>) -> Outlined<'_, F> {
    Outlined(future)
}

impl<F: Future> Future for Outlined<'_, F> {
    type Output = F::Output;

    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.0.as_mut().poll(context)
    }
}

/// Returns an engine's future, for functions that are not generic.
///
/// Generic code is compiled in the crate that calls it, and so is every future that it awaits. A
/// debug build of a program would compile most of the engine again, without optimisation. In debug
/// builds this returns the future with a pointer to its poll, which is compiled with the engine.
#[cfg(debug_assertions)]
pub(crate) fn compiled_here<F: Future>(future: F) -> CompiledHere<F> {
    CompiledHere { future: Box::pin(future), poll: |future, context| future.poll(context) }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn compiled_here<F: Future>(future: F) -> F {
    future
}

/// See [`compiled_here`].
#[cfg(debug_assertions)]
pub(crate) struct CompiledHere<F: Future> {
    future: Pin<Box<F>>,
    poll: fn(Pin<&mut F>, &mut Context<'_>) -> Poll<F::Output>,
}

#[cfg(debug_assertions)]
impl<F: Future> Future for CompiledHere<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        (self.poll)(self.future.as_mut(), context)
    }
}

/// Runs a long job of the engine. It does not suspend for memory, because it would then advance by
/// one cache line per round; instead it yields explicitly. Its transfers are issued before those of
/// transactions.
pub(crate) async fn upkeep<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
        let before = local(|local| {
            let before =
                local.map(|local| (local.interleave.replace(false), local.urgent.replace(true)));
            before.unwrap_or_default()
        });
        let polled = future.as_mut().poll(context);
        local(|local| {
            if let Some(local) = local {
                local.interleave.set(before.0);
                local.urgent.set(before.1);
            }
        });
        polled
    })
    .await
}

/// Returns whether the code being polled is a long job of the engine.
pub(crate) fn is_upkeep() -> bool {
    local(|local| local.is_some_and(|local| local.urgent.get()))
}

/// Counts a failed attempt of the task that is being polled, which will be retried.
pub(crate) fn count_failed_attempt() {
    local(|local| {
        let local = local.expect("only a worker's tasks make attempts");
        local.failed_attempts.set(local.failed_attempts.get() + 1);
    });
}

/// Returns the failed attempts of this worker's tasks since its last turn.
pub(crate) fn failed_attempts() -> u64 {
    local(|local| local.map_or(0, |local| local.failed_attempts.get()))
}

/// Returns the cause for which the part of a task that was just polled has suspended.
pub(crate) fn suspended_for() -> WaitCause {
    local(|local| local.map_or(WaitCause::Foreign, |local| local.cause.get()))
}

/// Lets other tasks run, and returns soon. Outside a worker, yields to other threads.
pub(crate) fn yield_now(cause: WaitCause) -> Suspend {
    assert!(cause.is_hot(), "{cause:?} takes being resumed");
    let done = local(|local| local.is_none());
    if done {
        yield_thread();
    }
    Suspend { cause, done }
}

/// Waits outside the hot queue until [`resume`](super::resume) is called with the
/// [`current_waiter`](super::current_waiter), which the caller must have published. May return
/// earlier, so the caller must check its condition in a loop.
pub(crate) fn park(cause: WaitCause) -> Suspend {
    assert!(!cause.is_hot(), "{cause:?} is not waited for");
    Suspend { cause, done: false }
}

/// One suspension.
#[derive(Debug)]
#[must_use = "a suspension happens when it is awaited"]
pub(crate) struct Suspend {
    cause: WaitCause,
    done: bool,
}

impl Future for Suspend {
    type Output = ();

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.done {
            return Poll::Ready(());
        }
        self.done = true;
        local(|local| {
            let local = local.expect("only a worker's tasks suspend");
            local.suspend(self.cause);
            if self.cause.is_hot() && !local.polls_task(context) {
                // The worker polls the whole task again, but an executor inside the task polls this
                // part only if it is woken.
                wake_polled(context);
                // Memory arrives also while the worker is blocked; other tasks get no further.
                if self.cause == WaitCause::Undecided {
                    local.waits_as_part(context);
                }
            }
        });
        Poll::Pending
    }
}

/// Runs a future that waits for nothing to its end, without suspensions.
///
/// # Panics
/// If the future waits.
pub(crate) fn run_now<T>(future: impl Future<Output = T>) -> T {
    let before = local(|local| {
        local.map(|local| (local.interleave.replace(false), local.steps_left.replace(u32::MAX)))
    });
    let mut future = pin!(future);
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    local(|local| {
        if let (Some(local), Some((interleave, steps_left))) = (local, before) {
            local.interleave.set(interleave);
            local.steps_left.set(steps_left);
        }
    });
    match polled {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future was to wait for nothing"),
    }
}

/// Several futures of one task, interleaved so that they hide each other's cache misses even if the
/// worker has no other task (CoroBase §4.6, multi-get).
#[derive(Debug)]
pub(crate) struct Interleaved<F: Future> {
    running: Vec<Pin<Box<F>>>,
    places: Vec<usize>,
    finished: Vec<Option<F::Output>>,
}

impl<F: Future> Interleaved<F> {
    /// Creates a future that returns the results in the order of the futures.
    pub(crate) fn new(futures: impl IntoIterator<Item = F>) -> Self {
        let running: Vec<_> = futures.into_iter().map(Box::pin).collect();
        let places = (0..running.len()).collect();
        let finished = running.iter().map(|_| None).collect();
        Self { running, places, finished }
    }

    /// Polls each future once.
    fn round(&mut self, context: &mut Context<'_>) {
        let mut place = 0;
        while place < self.running.len() {
            match self.running[place].as_mut().poll(context) {
                Poll::Ready(value) => {
                    self.finished[self.places[place]] = Some(value);
                    self.running.swap_remove(place);
                    self.places.swap_remove(place);
                }
                Poll::Pending => place += 1,
            }
        }
    }
}

impl<F: Future> Future for Interleaved<F>
where
    F::Output: Unpin,
{
    type Output = Vec<F::Output>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let before = local(|local| {
            local.map(|local| {
                (local.interleave.replace(true), local.cause.replace(WaitCause::Foreign))
            })
        });
        loop {
            let again = local(|local| {
                // Each round determines again whether a future wants to be polled soon.
                local.inspect(|local| local.cause.set(WaitCause::Foreign));
                this.round(context);
                // The worker must check for new arrivals from time to time, even if no other task
                // can run.
                local.is_some_and(|local| {
                    local.cause.get().is_hot() && !local.take_steps(this.running.len() as u32)
                })
            });
            let others = before.is_some_and(|(others, _)| others);
            if this.running.is_empty() || others || !again {
                break;
            }
        }
        local(|local| {
            if let (Some(local), Some((others, cause))) = (local, before) {
                local.interleave.set(others);
                // The cause set by another part of the task counts as well. Without one, the task
                // would appear to wait for something foreign, although these futures do not.
                if cause != WaitCause::Foreign {
                    local.suspend(cause);
                }
            }
        });
        if this.running.is_empty() {
            let values = this.finished.iter_mut().map(|value| value.take().expect("each ran once"));
            return Poll::Ready(values.collect());
        }
        Poll::Pending
    }
}

/// Polls the work of a task for its caller, to which [`unless_caller_gone`] then refers. If the
/// caller is gone, the code around this poll drops the work.
pub(crate) fn poll_for<R>(caller: &(dyn Caller + 'static), poll: impl FnOnce() -> R) -> R {
    local(|local| {
        // Restored before `caller` ends, also by a panic.
        let _restored = local.map(|local| local.caller.set(caller));
        poll()
    })
}

/// Ready, unless the caller of the task that is being polled has dropped its future. Then the task
/// never continues: it suspends, and is dropped at its next poll.
#[inline(always)]
pub(super) fn poll_unless_caller_gone(context: &Context<'_>) -> Poll<()> {
    local(|local| match local {
        Some(local) if local.caller.is_gone() => suspend_forever(local, context),
        _ => Poll::Ready(()),
    })
}

/// Waits as [`poll_unless_caller_gone`] does.
pub(crate) async fn unless_caller_gone() {
    std::future::poll_fn(|context| poll_unless_caller_gone(context)).await;
}

/// Returns whether the caller of the task that is being polled has dropped its future.
#[inline(always)]
pub(crate) fn is_caller_gone() -> bool {
    local(|local| local.is_some_and(|local| local.caller.is_gone()))
}

#[cold]
fn suspend_forever(local: &WorkerLocal, context: &Context<'_>) -> Poll<()> {
    local.suspend(WaitCause::Undecided);
    if !local.polls_task(context) {
        local.waits_as_part(context);
        wake_polled(context);
    }
    Poll::Pending
}
