//! The source of the statistics: a file that a running program writes, a database that this process
//! opens, or the process that has it open.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use braiddb::{Database, Error, LogError};
use serde::Deserialize;

use crate::arguments::Top;
use crate::service;
use crate::store::StoreArguments;
use crate::verb::statistics_file::{self, Sample};

/// The screen shows the age of statistics that are older than this.
pub const STALE: Duration = Duration::from_secs(5);

/// A source of statistics.
pub enum Source {
    /// A file whose last line is the newest statistics, as JSON.
    File(PathBuf),
    /// A database that this process has open, and its directory.
    Database(Database, PathBuf),
    /// The directory of a database that another process has open, which is asked.
    Service(PathBuf),
}

/// The answer of a process: its statistics, and the state of its node, as JSON.
#[derive(Deserialize)]
struct Answer {
    stats: String,
    cluster: Option<String>,
}

impl Source {
    /// Opens the source that the arguments name.
    ///
    /// # Errors
    /// If the file holds no statistics, or the database cannot be opened.
    pub fn new(top: &Top, store: &StoreArguments) -> Result<Self> {
        let Some(file) = &top.from else {
            return match store.open_existing() {
                Ok(database) => Ok(Self::Database(database, store.db.clone())),
                Err(error) if is_locked(&error) => match ask(&store.db) {
                    Ok(_) => Ok(Self::Service(store.db.clone())),
                    Err(asked) => Err(error.context(format!(
                        "a program has the database open, and gives no statistics: {asked:#}; let it \
                         use the feature json of braiddb, or write its statistics to a file (see \
                         \"Watching a database\" in the guide), and name the file with --from"
                    ))),
                },
                Err(error) => Err(error),
            };
        };
        statistics_file::read(file)?;
        Ok(Self::File(file.clone()))
    }

    /// The name that the screen shows.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) | Self::Database(_, path) | Self::Service(path) => {
                path.display().to_string()
            }
        }
    }

    /// Reads the current statistics. Returns `None` if the file has none yet.
    ///
    /// # Errors
    /// If the file cannot be read, or does not hold statistics.
    pub fn sample(&self) -> Result<Option<Sample>> {
        match self {
            Self::File(path) => statistics_file::read(path),
            Self::Database(database, _) => {
                let (stats, taken) = (database.stats(), SystemTime::now());
                Ok(Some(Sample { stats, taken, cluster: None }))
            }
            Self::Service(directory) => ask(directory).map(Some),
        }
    }
}

/// Asks the process that has a database open.
fn ask(directory: &Path) -> Result<Sample> {
    let Answer { stats, cluster } = service::statistics(directory)?;
    let stats = statistics_file::parse(stats.as_bytes())?;
    let cluster = cluster.map(|status| serde_json::from_str(&status)).transpose()?;
    Ok(Sample { stats, taken: SystemTime::now(), cluster })
}

fn is_locked(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let log = cause.downcast_ref().and_then(Error::log_error);
        matches!(log, Some(LogError::Locked { .. }))
    })
}
