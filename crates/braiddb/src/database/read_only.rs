//! Opening a database read-only, while another process may write to it.
//!
//! A concurrent writer may remove a file or reuse a segment during the opening, which then fails
//! like for damage. A failed opening is therefore retried, until it fails twice while nothing
//! changed in between. Then the writer is not the cause.

use std::path::Path;

use super::error::{Error, Result};
use super::{Database, Options};
use crate::durability::Watch;
use crate::io::SimulatedDisk;
use crate::log::{DirectoryState, LogError, LogOptions};
use crate::transaction::{Certifier, Durability};

/// Maximum number of attempts while a writer changes the files.
const MAX_ATTEMPTS: usize = 64;

impl Database {
    /// Opens the database in a directory read-only. It writes and creates nothing in the directory,
    /// so read-only media and permissions suffice. The database may be open for writing at the same
    /// time, in another process or in this one. The reader holds a shared lock on each open file,
    /// where the file system supports locks. A writer never waits for such a lock, but does not
    /// reuse a locked file.
    ///
    /// It shows a consistent state, which is a prefix of all commits: the newest checkpoint and the
    /// log after it, up to the last complete transaction. This state never changes; open the
    /// database again to see later commits. A commit may be visible here shortly before its writer
    /// learns that it is durable. Every call that would change the database fails with
    /// [`Error::ReadOnlyDatabase`].
    ///
    /// Pages of paged tables that exceed [`Options::memory_budget`] are written to unnamed files in
    /// the system's temporary directory (`TMPDIR`, or `/tmp`). These disappear when the database is
    /// closed or the process ends. If such files cannot be created, all pages stay in memory.
    ///
    /// Records that are not in memory are read from the log on demand. If the writer's compaction
    /// frees log that the reader needs, the log stays readable while its file is open, and uses
    /// disk space until the reader is closed. A file may be closed early because the process has
    /// reached its limit of open files (`ulimit -n`), or because the file system has no locks. A
    /// read of such a file fails with [`Error::Outdated`]; it never returns wrong data.
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
    /// As [`Database::open`]; [`Error::Outdated`] if a writer repeatedly changes the files during
    /// the opening.
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open(directory, Options::default().read_only(true))
    }

    /// Opens a database read-only, with retries.
    pub(super) fn open_to_read(
        log_options: &LogOptions,
        options: &Options,
        simulated: Option<(&SimulatedDisk, u64)>,
        watch: Watch<'_>,
    ) -> Result<Self> {
        // Nothing is logged, and a read-only database needs no validation.
        let options = Options {
            durability: Durability::Volatile,
            certifier: Certifier::default(),
            page_frames: None,
            version_bytes: None,
            ..options.clone()
        };
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

    /// Rejects operations that would change a read-only database.
    pub(super) fn refuse_if_read_only(&self) -> Result<()> {
        if self.shared.engine.read_only { Err(Error::ReadOnlyDatabase) } else { Ok(()) }
    }
}
