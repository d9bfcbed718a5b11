//! The way to a database's workers, for whoever does not keep the database open.

use std::pin::Pin;
use std::sync::Arc;

use super::ended;
use super::error::{Error, Result};
use super::run::send;
use crate::sched::{self, Failure, Job, JobSender, UntilRecorded};
use crate::sync::oneshot;

/// The way to a database's workers. Who has it does not keep the database open.
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

    /// Begins a job of the engine's own on some worker; where its result will be, unless the workers end before.
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

    /// Why nothing is done any more: the engine failed, or else the database is closed.
    pub(super) fn ended(&self) -> Error {
        ended(self.failure())
    }

    /// Whether the engine has failed, and of what.
    pub(super) fn failure(&self) -> &Arc<Failure> {
        self.0.failure()
    }
}
