//! Where statistics come from: a file that a running program writes, or a database that this process opens.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use braiddb::{Database, Error, LogError, Stats};

use crate::arguments::Top;
use crate::store::StoreArguments;
use crate::verb::place;

/// Statistics that are older are said to be.
pub const STALE: Duration = Duration::from_secs(5);
/// The last document of a file is looked for in so many bytes at its end.
const TAIL_BYTES: u64 = 1 << 20;

/// Statistics, and when they were taken.
#[derive(Clone, Debug)]
pub struct Sample {
    pub stats: Stats,
    pub taken: SystemTime,
}

/// What is watched.
pub enum Source {
    /// A file whose last line is the newest statistics, as JSON.
    File(PathBuf),
    /// A database of this process, and where it is.
    Database(Database, PathBuf),
}

impl Source {
    /// What the arguments say.
    ///
    /// # Errors
    /// If the file holds no statistics, or the database cannot be opened.
    pub fn new(top: &Top, store: &StoreArguments) -> Result<Self> {
        let Some(file) = &top.from else {
            return match store.open_existing() {
                Ok(database) => Ok(Self::Database(database, store.db.clone())),
                Err(error) if is_locked(&error) => Err(error.context(
                    "a program has the database open: let it write its statistics to a file (the guide's section \
                     \"Watching a database\"), and give that with --from",
                )),
                Err(error) => Err(error),
            };
        };
        read(file)?;
        Ok(Self::File(file.clone()))
    }

    /// What the screen calls it.
    pub fn name(&self) -> String {
        match self {
            Self::File(path) | Self::Database(_, path) => path.display().to_string(),
        }
    }

    /// The statistics of now; `None` if a file has none at the moment.
    ///
    /// # Errors
    /// If the file cannot be read, or holds something else.
    pub fn sample(&self) -> Result<Option<Sample>> {
        match self {
            Self::File(path) => read(path),
            Self::Database(database, _) => {
                Ok(Some(Sample { stats: database.stats(), taken: SystemTime::now() }))
            }
        }
    }
}

fn is_locked(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let log = cause.downcast_ref().and_then(Error::log_error);
        matches!(log, Some(LogError::Locked { .. }))
    })
}

/// The last whole line of a file; one that is being written is left out, and an empty file has none yet.
pub fn read(path: &Path) -> Result<Option<Sample>> {
    let name = path.display();
    if path.is_dir() {
        bail!("{name} is a directory; --from takes a file with statistics");
    }
    let cannot = || format!("cannot read statistics from {name}");
    let mut file = File::open(path).map_err(|error| match place::missing(path, &error) {
        Some(missing) => {
            anyhow!("{missing}; name the one to which a program writes its statistics")
        }
        None => anyhow!(error).context(cannot()),
    })?;
    let metadata = file.metadata().with_context(cannot)?;
    let start = metadata.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start)).with_context(cannot)?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).with_context(cannot)?;
    let Some(document) = last_document(&tail) else { return Ok(None) };
    if !tail.contains(&b'\n') && is_cut_short(document) {
        // It is being written.
        return Ok(None);
    }
    let stats = parse(document).with_context(|| {
        format!("the last line of {name} is no statistics of a database, as JSON")
    })?;
    Ok(Some(Sample { stats, taken: metadata.modified().with_context(cannot)? }))
}

/// Statistics, of this version of the engine or another, which may count more or less.
fn parse(document: &[u8]) -> Result<Stats> {
    let document: serde_json::Value = serde_json::from_slice(document)?;
    document.get("committed").context("it does not say how many transactions were committed")?;
    Ok(serde_json::from_value(document)?)
}

fn is_cut_short(document: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(document).is_err_and(|error| error.is_eof())
}

/// The last line that ends, or the only one: a file that is replaced at once need not end its line.
fn last_document(tail: &[u8]) -> Option<&[u8]> {
    let whole = match tail.iter().rposition(|&byte| byte == b'\n') {
        Some(end) => &tail[..end],
        None => tail,
    };
    let line = whole.rsplit(|&byte| byte == b'\n').next()?.trim_ascii();
    (!line.is_empty()).then_some(line)
}
