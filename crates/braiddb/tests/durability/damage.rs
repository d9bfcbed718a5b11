//! Damage of a read-only database's files, as opposed to files that a writer has reused.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{Watched, with_limit};
use crate::read_only::{
    LIMIT_SECONDS, open_accounts, open_to_read, read, segment, transfer, transfers, tree,
};
use braiddb::{Database, Error, LogError, Table, TableOptions};

/// Creates a database whose log is never freed, because it takes no checkpoints.
fn open_without_checkpoints(path: &Path) -> (Database, Table<u64, [u8]>) {
    let options = transfers().tune(|tuning| tuning.checkpoint_bytes(1 << 30));
    let writer = Database::open(path, options).unwrap().watched();
    let table = open_accounts(&writer, TableOptions::default().cache_cold(false));
    (writer, table)
}

#[test]
fn a_reused_segment_is_reported_and_never_mistaken_for_the_old_one() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let (writer, table) = open_without_checkpoints(&path);
        writer.close().unwrap();
        drop(table);
        let db = open_to_read(&path).unwrap();
        let seen = read(&db).unwrap();
        let name = segment(&path);
        let file = fs::File::options().write(true).read(true).open(&name).unwrap();
        let mut header = [0; 4096];
        file.read_exact_at(&mut header, 0).unwrap();
        let mut other = header;
        other[40] ^= 1;
        file.write_all_at(&other, 0).unwrap();
        // The writer frees segments only after it has written a newer checkpoint.
        for error in [read(&db).unwrap_err(), db.check().unwrap_err()] {
            let Error::Corrupt(log) = &error else { panic!("{error:?}") };
            assert!(
                matches!(&**log, LogError::Corrupt { path, offset: 0, .. } if *path == name),
                "{error}"
            );
            assert!(error.to_string().contains("restore this file"), "{error}");
        }
        // Like a writer on a system without file locks: the header first.
        let newer = path.join("checkpoint-ffffffffffffffff.ckpt");
        fs::write(&newer, "").unwrap();
        let error = read(&db).unwrap_err();
        assert!(
            matches!(&error, Error::Outdated(log) if matches!(**log, LogError::Outdated { .. })),
            "{error:?}"
        );
        assert!(error.to_string().contains("open it again"), "{error}");
        assert!(matches!(db.check(), Err(Error::Outdated(_))));
        fs::remove_file(&newer).unwrap();
        // For a new open it is damage, because no writer is active.
        let opened = open_to_read(&path).map(drop).unwrap_err();
        assert!(
            matches!(&opened, Error::Corrupt(log) if matches!(**log, LogError::Corrupt { .. })),
            "{opened:?}"
        );
        file.write_all_at(&header, 0).unwrap();
        assert!(read(&db).unwrap() == seen);
        // The file is removed but still open, so it stays readable.
        let gone = segment(&path);
        fs::remove_file(&gone).unwrap();
        assert!(read(&db).unwrap() == seen);
    });
}

#[test]
fn a_read_only_open_reports_damage() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let (writer, table) = open_without_checkpoints(&path);
        transfer(&writer, &table, 1, 500);
        drop(table);
        writer.close().unwrap();
        let file = fs::File::options().write(true).read(true).open(segment(&path)).unwrap();
        let (offset, mut byte) = (20_000, [0]);
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 16], offset).unwrap();
        for read_only in [true, false] {
            let opened =
                Database::open(&path, transfers().read_only(read_only)).map(drop).unwrap_err();
            let Error::Corrupt(log) = &opened else { panic!("{opened:?}") };
            assert!(
                matches!(&**log, LogError::Corrupt { path, .. } if *path == segment(path.parent().unwrap())),
                "{opened}"
            );
        }
        file.write_all_at(&byte, offset).unwrap();
        let db = open_to_read(&path).unwrap();
        file.write_all_at(&[byte[0] ^ 16], offset).unwrap();
        let report = db.check();
        assert!(report.is_ok_and(|report| !report.problems.is_empty()));
        drop(db);
        fs::remove_file(path.join("braid.meta")).unwrap();
        let before = tree(&path);
        for missing in [path.clone(), path.join("nowhere"), path.join("LOCK")] {
            let opened = open_to_read(&missing).map(drop).unwrap_err();
            let Error::Directory(log) = &opened else { panic!("{opened:?}") };
            assert!(matches!(**log, LogError::NotADatabase { .. }), "{opened}");
        }
        assert!(before == tree(&path));
    });
}
