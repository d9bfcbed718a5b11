//! Waits for events that any thread may cause.

use std::sync::Arc;
use std::task::Poll;

use super::local::local;
use super::mailbox::Mailbox;
use super::services::services;
use super::wait_cause::WaitCause;
use super::waiter::{Resumption, WaitRegistration};
use crate::sync::yield_thread;

/// A task, or a part of one, that any thread can resume.
#[derive(Debug)]
pub(crate) struct RemoteWaiter {
    mailbox: Arc<Mailbox>,
    resumption: Resumption,
}

impl RemoteWaiter {
    /// Lets the waiter check its condition again. Its own worker resumes the task or wakes the
    /// part, immediately if the worker sleeps. This thread does not call the part's waker, which is
    /// user code, because the caller may hold a lock.
    pub(crate) fn wake(self) {
        let Self { mailbox, resumption } = self;
        mailbox.resumed.push(resumption);
        mailbox.ring();
    }
}

/// Waits until `look` returns a result. `look` receives a waiter. If it finds no result, it must
/// publish the waiter in the same atomic step, so that any thread that causes the event finds and
/// wakes it. Spurious calls of `look` are possible. Outside a worker no waiter exists, so `look` is
/// called repeatedly.
pub(crate) async fn wait_remotely<T>(
    cause: WaitCause,
    mut look: impl FnMut(Option<RemoteWaiter>) -> Option<T>,
) -> T {
    assert!(!cause.is_hot(), "{cause:?} is not waited for");
    let mut registered = None;
    std::future::poll_fn(move |context| {
        local(|local| {
            let Some(local) = local else {
                loop {
                    if let Some(found) = look(None) {
                        return Poll::Ready(found);
                    }
                    yield_thread();
                }
            };
            let (registration, resumption) = WaitRegistration::new(local, context);
            let mailbox = services(|services| services.expect("a worker's").mailbox.clone());
            let found = look(Some(RemoteWaiter { mailbox, resumption }));
            registered = found.is_none().then_some(registration);
            if found.is_none() {
                local.suspend(cause);
            }
            found.map_or(Poll::Pending, Poll::Ready)
        })
    })
    .await
}
