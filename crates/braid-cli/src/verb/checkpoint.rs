//! `checkpoint`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::Database;

use crate::output::{Output, counted};
use crate::store::once_free;

/// Writes a checkpoint and prints its size.
pub fn run(db: &Database, output: &Output) -> Result<ExitCode> {
    let written = once_free(|| pollster::block_on(db.checkpoint()))?;
    if output.json {
        output.document(&written)?;
    } else {
        let (lsn, records, bytes) = (written.lsn, written.records, written.bytes);
        output.line(&format!(
            "checkpoint at LSN {lsn}: {}, {bytes} bytes",
            counted(records, "record")
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
