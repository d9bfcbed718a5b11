//! A job on one store in a process of its own, so that its memory can be bounded and told from that of others.

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

/// What is to be done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    pub kind: Kind,
    pub setup: Setup,
    pub records: u64,
    pub task: Task,
    /// Where the process enters its control group, if there is one.
    pub entrance: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Loads the store.
    Load,
    /// Loads the store, reads everything once, and tells what memory that takes.
    Weigh,
    /// Opens it, warms up, and measures.
    Measure { work: Work, clients: usize, seed: u64, warm_up: f64, seconds: f64 },
    /// Looks whether everything is there after so many modifications.
    Check { modifications: u64 },
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    pub settings: String,
    pub transactions: u64,
    pub conflicts: u64,
    pub seconds: f64,
    /// Modifications committed, those of the warm-up included.
    pub modifications: u64,
    /// Of the process, without files.
    pub anonymous_bytes: u64,
    /// Of the store's files, in the page cache.
    pub cached_bytes: u64,
    pub disk_bytes: u64,
}

impl Job {
    /// Does it in this process.
    ///
    /// # Errors
    /// When the store fails or answers wrongly.
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
                // Relaxed: there is one thread.
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
        // Relaxed: whoever added to it is over.
        done.modifications = loaded.modifications.load(Ordering::Relaxed);
        done.anonymous_bytes = anonymous_bytes().unwrap_or(0);
        Ok(())
    }

    /// Does it in a process of its own, `program`, in a control group with the setup's budget, if there can be one.
    ///
    /// # Errors
    /// When the process fails; what it said then is in the error.
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
    /// How long it was measured.
    pub fn elapsed(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Why no control group can be made, if none can.
pub fn no_group() -> Option<String> {
    Group::new(&format!("braid-peers-{}-try", std::process::id()), Some(64 << 20)).err()
}

/// Memory of this process that no file is behind.
fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
