//! A job on one store in a separate process, so that its memory can be limited and measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use braid_workloads::error::Error;
use braid_workloads::harness::rounds::Effort;
use serde::{Deserialize, Serialize};

use crate::agree::complete;
use crate::answer::Failure;
use crate::call::Work;
use crate::drive::{Load, Loaded, procedures, threads};
use crate::files;
use crate::group::Group;
use crate::store::{Kind, Setup};

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub kind: Kind,
    pub setup: Setup,
    pub records: u64,
    pub task: Task,
    /// The file through which the process enters its control group, if any.
    pub entrance: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Loads the store.
    Load,
    /// Loads the store, scans it once, and measures its memory.
    Weigh,
    /// Opens the store, warms up, and measures.
    Measure { work: Work, clients: usize, seed: u64, warm_up: f64, seconds: f64 },
    /// Checks that all records are present after this number of modifications.
    Check { modifications: u64 },
}

/// The results of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    pub settings: String,
    pub transactions: u64,
    pub conflicts: u64,
    pub seconds: f64,
    /// Committed modifications, including those of the warm-up.
    pub modifications: u64,
    /// Anonymous memory of the process.
    pub anonymous_bytes: u64,
    /// The store's files in the page cache.
    pub cached_bytes: u64,
    pub disk_bytes: u64,
}

impl Job {
    /// Runs the job in this process.
    ///
    /// # Errors
    /// Fails if the store fails or answers wrongly.
    pub fn run(&self) -> Result<Done, Failure> {
        if let Some(entrance) = &self.entrance {
            std::fs::write(entrance, std::process::id().to_string())?;
        }
        let store = self.kind.open(&self.setup)?;
        let loaded = Loaded::new(self.kind.name(), store, self.records);
        let mut done = Done { settings: loaded.store.settings(), ..Done::default() };
        match self.task {
            Task::Load => loaded.store.load(self.records)?,
            Task::Weigh => {
                loaded.store.load(self.records)?;
                complete(&loaded)?;
                done.anonymous_bytes = anonymous_bytes().unwrap_or(0);
                done.cached_bytes = files::cached_bytes(&self.setup.directory)?;
            }
            Task::Measure { .. } => self.measure(&loaded, &mut done)?,
            Task::Check { modifications } => {
                // Relaxed: only one thread runs.
                loaded.modifications.store(modifications, Ordering::Relaxed);
                complete(&loaded)?;
            }
        }
        loaded.store.close()?;
        drop(loaded);
        done.disk_bytes = files::disk_bytes(&self.setup.directory)?;
        Ok(done)
    }

    fn measure(&self, loaded: &Loaded, done: &mut Done) -> Result<(), Failure> {
        let Task::Measure { work, clients, seed, warm_up, seconds } = self.task else {
            unreachable!("only for this task")
        };
        let load = Load { work, clients, seed, pin: self.setup.pin, timed_one_in: 16 };
        let source = procedures(loaded, load, self.setup.workers);
        let mut subject = source.unwrap_or_else(|| threads(loaded, load));
        subject.round(Effort::Seconds(warm_up))?;
        let sample = subject.round(Effort::Seconds(seconds))?;
        done.transactions = sample.transactions;
        done.conflicts = sample.conflicts;
        done.seconds = sample.elapsed.as_secs_f64();
        // Relaxed: the threads that added to it have ended.
        done.modifications = loaded.modifications.load(Ordering::Relaxed);
        done.anonymous_bytes = anonymous_bytes().unwrap_or(0);
        Ok(())
    }

    /// Runs the job in a separate process of `program`, in a control group with the setup's budget
    /// if possible.
    ///
    /// # Errors
    /// Fails if the process fails; the error contains its output.
    pub fn send(mut self, program: &Path) -> Result<Done, Error> {
        let name = format!("braid-peers-{}-{}", std::process::id(), self.kind.name());
        let group = Group::new(&name, self.setup.budget).ok();
        self.entrance = group.as_ref().map(Group::entrance);
        let failed =
            |why: String| Error::Subject { name: self.kind.name().to_owned(), source: why.into() };
        let job = serde_json::to_string(&self).map_err(|error| failed(error.to_string()))?;
        let child = Command::new(program)
            .args(["inside", &job])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::file(program))?;
        let output = child.wait_with_output().map_err(Error::file(program))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(failed(format!("{} ({}): {said}", output.status, job)));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))
    }
}

impl Done {
    /// Returns the duration of the measurement.
    pub fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Returns the reason why no control group can be created, if any.
pub fn no_group() -> Option<String> {
    Group::new(&format!("braid-peers-{}-try", std::process::id()), Some(64 << 20)).err()
}

/// Returns the anonymous memory of this process.
fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
