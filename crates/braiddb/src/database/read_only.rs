//! Opening a database to be only read, while another process may write to it.
//!
//! An opening that meets what a writer does at that moment, a file removed, a segment used anew, fails as one that
//! meets damage does. So one that fails is tried again, until it fails twice while nothing was changed in between: then
//! it is not the writer.

use std::path::Path;

use super::error::{Error, Result};
use super::{Database, Options, Tuning};
use crate::durability::Watch;
use crate::io::SimulatedDisk;
use crate::log::{DirectoryState, LogError, LogOptions};
#[cfg(feature = "experiment")]
use crate::transaction::Certifier;
use crate::transaction::Durability;

/// How often an opening is tried while a writer changes what it reads.
const MAX_ATTEMPTS: usize = 64;

impl Database {
    /// Opens the database in a directory to be only read. Nothing in the directory is written or created, so it
    /// may be on media, or under permissions, that allow no more than reading; and it may be open for writing at the same
    /// time, in another process or in this one. A file that is open to be read has a shared lock meanwhile, where the file system
    /// has locks, which changes nothing on disk: a writer never waits for it, but does not put anything else into that file.
    ///
    /// What it shows is the database as of one moment, a prefix of all commits: the newest checkpoint and the log that
    /// is found after it, up to the last transaction that is whole. It stays as it is; open it again to see what was
    /// committed since. A commit may be seen here a moment before its writer is told that it is durable. Every call
    /// that would change the database fails with [`Error::ReadOnlyDatabase`].
    ///
    /// Pages of paged tables that do not fit into [`Options::memory_budget`] are put into files without a name in the
    /// system's directory for temporary files (`TMPDIR`, or `/tmp`), which are gone when this is closed, or the process ends; where
    /// there can be none, all stay in memory.
    ///
    /// Records that do not stay in memory are read from the log when they are asked for. What a writer's compaction frees
    /// meanwhile stays readable as long as its file stays open, and takes disk until this is closed. If a
    /// file had to be closed, as the process may have no more open (`ulimit -n`), or the file system has no locks, a read
    /// can come too late: then it fails with [`Error::Outdated`], and never gives anything else than what was committed.
    ///
    /// ```
    /// use braiddb::{Database, Error, Options, Table};
    ///
    /// # pollster::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path();
    /// let service = Database::open(path, Options::default())?;
    /// let users = service.create_table::<u64, str>("users").await?;
    /// service.put(&users, &7, "Ada").await?;
    ///
    /// let report = Database::open_read_only(path)?;
    /// let users: Table<u64, str> = report.open_table("users").await?;
    /// assert_eq!(report.get(&users, &7).await?.as_deref(), Some("Ada"));
    /// assert!(matches!(report.put(&users, &8, "Grace").await, Err(Error::ReadOnlyDatabase)));
    /// # Ok::<_, Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Database::open`]; [`Error::Outdated`] if a writer changes what is read again and again.
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open(directory, Options::default().read_only(true))
    }

    /// Opens a database to be only read, if need be several times.
    pub(super) fn open_to_read(
        log_options: &LogOptions,
        options: &Options,
        simulated: Option<(&SimulatedDisk, u64)>,
        watch: Watch<'_>,
    ) -> Result<Self> {
        // Nothing is logged; and what is only read need not be certified.
        let tuning = Tuning {
            #[cfg(feature = "experiment")]
            certifier: Certifier::default(),
            #[cfg(feature = "experiment")]
            page_frames: None,
            version_bytes: None,
            ..options.tuning.clone()
        };
        let options = Options { durability: Durability::Volatile, tuning, ..options.clone() };
        let mut before = None;
        for _ in 0..MAX_ATTEMPTS {
            let opened = Self::open_once(log_options.clone(), &options, simulated, watch);
            let (Err(Error::Log(error)) | Err(Error::Outdated(error))) = &opened else {
                return opened;
            };
            if !matches!(
                **error,
                LogError::Corrupt { .. } | LogError::Io { .. } | LogError::Outdated { .. }
            ) {
                return opened;
            }
            let now = DirectoryState::read(log_options)?;
            if before.as_ref() == Some(&now) {
                return opened;
            }
            before = Some(now);
        }
        Err(LogError::Outdated { path: log_options.directory.clone() }.into())
    }

    /// Refuses what would change a database that is only read.
    pub(super) fn refuse_if_read_only(&self) -> Result<()> {
        if self.shared.engine.read_only { Err(Error::ReadOnlyDatabase) } else { Ok(()) }
    }
}
