//! Access to a database's workers without keeping the database open.

use std::pin::Pin;
use std::sync::Arc;

use super::ended;
use super::error::{Error, Result};
use super::run::send;
use crate::sched::{self, Failure, Job, JobSender, UntilRecorded};
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

    /// Returns the reason why the workers have ended: the engine failed, or the database is closed.
    pub(super) fn ended(&self) -> Error {
        ended(self.failure())
    }

    /// Returns the failure state of the engine.
    pub(super) fn failure(&self) -> &Arc<Failure> {
        self.0.failure()
    }
}
