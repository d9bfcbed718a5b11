//! What a database with hardly anything in it takes on disk.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use braiddb::{Database, Options, Table};
use common::with_limit;
use pollster::block_on;

/// Longest a test may take, in seconds.
const LIMIT: u64 = 300;
const MIB: u64 = 1 << 20;

type Records = Table<u64, [u8]>;

/// Bytes of the files in a directory, and of what the file system gave them.
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
fn an_empty_database_takes_less_than_a_mebibyte_and_grows() {
    with_limit(LIMIT, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let options = || Options::default().workers(2);
        Database::open(path, options()).unwrap().close().unwrap();
        assert_takes_at_most(path, MIB);
        let db = Database::open(path, options()).unwrap();
        let table: Records = block_on(db.create_table("records")).unwrap();
        for key in 0..5 {
            block_on(db.put(&table, &key, &[7; 100][..])).unwrap();
        }
        assert_takes_at_most(path, MIB);
        for key in 5..50 {
            block_on(db.put(&table, &key, &[7; 100][..])).unwrap();
        }
        block_on(db.checkpoint()).unwrap();
        let stats = db.stats().log;
        assert!(stats.disk_bytes + stats.reserve_bytes <= 3 * MIB, "{stats:?}");
        assert_takes_at_most(path, 3 * MIB);
        // In proportion to what is written.
        for key in 50..450 {
            block_on(db.put(&table, &key, &[7; 20_000][..])).unwrap();
            let (bytes, _) = taken(path);
            assert!(bytes <= 4 * key * 20_000 + 2 * MIB, "{bytes} after {key} records");
        }
        let (bytes, _) = taken(path);
        assert!(bytes > 8 * MIB && bytes < 40 * MIB, "{bytes}");
        db.close().unwrap();
        drop(db);
        let db = Database::open(path, options()).unwrap();
        let table: Records = block_on(db.open_table("records")).unwrap();
        assert_eq!(count(&db, &table), 450);
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
    });
}

#[test]
fn a_backup_of_a_small_database_is_small_and_grows() {
    with_limit(LIMIT, |_| {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = || Options::default().workers(2).log_segment_bytes(2 * MIB);
        let db = Database::open(directory.path(), options()).unwrap();
        let table: Records = block_on(db.create_table("records")).unwrap();
        block_on(db.put(&table, &0, &[7; 1000][..])).unwrap();
        let backup = other.path().join("backup");
        db.backup(&backup).unwrap();
        assert_takes_at_most(&backup, MIB);
        db.close().unwrap();
        let db = Database::open(&backup, options().create(false)).unwrap();
        let table: Records = block_on(db.open_table("records")).unwrap();
        assert_eq!(count(&db, &table), 1);
        for key in 1..400 {
            block_on(db.put(&table, &key, &[7; 20_000][..])).unwrap();
        }
        assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
        db.close().unwrap();
        drop(db);
        let db = Database::open(&backup, options()).unwrap();
        let table: Records = block_on(db.open_table("records")).unwrap();
        assert_eq!(count(&db, &table), 400);
        db.close().unwrap();
    });
}

/// The log's only file; nothing was committed after the checkpoint.
#[test]
fn a_file_that_ends_before_its_checkpoint_is_told() {
    with_limit(LIMIT, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let options = || Options::default().workers(1);
        let db = Database::open(path, options()).unwrap();
        let table: Records = block_on(db.create_table("records")).unwrap();
        for key in 0..100 {
            block_on(db.put(&table, &key, &[7; 1000][..])).unwrap();
        }
        let checkpoint = block_on(db.checkpoint()).unwrap();
        db.close().unwrap();
        drop(db);
        let name = path.join("wal-0000000000000000.seg");
        let file = std::fs::File::options().write(true).open(&name).unwrap();
        let whole = file.metadata().unwrap().len();
        let needed = 4096 + checkpoint.lsn / 4096 * 4096;
        assert!(needed > 300 << 10 && needed < whole, "{needed} of {whole}");
        // Each time shorter.
        for length in [needed, needed - 4096, 64 << 10, 4096] {
            file.set_len(length).unwrap();
            match Database::open(path, options()) {
                Ok(db) => {
                    assert_eq!(length, needed);
                    let table: Records = block_on(db.open_table("records")).unwrap();
                    assert_eq!(count(&db, &table), 100);
                    assert_eq!(db.check().unwrap().problems, Vec::<String>::new());
                    db.close().unwrap();
                }
                Err(error) => {
                    assert!(length < needed, "{length} of {needed}: {error}");
                    assert!(error.to_string().contains("cut short"), "{error}");
                }
            }
        }
    });
}
