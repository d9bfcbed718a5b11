//! A small log needs little disk space, and grows.

use std::os::unix::fs::{FileExt, MetadataExt};

use super::super::growth::INITIAL_FILE_BYTES;
use super::*;
use crate::common::{PART_SECONDS, with_limit};

const SEGMENT: u64 = 2 << 20;
const HEADER: u64 = 4096;
const FIRST: &str = "wal-0000000000000000.seg";

fn growing(path: &Path) -> LogOptions {
    LogOptions { segment_bytes: Some(SEGMENT), ..LogOptions::new(path, 2) }
}

/// Returns the lengths of the segment files, in log order.
fn lengths(path: &Path) -> Vec<u64> {
    let files = std::fs::read_dir(path).unwrap().map(|file| file.unwrap());
    let mut lengths: Vec<_> = files
        .filter(|file| file.file_name().to_str().unwrap().ends_with(".seg"))
        .map(|file| (file.file_name(), file.metadata().unwrap()))
        .inspect(|(_, file)| assert!(file.blocks() * 512 >= file.len(), "its space is allocated"))
        .map(|(name, file)| (name, file.len()))
        .collect();
    lengths.sort();
    lengths.into_iter().map(|(_, length)| length).collect()
}

#[test]
fn the_first_file_doubles_until_it_is_a_segment() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let (mut expected, mut seen): (Found, Vec<u64>) = (Vec::new(), Vec::new());
        let mut commons = Vec::new();
        for run in 0..12_u64 {
            let mut bench = Bench::open_with(growing(path), DeviceKind::Auto).unwrap();
            assert!(bench.found == expected, "run {run}");
            if run == 0 {
                assert_eq!(lengths(path), [HEADER + INITIAL_FILE_BYTES]);
            }
            for number in 0..60_u64 {
                let (key, value) = (number.to_be_bytes().to_vec(), vec![run as u8; 7000]);
                bench.commit(&key, &value);
                expected.push(vec![(key, value)]);
                bench.flush();
                let (now, end) = (lengths(path), bench.log.tail().0);
                // The last extension may not be in use yet.
                let said = bench.log.stats().disk_bytes;
                let sum: u64 = now.iter().sum();
                assert!(said <= sum && said >= sum / 2, "{said} of {now:?}");
                assert!(
                    sum <= 4 * end + HEADER + 2 * INITIAL_FILE_BYTES || now.len() > 1,
                    "{now:?} for {end}"
                );
                assert!(now.len() == 1 || now[0] == HEADER + SEGMENT, "{now:?}");
                assert!(now[1..].iter().all(|length| *length == HEADER + SEGMENT), "{now:?}");
                // The header is written after the file has its length, and before the log continues
                // there.
                let header = said_by_header(path, FIRST);
                assert!(
                    HEADER + header <= now[0] && header >= end.min(SEGMENT),
                    "{header} of {now:?}"
                );
                if seen.last() != Some(&now[0]) {
                    seen.push(now[0]);
                }
                commons.push(bench.log.common_block_bytes());
            }
        }
        let doubled = [1, 2, 4, 8].map(|times| HEADER + times * INITIAL_FILE_BYTES);
        assert_eq!(seen, doubled);
        assert!(lengths(path).len() > 2, "it went on in further segments");
        assert_eq!(said_by_header(path, FIRST), SEGMENT);
        assert_eq!(said_by_header(path, &format!("wal-{SEGMENT:016x}.seg")), SEGMENT);
        assert!(commons.is_sorted(), "blocks only become larger");
        assert_eq!((commons[0], *commons.last().unwrap()), (16 << 10, 128 << 10));
        let found = Bench::open_with(growing(path), DeviceKind::Auto).unwrap().found;
        assert!(found == expected);
    });
}

/// A block that is large only in a small log is admitted as large, and reserved when it no longer
/// is.
#[test]
fn blocks_that_become_common_leave_the_log_to_others() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open_with(growing(directory.path()), DeviceKind::Auto).unwrap();
        let bytes = block_bytes(record_bytes(8, 60_000));
        let before = bench.log.common_block_bytes();
        assert!(bytes > before);
        bench.admit(bytes);
        let end = bench.log.stats().disk_bytes;
        // The log grows while the block is admitted.
        let extent = &bench.log.disk.as_ref().unwrap().segments.extent;
        extent.demand(SEGMENT / 8 * 7, BlockPurpose::Change);
        let deadline = Instant::now() + Duration::from_secs(30);
        while bench.log.common_block_bytes() < bytes {
            bench.step();
            assert!(Instant::now() < deadline, "blocks stay small");
        }
        assert!(bench.log.stats().disk_bytes > end);
        std::thread::scope(|scope| {
            let log = &bench.log;
            let large = block_bytes(record_bytes(8, 300_000));
            let other = scope.spawn(move || log.admits(large, BlockPurpose::Change));
            assert!(!other.join().unwrap(), "another thread's large block is admitted");
            assert!(log.admits(bytes, BlockPurpose::Change), "it is its owner's still");
            log.reserve(0, bytes).finish_skip();
            let other = scope.spawn(move || {
                let admitted = log.admits(large, BlockPurpose::Change);
                if admitted {
                    log.reserve(1, large).finish_skip();
                }
                admitted
            });
            assert!(other.join().unwrap(), "its owner has reserved it");
        });
        bench.flush();
    });
}

/// Returns the bytes of log in a segment's file, according to its header.
fn said_by_header(path: &Path, name: &str) -> u64 {
    let file = std::fs::File::open(path.join(name)).unwrap();
    let mut number = [0; 8];
    file.read_exact_at(&mut number, 48).unwrap();
    u64::from_le_bytes(number)
}

/// A crash may occur after the file was extended, before its header states the new size.
#[test]
fn what_a_file_has_past_what_its_header_says_is_not_there() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut bench = Bench::open_with(growing(path), DeviceKind::Auto).unwrap();
        let mut expected: Found = Vec::new();
        let mut write = |bench: &mut Bench, count: u64| {
            for _ in 0..count {
                let (key, value) = (expected.len().to_be_bytes().to_vec(), vec![7; 3000]);
                bench.commit(&key, &value);
                expected.push(vec![(key, value)]);
                bench.flush();
            }
            expected.clone()
        };
        let first = write(&mut bench, 1);
        drop(bench);
        assert_eq!(
            (lengths(path), said_by_header(path, FIRST)),
            (vec![HEADER + INITIAL_FILE_BYTES], INITIAL_FILE_BYTES)
        );
        let file = std::fs::File::options().write(true).open(path.join(FIRST)).unwrap();
        file.set_len(HEADER + 2 * INITIAL_FILE_BYTES).unwrap();
        let mut bench = Bench::open_with(growing(path), DeviceKind::Auto).unwrap();
        assert!(bench.found == first);
        assert_eq!(bench.log.disk.as_ref().unwrap().segments.end(), Lsn(INITIAL_FILE_BYTES));
        let all = write(&mut bench, 80);
        let tail = bench.log.tail().0;
        assert!(tail > INITIAL_FILE_BYTES, "the log went past what the header said");
        drop(bench);
        let header = said_by_header(path, FIRST);
        assert!(header >= tail && lengths(path)[0] >= HEADER + header, "{header} for {tail}");
        assert!(Bench::open_with(growing(path), DeviceKind::Auto).unwrap().found == all);
    });
}

/// For every file, and for every end of the log.
#[test]
fn a_file_that_is_shorter_than_its_header_says_was_cut_short() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut bench = Bench::open(path).unwrap();
        let mut expected: Found = Vec::new();
        // Each flush takes at least one sector, so the log reaches the fourth file even if that is
        // not created ahead.
        while lengths(path).len() <= 3 {
            let (key, value) = numbered(expected.len() as u64);
            bench.commit(&key, &value);
            expected.push(vec![(key, value)]);
            bench.flush();
        }
        drop(bench);
        let files = lengths(path).len() as u64;
        let whole = HEADER + SMALL_SEGMENT;
        for name in
            (0..files).map(|index| path.join(format!("wal-{:016x}.seg", index * SMALL_SEGMENT)))
        {
            let bytes = std::fs::read(&name).unwrap();
            let file = std::fs::File::options().write(true).open(&name).unwrap();
            for length in
                (1..=SMALL_SEGMENT / 4096).rev().map(|sectors| sectors * 4096).chain([4000, 0])
            {
                file.set_len(length).unwrap();
                match Log::open(options(path)).err() {
                    Some(LogError::Corrupt { path, offset, reason }) => {
                        assert_eq!(
                            (path, offset),
                            (name.clone(), if length < HEADER { 0 } else { length })
                        );
                        let told = [format!("{length} bytes"), format!("{whole} or more")];
                        let told = told.iter().all(|told| reason.contains(told));
                        assert!(told || length < HEADER, "{reason}");
                    }
                    other => panic!("{length} bytes: {other:?}"),
                }
            }
            file.write_all_at(&bytes, 0).unwrap();
        }
        assert!(Bench::open(path).unwrap().found == expected);
    });
}

/// The header of this file is older than the files that follow.
#[test]
fn a_first_file_that_is_not_whole_is_the_last() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut bench = Bench::open_with(growing(path), DeviceKind::Auto).unwrap();
        bench.commit(b"key", b"value");
        bench.flush();
        let file = std::fs::File::options().read(true).write(true).open(path.join(FIRST)).unwrap();
        let mut header = [0; HEADER as usize];
        file.read_exact_at(&mut header, 0).unwrap();
        while lengths(path).len() == 1 {
            bench.commit(&[1; 8], &[2; 100_000]);
            bench.flush();
        }
        drop(bench);
        assert_eq!(said_by_header(path, FIRST), SEGMENT);
        file.write_all_at(&header, 0).unwrap();
        match Log::open(growing(path)).err() {
            Some(LogError::Corrupt { path: named, offset, .. }) => {
                assert_eq!((named, offset), (path.join(FIRST), HEADER + INITIAL_FILE_BYTES));
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_header_that_does_not_say_it_is_of_a_whole_file() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let mut bench = Bench::open(path).unwrap();
        bench.commit(b"key", b"value");
        bench.flush();
        let header = bench.log.identity().unwrap().sector_of(1, *b"BRAIDWAL", 0, [0; 6]);
        drop(bench);
        let file = std::fs::File::options().write(true).open(path.join(FIRST)).unwrap();
        file.write_all_at(&header, 0).unwrap();
        assert_eq!(said_by_header(path, FIRST), 0);
        assert_eq!(Bench::open(path).unwrap().found.len(), 1);
        let length = HEADER + SMALL_SEGMENT - 4096;
        file.set_len(length).unwrap();
        match Log::open(options(path)).err() {
            Some(LogError::Corrupt { path: named, offset, .. }) => {
                assert_eq!((named, offset), (path.join(FIRST), length));
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_small_disk_has_small_segments() {
    with_limit(PART_SECONDS, |_| {
        const MIB: u64 = 1 << 20;
        let expected = [(100, 4), (1024, 4), (1025, 8), (2 << 10, 8), (4 << 10, 16), (1 << 20, 16)];
        for (available, segment) in expected {
            assert_eq!(
                crate::log::wal::default_segment_bytes(available * MIB),
                segment * MIB,
                "{available}"
            );
        }
        assert_eq!(crate::log::wal::default_segment_bytes(u64::MAX), 16 * MIB);
    });
}

/// While changes must wait, the log grows for deletions and the engine's own blocks. These do not
/// prolong the pause, and changes cannot use their space.
#[test]
fn a_pause_delays_extensions_for_changes() {
    /// After an extension by a small segment: more than an hour.
    const LONG: Duration = Duration::from_secs(1 << 20);
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        bench.commit(&[1], &[1; 100_000]);
        bench.flush();
        while bench.step().in_flight {}
        let bytes = block_bytes(record_bytes(8, SMALL_SEGMENT as usize / 32));
        let fill = |bench: &mut Bench, purpose: BlockPurpose| {
            while bench.log.admits(bytes, purpose) {
                bench.log.reserve(0, bytes).finish_skip();
                bench.flush();
            }
        };
        bench.log.pause_between_extensions(LONG);
        fill(&mut bench, BlockPurpose::Change);
        bench.log.demand(bytes, BlockPurpose::Change);
        for _ in 0..100 {
            assert!(bench.step().paused_until.is_some(), "a worker must not sleep for ever");
        }
        assert!(!bench.log.admits(bytes, BlockPurpose::Change), "the pause has not ended");
        let end = bench.step().paused_until;
        for purpose in [BlockPurpose::Upkeep, BlockPurpose::Deletion, BlockPurpose::Upkeep] {
            fill(&mut bench, purpose);
            bench.log.demand(bytes, purpose);
            while !bench.log.admits(bytes, purpose) {
                bench.step();
            }
            assert_eq!(bench.step().paused_until, end);
            assert!(!bench.log.admits(bytes, BlockPurpose::Change), "after {purpose:?}");
        }
        // Changes first use the space that was made for the others. Then they wait again.
        bench.log.pause_between_extensions(Duration::ZERO);
        bench.admit(bytes);
        bench.log.pause_between_extensions(LONG);
        fill(&mut bench, BlockPurpose::Change);
        bench.log.demand(bytes, BlockPurpose::Change);
        (0..100).for_each(|_| _ = bench.step());
        assert!(!bench.log.admits(bytes, BlockPurpose::Change), "a pause follows");
    });
}

/// An extension that begins a pause also delays one that is due ahead of need.
#[test]
fn a_pause_follows_each_extension_for_changes() {
    const LONG: Duration = Duration::from_secs(1 << 20);
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        bench.log.begin_to_grow();
        let bytes = block_bytes(record_bytes(8, 10_000));
        let fill = |bench: &mut Bench, end: u64| {
            while bench.log.tail().0 < end && bench.log.admits(bytes, BlockPurpose::Change) {
                bench.log.reserve(0, bytes).finish_skip();
                bench.flush();
            }
            bench.log.demand(bytes, BlockPurpose::Change);
            while bench.step().in_flight {}
        };
        // So many segments that the log is extended by more than one ahead of need, and files of
        // others that need no zeros.
        let (freed, many) = (20, 44 * SMALL_SEGMENT);
        while bench.log.tail().0 < many {
            fill(&mut bench, many);
        }
        let files = bench.log.files().unwrap();
        let tail = bench.log.tail();
        assert!((0..freed).all(|index| files.free_segment(index, tail, freed).unwrap()));
        bench.log.pause_between_extensions(LONG);
        for _ in 0..freed - 2 {
            fill(&mut bench, u64::MAX);
            assert!(!bench.log.admits(bytes, BlockPurpose::Change));
            let before = bench.log.stats().segments_created;
            // Ends the pause.
            bench.log.disk.as_ref().unwrap().segments.pace.note_extension(0);
            while bench.step().paused_until.is_none() {}
            while bench.step().in_flight {}
            assert_eq!(bench.log.stats().segments_created, before + 1);
        }
        assert!(bench.log.stats().segments_reused > 0);
    });
}
