//! Panics: whose they are, and what follows.
//!
//! A user's code on a worker (closures, futures, iterators, destructors, wakers) runs inside
//! [`contain`], each piece by itself, so a panic in it becomes a value and concerns one transaction or
//! source. Every other panic on a worker is a broken invariant of the engine's own: what is in memory is
//! not to be trusted any more, so the engine stops for all, once, with the panic's message
//! ([`Failure`]).
//!
//! The engine's code also runs *below* a user's, as when a closure awaits `tx.get`, and a panic in it
//! unwinds through the user's frames before it meets a [`contain`]. Each such entry holds a [`FailOnPanic`]
//! for as long as the engine's code runs: it is forgotten on return, so its destructor runs only when
//! a panic comes out of the engine's code, which it marks. It costs nothing otherwise. A suspended
//! future of the engine's that is dropped because the user's code around it panicked holds none; its
//! destructor is the engine's code, and has one of its own ([`EngineFuture`]).
//!
//! So a panic that unwinds through a frame of the engine's, other than below `contain`, is the engine's;
//! and what only the engine owns (transactions, replies) sees `panicking` in its
//! destructor only then. It must not run the engine's code any more: it is leaked
//! ([`Failure::has_begun`]), or kept until the failure is recorded ([`UntilRecorded`]).

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::local::{WorkerLocal, local};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{OnceLock, thread};

/// Whether the engine of one database has failed, and of what.
#[derive(Default)]
pub(crate) struct Failure {
    begun: AtomicBool,
    message: OnceLock<Arc<str>>,
    /// Called once a failure is recorded.
    callback: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Failure({:?})", self.message())
    }
}

impl Failure {
    /// Whether the engine has panicked: nothing is to be acknowledged any more. The message may follow
    /// a moment later.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        // Acquire pairs with the Release in `begin`.
        self.begun.load(Ordering::Acquire)
    }

    /// Of what the engine failed, if it did. A caller whose reply was dropped with a worker finds it here.
    pub(crate) fn message(&self) -> Option<&Arc<str>> {
        self.message.get()
    }

    /// Has `callback` called once a failure is recorded: for those who wait on threads that are none of the workers'. A
    /// worker that does not come back from a user's code would keep the last one from leaving.
    pub(crate) fn on_failure(&self, callback: impl Fn() + Send + Sync + 'static) {
        _ = self.callback.set(Box::new(callback));
    }

    /// Calls what is to be called once a failure is recorded.
    pub(super) fn run_callback(&self) {
        if let Some(callback) = self.callback.get() {
            callback();
        }
    }

    fn begin(&self) {
        // Release pairs with the Acquire in `has_begun`.
        self.begun.store(true, Ordering::Release);
    }

    /// Records the first failure; `false` if there was one.
    pub(super) fn record(&self, message: &str) -> bool {
        self.begin();
        self.message.set(message.into()).is_ok()
    }
}

/// A panic in a user's code.
#[derive(Clone, Debug)]
pub(crate) struct Panic {
    pub(crate) message: String,
}

/// Runs a user's code. A panic in it comes back as a value; one of the engine's code below it goes on.
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Result<T, Panic> {
    // What the code shares with the engine is in order whenever it can panic: the engine's code runs
    // to its end, or marks its panic.
    catch_unwind(AssertUnwindSafe(code)).map_err(contained)
}

// Neither this nor the other cold parts below are inlined: what they are of is compiled for each closure.
#[cold]
#[inline(never)]
fn contained(payload: Box<dyn Any + Send>) -> Panic {
    if engine_panicked() && !thread::panicking() {
        resume_unwind(payload);
    }
    Panic { message: message_of(payload) }
}

/// Drops a user's value. Nothing depends on whether its destructor panics: that is counted, and told
/// in the program's trace.
pub(crate) fn drop_contained<T>(value: T) {
    if std::mem::needs_drop::<T>() {
        contain_destructor(|| drop(value));
    }
}

/// Runs a destructor as [`drop_contained`] does.
pub(super) fn contain_destructor(destructor: impl FnOnce()) {
    if let Err(panic) = contain(destructor) {
        report_destructor(&panic);
    }
}

#[cold]
#[inline(never)]
fn report_destructor(panic: &Panic) {
    tracing::error!("a destructor panicked on a worker of the database: {}", panic.message);
    local(|local| {
        if let Some(local) = local {
            local.counters.destructor_panics.add(1);
        }
    });
}

/// The text of a panic. Its payload is the user's too, so its destructor is contained, and a panic of
/// that one is left undropped.
pub(super) fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    text
}

/// A user's value that may outlive what the user's code returned: its destructor is contained.
#[derive(Debug)]
pub(crate) struct Contained<T>(Option<T>);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("there until taken")
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("there until taken")
    }
}

impl<T> DerefMut for Contained<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("there until taken")
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            drop_contained(value);
        }
    }
}

/// A user's future: each poll is contained, and so is its destructor, which runs as soon as the future
/// is ready.
pub(crate) struct ContainedFuture<'f, F>(Pin<&'f mut Option<F>>);

impl<'f, F: Future> ContainedFuture<'f, F> {
    pub(crate) fn new(future: Pin<&'f mut Option<F>>) -> Self {
        Self(future)
    }
}

impl<F: Future> Future for ContainedFuture<'_, F> {
    type Output = Result<F::Output, Panic>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let future = &mut self.0;
        let mut output = None;
        let polled = contain(|| {
            let pinned = future.as_mut().as_pin_mut().expect("not polled again once it is ready");
            if let Poll::Ready(value) = pinned.poll(context) {
                output = Some(value);
                future.set(None);
            }
        });
        match polled {
            Ok(()) => output.map_or(Poll::Pending, |value| Poll::Ready(Ok(value))),
            Err(panic) => {
                drop_contained(output);
                contain_destructor(|| self.0.set(None));
                Poll::Ready(Err(panic))
            }
        }
    }
}

impl<F> Drop for ContainedFuture<'_, F> {
    fn drop(&mut self) {
        if self.0.is_some() {
            contain_destructor(|| self.0.set(None));
        }
    }
}

/// Held while the engine's code runs below a user's; see the head of this file.
#[must_use = "to be disarmed on return"]
struct FailOnPanic(());

impl FailOnPanic {
    #[inline(always)]
    fn new() -> Self {
        Self(())
    }

    /// The engine's code has returned.
    #[inline(always)]
    fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for FailOnPanic {
    #[cold]
    fn drop(&mut self) {
        local(|local| {
            if let Some(local) = local {
                local.engine_panicked.set(true);
                local.failure.begin();
            }
        });
    }
}

/// Runs the engine's code that a user's calls without awaiting it: a panic in it is the engine's.
#[inline(always)]
pub(crate) fn engine_call<T>(call: impl FnOnce() -> T) -> T {
    let fail_on_panic = FailOnPanic::new();
    let value = call();
    fail_on_panic.disarm();
    value
}

/// The engine's part of what a user's future awaits: a panic in it, or in its destructor when it is dropped
/// before it is over, is the engine's.
pub(crate) struct EngineFuture<F>(ManuallyDrop<F>);

/// Marks a future as the engine's, for a user's code to await.
#[inline(always)]
pub(crate) fn engine_code<F: Future>(future: F) -> EngineFuture<F> {
    EngineFuture(ManuallyDrop::new(future))
}

impl<F: Future> Future for EngineFuture<F> {
    type Output = F::Output;

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the only field is pinned with the whole: it is never moved out, is dropped in place, and
        // there is no other way to it.
        let future = unsafe { self.map_unchecked_mut(|this| &mut *this.0) };
        engine_call(|| future.poll(context))
    }
}

impl<F> Drop for EngineFuture<F> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: dropped once, here, where it is.
        engine_call(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// Whether the engine's code has panicked on this worker.
pub(crate) fn engine_panicked() -> bool {
    local(|local| local.is_some_and(|local| local.engine_panicked.get()))
}

/// Something whose drop wakes a caller that waits, as that of the sender of a reply does. If it is dropped
/// while the engine's panic unwinds, it is kept until the failure is recorded, so that a caller
/// that is woken finds it.
#[derive(Debug)]
pub(crate) struct UntilRecorded<T: 'static>(Option<T>);

impl<T: 'static> UntilRecorded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("there until taken")
    }
}

impl<T: 'static> Deref for UntilRecorded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("there until taken")
    }
}

impl<T: 'static> DerefMut for UntilRecorded<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("there until taken")
    }
}

impl<T: 'static> Drop for UntilRecorded<T> {
    fn drop(&mut self) {
        let Some(value) = self.0.take() else { return };
        if thread::panicking() {
            local(|local| match local {
                Some(local) => local.until_recorded.borrow_mut().push(Box::new(value)),
                None => drop_contained(value),
            });
        } else {
            // It may run the waker of a caller that waits.
            drop_contained(value);
        }
    }
}

impl WorkerLocal {
    /// After a failure was recorded: wakes the callers that wait for what the panic unwound.
    pub(super) fn wake_callers_after_failure(&self) {
        loop {
            let kept = self.until_recorded.take();
            if kept.is_empty() {
                return;
            }
            kept.into_iter().for_each(drop_contained);
        }
    }
}

/// Goes on only if the engine of this worker has not failed: after that nothing is acknowledged, and
/// what waits here is dropped by its worker.
pub(crate) async fn hold_after_failure() {
    if local(|local| local.is_some_and(|local| local.failure.has_begun())) {
        std::future::pending::<()>().await;
    }
}
