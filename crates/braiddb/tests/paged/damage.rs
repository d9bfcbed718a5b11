//! Damaged pages on disk: reads and checks name the file, the offset and the remedy, also in a
//! read-only database.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::{Watched, once_free, with_limit};
use crate::table_kind::create_table;
use braiddb::{Database, Error, LogError, Options, Table};
use pollster::block_on;

const LIMIT_SECONDS: u64 = 240;
const RECORDS: u64 = 500;

/// Opens the database without automatic checkpoints.
fn open(directory: &Path, read_only: bool) -> Database {
    let options = Options::default().workers(2).read_only(read_only);
    let options =
        options.tune(|tuning| tuning.log_segment_bytes(1 << 20).checkpoint_bytes(1 << 40));
    Database::open(directory, options).unwrap().watched()
}

/// Fills two paged tables, "a" and "c", and one in memory, "b", and writes a checkpoint.
fn fill(directory: &Path) -> Database {
    let db = open(directory, false);
    for (name, paged) in [("a", true), ("b", false), ("c", true)] {
        let table: Table<u64, [u8]> = create_table(&db, name, paged);
        let put = async move |tx: &braiddb::Transaction| {
            for key in 0..RECORDS {
                tx.put(&table, &key, &[key as u8; 30]).await?;
            }
            Ok(())
        };
        db.run_blocking(put).unwrap();
    }
    once_free(|| block_on(db.checkpoint())).unwrap();
    db
}

fn zone(directory: &Path) -> PathBuf {
    directory.join("pages-000000.zone")
}

/// Flips a bit of the first page that is not empty, or of every page. Returns the offset of the
/// first one.
fn damage(directory: &Path, all: bool) -> u64 {
    let file = std::fs::File::options().read(true).write(true).open(zone(directory)).unwrap();
    let mut bytes = std::fs::read(zone(directory)).unwrap();
    let is_used = |page: &usize| bytes[page * 4096..][..4096].iter().any(|byte| *byte != 0);
    let used: Vec<_> = (0..bytes.len() / 4096).filter(is_used).collect();
    for page in &used[..if all { used.len() } else { 1 }] {
        bytes[page * 4096 + 2000] ^= 1;
    }
    file.write_all_at(&bytes, 0).unwrap();
    used[0] as u64 * 4096
}

/// Reads all records of the paged tables.
fn read_all(db: &Database) -> Result<(), Error> {
    for name in ["a", "c"] {
        let table: Table<u64, [u8]> = block_on(db.open_table(name)).unwrap();
        db.run_blocking(async move |tx| {
            let mut scan = tx.scan(&table, ..)?;
            while scan.next().await?.is_some() {}
            Ok(())
        })?;
    }
    Ok(())
}

/// A check reports a damaged page on disk and continues with the rest, also in a read-only
/// database. A read of the page reports the same.
#[test]
fn a_damaged_page_is_reported_with_its_place_and_remedy() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path()).close().unwrap();
        let db = open(directory.path(), true);
        let whole = once_free(|| db.check()).unwrap();
        assert!(whole.problems.is_empty() && whole.pages > 2, "{whole:?}");
        db.close().unwrap();
        let page = damage(directory.path(), false);
        for read_only in [true, false] {
            let db = open(directory.path(), read_only);
            let report = once_free(|| db.check()).unwrap();
            let of_zone = report.problems.iter().filter(|said| said.contains("pages-000000.zone"));
            assert!(of_zone.count() > 0 && report.blocks == whole.blocks, "{report:?}");
            assert!((1..whole.records).contains(&report.records), "{report:?}");
            let error = read_all(&db).expect_err("a leaf is damaged");
            let Error::Corrupt(log) = &error else { panic!("{error:?}") };
            assert!(
                matches!(
                    &**log,
                    LogError::DamagedPage { path, offset, is_in_checkpoint: true, .. }
                        if *path == zone(directory.path()) && *offset == page
                ),
                "{error:?}"
            );
            assert!(error.to_string().ends_with("; restore the database from a backup"), "{error}");
            db.close().unwrap();
        }
    });
}

/// A check reads images that follow each other at once. It reports the damaged one of them.
#[test]
fn a_damaged_page_among_others_is_reported_with_its_place() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let db = open(directory.path(), false);
        let table: Table<u64, [u8]> = create_table(&db, "records", true);
        let put = async move |tx: &braiddb::Transaction| {
            for key in 0..RECORDS * 20 {
                tx.put(&table, &key, &[key as u8; 100]).await?;
            }
            Ok(())
        };
        db.run_blocking(put).unwrap();
        once_free(|| block_on(db.checkpoint())).unwrap();
        db.close().unwrap();
        let zone = zone(directory.path());
        let whole = std::fs::read(&zone).unwrap();
        let db = open(directory.path(), true);
        // The problem of the image that the checkpoint lists.
        let told = || {
            let mut problems = once_free(|| db.check()).unwrap().problems;
            problems.retain(|problem| !problem.starts_with("table "));
            problems
        };
        let used =
            |page: &u64| whole[*page as usize * 4096..][..4096].iter().any(|byte| *byte != 0);
        let pages: Vec<_> = (0..whole.len() as u64 / 4096).filter(used).collect();
        assert!(pages.len() > 200 && told().is_empty(), "{} pages, {:?}", pages.len(), told());
        let file = std::fs::File::options().write(true).open(&zone).unwrap();
        for page in pages.iter().step_by(7).chain(pages.last()) {
            let at = page * 4096 + 2000;
            file.write_all_at(&[!whole[at as usize]], at).unwrap();
            let [problem] = &told()[..] else { panic!("{:?}", told()) };
            let place = format!("{} is damaged at offset {}:", zone.display(), page * 4096);
            assert!(problem.contains(&place), "{place} {problem}");
            file.write_all_at(&whole[at as usize..][..1], at).unwrap();
        }
        assert!(told().is_empty(), "{:?}", told());
        // The file ends within the last page.
        let end = pages.last().unwrap() * 4096;
        file.set_len(end + 100).unwrap();
        let [problem] = &told()[..] else { panic!("{:?}", told()) };
        assert!(problem.contains(&format!("{} at offset {end}", zone.display())), "{problem}");
    });
}

/// A read-only database blames the writer for a damaged page only if the writer has published a
/// checkpoint since. Before that, the writer overwrites no page that the reader uses.
#[test]
fn a_damaged_page_is_outdated_only_after_a_newer_checkpoint() {
    with_limit(LIMIT_SECONDS, |_| {
        let directory = tempfile::tempdir().unwrap();
        let writer = fill(directory.path());
        let idle = open(directory.path(), true);
        damage(directory.path(), true);
        let error = read_all(&idle).expect_err("the pages are damaged");
        assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
        let reader = open(directory.path(), true);
        let table: Table<u64, [u8]> = block_on(writer.open_table("b")).unwrap();
        block_on(writer.put(&table, &RECORDS, &[1])).unwrap();
        once_free(|| block_on(writer.checkpoint())).unwrap();
        let error = read_all(&reader).expect_err("the pages are damaged");
        assert!(matches!(error, Error::Outdated(_)), "{error:?}");
        let error = read_all(&open(directory.path(), true)).expect_err("the pages are damaged");
        assert!(matches!(error, Error::Corrupt(_)), "a caller that retries ends: {error:?}");
    });
}
