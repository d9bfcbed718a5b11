//! The tests rebuild files byte by byte from the tables in `docs/format.md`, which proves the page
//! correct.

use std::collections::BTreeMap;

use super::*;
use crate::common::{PART_SECONDS, with_limit};

/// Returns one chapter of the page.
fn chapter(name: &str) -> &'static str {
    let page = include_str!("../../../../../docs/format.md");
    let (_, chapter) = page.split_once(&format!("\n## {name}\n")).expect("the chapter is there");
    chapter.split("\n## ").next().unwrap()
}

/// Returns the first bit and the width of a bit field, from a table of a chapter.
pub(crate) fn bits(chapter: &str, name: &str) -> (u32, u32) {
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (first, last) = cells.get(1)?.split_once(" to ")?;
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cells[2].starts_with(name).then_some((first, last - first + 1))
    };
    let mut found = self::chapter(chapter).lines().filter_map(row);
    let bits = found.next().unwrap_or_else(|| panic!("{name} in {chapter}"));
    assert!(found.next().is_none(), "{name} is one field");
    bits
}

/// Returns offset and size of each field in the tables of one chapter, by the field's first words.
pub(crate) fn fields(chapter: &str) -> BTreeMap<String, (usize, usize)> {
    let mut fields = BTreeMap::new();
    let mut end = 0;
    for line in self::chapter(chapter).lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Ok(offset) = cells[1].parse::<usize>() else { continue };
        assert_eq!(offset, end, "fields lie end to end: {line}");
        let bytes = cells[2].parse().unwrap_or(0);
        end = offset + bytes;
        fields.insert(cells[3].to_owned(), (offset, bytes));
    }
    fields
}

/// Writes numbers into fields, which are named by the start of their description.
pub(crate) fn fill(chapter: &str, into: &mut [u8], values: &[(&str, u64)]) {
    let fields = fields(chapter);
    assert_eq!(fields.values().filter(|(_, bytes)| *bytes > 0).count(), values.len(), "{chapter}");
    for (name, value) in values {
        let mut found = fields.iter().filter(|(field, _)| field.starts_with(name));
        let (_, (offset, bytes)) = found.next().unwrap_or_else(|| panic!("{name} in {chapter}"));
        assert!(found.next().is_none(), "{name} is one field");
        let number = value.to_le_bytes();
        let bytes = (*bytes).min(8);
        into[*offset..offset + bytes].copy_from_slice(&number[..bytes]);
    }
}

fn field(chapter: &str, name: &str) -> std::ops::Range<usize> {
    let fields = fields(chapter);
    let (_, (offset, bytes)) = fields.iter().find(|(field, _)| field.starts_with(name)).unwrap();
    *offset..offset + bytes
}

#[test]
fn the_headers_of_files() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let bench = Bench::open(directory.path()).unwrap();
        let identity = bench.log.identity().unwrap();
        for (name, magic) in
            [("braid.meta", *b"BRAIDDB\0"), ("wal-0000000000000000.seg", *b"BRAIDWAL")]
        {
            let mut expected = vec![0; 4096];
            let id = field("File header", "database id");
            let magic = u64::from_le_bytes(magic);
            let fixed =
                [("magic", magic), ("format version", 1), ("checksum", 0), ("database id", 0)];
            // For a segment, the first number is the size of its log.
            let own = if name == "braid.meta" { 0 } else { SMALL_SEGMENT };
            let sizes =
                [("bytes of log in each", SMALL_SEGMENT), ("start LSN", 0), ("six numbers", own)];
            fill("File header", &mut expected, &[&fixed[..], &sizes[..]].concat());
            expected[id].copy_from_slice(&identity.database);
            let sum = crc32c::crc32c(&expected);
            expected[field("File header", "checksum")].copy_from_slice(&sum.to_le_bytes());
            let file = std::fs::read(directory.path().join(name)).unwrap();
            assert!(file[..4096] == expected, "{name}");
            assert!(name == "braid.meta" || file.len() as u64 == 4096 + SMALL_SEGMENT);
        }
    });
}

#[test]
fn only_braid_meta_says_that_there_are_paged_tables() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let bench = Bench::open(directory.path()).unwrap();
        let version = |name: &str| {
            let file = std::fs::read(directory.path().join(name)).unwrap();
            file[field("File header", "format version")].to_vec()
        };
        let before = std::fs::read(directory.path().join("braid.meta")).unwrap();
        bench.log.files().unwrap().allow_paged().unwrap();
        assert_eq!(version("braid.meta"), [2, 0, 0, 0]);
        assert_eq!(version("wal-0000000000000000.seg"), [1, 0, 0, 0]);
        let mut after = std::fs::read(directory.path().join("braid.meta")).unwrap();
        assert_eq!(after[field("File header", "six numbers")][..8], 4096_u64.to_le_bytes());
        // Nothing else in it has changed.
        for name in ["format version", "checksum", "six numbers"] {
            after[field("File header", name)].copy_from_slice(&before[field("File header", name)]);
        }
        assert!(after == before);
    });
}

#[test]
fn braid_meta_says_that_there_are_moved_blocks() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let bench = Bench::open(directory.path()).unwrap();
        let files = bench.log.files().unwrap();
        let version = || {
            let file = std::fs::read(directory.path().join("braid.meta")).unwrap();
            file[field("File header", "format version")].to_vec()
        };
        assert!(!bench.log.logs_moved());
        files.allow_paged().unwrap();
        files.allow_moved().unwrap();
        assert!(bench.log.logs_moved());
        assert_eq!(version(), [3, 0, 0, 0]);
        // The version never decreases.
        files.allow_paged().unwrap();
        assert_eq!(version(), [3, 0, 0, 0]);
        drop((bench, files));
        let bench = Bench::open(directory.path()).unwrap();
        assert!(bench.log.logs_moved());
    });
}

#[test]
fn moved_blocks() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        bench.log.files().unwrap().allow_moved().unwrap();
        let mut moved = bench.log.reserve(0, block_bytes(record_bytes(3, 5)));
        moved.append(TableId(9), RecordKind::Update, Rid::new(3), b"key", b"value");
        moved.finish_moved();
        bench.flush();
        let mut record = vec![0; 24];
        fill(
            "Record",
            &mut record,
            &[
                ("record id", 3),
                ("table", 9),
                ("bytes of the value", 5),
                ("bytes of the key", 3),
                ("kind", 2),
                ("zero", 0),
                ("checksum", 0),
            ],
        );
        sum_record(&mut record, b"keyvalue");
        let expected = block(4096, 4, 0, 4096, &record, 0);
        let file = std::fs::read(directory.path().join("wal-0000000000000000.seg")).unwrap();
        assert!(file[8192..8192 + expected.len()] == expected, "the block is what the page says");
        drop(bench);
        let bench = Bench::open(directory.path()).unwrap();
        assert_eq!(bench.found[0], [(b"key".to_vec(), b"value".to_vec())]);
        // In a database whose version does not allow such records, they are damage.
        drop(bench);
        let meta = directory.path().join("braid.meta");
        let mut sector = std::fs::read(&meta).unwrap();
        sector[field("File header", "format version")].copy_from_slice(&[2, 0, 0, 0]);
        sector[field("File header", "checksum")].fill(0);
        let sum = crc32c::crc32c(&sector);
        sector[field("File header", "checksum")].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&meta, sector).unwrap();
        let opened = Bench::open(directory.path());
        assert!(matches!(opened, Err(LogError::Corrupt { .. })));
    });
}

/// Builds a block from the page alone.
fn block(lsn: u64, kind: u64, first_part: u64, durable: u64, body: &[u8], skip: usize) -> Vec<u8> {
    let bytes = 32 + body.len() + skip;
    let mut block = [&[0; 32], body].concat();
    let record_header = &body[..body.len().min(24)];
    fill(
        "Block",
        &mut block,
        &[
            ("LSN of this block", lsn),
            ("LSN of the first part", first_part),
            ("bytes of the block", bytes as u64),
            ("checksum", 0),
            ("bytes between", lsn - durable),
            ("number of records", u64::from(!body.is_empty())),
            ("kind", kind),
            ("zero", 0),
        ],
    );
    let sum = crc32c::crc32c_append(crc32c::crc32c(record_header), &block[..32]);
    block[field("Block", "checksum")].copy_from_slice(&sum.to_le_bytes());
    block.resize(bytes, 0);
    block
}

/// Adds key and value to a record, and its checksum.
fn sum_record(record: &mut Vec<u8>, body: &[u8]) {
    record.extend(body);
    let sum = crc32c::crc32c(record);
    record[field("Record", "checksum")].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn blocks_and_records() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        {
            let log = &bench.log;
            let bytes = block_bytes(record_bytes(3, 10));
            let mut commit = log.reserve(0, bytes);
            commit.append(
                TableId(70_000),
                RecordKind::Update,
                Rid::new(1 << 40),
                b"key",
                b"0123456789",
            );
            commit.finish_commit(None);
            let mut part = log.reserve(0, bytes);
            let first = part.lsn();
            part.append(
                TableId(70_000),
                RecordKind::Update,
                Rid::new(1 << 40),
                b"key",
                b"0123456789",
            );
            part.finish_part(first);
            log.reserve(0, block_bytes(0)).finish_commit(Some(first));
        }
        bench.flush();
        let next = bench.commit(b"", b"");
        bench.flush();
        assert_eq!(next, Lsn(8192));

        let mut record = vec![0; 24];
        fill(
            "Record",
            &mut record,
            &[
                ("record id", 1 << 40),
                ("table", 70_000),
                ("bytes of the value", 10),
                ("bytes of the key", 3),
                ("kind", 2),
                ("zero", 0),
                ("checksum", 0),
            ],
        );
        sum_record(&mut record, b"key0123456789");
        record.extend(b"\0\0\0");
        let mut expected = block(4096, 1, 0, 4096, &record, 0);
        let part = 4096 + expected.len() as u64;
        expected.extend(block(part, 2, part, 4096, &record, 0));
        let commit = 4096 + expected.len() as u64;
        expected.extend(block(commit, 1, part, 4096, &[], 0));
        let skip = 4096 + expected.len();
        expected.extend(block(skip as u64, 3, 0, 4096, &[], 8192 - skip - 32));
        let mut empty = vec![0; 24];
        fill(
            "Record",
            &mut empty,
            &[
                ("record id", 8192),
                ("table", 7),
                ("bytes of the value", 0),
                ("bytes of the key", 0),
                ("kind", 1),
                ("zero", 0),
                ("checksum", 0),
            ],
        );
        sum_record(&mut empty, b"");
        expected.extend(block(8192, 1, 0, 8192, &empty, 0));
        let file = std::fs::read(directory.path().join("wal-0000000000000000.seg")).unwrap();
        // The file offset of LSN 4096 is 8192.
        let written = &file[8192..8192 + expected.len()];
        assert!(written == expected, "the log is what the page says");
        let padding = Lsn(8192 + 56);
        assert_eq!(file[4096 + padding.0 as usize..][..8], padding.0.to_le_bytes());
    });
}

#[test]
fn records_of_paged_tables() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        for (kind, code, value) in
            [(RecordKind::PutByKey, 6, &b"value"[..]), (RecordKind::DeleteByKey, 7, b"")]
        {
            let bytes = block_bytes(record_bytes(3, value.len()));
            let mut block = bench.log.reserve(0, bytes);
            let lsn = block.lsn();
            block.append(TableId(9), kind, Rid::new(0), b"key", value);
            block.finish_commit(None);
            bench.flush();
            let mut record = vec![0; 24];
            fill(
                "Record",
                &mut record,
                &[
                    ("record id", 0),
                    ("table", 9),
                    ("bytes of the value", value.len() as u64),
                    ("bytes of the key", 3),
                    ("kind", code),
                    ("zero", 0),
                    ("checksum", 0),
                ],
            );
            sum_record(&mut record, &[b"key", value].concat());
            record.resize(record.len().next_multiple_of(8), 0);
            let file = std::fs::read(directory.path().join("wal-0000000000000000.seg")).unwrap();
            let written = &file[4096 + lsn.0 as usize + 32..][..record.len()];
            assert!(written == record, "the record is what the page says");
        }
    });
}
