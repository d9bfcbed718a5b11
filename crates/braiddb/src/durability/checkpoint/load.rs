//! Checkpoint loading: builds indexes leaf by leaf, and stores the addresses of records. For
//! checkpoints of earlier builds, records of paged tables are written to pages by key.

use super::chunk::{ChunkKind, ChunkReader, ChunkRecord, RECORD_BYTES};
use super::read::{CUT_SHORT, CheckpointReader, NO_SEGMENT, WRONG_COUNT};
use super::{CheckpointInfo, parse_name};
use crate::durability::recovered_pages::RecoveringPages;
use crate::durability::{RecoveryError, RecoveryObserver, RecoveryStep};
use crate::index::Appender;
use crate::log::{LogError, LogFiles, Lsn};
use crate::record::{IndirectionEntry, MemoryRecords, TableFull};
use crate::rid::TableId;
use crate::sched::run_now;
use crate::transaction::Engine;
use crate::types::KeyBuffer;
use crate::version::MAX_VALUE_BYTES;

/// Loads the newest checkpoint into the engine's tables, which are empty, and `pages`. Returns
/// `None` if no checkpoint exists.
///
/// # Errors
/// Errors of the operating system; `Corrupt` if the file is damaged.
pub(crate) fn load_newest(
    engine: &Engine,
    files: &LogFiles,
    pages: &RecoveringPages<'_>,
    watch: RecoveryObserver<'_>,
) -> Result<Option<CheckpointInfo>, RecoveryError> {
    if files.is_read_only() {
        files.note_loaded_checkpoint()?;
    }
    let Some(lsn) = newest(files)? else { return Ok(None) };
    let loaded = load(engine, files, lsn, pages, watch);
    loaded.map(Some).map_err(|error| match error {
        RecoveryError::Log(LogError::Corrupt { path, offset, reason }) if files.are_whole() => {
            let reason = format!("{reason}; without this file, the log is replayed from its start");
            LogError::Corrupt { path, offset, reason }.into()
        }
        error => error,
    })
}

/// Returns the LSN of the newest checkpoint.
pub(in crate::durability) fn newest(files: &LogFiles) -> Result<Option<Lsn>, LogError> {
    Ok(files.list()?.iter().filter_map(|name| parse_name(name)).max())
}

fn load(
    engine: &Engine,
    files: &LogFiles,
    lsn: Lsn,
    pages: &RecoveringPages<'_>,
    watch: RecoveryObserver<'_>,
) -> Result<CheckpointInfo, RecoveryError> {
    let reader = CheckpointReader::open(files, lsn)?;
    let (records, end) = (reader.records, reader.end);
    if let Some(next) = reader.next_table_id {
        engine.raise_table_id(TableId(next - 1));
    }
    let (loaded, paged_bytes, data_bytes) = (0, 0, 0);
    let mut input =
        CheckpointInput { engine, files, pages, reader, loaded, paged_bytes, data_bytes };
    input.begin_leaves()?;
    let mut last_segment = None;
    while let Some((table, kind)) = input.reader.next_table()? {
        input.reader.begin_table(table)?;
        match kind {
            ChunkKind::Addresses => input.load_table(table, &mut last_segment, watch)?,
            ChunkKind::Records => input.load_paged_table(table, watch)?,
            ChunkKind::Leaves => input.load_leaves(table, watch)?,
            ChunkKind::Pieces | ChunkKind::Unowned => {
                let reason = "large values are listed of a table that has no leaves";
                return Err(input.reader.damaged(reason).into());
            }
        }
    }
    if files.is_superseded() {
        // The places that it lists may have been overwritten before this process locked it.
        return Err(LogError::Outdated { path: files.directory().path().into() }.into());
    }
    if input.loaded != records {
        return Err(input.reader.damaged_as_a_whole(WRONG_COUNT).into());
    }
    let CheckpointInput { paged_bytes, data_bytes, .. } = input;
    let bytes = input.reader.file_bytes();
    Ok(CheckpointInfo { lsn, end, records, bytes, paged_bytes, data_bytes })
}

/// Error message for a checkpoint with paged tables in a database without them.
pub(super) const NO_PAGED_TABLES: &str =
    "it holds a paged table, and braid.meta says that there are none";

/// The checkpoint file being loaded.
pub(super) struct CheckpointInput<'i> {
    pub(super) engine: &'i Engine,
    pub(super) files: &'i LogFiles,
    pub(super) pages: &'i RecoveringPages<'i>,
    pub(super) reader: CheckpointReader,
    loaded: u64,
    pub(super) paged_bytes: u64,
    pub(super) data_bytes: u64,
}

impl CheckpointInput<'_> {
    /// Moves past a section with `entries` entries. Returns the section's bytes.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn pass(
        &mut self,
        entries: u64,
        watch: RecoveryObserver<'_>,
    ) -> Result<u64, RecoveryError> {
        let bytes = self.reader.pass()?;
        self.loaded += entries;
        self.engine.share_with_recovered_pages();
        let records = self.reader.records;
        watch(RecoveryStep::Checkpoint { loaded: self.loaded, records });
        Ok(bytes as u64)
    }

    /// Loads the sections of a table, starting with the next one.
    fn load_table(
        &mut self,
        table: TableId,
        last_segment: &mut Option<u64>,
        watch: RecoveryObserver<'_>,
    ) -> Result<(), RecoveryError> {
        let records = self.engine.recovered_table(table);
        let Some(records) = records.in_memory() else {
            return Err(self.reader.damaged("it lists a paged table as one in memory").into());
        };
        let mut index = records.index().appender();
        while self.reader.next_table()? == Some((table, ChunkKind::Addresses)) {
            let mut chunk = self.reader.entries();
            let loaded = load_chunk(
                self.files,
                last_segment,
                records,
                &mut index,
                &mut chunk,
                &mut self.data_bytes,
            );
            let loaded = loaded.map_err(|error| match error {
                ChunkError::Damaged(why) => self.reader.damaged(why).into(),
                ChunkError::Table(full) => RecoveryError::Table(full),
            })?;
            self.pass(loaded, watch)?;
        }
        Ok(())
    }

    /// Loads the chunks of a paged table, starting with the next one.
    fn load_paged_table(
        &mut self,
        table: TableId,
        watch: RecoveryObserver<'_>,
    ) -> Result<(), RecoveryError> {
        if !self.files.allows_paged() {
            return Err(self.reader.damaged(NO_PAGED_TABLES).into());
        }
        let pages = self.pages.tree(table)?;
        let mut last: Option<KeyBuffer> = None;
        // Incomplete value of the last key, and the number of missing bytes.
        let mut cut: Option<(Vec<u8>, usize)> = None;
        while self.reader.next_table()? == Some((table, ChunkKind::Records)) {
            let mut chunk = self.reader.entries();
            let mut loaded = 0;
            if let Some((mut value, missing)) = cut.take() {
                let more = chunk.take_rest(missing);
                value.extend_from_slice(more);
                if more.len() < missing {
                    cut = Some((value, missing - more.len()));
                } else {
                    let key = last.as_ref().expect("the key of the incomplete value");
                    run_now(pages.replay(key, Some(&value)))?;
                }
            }
            while let Some(record) = chunk.next_record() {
                let record = record.map_err(|why| self.reader.damaged(why))?;
                let ChunkRecord { key, value, rest } = record;
                let value_bytes = value.len() + rest;
                if cut.is_some() {
                    return Err(self.reader.damaged(CUT_SHORT).into());
                }
                if key.len() > pages.max_key_bytes() || value_bytes > MAX_VALUE_BYTES {
                    return Err(self.reader.damaged("a record is too long").into());
                }
                if last.as_ref().is_some_and(|last| **last >= *key) {
                    return Err(self.reader.damaged("keys are not in order").into());
                }
                match rest {
                    0 => run_now(pages.replay(key, Some(value)))?,
                    rest => cut = Some((value.to_vec(), rest)),
                }
                let last = last.get_or_insert_default().inner_mut();
                last.clear();
                last.extend_from_slice(key);
                self.paged_bytes += (RECORD_BYTES + key.len() + value_bytes) as u64;
                loaded += 1;
            }
            self.pass(loaded, watch)?;
        }
        match cut {
            Some(_) => Err(self.reader.damaged_as_a_whole(CUT_SHORT).into()),
            None => Ok(()),
        }
    }
}

/// Reason why a chunk cannot be loaded.
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
            TableFull::Capacity { .. } => ChunkError::Damaged("a record id is larger than any"),
            TableFull::Memory(_) => ChunkError::Table(full),
        }
    }
}

/// Loads the entries of one section; returns their number. Adds the bytes of their records to
/// `data_bytes`.
fn load_chunk(
    files: &LogFiles,
    last_segment: &mut Option<u64>,
    table: &MemoryRecords,
    index: &mut Appender<'_>,
    chunk: &mut ChunkReader<'_>,
    data_bytes: &mut u64,
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
                return Err(NO_SEGMENT.into());
            }
            *last_segment = Some(segment);
        }
        index.append(entry.key, entry.rid).map_err(|_| "keys are not in order")?;
        table.raise_rid(entry.rid)?;
        // If two keys have the same record, the log deletes the earlier one.
        let before = table.array().load(entry.rid);
        if !matches!(before, IndirectionEntry::Address(there) if there.lsn() > entry.address.lsn())
        {
            let set =
                table.array().replace(entry.rid, before, IndirectionEntry::Address(entry.address));
            assert!(set, "one thread loads the checkpoint");
        }
        *data_bytes += entry.address.read_bytes() as u64;
        loaded += 1;
    }
    Ok(loaded)
}
