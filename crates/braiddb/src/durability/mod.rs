//! Recovery, from the disk to tables: the newest checkpoint, then the log after it. What each thing
//! that can be on disk leads to is a table in `ARCHITECTURE.md`, held by `tests/durability/recovery.rs`.

mod check;
mod checkpoint;
mod compact;
mod key_batch;
mod recovered_pages;
mod replay;
mod upkeep;

pub(crate) use check::check_tables;
pub(crate) use checkpoint::{
    Checkpoint, check as check_checkpoint, estimate_file as estimate_checkpoint_file,
    is_newest as is_newest_checkpoint, name as checkpoint_name,
};
#[cfg(all(test, not(loom)))]
pub(crate) use checkpoint::{estimate as estimate_checkpoint, write_records_of_earlier_build};
pub(crate) use compact::Compacted;
pub(crate) use recovered_pages::RecoveredPages;
pub(crate) use replay::Replayed;
pub(crate) use upkeep::{checkpoint, compact, compact_in_turn, job};

use recovered_pages::RecoveringPages;

use crate::log::{LogError, LogFiles, LogReader};
use crate::page::PageError;
use crate::record::TableFull;
use crate::rid::TableId;
use crate::transaction::Engine;

/// Failure of a recovery.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RecoveryError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Table(#[from] TableFull),
    #[error(transparent)]
    Pages(#[from] PageError),
}

/// How far a recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryStep {
    /// So many records of the checkpoint's are loaded.
    Checkpoint { loaded: u64, records: u64 },
    /// So many bytes of the log are read; there may be less than `bytes` of it.
    Log { read: u64, bytes: u64 },
}

/// The id of the table, or of an index's entries, that a row of the catalog is of, by its key and value.
pub(crate) type TableIdOf = fn(&[u8], &[u8]) -> Option<TableId>;

/// Called with how far a recovery is.
pub(crate) type Watch<'w> = &'w mut dyn FnMut(RecoveryStep);

/// What a recovery did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) replayed: Replayed,
}

/// Brings the engine's tables, which are empty, to the state that is on disk. Paged tables are returned: which
/// of them there are is for the catalog to say.
///
/// # Errors
/// When something cannot be read, or is damaged.
pub(crate) fn recover(
    engine: &Engine,
    files: &LogFiles,
    catalog: TableIdOf,
    mut reader: LogReader,
    watch: Watch<'_>,
) -> Result<(Recovered, RecoveredPages), RecoveryError> {
    let pages = RecoveringPages::new(engine, files);
    let checkpoint = checkpoint::load_newest(engine, files, &pages, watch)?;
    if let Some(checkpoint) = checkpoint {
        reader.start_at(checkpoint.lsn);
        engine.checkpoints.note(checkpoint.lsn, checkpoint.bytes, checkpoint.paged_bytes);
    }
    let replayed = replay::replay(engine, &pages, catalog, reader, watch)?;
    if let Some(checkpoint) = checkpoint.filter(|checkpoint| replayed.end < checkpoint.end) {
        return Err(files.cut_short(replayed.end, checkpoint.end).into());
    }
    Ok((Recovered { checkpoint, replayed }, pages.into_recovered()?))
}
