//! Access to a database's workers without keeping the database open.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::error::{Error, Misuse, Result};
use crate::sched::{
    self, BlockingProbe, BlocksWorker, Failure, Job, JobSender, Panic, UntilRecorded, contain,
    drop_contained,
};
use crate::sync::oneshot;

/// A sender of jobs to a database's workers. It does not keep the database open.
#[derive(Clone, Debug)]
pub(super) struct Workers(JobSender);

impl Workers {
    pub(super) fn new(jobs: JobSender) -> Self {
        Self(jobs)
    }

    /// Runs a job on some worker.
    pub(super) fn spawn(
        &self,
        job: impl FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send + 'static,
    ) -> Result<()> {
        let job: Job = Box::new(job);
        self.0.spawn(job).map_err(|sched::ExecutorClosed| self.ended())
    }

    /// Starts a job of the engine on some worker. Returns a receiver of the result, which stays
    /// empty if the workers end first.
    pub(super) fn start<T, F>(
        &self,
        job: impl FnOnce() -> F + Send + 'static,
    ) -> Result<oneshot::Receiver<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (reply, done) = oneshot::channel();
        let reply = UntilRecorded::new(reply);
        self.spawn(move || {
            Box::pin(async move {
                let result = job().await;
                sched::hold_after_failure().await;
                send(reply.into_inner(), result);
            })
        })?;
        Ok(done)
    }

    /// Runs a job of the engine on some worker, and returns its result.
    pub(super) async fn run<T, E, F>(&self, job: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        E: Into<Error> + Send + 'static,
        F: Future<Output = Result<T, E>> + 'static,
    {
        let run = async {
            let done = self.start(job)?;
            done.await.map_err(|oneshot::Canceled| self.ended())?.map_err(Into::into)
        };
        NeedsWorkers::new(self.probe(), run).await
    }

    /// Returns whether the calling thread may read itself instead of sending a job.
    pub(super) fn admit_guests(&self) -> bool {
        self.0.admits_guests()
    }

    /// Returns whether the calling thread may write itself instead of sending a job.
    pub(super) fn admit_guest_writes(&self) -> bool {
        self.0.admits_guest_writes()
    }

    /// Makes a worker take a turn soon.
    pub(super) fn ring(&self) {
        self.0.ring();
    }

    /// Stops the workers because engine code panicked on the calling thread.
    pub(super) fn fail_on_caller(&self, panic: &Panic) {
        self.0.fail_on_caller(panic);
    }

    /// Returns the reason why the workers have ended: the engine failed, or the database is closed.
    pub(super) fn ended(&self) -> Error {
        ended(self.failure())
    }

    /// Returns the probe for a future that waits for the workers.
    pub(super) fn probe(&self) -> BlockingProbe {
        BlockingProbe::new(self.failure())
    }

    /// Returns the failure state of the engine.
    pub(super) fn failure(&self) -> &Arc<Failure> {
        self.0.failure()
    }
}

/// A future of the public interface that waits for the workers of its database. If an executor that
/// blocks one of these workers polls it, it fails with [`Misuse::WouldBlock`], before it has any
/// effect unless it was already polled elsewhere.
pub(super) struct NeedsWorkers<F> {
    probe: BlockingProbe,
    future: F,
}

impl<F> NeedsWorkers<F> {
    pub(super) fn new(probe: BlockingProbe, future: F) -> Self {
        Self { probe, future }
    }
}

impl<T, E: From<Error>, F: Future<Output = Result<T, E>>> Future for NeedsWorkers<F> {
    type Output = Result<T, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        // SAFETY: `future` is pinned with the whole: it is never moved out, is dropped in place, and
        // cannot be accessed otherwise. `probe` is never pinned.
        let (probe, future) = unsafe {
            let this = self.get_unchecked_mut();
            (&mut this.probe, Pin::new_unchecked(&mut this.future))
        };
        match probe.before_poll(context) {
            Poll::Ready(Ok(())) => future.poll(context),
            Poll::Ready(Err(BlocksWorker)) => {
                Poll::Ready(Err(Error::Misuse(Misuse::WouldBlock).into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Returns the reason why the workers have stopped: the engine failed, or the database is closed.
pub(super) fn ended(failure: &Failure) -> Error {
    match failure.message() {
        Some(message) => Error::Failed { message: message.to_string() },
        None => Error::Closed,
    }
}

/// Sends the result to the caller and runs its waker. Drops the result if the caller has dropped
/// its future.
pub(super) fn send<T>(reply: oneshot::Sender<T>, result: T) {
    if let Err(panic) = contain(|| drop_contained(reply.send(result))) {
        report_waker(&panic);
    }
}

#[cold]
#[inline(never)]
fn report_waker(panic: &Panic) {
    tracing::error!("the waker of a transaction's caller panicked: {}", panic.message);
}
