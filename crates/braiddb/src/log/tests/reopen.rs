//! Durable blocks are read again in order.

use super::*;
use crate::common::{PART_SECONDS, with_limit};

#[test]
fn everything_durable_is_read_back() {
    with_limit(PART_SECONDS, |_| {
        for kind in [DeviceKind::Auto, DeviceKind::Blocking] {
            let directory = tempfile::tempdir().unwrap();
            let mut expected: Found = Vec::new();
            // Several segments, several runs.
            for run in 0..4 {
                let mut bench = Bench::open_with(options(directory.path()), kind).unwrap();
                assert_eq!(bench.found, expected, "run {run}");
                for number in 0..700 {
                    let (key, value) = numbered(run * 1000 + number);
                    bench.commit(&key, &value);
                    expected.push(vec![(key, value)]);
                    if number % 50 == 0 {
                        bench.flush();
                    }
                }
                bench.flush();
                assert_eq!(bench.log.durable(), bench.log.tail());
                let stats = bench.log.stats();
                assert!(stats.flushes >= 14 && stats.bytes_written > stats.padding_bytes);
            }
            assert_eq!(Bench::open(directory.path()).unwrap().found, expected);
        }
    });
}

#[test]
fn the_ring_wraps() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let options =
            LogOptions { ring_bytes: 1, segment_bytes: Some(8 << 20), ..options(directory.path()) };
        let mut bench = Bench::open_with(options, DeviceKind::Auto).unwrap();
        // A ring of 32 MiB and odd sizes, so that some block wraps around its end.
        let value = vec![5; 999_983];
        for number in 0..80u64 {
            bench.commit(&number.to_be_bytes(), &value);
        }
        bench.flush();
        assert!(bench.log.tail().0 > 2 * (32 << 20));
        drop(bench);
        let found = Bench::open(directory.path()).unwrap().found;
        assert_eq!(found.len(), 80);
        for (number, records) in found.iter().enumerate() {
            assert_eq!(records[0].0, (number as u64).to_be_bytes());
            assert!(records[0].1 == value);
        }
    });
}

#[test]
fn what_a_file_held_as_an_earlier_segment_is_never_met() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        let mut expected = Vec::new();
        let mut write = |bench: &mut Bench, until: Lsn| {
            while bench.log.tail() < until {
                let (key, value) = numbered(expected.len() as u64);
                let lsn = bench.commit(&key, &value);
                expected.push((lsn, key));
                if expected.len() % 7 == 0 {
                    bench.flush();
                }
            }
            bench.flush();
            expected.clone()
        };
        // Eight runs on the same files, each of which ends at another offset of a segment.
        for life in 1..9 {
            let until = Lsn(life * 4 * SMALL_SEGMENT + life * 30_000);
            let expected = write(&mut bench, until);
            let files = bench.log.files().unwrap();
            let freed = files.unheld_before(Lsn(until.0 - SMALL_SEGMENT), until);
            freed.iter().for_each(|index| assert!(files.free_segment(*index, until, 100).unwrap()));
            assert!(!freed.is_empty());
            if life % 2 == 0 {
                continue;
            }
            // Reused files kept their old contents; the log is read from the remaining segments.
            assert!(life == 1 || bench.log.stats().segments_reused >= 3, "life {life}");
            let segments = files.bytes() / files.segment_bytes();
            drop(files);
            drop(bench);
            let left = std::fs::read_dir(directory.path()).unwrap();
            let names = left.map(|file| file.unwrap().file_name().into_string().unwrap());
            let left = names.filter(|name| name.contains(".seg")).count() as u64;
            // One file may have been about to become a segment.
            assert!((segments..=segments + 1).contains(&left), "{left} files, {segments} segments");
            let from = Lsn((freed.last().unwrap() + 1) * SMALL_SEGMENT);
            let rest: Vec<_> = expected.into_iter().filter(|(lsn, _)| *lsn >= from).collect();
            let (log, mut reader) = Log::open(options(directory.path())).unwrap();
            reader.start_at(rest[0].0);
            let mut found = Vec::new();
            while let Some(block) = reader.next_block().unwrap() {
                found.extend(block.records().map(|(_, record)| (block.lsn, record.key.to_vec())));
            }
            assert_eq!(found, rest, "life {life}");
            log.resume_at(reader.end()).unwrap();
            let device = open_device(DeviceKind::Auto).unwrap();
            bench = Bench { log, flush: FlushState::default(), device, found: Vec::new() };
        }
    });
}

/// The log ends at the end of a segment, and a checkpoint begins there: compaction then frees
/// everything before it.
#[test]
fn a_log_goes_on_at_the_start_of_a_segment_without_one_before() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        let end = Lsn(3 * SMALL_SEGMENT);
        while bench.log.tail() < end {
            // Large blocks while one fits; the last blocks take a sector each.
            let rest = (end.0 - bench.log.tail().0) as usize;
            bench.commit(b"key", &vec![1; rest.saturating_sub(4 << 10).min(60_000)]);
            bench.flush();
        }
        assert_eq!(bench.log.durable(), end);
        let files = bench.log.files().unwrap();
        while !files.has(end) {
            bench.step();
        }
        let before = files.unheld_before(end, end);
        before.iter().for_each(|index| assert!(files.free_segment(*index, end, 100).unwrap()));
        assert_eq!(before.last(), Some(&2));
        drop((files, bench));

        for life in 0..2 {
            let (log, mut reader) = Log::open(options(directory.path())).unwrap();
            reader.start_at(end);
            let mut found = 0;
            while let Some(block) = reader.next_block().unwrap() {
                found += block.records().count();
            }
            assert_eq!(found, life);
            log.resume_at(reader.end()).unwrap();
            let device = open_device(DeviceKind::Auto).unwrap();
            let flush = FlushState::default();
            let mut bench = Bench { log, flush, device, found: Vec::new() };
            bench.commit(b"key", b"value");
            bench.flush();
            assert_eq!(bench.log.durable(), bench.log.tail());
        }
    });
}

#[test]
fn parts_skips_and_large_blocks_keep_their_kinds() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        let large = vec![9; 16 << 20];
        let first = {
            let records = record_bytes(3, large.len());
            bench.admit(block_bytes(records));
            let log = &bench.log;
            assert!(
                log.admits(block_bytes(records), BlockPurpose::Change),
                "it is its owner's already"
            );
            let mut part = log.reserve(1, block_bytes(records));
            part.append(TableId(1), RecordKind::Update, Rid::new(5), b"key", &large);
            let first = part.lsn();
            part.finish_part(first);
            log.reserve(0, block_bytes(record_bytes(1, 1))).finish_skip();
            drop(log.reserve(0, block_bytes(48)));
            log.reserve(1, block_bytes(0)).finish_commit(Some(first));
            first
        };
        bench.flush();
        drop(bench);
        let (_log, mut reader) = Log::open(options(directory.path())).unwrap();
        let mut kinds = Vec::new();
        while let Some(block) = reader.next_block().unwrap() {
            kinds.push(block.kind);
            if block.lsn == first {
                let (_, record) = block.records().next().unwrap();
                assert_eq!((record.kind, record.rid), (RecordKind::Update, Rid::new(5)));
                assert!(record.key == b"key" && record.value == large);
            }
        }
        let (part, commit) =
            (BlockKind::Part { first_part: first }, BlockKind::Commit { first_part: Some(first) });
        assert_eq!(kinds[..4], [part, BlockKind::Skip, BlockKind::Skip, commit]);
    });
}

#[test]
fn one_large_block_at_a_time() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        let bytes = block_bytes(record_bytes(8, 16 << 20));
        bench.admit(bytes);
        let log = &bench.log;
        std::thread::scope(|s| {
            let other = s.spawn(|| log.admits(bytes, BlockPurpose::Change));
            assert!(!other.join().unwrap(), "another thread's is admitted already");
        });
        log.reserve(0, bytes).finish_skip();
        assert!(log.admits(64, BlockPurpose::Deletion), "common blocks go on");
    });
}

#[test]
fn a_directory_without_a_database() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let without = LogOptions { create: false, ..options(directory.path()) };
        assert!(matches!(Log::open(without.clone()), Err(LogError::NotADatabase { .. })));
        let bench = Bench::open(directory.path()).unwrap();
        assert!(matches!(Log::open(without.clone()), Err(LogError::Locked { .. })));
        let identity = bench.log.identity();
        drop(bench);
        assert_eq!(Log::open(without).unwrap().0.identity(), identity);
        let missing = LogOptions { create: false, ..options(&directory.path().join("x")) };
        assert!(matches!(Log::open(missing), Err(LogError::NotADatabase { .. })));
        let odd =
            LogOptions { segment_bytes: Some(70_000), ..options(&directory.path().join("y")) };
        assert!(matches!(Log::open(odd), Err(LogError::Size { .. })));
    });
}

#[test]
fn an_interrupted_creation_is_made_again() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        drop(Bench::open(directory.path()).unwrap());
        let meta = directory.path().join("braid.meta");
        std::fs::rename(&meta, directory.path().join("braid.meta.new")).unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        bench.commit(b"key", b"value");
        bench.flush();
        drop(bench);
        // A directory with a log belongs to a database.
        std::fs::remove_file(&meta).unwrap();
        assert!(matches!(Bench::open(directory.path()), Err(LogError::NotADatabase { .. })));
    });
}

#[test]
fn a_volatile_log_is_a_clock() {
    with_limit(PART_SECONDS, |_| {
        let log = Log::volatile(3);
        let before = log.tail();
        assert_eq!(log.advance_clock(), before);
        assert!(log.tail() > before && log.buffered() == log.tail());
        assert_eq!(log.durable(), Lsn::MAX);
        assert!(log.admits(block_bytes(100), BlockPurpose::Change) && log.poisoned().is_none());
        let mut device = open_device(DeviceKind::Blocking).unwrap();
        let turn = log.turn(&mut FlushState::default(), &mut *device, true);
        assert_eq!(turn, FlushTurn::default());
    });
}
