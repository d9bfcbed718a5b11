//! `compact`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::maintenance::Compaction;

use crate::output::{Output, counted};
use crate::service;
use crate::store::{StoreArguments, once_free};

/// Compacts the log and prints the freed space.
pub fn run(store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let compacted: Compaction = service::run(store, "compact", || {
        let db = store.open_existing()?;
        Ok(once_free(|| pollster::block_on(db.compact()))?)
    })?;
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
