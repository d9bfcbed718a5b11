//! A small log takes little of the disk, and grows.

use std::os::unix::fs::{FileExt, MetadataExt};

use super::super::growth::FIRST_BYTES;
use super::*;

const SEGMENT: u64 = 2 << 20;
const HEADER: u64 = 4096;

fn growing(path: &Path) -> LogOptions {
    LogOptions { segment_bytes: SEGMENT, ..LogOptions::new(path, 2) }
}

/// Lengths of the segments' files, in the order of the log.
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
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let (mut expected, mut seen): (Found, Vec<u64>) = (Vec::new(), Vec::new());
    let mut commons = Vec::new();
    for run in 0..12_u64 {
        let mut bench = Bench::open_with(growing(path), DeviceKind::Auto).unwrap();
        assert!(bench.found == expected, "run {run}");
        if run == 0 {
            assert_eq!(lengths(path), [HEADER + FIRST_BYTES]);
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
                sum <= 4 * end + HEADER + 2 * FIRST_BYTES || now.len() > 1,
                "{now:?} for {end}"
            );
            assert!(now.len() == 1 || now[0] == HEADER + SEGMENT, "{now:?}");
            assert!(now[1..].iter().all(|length| *length == HEADER + SEGMENT), "{now:?}");
            if seen.last() != Some(&now[0]) {
                seen.push(now[0]);
            }
            commons.push(bench.log.common_block_bytes());
        }
    }
    let doubled = [1, 2, 4, 8].map(|times| HEADER + times * FIRST_BYTES);
    assert_eq!(seen, doubled);
    assert!(lengths(path).len() > 2, "it went on in further segments");
    assert!(commons.is_sorted(), "blocks only become larger");
    assert_eq!((commons[0], *commons.last().unwrap()), (16 << 10, 128 << 10));
    let found = Bench::open_with(growing(path), DeviceKind::Auto).unwrap().found;
    assert!(found == expected);
}

/// A block that is large only in a small log is admitted as one and reserved when it is not any more.
#[test]
fn blocks_that_become_common_leave_the_log_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::open_with(growing(directory.path()), DeviceKind::Auto).unwrap();
    let bytes = block_bytes(record_bytes(8, 60_000));
    let before = bench.log.common_block_bytes();
    assert!(bytes > before);
    bench.admit(bytes);
    let end = bench.log.stats().disk_bytes;
    // The log grows while the block is admitted.
    let extent = &bench.log.disk.as_ref().unwrap().segments.extent;
    extent.demand(SEGMENT / 8 * 7, Purpose::Change);
    let deadline = Instant::now() + Duration::from_secs(30);
    while bench.log.common_block_bytes() < bytes {
        bench.step();
        assert!(Instant::now() < deadline, "blocks stay small");
    }
    assert!(bench.log.stats().disk_bytes > end);
    std::thread::scope(|scope| {
        let log = &bench.log;
        let large = block_bytes(record_bytes(8, 300_000));
        let other = scope.spawn(move || log.admits(large, Purpose::Change));
        assert!(!other.join().unwrap(), "another thread's large block is admitted");
        assert!(log.admits(bytes, Purpose::Change), "it is its owner's still");
        log.reserve(0, bytes).finish_skip();
        let other = scope.spawn(move || {
            let admitted = log.admits(large, Purpose::Change);
            if admitted {
                log.reserve(1, large).finish_skip();
            }
            admitted
        });
        assert!(other.join().unwrap(), "its owner has reserved it");
    });
    bench.flush();
}

/// Files of segments that the log has not come to may be left short by a crash.
#[test]
fn short_files_after_the_end_are_made_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut bench = Bench::open(path).unwrap();
    let mut expected: Found = Vec::new();
    let mut write = |bench: &mut Bench, count: u64| {
        for _ in 0..count {
            let (key, value) = numbered(expected.len() as u64);
            bench.commit(&key, &value);
            expected.push(vec![(key, value)]);
            bench.flush();
        }
        expected.clone()
    };
    let expected_then = write(&mut bench, 20);
    drop(bench);
    let count = lengths(path).len() as u64;
    assert!(count > 3, "space is made ahead");
    let file = |index: u64| {
        let name = format!("wal-{:016x}.seg", index * SMALL_SEGMENT);
        std::fs::File::options().read(true).write(true).open(path.join(name)).unwrap()
    };
    // One in between, and the last, which has nothing but its header.
    file(1).set_len(HEADER + 5000).unwrap();
    file(count - 1).set_len(HEADER).unwrap();
    let mut bench = Bench::open(path).unwrap();
    assert!(bench.found == expected_then);
    assert_eq!(lengths(path)[1], HEADER + SMALL_SEGMENT);
    let all = write(&mut bench, 5000);
    assert!(bench.log.tail().0 > count * SMALL_SEGMENT, "the log went past what was short");
    drop(bench);
    assert!(lengths(path).iter().all(|length| *length == HEADER + SMALL_SEGMENT));
    assert!(Bench::open(path).unwrap().found == all);
}

/// Also where nothing is read of it: it is before the checkpoint.
#[test]
fn a_file_cut_short_before_the_end_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut bench = Bench::open(path).unwrap();
    let mut from = None;
    while bench.log.tail().0 < 3 * SMALL_SEGMENT {
        let lsn = bench.commit(&[1; 8], &[2; 3000]);
        bench.flush();
        from = from.or((lsn.0 > SMALL_SEGMENT).then_some(lsn));
    }
    drop(bench);
    let name = path.join("wal-0000000000000000.seg");
    let file = std::fs::File::options().read(true).write(true).open(&name).unwrap();
    let mut last = [0; 4096];
    file.read_exact_at(&mut last, SMALL_SEGMENT).unwrap();
    file.set_len(SMALL_SEGMENT).unwrap();
    let open = || {
        let (log, mut reader) = Log::open(options(path))?;
        reader.start_at(from.unwrap());
        read_on(&mut reader)?;
        log.resume_at(reader.end())
    };
    match open() {
        Err(LogError::Corrupt { path, offset, reason }) => {
            assert_eq!((path, offset), (name, SMALL_SEGMENT));
            assert!(reason.contains("cut short"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    file.write_all_at(&last, SMALL_SEGMENT).unwrap();
    open().unwrap();
}

fn read_on(reader: &mut LogReader) -> Result<(), LogError> {
    while reader.next_block()?.is_some() {}
    Ok(())
}
