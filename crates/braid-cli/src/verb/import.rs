//! `import`: a file's rows into a table, in one transaction.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use braiddb::{Database, Error};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::rows::Rows;
use crate::arguments::Import;
use crate::exit;
use crate::output::Output;
use crate::store::{StoreArguments, TextTable};

/// What an import did.
#[derive(Debug, Serialize)]
struct Report {
    table: String,
    imported: usize,
    rejected: usize,
    seconds: f64,
    rows_per_second: f64,
}

/// Imports a file, all of it or nothing.
pub fn run(import: &Import, store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let start = Instant::now();
    let bytes = std::fs::metadata(&import.file)
        .with_context(|| format!("cannot read {}", import.file.display()))?
        .len();
    let reading = bar("reading", bytes, "{bytes}/{total_bytes}");
    let rows = Rows::read(import, |bytes| reading.inc(bytes))?;
    reading.finish_and_clear();
    rows.tell_rejected(&import.file.display().to_string());
    let rejected = rows.rejected.len();
    if rejected > 0 && !import.skip_rejected {
        eprintln!(
            "braid: nothing was imported, {rejected} rows were rejected; mend them, or import the \
             others with --skip-rejected"
        );
        return Ok(exit::rejected());
    }
    let imported = rows.good.len();
    let db = store.open_or_create()?;
    write(&db, &import.table, rows.good)?;
    db.close()?;
    let seconds = start.elapsed().as_secs_f64();
    let rows_per_second = imported as f64 / seconds;
    if output.json {
        let table = import.table.clone();
        output.document(&Report { table, imported, rejected, seconds, rows_per_second })?;
    } else {
        output.line(&format!(
            "imported {imported} rows into {:?} in {seconds:.2} s ({rows_per_second:.0} rows/s), \
             rejected {rejected}",
            import.table
        ))?;
    }
    Ok(if rejected == 0 { ExitCode::SUCCESS } else { exit::rejected() })
}

/// Writes all rows in one transaction, the table's creation included.
fn write(db: &Database, table: &str, rows: Vec<(String, String)>) -> Result<()> {
    let writing = bar("writing", rows.len() as u64, "{pos}/{len} rows");
    let (shown, rows, table) = (writing.clone(), Arc::new(rows), table.to_owned());
    db.run_blocking(async move |tx| {
        shown.set_position(0);
        let table: TextTable = tx.open_or_create_table(&table).await?;
        for (key, value) in rows.iter() {
            tx.put(&table, key, value).await?;
            shown.inc(1);
        }
        Ok::<_, Error>(())
    })
    .context("the import was taken back")?;
    writing.finish_and_clear();
    Ok(())
}

/// A progress bar, on a terminal only.
fn bar(what: &'static str, length: u64, figures: &str) -> ProgressBar {
    let template = format!("{{msg}} {{wide_bar}} {figures} {{eta}}");
    let style = ProgressStyle::with_template(&template).expect("a template of our own");
    ProgressBar::new(length).with_style(style).with_message(what)
}
