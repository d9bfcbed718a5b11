//! Opening a database read-only, while another process may write to it.
//!
//! A concurrent writer may remove a file or reuse a segment during the opening, which then fails
//! like for damage. A failed opening is therefore retried, until it fails twice while nothing
//! changed in between. Then the writer is not the cause.

use super::error::{Error, Misuse, Result};
use super::handle::Database;
use super::options::Options;
use super::tuning::Tuning;
use crate::durability::RecoveryObserver;
use crate::io::SimulatedDisk;
use crate::log::{DirectoryState, LogError, LogOptions};
#[cfg(feature = "experiment")]
use crate::transaction::Certifier;
use crate::transaction::Durability;

/// Maximum number of attempts while a writer changes the files.
const MAX_ATTEMPTS: usize = 64;

/// Repeats an attempt to read the files of a directory while it fails because another process
/// changes them.
pub(super) fn while_files_change<T>(
    log_options: &LogOptions,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut before = None;
    for _ in 0..MAX_ATTEMPTS {
        let done = attempt();
        let error = done.as_ref().err().and_then(Error::log_error);
        if !matches!(
            error,
            Some(LogError::Corrupt { .. } | LogError::Io { .. } | LogError::Outdated { .. })
        ) {
            return done;
        }
        let now = DirectoryState::read(log_options)?;
        if before.as_ref() == Some(&now) {
            return done;
        }
        before = Some(now);
    }
    Err(LogError::Outdated { path: log_options.directory.clone() }.into())
}

impl Database {
    /// Opens a database to be only read, if need be several times.
    pub(super) fn open_to_read(
        log_options: &LogOptions,
        options: &Options,
        simulated: Option<(&SimulatedDisk, u64)>,
        watch: RecoveryObserver<'_>,
    ) -> Result<Self> {
        // Nothing is logged, and a read-only database needs no validation.
        let tuning = Tuning {
            #[cfg(feature = "experiment")]
            certifier: Certifier::default(),
            #[cfg(feature = "experiment")]
            page_frames: None,
            version_bytes: None,
            ..options.tuning.clone()
        };
        let options = Options { durability: Durability::Volatile, tuning, ..options.clone() };
        while_files_change(log_options, || {
            Self::open_once(log_options.clone(), &options, simulated, watch)
        })
    }

    /// Rejects operations that would change a read-only database.
    pub(super) fn refuse_if_read_only(&self) -> Result<()> {
        if self.shared.engine.read_only {
            Err(Error::Misuse(Misuse::ReadOnlyDatabase))
        } else {
            Ok(())
        }
    }
}
