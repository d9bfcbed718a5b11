//! Backups during writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Error, Misuse, Options, Table, Tuning};
use pollster::block_on;

/// A limit far above the duration of any test.
const LIMIT_SECONDS: u64 = 300;

/// Few frames, so that most pages are on disk.
fn options() -> Options {
    Options::default().workers(2).tuning(
        Tuning::default()
            .page_frames(Some(32))
            .log_segment_bytes(256 << 10)
            .checkpoint_bytes(1 << 20),
    )
}

fn back_up(
    db: &Database,
    directory: &std::path::Path,
) -> Result<braiddb::maintenance::Backup, Error> {
    once_free(|| db.backup(directory))
}

#[test]
fn a_backup_contains_exactly_the_commits_up_to_one_lsn() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| backs_up_everything(paged, false));
    }
}

#[test]
fn a_backup_of_an_open_directory_contains_exactly_the_commits_up_to_one_lsn() {
    for paged in [false, true] {
        with_limit(LIMIT_SECONDS, move |_| backs_up_everything(paged, true));
    }
}

/// Makes backups while a thread writes, with or without the handle of the open database.
fn backs_up_everything(paged: bool, reads_only: bool) {
    let (directory, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = Database::open(directory.path(), options()).unwrap().watched();
    let table: Table<u64, [u8]> = create_table(&db, "t", paged);
    let over = Arc::new(AtomicBool::new(false));
    // The number of committed transactions.
    let committed = Arc::new(AtomicU64::new(0));
    let writer = {
        let (db, table, over) = (db.clone(), table.clone(), over.clone());
        let committed = committed.clone();
        std::thread::spawn(move || {
            let mut number = 0u64;
            // Each transaction moves a window: one record more at its end, one less at its start.
            while !over.load(Ordering::Relaxed) {
                let table = table.clone();
                db.run_blocking(async move |tx| {
                    tx.insert(&table, &number, &[number as u8; 400]).await?;
                    if let Some(old) = number.checked_sub(1000) {
                        tx.delete(&table, &old).await?;
                    }
                    Ok(())
                })
                .unwrap();
                number += 1;
                committed.store(number, Ordering::SeqCst);
            }
        })
    };
    let (mut last, mut beside_commits) = (0, 0);
    // Repeats until several backups were made during writes.
    for round in 0.. {
        if beside_commits == 6 {
            break;
        }
        let copy = copies.path().join(round.to_string());
        let before = committed.load(Ordering::SeqCst);
        let backup = match reads_only {
            true => Database::backup_directory(directory.path(), &copy).unwrap(),
            false => back_up(&db, &copy).unwrap(),
        };
        let after = committed.load(Ordering::SeqCst);
        assert!(backup.bytes > 0);
        let copy = Database::open(&copy, options()).unwrap().watched();
        assert_eq!(once_free(|| copy.check()).unwrap().problems, Vec::<String>::new());
        let table: Table<u64, [u8]> = block_on(copy.open_table("t")).unwrap();
        let keys = copy.run_blocking(async move |tx| {
            let (mut scan, mut keys) = (tx.scan(&table, ..)?, Vec::new());
            while let Some((key, value)) = scan.next().await? {
                assert_eq!(value, [key as u8; 400]);
                keys.push(key);
            }
            Ok(keys)
        });
        let keys = keys.unwrap();
        if let (Some(first), Some(end)) = (keys.first(), keys.last()) {
            assert!(keys.iter().copied().eq(*first..=*end), "a window has no holes");
            assert_eq!(*first, (end + 1).saturating_sub(1000));
            assert!(*end >= last, "backups do not go back");
            last = *end;
            // Some commits before the backup's moment and some while files were copied. One may
            // have been in progress then, and one may have come between the backup and the read of
            // the counter.
            beside_commits += u64::from(before < *end && end + 3 < after);
        }
    }
    assert!(last > 0);
    over.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    assert!(matches!(back_up(&db, &copies.path().join("0")), Err(Error::Directory(_))));
    let used = Database::backup_directory(directory.path(), copies.path().join("0"));
    assert!(matches!(used, Err(Error::Directory(_))));
    let none = Database::backup_directory(copies.path(), copies.path().join("none"));
    assert!(matches!(none, Err(Error::Directory(_))) && !copies.path().join("none").exists());
    let memory = Database::in_memory(Options::default().workers(1)).unwrap().watched();
    assert!(matches!(memory.backup(copies.path().join("m")), Err(Error::Misuse(Misuse::NoLog))));
}

/// The log of a killed process may end within a sector.
#[test]
fn a_backup_of_a_directory_ends_with_the_last_complete_block() {
    with_limit(LIMIT_SECONDS, |_| {
        let (directory, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = directory.path();
        let db = Database::open(path, options()).unwrap().watched();
        let table: Table<u64, [u8]> = create_table(&db, "t", false);
        for key in 0..10 {
            block_on(db.put(&table, &key, &[key as u8; 400])).unwrap();
        }
        db.close().unwrap();
        // Without its padding, the last sector ends with the last commit.
        let reader = Database::open(path, options().read_only(true)).unwrap().watched();
        let (blocks, _) = reader.log_blocks(0, usize::MAX).unwrap();
        let padding = blocks.last().unwrap();
        assert!(padding.kind == "skip" && padding.lsn % 4096 != 0, "{padding:?}");
        reader.close().unwrap();
        let segment = path.join("wal-0000000000000000.seg");
        let file = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
        let garbage = vec![0x55; padding.bytes as usize];
        std::os::unix::fs::FileExt::write_all_at(&file, &garbage, 4096 + padding.lsn).unwrap();
        let copy = copies.path().join("copy");
        let backup = Database::backup_directory(path, &copy).unwrap();
        assert_eq!(backup.lsn, padding.lsn);
        let copied = std::fs::read(copy.join("wal-0000000000000000.seg")).unwrap();
        assert!(copied[(4096 + padding.lsn) as usize..].iter().all(|byte| *byte == 0));
        let copy = Database::open(&copy, options()).unwrap().watched();
        let table: Table<u64, [u8]> = block_on(copy.open_table("t")).unwrap();
        for key in 0..10 {
            let value = block_on(copy.get(&table, &key)).unwrap();
            assert_eq!(value.as_deref(), Some(&[key as u8; 400][..]));
        }
        block_on(copy.put(&table, &11, &[11; 400])).unwrap();
    });
}
