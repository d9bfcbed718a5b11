//! Torn tails are cut, damage before them is reported with its position, and nothing panics.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;
use crate::common::{PART_SECONDS, with_limit};

const FIRST_BYTE: u64 = 8192;

/// Creates a log of three flushes, the last of several sectors. The next flush of each one except
/// the last records that it is durable.
fn small_log(path: &Path) -> (Found, Vec<Lsn>) {
    let mut bench = Bench::open(path).unwrap();
    let (mut expected, mut ends) = (Vec::new(), Vec::new());
    for flush in 0..3 {
        for number in 0..if flush < 2 { 12 } else { 40 } {
            let (key, value) = numbered(flush * 12 + number);
            bench.commit(&key, &value);
            expected.push(vec![(key, value)]);
        }
        bench.flush();
        ends.push(bench.log.durable());
    }
    (expected, ends)
}

fn segment(path: &Path) -> (std::fs::File, PathBuf) {
    let path = path.join("wal-0000000000000000.seg");
    (std::fs::File::options().read(true).write(true).open(&path).unwrap(), path)
}

fn flip(file: &std::fs::File, offset: u64, bit: u8) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], offset).unwrap();
}

fn read(path: &Path) -> Result<Found, LogError> {
    read_all(&mut Log::open(options(path))?.1)
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (expected, ends) = small_log(directory.path());
        let (file, name) = segment(directory.path());
        let known = ends[1].0 + 4096;
        let (mut refused, mut cut) = (0, 0);
        for offset in (FIRST_BYTE..ends[2].0 + 4096).step_by(61) {
            let bit = (offset % 8) as u8;
            flip(&file, offset, bit);
            match read(directory.path()) {
                Ok(found) => {
                    assert!(expected.starts_with(&found), "nothing wrong is read");
                    if offset < known {
                        assert_eq!(found, expected, "only padding may be flipped unnoticed");
                    } else {
                        cut += 1;
                    }
                }
                Err(LogError::Corrupt { path, offset: at, reason }) => {
                    assert_eq!(path, name);
                    assert!(
                        at <= offset && at + 1100 > offset.min(known),
                        "{at} {offset}: {reason}"
                    );
                    assert!(offset < known, "only what is known to be durable is corrupt");
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
            flip(&file, offset, bit);
        }
        assert!(refused > 100 && cut > 30, "{refused} {cut}");
        assert_eq!(read(directory.path()).unwrap(), expected);
    });
}

#[test]
fn a_damaged_header_is_named() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        small_log(directory.path());
        let (file, name) = segment(directory.path());
        for offset in (0..4096).step_by(37).chain(0..48) {
            flip(&file, offset, 3);
            match Bench::open(directory.path()).err() {
                Some(LogError::Corrupt { path, offset: 0, .. }) => assert_eq!(path, name),
                other => panic!("byte {offset}: {other:?}"),
            }
            flip(&file, offset, 3);
        }
        let meta = directory.path().join("braid.meta");
        let file = std::fs::File::options().read(true).write(true).open(meta).unwrap();
        for offset in (0..4096).step_by(101) {
            flip(&file, offset, 5);
            assert!(matches!(Bench::open(directory.path()), Err(LogError::Corrupt { .. })));
            flip(&file, offset, 5);
        }
        Bench::open(directory.path()).unwrap();
    });
}

#[test]
fn a_torn_tail_is_cut_and_overwritten() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (expected, ends) = small_log(directory.path());
        let (file, _) = segment(directory.path());
        // Every way to lose one sector of the last flush, each followed by new blocks.
        let (begin, end) = (ends[1].0 + 4096, ends[2].0 + 4096);
        let mut image = vec![0; (end + 65536) as usize];
        file.read_exact_at(&mut image, 0).unwrap();
        assert!(end - begin >= 3 * 4096);
        for lost in (begin..end).step_by(4096) {
            file.write_all_at(&image, 0).unwrap();
            file.write_all_at(&[0; 4096], lost).unwrap();
            let mut bench = Bench::open(directory.path()).unwrap();
            let mut kept = bench.found.clone();
            assert!(expected.starts_with(&kept) && kept.len() >= 24 && kept.len() < expected.len());
            assert!(bench.log.durable().0.is_multiple_of(4096));
            for number in 100..103 {
                let (key, value) = numbered(number);
                bench.commit(&key, &value);
                kept.push(vec![(key, value)]);
                bench.flush();
            }
            drop(bench);
            assert_eq!(read(directory.path()).unwrap(), kept, "stale blocks stay out");
        }
    });
}

#[test]
fn a_file_cut_short_is_damage() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (_, ends) = small_log(directory.path());
        let (file, name) = segment(directory.path());
        let end = ends[2].0 + 4096;
        // Beyond the end of the log, at its end, before its end, and within the header.
        for (length, at) in [(end + 100, end + 100), (end, end), (end - 5000, end - 5000), (100, 0)]
        {
            file.set_len(length).unwrap();
            match read(directory.path()).err() {
                Some(LogError::Corrupt { path, offset, .. }) => {
                    assert_eq!((path, offset), (name.clone(), at))
                }
                other => panic!("{length} bytes: {other:?}"),
            }
        }
    });
}

#[test]
fn a_missing_segment_is_damage() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::open(directory.path()).unwrap();
        for number in 0..3000u64 {
            bench.commit(&number.to_be_bytes(), &[1; 200]);
        }
        bench.flush();
        drop(bench);
        let missing = directory.path().join("wal-0000000000040000.seg");
        std::fs::remove_file(&missing).unwrap();
        match Bench::open(directory.path()).err() {
            Some(LogError::Corrupt { path, .. }) => assert_eq!(path, missing),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn noise_after_the_end_is_cut() {
    with_limit(PART_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let (expected, ends) = small_log(directory.path());
        let (file, _) = segment(directory.path());
        let mut random = fastrand::Rng::with_seed(3);
        let named = |rest: &[u8]| {
            let words =
                rest.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            words.zip((ends[2].0..).step_by(8)).filter(|(word, lsn)| word == lsn).count()
        };
        let mut rest = vec![0; 30_000];
        for _ in 0..20 {
            let from = random.u64(0..5000);
            let mut noise = vec![0; 20_000];
            random.fill(&mut noise);
            file.write_all_at(&noise, ends[2].0 + 4096 + from).unwrap();
            // Words that could begin a block if the log ended directly before one of them.
            for _ in 0..random.usize(0..5) {
                let lsn = ends[2].0 + random.u64(0..3000) * 8;
                file.write_all_at(&lsn.to_le_bytes(), lsn + 4096).unwrap();
            }
            let bench = Bench::open(directory.path()).unwrap();
            assert_eq!(bench.found, expected);
            file.read_exact_at(&mut rest, ends[2].0 + 4096).unwrap();
            assert_eq!(named(&rest), 0, "what was cut is gone");
        }
    });
}
