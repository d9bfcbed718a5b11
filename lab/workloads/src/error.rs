//! Why a measurement could not be made or told.

use std::path::PathBuf;

/// What stops a workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused or failed.
    #[error("the engine failed: {0}")]
    Engine(#[from] braiddb::Error),
    /// A file of the benchmark (not of the engine) could not be read or written.
    #[error("cannot use {path}: {source}")]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A chart could not be drawn.
    #[error("cannot draw {path}: {reason}")]
    Chart {
        /// Where it was to go.
        path: PathBuf,
        /// What the drawing library said.
        reason: String,
    },
    /// The input file is not what the workload understands.
    #[error("{path}, line {line}: {reason}")]
    Input {
        /// The input file.
        path: PathBuf,
        /// One-based line number.
        line: u64,
        /// What is wrong there.
        reason: String,
    },
    /// The workload would not fit into memory.
    #[error(
        "{records} records need about {needed} here and {available} are available: \
         use fewer --records"
    )]
    Memory {
        /// Records asked for.
        records: u64,
        /// Memory needed, for people.
        needed: String,
        /// Memory available, for people.
        available: String,
    },
    /// Something that is compared with the engine failed.
    #[error("{name}: {source}")]
    Subject {
        /// What failed, and at what.
        name: String,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A result contradicts what the engine promised; the figures are worthless.
    #[error("wrong result: {0}")]
    Wrong(String),
    /// `--check` was given and bars were missed.
    #[error("{0} of the bars were missed")]
    BarsMissed(usize),
    /// Standard output or error could not be written.
    #[error("cannot write the report: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Names the file that `source` is about.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
