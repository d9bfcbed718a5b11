//! `check`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::Error;
use braiddb::maintenance::CheckReport;

use crate::exit;
use crate::output::{Output, counted};
use crate::service;
use crate::store::StoreArguments;

/// Maximum number of openings, if another process frees files that the check reads.
const OPENINGS: u32 = 8;

/// Checks the database and prints the problems.
pub fn run(store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let report = service::run(store, "check", || check(store))?;
    if output.json {
        output.document(&report)?;
    } else {
        output.line(&format!(
            "{} of log, {}, {}",
            counted(report.blocks, "block"),
            counted(report.records, "record"),
            counted(report.pages, "page")
        ))?;
        for problem in &report.problems {
            eprintln!("braid: {problem}");
        }
        if report.problems.is_empty() {
            output.line("no problems found")?;
        }
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { exit::failure() })
}

/// Checks the files of the database. Another process may have it open.
fn check(store: &StoreArguments) -> Result<CheckReport> {
    let mut openings = 1;
    loop {
        match store.open_to_read().and_then(|db| Ok(db.check()?)) {
            Err(error) if is_outdated(&error) && openings < OPENINGS => openings += 1,
            checked => return checked,
        }
    }
}

/// Returns whether another process has freed files of the opened state.
fn is_outdated(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Outdated(_)))
}
