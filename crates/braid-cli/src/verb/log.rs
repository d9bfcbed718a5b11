//! `log`.

use std::process::ExitCode;

use anyhow::Result;
use braiddb::Database;

use crate::output::Output;

/// Maximum number of blocks per read.
const MAX_BLOCKS: usize = 1000;

/// Prints the blocks of the log from an LSN on.
pub fn run(db: &Database, from: u64, limit: u64, output: &Output) -> Result<ExitCode> {
    let (mut at, mut left) = (from, limit);
    while left > 0 {
        let (blocks, end) =
            db.log_blocks(at, MAX_BLOCKS.min(usize::try_from(left).unwrap_or(MAX_BLOCKS)))?;
        if blocks.is_empty() {
            break;
        }
        (at, left) = (end, left - blocks.len() as u64);
        for block in blocks {
            if output.json {
                output.document(&block)?;
            } else {
                let (lsn, kind, bytes, records) =
                    (block.lsn, block.kind, block.bytes, block.records);
                output
                    .line(&format!("{lsn:>16} {kind:<6} {bytes:>9} bytes {records:>6} records"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
