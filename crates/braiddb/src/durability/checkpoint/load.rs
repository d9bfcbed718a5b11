//! Loading a checkpoint: indexes are built leaf by leaf, entries get addresses; records of paged tables are put onto
//! pages by their keys.

use std::path::Path;

use super::chunk::{CHUNK_BYTES, ChunkKind, ChunkReader, ChunkRecord, RECORD_BYTES};
use super::{Checkpoint, MAGIC, name, parse_name};
use crate::durability::recovered_pages::RecoveringPages;
use crate::durability::{RecoveryError, RecoveryStep, Watch};
use crate::index::Appender;
use crate::io::{AlignedBuffer, File, OpenMode, SECTOR_BYTES};
use crate::log::{LogError, LogFiles, Lsn};
use crate::record::{IndirectionEntry, Records, TableFull};
use crate::rid::TableId;
use crate::sched::run_now;
use crate::transaction::Engine;
use crate::types::KeyBuffer;

/// Loads the newest checkpoint into the engine's tables, which are empty, and `pages`; `None` if there is none.
///
/// # Errors
/// The operating system's; `Corrupt` if the file is damaged.
pub(crate) fn load_newest(
    engine: &Engine,
    files: &LogFiles,
    pages: &RecoveringPages<'_>,
    watch: Watch<'_>,
) -> Result<Option<Checkpoint>, RecoveryError> {
    let names = files.list()?;
    let Some(lsn) = names.iter().filter_map(|name| parse_name(name)).max() else {
        return Ok(None);
    };
    let loaded = load(engine, files, lsn, pages, watch);
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
    pages: &RecoveringPages<'_>,
    watch: Watch<'_>,
) -> Result<Checkpoint, RecoveryError> {
    let file = files.open(&name(lsn), OpenMode::Existing)?;
    let [records, chunks, end] = files.read_header_sector(&file, MAGIC, lsn)?;
    let chunks = u32::try_from(chunks).map_err(|_| damaged(file.path(), 0, "it is too large"))?;
    let buffer = AlignedBuffer::zeroed(CHUNK_BYTES);
    let (number, loaded, paged_bytes) = (0, 0, 0);
    let mut input =
        Input { engine, files, pages, file, buffer, chunks, number, records, loaded, paged_bytes };
    let (mut last_table, mut last_segment) = (None, None);
    while let Some((table, kind)) = input.next_table()? {
        if last_table.is_some_and(|last| table <= last) {
            return Err(input.damaged("tables are not in order").into());
        }
        last_table = Some(table);
        match kind {
            ChunkKind::Addresses => input.load_table(table, &mut last_segment, watch)?,
            ChunkKind::Records => input.load_paged_table(table, watch)?,
        }
    }
    if input.loaded != records {
        let reason = "it does not hold as many records as it says";
        return Err(damaged(input.file.path(), 0, reason).into());
    }
    let paged_bytes = input.paged_bytes;
    Ok(Checkpoint { lsn, end: Lsn(end), records, bytes: offset(chunks), paged_bytes })
}

/// The file being read.
struct Input<'i> {
    engine: &'i Engine,
    files: &'i LogFiles,
    pages: &'i RecoveringPages<'i>,
    file: File,
    buffer: AlignedBuffer,
    chunks: u32,
    /// The next chunk.
    number: u32,
    records: u64,
    loaded: u64,
    paged_bytes: u64,
}

impl Input<'_> {
    /// That there is something wrong with the next chunk.
    fn damaged(&self, reason: &str) -> LogError {
        damaged(self.file.path(), offset(self.number), reason)
    }

    /// Reads the next chunk, but does not pass it; what it is of. `None` after the last.
    fn next_table(&mut self) -> Result<Option<(TableId, ChunkKind)>, LogError> {
        if self.number == self.chunks {
            return Ok(None);
        }
        read(&self.file, self.number, &mut self.buffer)?;
        let chunk = ChunkReader::new(&self.buffer, self.number);
        let chunk = chunk.map_err(|why| self.damaged(why))?;
        Ok(Some((chunk.table, chunk.kind)))
    }

    /// Passes a chunk, which had so many entries.
    fn pass(&mut self, entries: u64, watch: Watch<'_>) {
        self.number += 1;
        self.loaded += entries;
        watch(RecoveryStep::Checkpoint { loaded: self.loaded, records: self.records });
    }

    /// Loads the chunks of a table, the first of which is the next.
    fn load_table(
        &mut self,
        table: TableId,
        last_segment: &mut Option<u64>,
        watch: Watch<'_>,
    ) -> Result<(), RecoveryError> {
        let records = self.engine.table(table);
        let mut index = records.index.appender();
        while self.next_table()? == Some((table, ChunkKind::Addresses)) {
            let chunk = ChunkReader::new(&self.buffer, self.number);
            let mut chunk = chunk.map_err(|why| self.damaged(why))?;
            let loaded = load_chunk(self.files, last_segment, &records, &mut index, &mut chunk);
            let loaded = loaded.map_err(|error| match error {
                ChunkError::Damaged(why) => self.damaged(why).into(),
                ChunkError::Table(full) => RecoveryError::Table(full),
            })?;
            self.pass(loaded, watch);
        }
        Ok(())
    }

    /// Loads the chunks of a paged table, the first of which is the next.
    fn load_paged_table(&mut self, table: TableId, watch: Watch<'_>) -> Result<(), RecoveryError> {
        if !self.files.allows_paged() {
            let reason = "it holds a paged table, and braid.meta says that there are none";
            return Err(self.damaged(reason).into());
        }
        let pages = self.pages.tree(table)?;
        let mut last: Option<KeyBuffer> = None;
        while self.next_table()? == Some((table, ChunkKind::Records)) {
            let chunk = ChunkReader::new(&self.buffer, self.number);
            let mut chunk = chunk.map_err(|why| self.damaged(why))?;
            let mut loaded = 0;
            while let Some(record) = chunk.next_record() {
                let ChunkRecord { key, value } = record.map_err(|why| self.damaged(why))?;
                if key.len() > pages.max_key_bytes() || value.len() > pages.max_value_bytes() {
                    return Err(self.damaged("a record is too long").into());
                }
                if last.as_ref().is_some_and(|last| **last >= *key) {
                    return Err(self.damaged("keys are not in order").into());
                }
                run_now(pages.replay(key, Some(value)))?;
                let last = last.get_or_insert_default().inner_mut();
                last.clear();
                last.extend_from_slice(key);
                self.paged_bytes += (RECORD_BYTES + key.len() + value.len()) as u64;
                loaded += 1;
            }
            self.pass(loaded, watch);
        }
        Ok(())
    }
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
