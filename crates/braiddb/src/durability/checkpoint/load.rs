//! Loading a checkpoint: indexes are built leaf by leaf, entries get addresses.

use std::path::Path;

use super::chunk::{CHUNK_BYTES, ChunkReader};
use super::{Checkpoint, MAGIC, name, parse_name};
use crate::durability::{RecoveryError, RecoveryStep, Watch};
use crate::index::Appender;
use crate::io::{AlignedBuffer, File, OpenMode, SECTOR_BYTES};
use crate::log::{LogError, LogFiles, Lsn};
use crate::record::{IndirectionEntry, Records, TableFull};
use crate::transaction::Engine;

/// Loads the newest checkpoint into the engine's tables, which are empty; `None` if there is none.
///
/// # Errors
/// The operating system's; `Corrupt` if the file is damaged.
pub(crate) fn load_newest(
    engine: &Engine,
    files: &LogFiles,
    watch: Watch<'_>,
) -> Result<Option<Checkpoint>, RecoveryError> {
    let names = files.list()?;
    let Some(lsn) = names.iter().filter_map(|name| parse_name(name)).max() else {
        return Ok(None);
    };
    let loaded = load(engine, files, lsn, watch);
    loaded.map(Some).map_err(|error| match error {
        RecoveryError::Log(LogError::Corrupt { path, offset, reason }) if files.are_whole() => {
            let reason = format!("{reason}; without this file, the log is replayed from its start");
            LogError::Corrupt { path, offset, reason }.into()
        }
        error => error,
    })
}

fn load(
    engine: &Engine,
    files: &LogFiles,
    lsn: Lsn,
    watch: Watch<'_>,
) -> Result<Checkpoint, RecoveryError> {
    let file = files.open(&name(lsn), OpenMode::Existing)?;
    let path = file.path();
    let [records, chunks, end] = files.read_header_sector(&file, MAGIC, lsn)?;
    let chunks = u32::try_from(chunks).map_err(|_| damaged(path, 0, "it is too large"))?;
    let damaged_at = |number, reason| damaged(path, offset(number), reason);
    let mut buffer = AlignedBuffer::zeroed(CHUNK_BYTES);
    let (mut loaded, mut number) = (0, 0);
    let (mut last_table, mut last_segment) = (None, None);
    while number < chunks {
        read(&file, number, &mut buffer)?;
        let chunk = ChunkReader::new(&buffer, number).map_err(|why| damaged_at(number, why))?;
        if last_table.is_some_and(|last| chunk.table <= last) {
            return Err(damaged_at(number, "tables are not in order").into());
        }
        last_table = Some(chunk.table);
        let table = engine.table(chunk.table);
        let mut index = table.index.appender();
        while number < chunks {
            read(&file, number, &mut buffer)?;
            let chunk = ChunkReader::new(&buffer, number);
            let mut chunk = chunk.map_err(|why| damaged_at(number, why))?;
            if chunk.table != table.id {
                break;
            }
            let entries = load_chunk(files, &mut last_segment, &table, &mut index, &mut chunk);
            loaded += entries.map_err(|error| match error {
                ChunkError::Damaged(why) => damaged_at(number, why).into(),
                ChunkError::Table(full) => RecoveryError::Table(full),
            })?;
            number += 1;
            watch(RecoveryStep::Checkpoint { loaded, records });
        }
    }
    if loaded != records {
        return Err(damaged(path, 0, "it does not hold as many records as it says").into());
    }
    let bytes = offset(chunks);
    Ok(Checkpoint { lsn, end: Lsn(end), records, bytes })
}

fn offset(number: u32) -> u64 {
    SECTOR_BYTES as u64 + u64::from(number) * CHUNK_BYTES as u64
}

fn read(file: &File, number: u32, into: &mut AlignedBuffer) -> Result<(), LogError> {
    match file.read_exact_at(into, offset(number)) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(damaged(file.path(), offset(number), "it is cut short"))
        }
        read => read.map_err(|error| LogError::io("read", file.path(), offset(number), error)),
    }
}

/// Why a chunk cannot be loaded.
enum ChunkError {
    Damaged(&'static str),
    Table(TableFull),
}

impl From<&'static str> for ChunkError {
    fn from(why: &'static str) -> Self {
        ChunkError::Damaged(why)
    }
}

impl From<TableFull> for ChunkError {
    fn from(full: TableFull) -> Self {
        match full {
            TableFull::Capacity => ChunkError::Damaged("a record id is larger than any"),
            TableFull::Memory(_) => ChunkError::Table(full),
        }
    }
}

/// Loads the entries of one chunk; returns how many there were.
fn load_chunk(
    files: &LogFiles,
    last_segment: &mut Option<u64>,
    table: &Records,
    index: &mut Appender<'_>,
    chunk: &mut ChunkReader<'_>,
) -> Result<u64, ChunkError> {
    let mut loaded = 0;
    while let Some(entry) = chunk.next() {
        let entry = entry?;
        if entry.key.len() > crate::index::MAX_KEY_BYTES {
            return Err("a key is too long".into());
        }
        let segment = files.segment_of(entry.address.lsn());
        if *last_segment != Some(segment) {
            if !files.has(entry.address.lsn()) {
                return Err("a segment that it leads to is missing".into());
            }
            *last_segment = Some(segment);
        }
        index.append(entry.key, entry.rid).map_err(|_| "keys are not in order")?;
        table.raise_rid(entry.rid)?;
        // Where two keys have one record, the log deletes the earlier one.
        let before = table.array().load(entry.rid);
        if !matches!(before, IndirectionEntry::Address(there) if there.lsn() > entry.address.lsn())
        {
            let set =
                table.array().replace(entry.rid, before, IndirectionEntry::Address(entry.address));
            assert!(set, "one thread loads");
        }
        loaded += 1;
    }
    Ok(loaded)
}

fn damaged(path: &Path, offset: u64, reason: &str) -> LogError {
    LogError::Corrupt { path: path.to_owned(), offset, reason: reason.to_owned() }
}
