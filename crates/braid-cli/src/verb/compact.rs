//! `compact`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::Database;

use crate::output::{Output, counted};
use crate::store::once_free;

/// Compacts the log and prints the freed space.
pub fn run(db: &Database, output: &Output) -> Result<ExitCode> {
    let compacted = once_free(|| pollster::block_on(db.compact()))?;
    if output.json {
        output.document(&compacted)?;
    } else {
        let (segments, bytes, moved) = (compacted.segments, compacted.bytes, compacted.moved);
        output.line(&format!(
            "freed {}, {bytes} bytes; moved {}{}",
            counted(segments, "segment"),
            counted(moved, "record"),
            match compacted.page_bytes {
                0 => String::new(),
                bytes => format!(
                    "; pages take {bytes} bytes and were not moved; freed {} bytes between them",
                    compacted.page_bytes_freed
                ),
            }
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
