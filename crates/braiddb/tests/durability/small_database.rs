//! Disk usage of a nearly empty database.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::common::{Watched, with_limit};
use braiddb::{Database, Error, LogError, Options, Table, Tuning};
use pollster::block_on;

/// The maximum duration of a test, in seconds.
const LIMIT: u64 = 300;
const MIB: u64 = 1 << 20;

type Records = Table<u64, [u8]>;

/// Returns the length of the files in a directory, and their allocated bytes.
fn taken(path: &Path) -> (u64, u64) {
    let files = std::fs::read_dir(path).unwrap().map(|file| file.unwrap().metadata().unwrap());
    files.fold((0, 0), |(bytes, blocks), file| (bytes + file.len(), blocks + 512 * file.blocks()))
}

fn assert_takes_at_most(path: &Path, most: u64) {
    let (bytes, blocks) = taken(path);
    assert!(bytes <= most && blocks <= most, "{bytes} bytes, {blocks} of the file system");
}

fn count(db: &Database, table: &Records) -> u64 {
    let table = table.clone();
    db.run_blocking(async move |tx| tx.count(&table, ..).await).unwrap()
}

#[test]
fn an_empty_database_has_less_than_a_mebibyte_and_grows() {
    with_limit(LIMIT, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let options = || Options::default().workers(2);
        Database::open(path, options()).unwrap().close().unwrap();
        assert_takes_at_most(path, MIB);
        let db = Database::open(path, options()).unwrap().watched();
        let table: Records = block_on(db.create_table("records")).unwrap();
        for key in 0..5 {
            block_on(db.put(&table, &key, &[7; 100][..])).unwrap();
        }
        // On a busy machine, one more segment of 256 KiB may be prepared by now.
        assert_takes_at_most(path, MIB + MIB / 2);
        for key in 5..50 {
            block_on(db.put(&table, &key, &[7; 100][..])).unwrap();
        }
        block_on(db.checkpoint()).unwrap();
        let stats = db.stats().log;
        assert!(stats.disk_bytes + stats.reserve_bytes <= 3 * MIB, "{stats:?}");
        assert_takes_at_most(path, 3 * MIB);
        // Grows in proportion to the written data.
        for key in 50..450 {
            block_on(db.put(&table, &key, &[7; 20_000][..])).unwrap();
            let (bytes, _) = taken(path);
            assert!(bytes <= 4 * key * 20_000 + 2 * MIB, "{bytes} after {key} records");
        }
        let (bytes, _) = taken(path);
        assert!(bytes > 8 * MIB && bytes < 40 * MIB, "{bytes}");
        db.close().unwrap();
        drop(db);
        let db = Database::open(path, options()).unwrap().watched();
        let table: Records = block_on(db.open_table("records")).unwrap();
        assert_eq!(count(&db, &table), 450);
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
    });
}

/// The log needs room for a block of each worker, but only once something is logged.
#[test]
fn an_empty_database_has_less_than_a_mebibyte_with_any_number_of_workers() {
    with_limit(LIMIT, |_| {
        for (workers, most) in [(1, MIB), (4, MIB), (8, 2 * MIB), (64, 4 * MIB)] {
            let directory = tempfile::tempdir().unwrap();
            let options = || Options::default().workers(workers);
            // Closed several times: the log records of closing must not make it grow.
            for _ in 0..3 {
                Database::open(directory.path(), options()).unwrap().close().unwrap();
                assert_takes_at_most(directory.path(), MIB);
            }
            let db = Database::open(directory.path(), options()).unwrap().watched();
            assert_takes_at_most(directory.path(), MIB);
            let table: Records = block_on(db.create_table("records")).unwrap();
            block_on(db.put(&table, &0, &[7; 100][..])).unwrap();
            assert_takes_at_most(directory.path(), 2 * most);
            db.close().unwrap();
            drop(db);
            let db = Database::open(directory.path(), options()).unwrap().watched();
            let table: Records = block_on(db.open_table("records")).unwrap();
            assert_eq!(count(&db, &table), 1);
            db.close().unwrap();
        }
    });
}

#[test]
fn a_backup_of_a_small_database_is_small_and_grows() {
    with_limit(LIMIT, |_| {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options =
            || Options::default().workers(2).tuning(Tuning::default().log_segment_bytes(2 * MIB));
        let db = Database::open(directory.path(), options()).unwrap().watched();
        let table: Records = block_on(db.create_table("records")).unwrap();
        block_on(db.put(&table, &0, &[7; 1000][..])).unwrap();
        let backup = other.path().join("backup");
        db.backup(&backup).unwrap();
        assert_takes_at_most(&backup, MIB);
        db.close().unwrap();
        assert!(assert_cuts_are_told(&backup, || options().create(false)) > 64);
        let db = Database::open(&backup, options().create(false)).unwrap().watched();
        let table: Records = block_on(db.open_table("records")).unwrap();
        assert_eq!(count(&db, &table), 1);
        for key in 1..400 {
            block_on(db.put(&table, &key, &[7; 20_000][..])).unwrap();
        }
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
        drop(db);
        let db = Database::open(&backup, options()).unwrap().watched();
        let table: Records = block_on(db.open_table("records")).unwrap();
        assert_eq!(count(&db, &table), 400);
        db.close().unwrap();
    });
}

/// Truncates each file of a closed database at every sector. The open must fail with an error that
/// names the file. Returns the number of truncations.
fn assert_cuts_are_told(path: &Path, options: impl Fn() -> Options) -> u64 {
    const SECTOR_BYTES: u64 = 4096;
    let names = std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path());
    let (mut cuts, mut files) = (0, 0);
    // These two are exempt: a lock, and reserved space.
    for name in names.filter(|name| !name.ends_with("LOCK") && !name.ends_with("braid.reserve")) {
        let bytes = std::fs::read(&name).unwrap();
        let file = std::fs::File::options().write(true).open(&name).unwrap();
        let whole = bytes.len() as u64;
        assert!(whole > 0 && whole.is_multiple_of(SECTOR_BYTES), "{}", name.display());
        for length in (0..whole / SECTOR_BYTES).rev().map(|sectors| sectors * SECTOR_BYTES) {
            file.set_len(length).unwrap();
            let Err(error) = Database::open(path, options()) else {
                panic!("{} was opened with {length} of {whole} bytes", name.display());
            };
            let Error::Corrupt(error) = error else { panic!("{error}") };
            let LogError::Corrupt { path, reason, .. } = &*error else { panic!("{error}") };
            assert_eq!(*path, name);
            if name.extension().is_some_and(|end| end == "seg") && length > 0 {
                let told =
                    reason.contains("cut short") && reason.contains(&format!("{length} bytes"));
                assert!(told && reason.contains(&whole.to_string()), "{reason}");
            }
            cuts += 1;
        }
        file.write_all_at(&bytes, 0).unwrap();
        files += 1;
    }
    assert!(files > 1 && cuts > files, "{cuts} cuts of {files} files");
    cuts
}

/// Transactions after the newest checkpoint, or all without one, are only in the log.
#[test]
fn a_file_truncated_anywhere_is_reported() {
    with_limit(LIMIT, |_| {
        // Its only file, which is small and was grown twice.
        for (keys, least) in [(1, 64), (100, 128)] {
            let cuts = cut_after(4 * MIB, &[(keys, false)], 1);
            assert!(cuts > least, "{cuts}");
        }
        // With and without transactions after the checkpoint.
        cut_after(4 * MIB, &[(100, true)], 1);
        cut_after(4 * MIB, &[(50, true), (50, false)], 1);
        // Several segments.
        let cuts = cut_after(128 << 10, &[(100, true), (100, false)], 4);
        assert!(cuts > 4 * 32, "{cuts}");
    });
}

/// Writes records in several rounds, with or without a checkpoint after each. Truncates the files
/// of the closed database, and then checks that all records are present. Returns the number of
/// truncations.
fn cut_after(segment_bytes: u64, rounds: &[(u64, bool)], least_segments: usize) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let options =
        || Options::default().workers(1).tuning(Tuning::default().log_segment_bytes(segment_bytes));
    let db = Database::open(path, options()).unwrap().watched();
    let table: Records = block_on(db.create_table("records")).unwrap();
    let mut keys = 0;
    for (records, checkpoint) in rounds {
        for key in keys..keys + records {
            block_on(db.put(&table, &key, &[7; 1000][..])).unwrap();
        }
        keys += records;
        if *checkpoint {
            block_on(db.checkpoint()).unwrap();
        }
    }
    db.close().unwrap();
    drop(db);
    let names = std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path());
    let segments = names.filter(|name| name.extension().is_some_and(|end| end == "seg")).count();
    assert!(segments >= least_segments, "{segments} segments");
    let cuts = assert_cuts_are_told(path, options);
    let db = Database::open(path, options()).unwrap().watched();
    let table: Records = block_on(db.open_table("records")).unwrap();
    assert_eq!(count(&db, &table), keys);
    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
    db.close().unwrap();
    cuts
}
