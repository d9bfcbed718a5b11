//! `backup`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use braiddb::Database;

use crate::output::Output;
use crate::store::StoreArguments;

/// Copies the database into an empty directory. Another process may have it open.
pub fn run(store: &StoreArguments, directory: &Path, output: &Output) -> Result<ExitCode> {
    let backup = Database::backup_directory(&store.db, directory)?;
    if output.json {
        output.document(&backup)?;
    } else {
        let (lsn, bytes, directory) = (backup.lsn, backup.bytes, directory.display());
        let pages = match backup.page_bytes {
            0 => String::new(),
            bytes => format!(", {bytes} of them pages"),
        };
        output.line(&format!(
            "{directory} holds the database up to LSN {lsn}: {bytes} bytes{pages}"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
