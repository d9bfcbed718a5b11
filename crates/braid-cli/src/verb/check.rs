//! `check`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::Database;

use crate::exit;
use crate::output::{Output, counted};

/// Checks the database and says what is wrong with it.
pub fn run(db: &Database, output: &Output) -> Result<ExitCode> {
    let report = db.check()?;
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
            output.line("all is well")?;
        }
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { exit::failure() })
}
