//! `checkpoint`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::maintenance::Checkpoint;

use crate::output::{Output, counted};
use crate::service;
use crate::store::{StoreArguments, once_free};

/// Writes a checkpoint and prints its size.
pub fn run(store: &StoreArguments, output: &Output) -> Result<ExitCode> {
    let written: Checkpoint = service::run(store, "checkpoint", || {
        let db = store.open_existing()?;
        Ok(once_free(|| pollster::block_on(db.checkpoint()))?)
    })?;
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
