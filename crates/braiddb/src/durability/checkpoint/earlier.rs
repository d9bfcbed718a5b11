//! Checkpoints in the formats of earlier builds, for tests: each chunk has a fixed size and the
//! entries of one table.

use super::chunk::{CHUNK_BYTES, ChunkKind, EarlierChunk, MAX_UNSPLIT_VALUE_BYTES};
use super::read::CheckpointReader;
use super::{MAGIC, name};
use crate::io::{AlignedBuffer, OpenMode, SECTOR_BYTES};
use crate::log::{LogFiles, Lsn};
use crate::rid::TableId;

/// Number of bytes of a record before its key.
const RECORD_BYTES: usize = 8;

/// Writes a checkpoint at the start of the log with these records of a paged table, and no other
/// table.
pub(crate) fn write_records_of_earlier_build(
    files: &LogFiles,
    table: TableId,
    records: &[(Vec<u8>, Vec<u8>)],
) {
    let (mut chunks, mut chunk) = (Vec::new(), EarlierChunk::new(table, ChunkKind::Records));
    let finish = |chunk: &mut EarlierChunk, chunks: &mut Vec<AlignedBuffer>| {
        let full = std::mem::replace(chunk, EarlierChunk::new(table, ChunkKind::Records));
        chunks.push(full.finish(chunks.len() as u32));
    };
    for (key, value) in records {
        let least = if value.len() > MAX_UNSPLIT_VALUE_BYTES { 0 } else { value.len() };
        if chunk.room() < RECORD_BYTES + key.len() + least {
            finish(&mut chunk, &mut chunks);
        }
        chunk.entries += 1;
        chunk.contents.extend_from_slice(&(value.len() as u32).to_le_bytes());
        chunk.contents.extend_from_slice(&(key.len() as u32).to_le_bytes());
        chunk.contents.extend_from_slice(key);
        let mut rest = &value[..];
        loop {
            let (here, after) = rest.split_at(rest.len().min(chunk.room()));
            chunk.contents.extend_from_slice(here);
            rest = after;
            if rest.is_empty() {
                break;
            }
            finish(&mut chunk, &mut chunks);
        }
    }
    finish(&mut chunk, &mut chunks);
    let own = [records.len() as u64, 0, Lsn::FIRST.0, u64::from(table.0) + 1, 0, 0];
    write(files, Lsn::FIRST, own, &chunks);
}

/// Rewrites the checkpoint at `lsn` in the format before version 5.
pub(crate) fn rewrite_as_earlier_build(files: &LogFiles, lsn: Lsn) {
    let mut reader = CheckpointReader::open(files, lsn).unwrap();
    let mut chunks = Vec::new();
    while reader.next_table().unwrap().is_some() {
        chunks.push(reader.section_as_earlier_chunk().finish(chunks.len() as u32));
        reader.pass().unwrap();
    }
    let (next, pages) = (reader.next_table_id.unwrap_or_default(), reader.pages);
    let [id_limit, page_bytes] =
        pages.map_or([0; 2], |pages| [pages.id_limit, pages.page_bytes as u64]);
    let own = [reader.records, 0, reader.end.0, next.into(), id_limit, page_bytes];
    drop(reader);
    write(files, lsn, own, &chunks);
}

fn write(files: &LogFiles, lsn: Lsn, mut own: [u64; 6], chunks: &[AlignedBuffer]) {
    let file = files.open(&name(lsn), OpenMode::Emptied).unwrap();
    own[1] = chunks.len() as u64;
    file.write_all_at(&files.earlier_checkpoint_sector(MAGIC, lsn, own), 0).unwrap();
    for (number, chunk) in chunks.iter().enumerate() {
        file.write_all_at(chunk, (SECTOR_BYTES + number * CHUNK_BYTES) as u64).unwrap();
    }
    file.sync().unwrap();
    files.directory().sync().unwrap();
}
