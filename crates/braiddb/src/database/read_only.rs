//! Opens a database read-only, while another process may write to it.
//!
//! An opening that meets what a writer does at that moment, a file removed, a segment used anew, fails as one that
//! meets damage does. So one that fails is tried again, until it fails twice while nothing was changed in between: then
//! it is not the writer.

use super::error::{Error, Misuse, Result};
use super::{Database, Options, Tuning};
use crate::durability::RecoveryObserver;
use crate::io::SimulatedDisk;
use crate::log::{DirectoryState, LogError, LogOptions};
#[cfg(feature = "experiment")]
use crate::transaction::Certifier;
use crate::transaction::Durability;

/// How often an opening is tried while a writer changes what it reads.
const MAX_ATTEMPTS: usize = 64;

impl Database {
    /// Opens a database to be only read, if need be several times.
    pub(super) fn open_to_read(
        log_options: &LogOptions,
        options: &Options,
        simulated: Option<(&SimulatedDisk, u64)>,
        watch: RecoveryObserver<'_>,
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
            let error = opened.as_ref().err().and_then(Error::log_error);
            if !matches!(
                error,
                Some(LogError::Corrupt { .. } | LogError::Io { .. } | LogError::Outdated { .. })
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
        if self.shared.engine.read_only {
            Err(Error::Misuse(Misuse::ReadOnlyDatabase))
        } else {
            Ok(())
        }
    }
}
