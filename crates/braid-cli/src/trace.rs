//! `--trace`: what the workers did while the command ran, for a viewer of traces.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use braiddb::{Database, Options};
use clap::Args;

/// Slices of each worker's time that are kept, which take 24 MB.
const SLICES: usize = 1_000_000;

/// Where the trace goes, if one is asked for.
#[derive(Args, Debug)]
pub struct TraceArguments {
    /// Write what each worker ran and waited for, its latest million steps, into this file; ui.perfetto.dev shows it.
    #[arg(help_heading = crate::store::HEADING, long = "trace", value_name = "FILE")]
    trace_file: Option<PathBuf>,

    /// The database that was opened last.
    #[arg(skip)]
    traced: Mutex<Option<Database>>,
}

impl TraceArguments {
    /// The same options, with a trace if one is asked for.
    pub fn options(&self, options: Options) -> Options {
        if self.trace_file.is_some() {
            options.tune(|tuning| tuning.trace(SLICES))
        } else {
            options
        }
    }

    /// Opens a database whose trace is the one to be written.
    pub fn keep(&self, open: impl FnOnce() -> Result<Database>) -> Result<Database> {
        // The one before is closed with its last handle, which this may be.
        self.take();
        let database = open()?;
        if self.trace_file.is_some() {
            *self.traced.lock().unwrap_or_else(PoisonError::into_inner) = Some(database.clone());
        }
        Ok(database)
    }

    /// Writes the trace, if one is asked for and a database was opened.
    pub fn write(&self) -> Result<()> {
        let (Some(file), Some(database)) = (&self.trace_file, self.take()) else { return Ok(()) };
        // So that all of it was noted, its end too.
        database.close()?;
        let write = || database.trace().write_chrome(BufWriter::new(File::create(file)?));
        write().with_context(|| format!("cannot write the trace {}", file.display()))
    }

    fn take(&self) -> Option<Database> {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
