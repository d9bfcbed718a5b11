//! Checkpoints in the format of earlier builds, for tests.

use super::chunk::{ChunkKind, ChunkWriter};
use super::read::offset;
use super::{MAGIC, name};
use crate::io::OpenMode;
use crate::log::{LogFiles, Lsn};
use crate::rid::TableId;

/// Writes a checkpoint at the start of the log with these records of a paged table, and no other
/// table.
pub(crate) fn write_records_of_earlier_build(
    files: &LogFiles,
    table: TableId,
    records: &[(Vec<u8>, Vec<u8>)],
) {
    let file = files.open(&name(Lsn::FIRST), OpenMode::Emptied).unwrap();
    let (mut chunk, mut number) = (ChunkWriter::new(table, ChunkKind::Records), 0);
    let mut write = |chunk: &mut ChunkWriter| {
        let full = std::mem::replace(chunk, ChunkWriter::new(table, ChunkKind::Records));
        file.write_all_at(&full.finish(number), offset(number)).unwrap();
        number += 1;
    };
    for (key, value) in records {
        let pushed = chunk.push_record(key, value).unwrap_or_else(|| {
            write(&mut chunk);
            chunk.push_record(key, value).unwrap()
        });
        let mut passed = pushed;
        while passed < value.len() {
            write(&mut chunk);
            passed += chunk.push_rest(&value[passed..]);
        }
    }
    write(&mut chunk);
    let own = [records.len() as u64, number.into(), Lsn::FIRST.0, u64::from(table.0) + 1, 0, 0];
    let header = files.header_sector(MAGIC, Lsn::FIRST, own);
    file.write_all_at(&header, 0).unwrap();
    file.sync().unwrap();
    files.directory().sync().unwrap();
}
