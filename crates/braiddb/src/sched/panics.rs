//! Panics: classification into user panics and engine panics, and their consequences.
//!
//! User code on a worker (closures, futures, iterators, destructors, wakers) runs inside
//! [`contain`], each piece separately. A panic in it becomes a value and affects one transaction or
//! source. Every other panic on a worker is a broken invariant of the engine. The state in memory
//! cannot be trusted any more, so the engine stops for all users, once, with the panic's message
//! ([`Failure`](super::Failure)).
//!
//! Engine code also runs *below* user code, for example when a closure awaits `tx.get`. A panic in
//! it unwinds through the user's frames before it reaches a [`contain`]. Each such entry holds a
//! [`FailOnPanic`] while the engine code runs. It is forgotten on return, so its destructor runs
//! only when a panic leaves the engine code, and marks that panic. It has no other cost. If user
//! code panics around a suspended future of the engine, the future is dropped without a guard. Its
//! destructor is engine code, and has a separate guard (`EngineFuture`).
//!
//! A panic that unwinds through a frame of the engine, except below `contain`, is therefore the
//! engine's. Values that only the engine owns (transactions, replies) see `panicking` in their
//! destructors only in this case. They must not run engine code any more: they are leaked
//! ([`has_begun`](super::Failure::has_begun)), or kept until the failure is recorded ([`UntilRecorded`]).

use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::local::{WorkerLocal, local};
use crate::sync::thread;

/// A panic in user code.
#[derive(Clone, Debug)]
pub(crate) struct Panic {
    pub(crate) message: String,
}

/// Runs user code, and returns a panic in it as a value. A panic of engine code below it continues
/// to unwind.
pub(crate) fn contain<T>(code: impl FnOnce() -> T) -> Result<T, Panic> {
    // The state shared by the code and the engine is consistent whenever the code can panic: engine
    // code runs to its end, or marks its panic.
    catch_unwind(AssertUnwindSafe(code)).map_err(contained)
}

// Cold parts here and below are not inlined, because the functions around them are compiled for
// each closure.
#[cold]
#[inline(never)]
fn contained(payload: Box<dyn Any + Send>) -> Panic {
    if engine_panicked() && !thread::panicking() {
        resume_unwind(payload);
    }
    Panic { message: message_of(payload) }
}

/// Drops a user's value. A panic in its destructor changes no result: it is counted and logged
/// through `tracing`.
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

/// Returns the text of a panic. The payload belongs to the user too, so its destructor is
/// contained; the payload of a second panic is leaked.
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

/// A user's value that may outlive the result of the user's code. Its destructor is contained.
#[derive(Debug)]
pub(crate) struct Contained<T>(ManuallyDrop<T>);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, because the whole is consumed and its destructor does not run.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Contained<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<T>() {
            // SAFETY: dropped once, here: `into_inner` does not run this destructor.
            contain_destructor(|| unsafe { ManuallyDrop::drop(&mut self.0) });
        }
    }
}

/// Held while engine code runs below user code; see the head of this file.
#[must_use = "to be disarmed on return"]
struct FailOnPanic(());

impl FailOnPanic {
    #[inline(always)]
    fn new() -> Self {
        Self(())
    }

    /// The engine code has returned.
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

/// Runs engine code that user code calls without awaiting it. A panic in it is the engine's.
#[inline(always)]
pub(crate) fn engine_call<T>(call: impl FnOnce() -> T) -> T {
    let fail_on_panic = FailOnPanic::new();
    let value = call();
    fail_on_panic.disarm();
    value
}

/// Returns whether engine code has panicked on this worker.
pub(crate) fn engine_panicked() -> bool {
    local(|local| local.is_some_and(|local| local.engine_panicked.get()))
}

/// A value that wakes a waiting caller when it is dropped, such as the sender of a reply. If it is dropped while
/// the engine's panic unwinds, it is kept until the failure is recorded, so that the woken caller
/// finds the failure.
#[derive(Debug)]
pub(crate) struct UntilRecorded<T: 'static>(ManuallyDrop<T>);

impl<T: 'static> UntilRecorded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, because the whole is consumed and its destructor does not run.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl<T: 'static> Deref for UntilRecorded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: 'static> DerefMut for UntilRecorded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: 'static> Drop for UntilRecorded<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here: `into_inner` does not run this destructor.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        if thread::panicking() {
            local(|local| match local {
                Some(local) => local.until_recorded.borrow_mut().push(Box::new(value)),
                None => drop_contained(value),
            });
        } else {
            // The drop may run the waker of a waiting caller.
            drop_contained(value);
        }
    }
}

impl WorkerLocal {
    /// After a failure was recorded, wakes the callers that wait for values unwound by the panic.
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

/// Returns only if the engine of this worker has not failed. After a failure nothing is
/// acknowledged, and the worker drops the tasks that wait here.
pub(crate) async fn hold_after_failure() {
    if local(|local| local.is_some_and(|local| local.failure.has_begun())) {
        std::future::pending::<()>().await;
    }
}
