//! `--trace`: the activity of the workers during the command, for a trace viewer.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use braiddb::{Database, Options};
use clap::Args;

/// Slices of time recorded per worker. They take 24 MB.
const SLICES: usize = 1_000_000;

/// The file of the trace, if `--trace` names one.
#[derive(Args, Debug)]
pub struct TraceArguments {
    /// Write a trace of the workers to this file: the last million steps of each. View it at
    /// ui.perfetto.dev.
    #[arg(help_heading = crate::store::HEADING, long = "trace", value_name = "FILE")]
    trace_file: Option<PathBuf>,

    /// The database opened last.
    #[arg(skip)]
    traced: Mutex<Option<Database>>,
}

impl TraceArguments {
    /// Enables the trace in the options if `--trace` is given.
    pub fn options(&self, options: Options) -> Options {
        if self.trace_file.is_some() {
            options.tune(|tuning| tuning.trace(SLICES))
        } else {
            options
        }
    }

    /// Opens a database, and keeps it for `write`.
    pub fn keep(&self, open: impl FnOnce() -> Result<Database>) -> Result<Database> {
        // Drop the handle of the previous database, which may be its last one.
        self.take();
        let database = open()?;
        if self.trace_file.is_some() {
            *self.traced.lock().unwrap_or_else(PoisonError::into_inner) = Some(database.clone());
        }
        Ok(database)
    }

    /// Writes the trace if `--trace` is given and the command opened a database.
    pub fn write(&self) -> Result<()> {
        let (Some(file), Some(database)) = (&self.trace_file, self.take()) else { return Ok(()) };
        // After close the trace is complete.
        database.close()?;
        let write = || database.trace().write_chrome(BufWriter::new(File::create(file)?));
        write().with_context(|| format!("cannot write the trace {}", file.display()))
    }

    fn take(&self) -> Option<Database> {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
