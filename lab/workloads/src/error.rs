//! Errors of measurements and of their reports.

use std::path::PathBuf;

/// An error that stops a workload.
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
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A chart could not be drawn.
    #[error("cannot draw {path}: {reason}")]
    Chart {
        /// The path of the chart.
        path: PathBuf,
        /// The error of the drawing library.
        reason: String,
    },
    /// The workload cannot parse the input file.
    #[error("{path}, line {line}: {reason}")]
    Input {
        /// The input file.
        path: PathBuf,
        /// One-based line number.
        line: u64,
        /// The error in that line.
        reason: String,
    },
    /// The workload would not fit into memory.
    #[error(
        "{records} records need about {needed} here and {available} are available: \
         use fewer --records"
    )]
    Memory {
        /// The requested number of records.
        records: u64,
        /// The memory needed, as text for people.
        needed: String,
        /// The available memory, as text for people.
        available: String,
    },
    /// A system that the engine is compared with failed.
    #[error("{name}: {source}")]
    Subject {
        /// The system and its operation.
        name: String,
        /// The error of that system.
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
    /// Returns a function that adds the path of the file to an I/O error.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
